// One turn: the requests for an answer, their pieces, and the message that shows it.
import { type Signal, signal } from "@preact/signals";

import { ApiError, ask, askJson, randomName } from "./api";
import { picturesOf, withAttached } from "./attached";
import { type Channel, channel, channelNamed, type ChatEvents, type Loss } from "./channel";
import { type Conversation, type Entry, type Message, type Progress, type Step, updateMessage, type Usage } from "./conversations";
import { requestFields } from "./settings";
import { type Call, offered, run as runTool } from "./tools";

/** A turn's stage, since when, and its speed (0: not known yet). */
export interface Phase {
  name: "waiting" | "reading" | "writing" | "tools";
  since: number; // performance.now()
  perSecond: number;
  behind?: number; // while it waits: tokens of other prompts that come before
  refused?: boolean; // while it waits: the server had no room, and is asked again
}

/** Reasons to compute a prompt that need no explanation, or no reason at all. */
const expected = new Set<string | undefined>(["nothing_missed", "first_prompt", undefined]);

/** The server's reasons for a cut that is not by max tokens. */
const cuts: Record<string, Message["cut"]> = { model_context_window_exceeded: "context", loop: "loop" };

/** The server has been restarted: it no longer knows the chat. Or another page reads it. */
const [forgotten, taken]: Loss[] = ["forgotten", "taken"];

/** The server's status for an answer of which it keeps not everything. */
const tooLongToKeep = 507;

/** Its names for a conversation that is longer than the context. */
const overflow = new Set(["context_length_exceeded", "exceed_context_size_error"]);

const showEveryMs = 40;
/** Shorter prompts are done before anyone could look. */
const fewestTokensToShow = 500;
const measureEveryMs = 400;
const busyWaitMs = 250;
const mostBusyWaits = 12;
const mostFullWaits = 120;
/** Limits models that keep calling tools. */
const mostSteps = 8;

function wait(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

interface SentMessage {
  role: string;
  content: string | object[]; // parts, if there are pictures
  reasoning_content?: string;
  tool_calls?: object[];
  tool_call_id?: string;
}

function sentSteps(steps: readonly Step[]): SentMessage[] {
  return steps.flatMap(({ text, reasoning, calls }) => [
    {
      role: "assistant",
      content: text,
      reasoning_content: reasoning || undefined,
      tool_calls: calls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
      })),
    },
    ...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result ?? "It was not run." })),
  ]);
}

function textPart(text: string): object[] {
  return text ? [{ type: "text", text }] : [];
}

/** A message's content with another's after it. */
function joined(content: string | object[], text: string, pictures: object[]): string | object[] {
  if (typeof content === "string" && pictures.length === 0) return `${content}\n\n${text}`;
  const parts = typeof content === "string" ? textPart(`${content}\n\n`) : [...content, ...textPart("\n\n")];
  return [...parts, ...pictures, ...textPart(text)];
}

/** The request's messages: those with text, adjacent ones of one role joined. */
function history(conversation: Conversation, until: string): SentMessage[] {
  const result: SentMessage[] = [];
  if (conversation.system.trim()) result.push({ role: "system", content: conversation.system });
  for (const message of conversation.messages.slice(conversation.sentFrom ?? 0)) {
    if (message.id === until) break;
    result.push(...sentSteps(message.steps ?? []));
    const content = withAttached(message.text, message.files);
    const pictures = picturesOf(message.files);
    if (!content && !message.reasoning && pictures.length === 0) continue;
    const last = result.at(-1);
    if (last?.role === message.role && !last.tool_calls) {
      last.content = joined(last.content, content, pictures);
    } else {
      result.push({
        role: message.role,
        content: pictures.length > 0 ? [...pictures, ...textPart(content)] : content,
        reasoning_content: message.reasoning || undefined,
      });
    }
  }
  return result;
}

/** Answers whose connection was lost, by message. */
export const lost = new Map<string, Entry>();

export class Turn {
  readonly phase: Signal<Phase> = signal({ name: "waiting", since: performance.now(), perSecond: 0 });

  private readonly steps: Step[] = [];
  private text = "";
  private reasoning = "";
  private calls: Call[] = [];
  private finish: Message["status"] = "done";
  private cut: Message["cut"];
  private begun: SentMessage[] = []; // the answer to continue
  private usage: Usage | undefined;
  private progress: Progress | undefined;
  private refusal: ApiError | null = null;
  private channel: Channel = channel;
  private chat = "";
  private place: Message["chat"];
  private isResumed = false; // the next request was begun by a former page
  private heard: { text: string; reasoning: string } | undefined; // before all of it was told again
  private stopped = false;
  private readonly leave = new AbortController(); // stops its tools when the turn is stopped
  private showTimer = 0;
  private tokens = 0; // written in this request so far

