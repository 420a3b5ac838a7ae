// Asking the model: one turn of a conversation at a time, any number of conversations
// together.
import { signal } from "@preact/signals";

import { ApiError, ask, askJson, randomName } from "./api";
import { channel } from "./channel";
import {
  begin,
  type Conversation,
  type Entry,
  type Message,
  type Progress,
  titleOf,
  update,
  updateMessage,
  type Usage,
} from "./conversations";
import { samplingFields, settings } from "./settings";

/** The conversations that have a turn, by id. */
export const running = signal<ReadonlyMap<string, Turn>>(new Map());

const showEveryMs = 40;
/** Fewer tokens are read before one could look. */
const fewestTokensToShow = 500;
const busyWaitMs = 250;
const mostBusyWaits = 12;
const mostFullWaits = 120;

function wait(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

/** The request's messages: what has text, two of one side joined. */
function history(conversation: Conversation, until: string): object[] {
  const result: { role: string; content: string; reasoning_content?: string }[] = [];
  if (conversation.system.trim()) result.push({ role: "system", content: conversation.system });
  for (const message of conversation.messages) {
    if (message.id === until) break;
    if (!message.text && !message.reasoning) continue;
    const last = result.at(-1);
    if (last?.role === message.role) {
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
  private text = "";
  private reasoning = "";
  private finish: Message["status"] = "done";
  private usage: Usage | undefined;
  private progress: Progress | undefined;
  private refusal: ApiError | null = null;
  private chat = "";
  private stopped = false;
  private showTimer = 0;

  constructor(
    private readonly entry: Entry,
    private readonly answer: string, // the message's id
  ) {}

  stop(): void {
    this.stopped = true;
    if (this.chat) channel.stop(this.chat);
  }

  async run(): Promise<void> {
    let busyWaits = 0;
    let fullWaits = 0;
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
        this.show({ status: "failed", error: error.message });
        return;
      }
    }
    this.show({ status: this.stopped ? "stopped" : this.finish, usage: this.usage });
  }

  /** One request. The error of one that gave nothing. */
  private async attempt(): Promise<ApiError | null> {
    const conversation = this.entry.peek();
    this.refusal = null;
    this.chat = randomName();
    const body = {
      ...samplingFields(),
      messages: history(conversation, this.answer),
      session_id: conversation.id,
      stream: true,
      stream_options: { include_usage: true },
      return_progress: true,
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

  /** A session whose computation failed is begun anew; the history is sent anyway. */
  private async heal(): Promise<void> {
    const path = `v1/sessions/${this.entry.peek().id}`;
    try {
      const session = await askJson<{ state: string }>(path);
      if (session.state !== "running") await ask(`${path}/reset`, { method: "POST" });
    } catch {
      // The next attempt tells.
    }
  }

  private take(chunk: any): void {
    const progress = chunk.prompt_progress;
    if (progress && progress.total - progress.cache >= fewestTokensToShow) {
      const computed = progress.processed - progress.cache;
      this.progress = {
        done: progress.processed,
        total: progress.total,
        perSecond: progress.time_ms > 0 ? (1000 * computed) / progress.time_ms : 0,
      };
      return this.show({});
    }
    const choice = chunk.choices?.[0];
    const delta = choice?.delta;
    if (delta?.content) this.text += delta.content;
    if (delta?.reasoning_content) this.reasoning += delta.reasoning_content;
    for (const call of delta?.tool_calls ?? []) {
      if (call.function?.name) this.text += `\n\`${call.function.name}\` `;
      this.text += call.function?.arguments ?? "";
    }
    if (choice?.finish_reason === "length") this.finish = "length";
    if (chunk.usage) {
      this.usage = {
        prompt: chunk.usage.prompt_tokens,
        cached: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
        completion: chunk.usage.completion_tokens,
        perSecond: chunk.timings?.predicted_per_second ?? 0,
      };
    }
    this.showTimer ||= setTimeout(() => this.show({}), showEveryMs) as unknown as number;
  }

  private show(part: Partial<Message>): void {
    clearTimeout(this.showTimer);
    this.showTimer = 0;
    updateMessage(this.entry, this.answer, {
      text: this.text,
      reasoning: this.reasoning || undefined,
      // Not kept with what was said.
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

/** Another answer in the place of the last one. */
export function retry(entry: Entry): void {
  if (running.peek().has(entry.peek().id)) return;
  const messages = entry.peek().messages;
  const last = messages.findLastIndex((message) => message.role === "user");
  if (last >= 0) void answer(entry, messages.slice(0, last + 1));
}

/** A new conversation with all that was said up to this message. One that the user said is
 *  left out and put into the new one's composer, to be said differently. */
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
      title: from.title || messages.length ? `${titleOf(from).replace(/ \(fork\)$/, "")} (fork)` : "",
      draft: isUsers ? message.text : "",
      forkedFrom: titleOf(from),
    },
    entry,
  );
  shareState(from.id, made.peek().id, messages);
  return made;
}

// The server's session is forked as well where it can be: the two share their pages from
// the beginning. Where it cannot, the first answer finds them in the prefix cache.
function shareState(from: string, to: string, messages: Message[]): void {
  const usage = messages.at(-1)?.usage;
  if (!usage) return;
  const body = JSON.stringify({ session_id: to, position: usage.prompt + usage.completion });
  ask(`v1/sessions/${from}/fork`, { method: "POST", body }).catch(() => {});
}

/** One new conversation for each text, all begun together. */
export function sendSeveral(texts: string[]): Entry[] {
  return texts.map((text) => {
    const entry = begin({ system: settings.peek().system });
    send(entry, text);
    return entry;
  });
}
