// Asks the model: one turn at a time per conversation, any number of conversations at once.
import { type Signal, signal } from "@preact/signals";

import { ApiError, ask, askJson, randomName } from "./api";
import { channel } from "./channel";
import {
  begin,
  type Conversation,
  type Entry,
  type Message,
  type Progress,
  shownTitle,
  type Step,
  update,
  updateMessage,
  type Usage,
} from "./conversations";
import { samplingFields, settings } from "./settings";
import { type Call, offered, run as runTool } from "./tools";

/** The conversations with a running turn, by id. */
export const running = signal<ReadonlyMap<string, Turn>>(new Map());

/** A turn's stage, since when, and its speed (0: not known yet). */
export interface Phase {
  name: "waiting" | "reading" | "writing";
  since: number; // performance.now()
  perSecond: number;
  behind?: number; // while it waits: tokens of other prompts that come before
}

/** Reasons to compute a prompt that need no explanation, or no reason at all. */
const expected = new Set<string | undefined>(["nothing_missed", "first_prompt", undefined]);

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
  content: string;
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
    ...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result ?? "" })),
  ]);
}

/** The request's messages: those with text, adjacent ones of one role joined. */
function history(conversation: Conversation, until: string): SentMessage[] {
  const result: SentMessage[] = [];
  if (conversation.system.trim()) result.push({ role: "system", content: conversation.system });
  for (const message of conversation.messages) {
    if (message.id === until) break;
    result.push(...sentSteps(message.steps ?? []));
    if (!message.text && !message.reasoning) continue;
    const last = result.at(-1);
    if (last?.role === message.role && !last.tool_calls) {
      last.content += `\n\n${message.text}`;
    } else {
      result.push({
        role: message.role,
        content: message.text,
        reasoning_content: message.reasoning || undefined,
      });
    }
  }
  return result;
}

export class Turn {
  readonly phase: Signal<Phase> = signal({ name: "waiting", since: performance.now(), perSecond: 0 });

  private readonly steps: Step[] = [];
  private text = "";
  private reasoning = "";
  private calls: Call[] = [];
  private finish: Message["status"] = "done";
  private usage: Usage | undefined;
  private progress: Progress | undefined;
  private refusal: ApiError | null = null;
  private chat = "";
  private stopped = false;
  private showTimer = 0;
  private tokens = 0; // of this request, so far

  constructor(
    private readonly entry: Entry,
    private readonly answer: string, // the message's id
  ) {}

  stop(): void {
    this.stopped = true;
    if (this.chat) channel.stop(this.chat);
  }

  async run(): Promise<void> {
    do {
      const error = await this.request();
      if (error) return this.show({ status: "failed", error: error.message });
    } while (this.goesOn());
    if (this.steps.length === mostSteps && !this.text && !this.stopped) {
      return this.show({ status: "failed", error: `It called tools ${mostSteps} times and gave no answer.`, usage: this.usage });
    }
    this.show({ status: this.stopped ? "stopped" : this.finish, usage: this.usage });
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
        await wait(1000 * Math.min(Math.max(error.retryAfterSeconds, 1), 5));
      } else {
        return error;
      }
    }
    return null;
  }

  /** Runs the called tools; returns whether to ask the model again with their results. */
  private goesOn(): boolean {
    const calls = this.calls.filter(({ name }) => name);
    if (calls.length === 0 || this.stopped || this.finish !== "done") return false;
    this.steps.push({ text: this.text.trim(), reasoning: this.reasoning || undefined, calls: calls.map(runTool) });
    this.text = "";
    this.reasoning = "";
    this.calls = [];
    this.show({});
    return this.steps.length < mostSteps;
  }

  /** The error of a request without an answer. */
  private async attempt(): Promise<ApiError | null> {
    const conversation = this.entry.peek();
    this.refusal = null;
    this.chat = randomName();
    this.tokens = 0;
    const body = {
      ...samplingFields(),
      messages: [...history(conversation, this.answer), ...sentSteps(this.steps)],
      tools: offered(),
      session_id: conversation.id,
      stream: true,
      stream_options: { include_usage: true },
      return_progress: true,
      cache_report: true,
    };
    try {
      await new Promise<void>((done, failed) => {
        channel
          .start(this.chat, body, {
            chunk: (chunk) => this.take(chunk),
            refused: (error) => (this.refusal = error),
            ended: done,
            lost: () => failed(new ApiError(0, "The connection to the server was lost.")),
          })
          .then(() => this.stopped && channel.stop(this.chat), failed);
      });
    } catch (error) {
      return error instanceof ApiError ? error : new ApiError(0, String(error));
    }
    const refusal = this.refusal as ApiError | null;
    if (refusal && (this.text || this.reasoning)) {
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
    if (choice?.finish_reason === "length") this.finish = "length";
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
    };
  }

  private show(part: Partial<Message>): void {
    clearTimeout(this.showTimer);
    this.showTimer = 0;
    updateMessage(this.entry, this.answer, {
      text: this.text,
      reasoning: this.reasoning || undefined,
      steps: this.steps.length > 0 ? [...this.steps] : undefined,
      // Not stored with the messages.
      progress: this.text || this.reasoning || part.status ? undefined : this.progress,
      ...part,
    });
  }
}