  /** `former`: the answer so far, if it is continued: by another request, or, if it has the place of
   *  its chat, by hearing that again. */
  constructor(
    private readonly entry: Entry,
    private readonly answer: string, // the message's id
    former?: Message,
  ) {
    if (!former) return;
    this.steps = [...(former.steps ?? [])];
    this.text = former.text;
    this.reasoning = former.reasoning ?? "";
    this.place = former.chat;
    this.isResumed = former.chat !== undefined;
    const { text = this.text.length, reasoning = this.reasoning.length } = former.chat ?? {};
    this.beginWith(this.text.slice(0, text), this.reasoning.slice(0, reasoning));
  }

  /** The next request continues this, if there is any. */
  private beginWith(text: string, reasoning: string): void {
    const message = { role: "assistant", content: text, reasoning_content: reasoning || undefined };
    this.begun = text || reasoning ? [message] : [];
  }

  stop(): void {
    this.stopped = true;
    this.leave.abort();
    if (this.chat) this.channel.stop(this.chat);
  }

  async run(): Promise<void> {
    do {
      const error = await this.request();
      if (error) return this.fail(error);
    } while (await this.goesOn());
    this.place = undefined;
    if (this.steps.length === mostSteps && !this.text && !this.stopped) {
      return this.show({ status: "failed", error: `It called tools ${mostSteps} times and gave no answer.`, usage: this.usage });
    }
    this.show({ status: this.stopped ? "stopped" : this.finish, cut: this.cut, usage: this.usage });
  }

  private fail({ status, message, kind }: ApiError): void {
    if (kind === taken) return this.show({});
    if (status === 0) lost.set(this.answer, this.entry);
    else this.place = undefined;
    this.show({ status: "failed", error: message, overflows: overflow.has(kind) || undefined });
  }

  /** One request, retried while the server is busy. */
  private async request(): Promise<ApiError | null> {
    let busyWaits = 0;
    let fullWaits = 0;
    this.enter("waiting");
    while (!this.stopped) {
      const error = await this.attempt();
      if (!error) break;
      if (error.status === 409 && busyWaits++ < mostBusyWaits) {
        // The turn that was just stopped ends with the engine's next step.
        if (busyWaits === mostBusyWaits) await this.heal();
        await wait(busyWaitMs);
      } else if ((error.status === 429 || error.status === 503) && fullWaits++ < mostFullWaits) {
        this.phase.value = { ...this.phase.peek(), refused: true };
        await wait(1000 * Math.min(Math.max(error.retryAfterSeconds, 1), 5));
      } else {
        return error;
      }
    }
    return null;
  }

  /** Runs the called tools; returns whether to ask the model again with their results. */
  private async goesOn(): Promise<boolean> {
    const calls = this.calls.filter(({ name }) => name).map((call) => ({ ...call, id: call.id || randomName() }));
    if (calls.length === 0 || this.stopped || this.finish !== "done") return false;
    const said = { text: this.text.trim(), reasoning: this.reasoning || undefined };
    const at = this.steps.length;
    this.steps.push({ ...said, calls });
    this.text = "";
    this.reasoning = "";
    this.calls = [];
    this.begun = [];
    this.place = undefined;
    this.enter("tools");
    this.show({});
    for (const [i, call] of calls.entries()) {
      const done = await runTool(call, this.leave.signal);
      this.steps[at] = { ...said, calls: this.steps[at].calls.with(i, done) };
      this.show({});
    }
    return !this.stopped && this.steps.length < mostSteps;
  }

  private events(done: () => void, failed: (error: ApiError) => void): ChatEvents {
    return {
      chunk: (chunk) => this.take(chunk),
      refused: (error) => this.refuse(error),
      restart: () => this.restart(),
      ended: done,
      lost: (why) => failed(new ApiError(0, "The connection to the server was lost.", 0, why)),
    };
  }

  private refuse(error: ApiError): void {
    this.refusal = error;
    if (error.status !== tooLongToKeep || !this.heard) return;
    ({ text: this.text, reasoning: this.reasoning } = this.heard);
    this.channel.stop(this.chat);
  }

  /** What this request brought comes again. */
  private restart(): void {
    const { text, reasoning } = this.place!;
    this.heard = { text: this.text, reasoning: this.reasoning };
    this.text = this.text.slice(0, text);
    this.reasoning = this.reasoning.slice(0, reasoning);
    this.calls = [];
    this.tokens = 0;
    this.refusal = null;
    this.enter("waiting");
  }

  private body(): object {
    const conversation = this.entry.peek();
    return {
      ...requestFields(),
      messages: [...history(conversation, this.answer), ...sentSteps(this.steps), ...this.begun],
      tools: offered(),
      session_id: conversation.id,
      stream: true,
      stream_options: { include_usage: true },
      return_progress: true,
      cache_report: true,
    };
  }