async function answer(entry: Entry, messages: Message[]): Promise<void> {
  const { id } = entry.peek();
  const reply: Message = { id: randomName(), role: "assistant", text: "", status: "running" };
  update(entry, { messages: [...messages, reply] });
  const turn = new Turn(entry, reply.id);
  running.value = new Map(running.peek()).set(id, turn);
  try {
    await turn.run();
  } finally {
    const rest = new Map(running.peek());
    rest.delete(id);
    running.value = rest;
  }
}

export function send(entry: Entry, text: string): void {
  if (!text.trim() || running.peek().has(entry.peek().id)) return;
  const message: Message = { id: randomName(), role: "user", text: text.trim() };
  void answer(entry, [...entry.peek().messages, message]);
}

export function stop(entry: Entry): void {
  running.peek().get(entry.peek().id)?.stop();
}

export function stopAll(): void {
  for (const turn of running.peek().values()) turn.stop();
}

/** Replaces the last answer by another one. */
export function retry(entry: Entry): void {
  if (running.peek().has(entry.peek().id)) return;
  const messages = entry.peek().messages;
  const last = messages.findLastIndex((message) => message.role === "user");
  if (last >= 0) void answer(entry, messages.slice(0, last + 1));
}

/** A new conversation with everything up to this message. A message of the user's is left out and
 *  put into the new conversation's input field, to be rephrased. */
export function fork(entry: Entry, message: Message): Entry {
  const from = entry.peek();
  const at = from.messages.findIndex((other) => other.id === message.id);
  const isUsers = message.role === "user";
  const messages = from.messages
    .slice(0, isUsers ? at : at + 1)
    .map((old) => (old.status === "running" ? { ...old, status: "stopped" as const } : old));
  const made = begin(
    {
      system: from.system,
      messages,
      draft: isUsers ? message.text : "",
      forkedFrom: shownTitle(from),
      forkedAt: messages.length,
    },
    entry,
  );
  shareState(from.id, made.peek().id, messages);
  return made;
}

// Forks the server's session too, if possible: the two share their pages from the beginning. If
// not, the first answer finds them in the prefix cache.
function shareState(from: string, to: string, messages: Message[]): void {
  const usage = messages.at(-1)?.usage;
  if (!usage) return;
  const position = usage.end ?? usage.prompt + usage.completion;
  const body = JSON.stringify({ session_id: to, position });
  ask(`v1/sessions/${from}/fork`, { method: "POST", body }).catch(() => {});
}

/** Starts one new conversation for each text, all at once. */
export function sendSeveral(texts: string[]): Entry[] {
  return texts.map((text) => {
    const entry = begin({ system: settings.peek().system });
    send(entry, text);
    return entry;
  });
}