  /** The error of a request without an answer. */
  private async attempt(): Promise<ApiError | null> {
    this.refusal = null;
    this.tokens = 0;
    const isResumed = this.isResumed && this.place !== undefined;
    this.isResumed = false;
    if (isResumed) {
      this.channel = channelNamed(this.place!.channel);
    } else {
      this.channel = channel;
      this.place = { channel: channel.name, name: randomName(), text: this.text.length, reasoning: this.reasoning.length };
    }
    this.chat = this.place!.name;
    this.show({});
    try {
      await new Promise<void>((done, failed) => {
        const events = this.events(done, failed);
        const begun = isResumed ? this.channel.resume(this.chat, events) : this.channel.start(this.chat, this.body(), events);
        begun.then(() => this.stopped && this.channel.stop(this.chat), failed);
      });
    } catch (error) {
      if (error instanceof ApiError && error.kind === forgotten && !this.stopped) {
        this.beginWith(this.text, this.reasoning);
        return this.attempt();
      }
      return error instanceof ApiError ? error : new ApiError(0, String(error));
    }
    const refusal = this.refusal as ApiError | null;
    if (refusal && this.tokens > 0) {
      this.finish = "failed";
      this.show({ error: refusal.message });
      return null;
    }
    return refusal;
  }

  /** Resets a session whose computation failed; the history is sent anyway. */
  private async heal(): Promise<void> {
    const path = `v1/sessions/${this.entry.peek().id}`;
    try {
      const session = await askJson<{ state: string }>(path);
      if (session.state !== "running") await ask(`${path}/reset`, { method: "POST" });
    } catch {
      // The next attempt will report the problem.
    }
  }

  private enter(name: Phase["name"]): void {
    if (this.phase.peek().name !== name || name === "waiting") {
      this.phase.value = { name, since: performance.now(), perSecond: 0 };
    }
  }

  private waitBehind(behind: number): void {
    const { name, since } = this.phase.peek();
    const begun = name === "waiting" ? since : performance.now();
    this.phase.value = { name: "waiting", since: begun, perSecond: 0, behind };
  }

  // Each chunk with content is one token, rarely a few; the server's own count comes last.
  private measure(): void {
    this.enter("writing");
    const phase = this.phase.peek();
    const now = performance.now();
    const ms = now - phase.since;
    ++this.tokens;
    if (ms < measureEveryMs) return;
    const perSecond = (1000 * (this.tokens - 1)) / ms;
    if (phase.perSecond === 0 || this.tokens % 8 === 0) this.phase.value = { ...phase, perSecond };
  }

  private take(chunk: any): void {
    const progress = chunk.prompt_progress;
    if (progress) {
      const behind: number = progress.waits_behind_tokens ?? 0;
      if (behind > 0) this.waitBehind(behind);
      else this.enter("reading");
      if (behind > 0 || progress.total - progress.cache >= fewestTokensToShow) {
        const computed = progress.processed - progress.cache;
        this.progress = {
          done: progress.processed,
          total: progress.total,
          perSecond: progress.time_ms > 0 ? (1000 * computed) / progress.time_ms : 0,
          behind,
        };
        return this.show({});
      }
    }
    const choice = chunk.choices?.[0];
    const delta = choice?.delta;
    if (delta?.content) this.text += delta.content;
    if (delta?.reasoning_content) this.reasoning += delta.reasoning_content;
    for (const piece of delta?.tool_calls ?? []) {
      const call = (this.calls[piece.index ?? 0] ??= { id: "", name: "", arguments: "" });
      call.id ||= piece.id ?? "";
      call.name += piece.function?.name ?? "";
      call.arguments += piece.function?.arguments ?? "";
    }
    if (delta?.content || delta?.reasoning_content || delta?.tool_calls) this.measure();
    if (choice?.finish_reason === "length") {
      this.finish = "length";
      this.cut = cuts[choice.stop_reason];
    }
    if (chunk.usage) this.account(chunk);
    this.showTimer ||= setTimeout(() => this.show({}), showEveryMs) as unknown as number;
  }

  private account({ usage, timings }: any): void {
    const former = this.usage;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    this.usage = {
      prompt: usage.prompt_tokens,
      cached,
      completion: (former?.completion ?? 0) + usage.completion_tokens,
      perSecond: timings?.predicted_per_second || (former?.perSecond ?? 0),
      waitedMs: (former?.waitedMs ?? 0) + (timings?.queued_ms ?? 0),
      readMs: (former?.readMs ?? 0) + (timings?.prompt_ms ?? 0),
      read: (former?.read ?? 0) + usage.prompt_tokens - cached,
      end: usage.prompt_tokens + usage.completion_tokens,
      why: expected.has(usage.cache_report?.reason) ? former?.why : usage.cache_report.sentence,
      found: usage.cache_report?.sentence ?? former?.found,
    };
  }

  private show(part: Partial<Message>): void {
    clearTimeout(this.showTimer);
    this.showTimer = 0;
    updateMessage(this.entry, this.answer, {
      text: this.text,
      reasoning: this.reasoning || undefined,
      steps: this.steps.length > 0 ? [...this.steps] : undefined,
      chat: this.place,
      // Not stored with the messages.
      progress: this.text || this.reasoning || part.status ? undefined : this.progress,
      ...part,
    });
  }
}
