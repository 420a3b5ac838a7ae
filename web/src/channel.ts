// All answers arrive over one connection: a browser opens about six connections to a server, and
// there are more conversations than that. The server keeps the chats of a channel: after a reload
// or a lost connection they are told again from their beginning. See "Channels" in docs/api.md.
import { ApiError, ask, errorOf, eventsOf, randomName } from "./api";

/** The server is gone; it is there and knows the chat no longer; another page reads the chat. */
export type Loss = "gone" | "forgotten" | "taken";

/** A chat's callbacks, in order; `ended` comes last, exactly once. */
export interface ChatEvents {
  chunk(chunk: any): void;
  refused(error: ApiError): void;
  restart(): void; // all of it is told again
  ended(): void;
  lost(why: Loss): void; // instead of `ended`
}

interface Chat {
  events: ChatEvents;
  isBegun: boolean; // the server knows it
}

const idleMs = 30_000;
const tryAgainMs = 1000;

export class Channel {
  private readonly path: string;
  private readonly chats = new Map<string, Chat>();
  private opening: Promise<void> | null = null;
  private abort: AbortController | null = null;
  private reopening: Promise<void> | null = null;
  private idleTimer = 0;

  constructor(readonly name: string) {
    this.path = `v1/channels/${name}`;
  }

  /** Starts a chat. Rejects if the server refuses it. */
  async start(name: string, body: object, events: ChatEvents): Promise<void> {
    clearTimeout(this.idleTimer);
    const chat: Chat = { events, isBegun: false };
    this.chats.set(name, chat);
    try {
      await (this.opening ??= this.open());
      const init = { method: "POST", body: JSON.stringify(body) };
      await ask(`${this.path}/chats/${name}`, init);
      chat.isBegun = true;
    } catch (error) {
      this.forget(name);
      throw error;
    }
  }

  /** Listens to a chat that was begun before. Rejects if the server does not answer. */
  async resume(name: string, events: ChatEvents): Promise<void> {
    clearTimeout(this.idleTimer);
    this.chats.set(name, { events, isBegun: true });
    try {
      await (this.reopening ??= this.reopen());
    } catch (error) {
      this.forget(name);
      throw error;
    }
  }

  /** Whether no page reads it. */
  async isFree(): Promise<boolean> {
    const abort = new AbortController();
    try {
      await ask(`${this.path}?keep=1&free=1`, { signal: abort.signal });
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) return false;
      throw error;
    } finally {
      abort.abort();
    }
  }

  /** Stops a chat; `ended` is called when its turn is over. */
  stop(name: string): void {
    ask(`${this.path}/chats/${name}`, { method: "DELETE" }).catch(() => {});
  }

  // Even if the channel is open: to hear the chat from its beginning. Once for all that are resumed
  // together.
  private async reopen(): Promise<void> {
    await Promise.resolve();
    this.reopening = null;
    this.abort?.abort();
    await (this.opening = this.open());
  }

  private async open(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    try {
      const response = await ask(`${this.path}?keep=1`, { signal: abort.signal });
      void this.read(response, abort);
    } catch (error) {
      this.opening = null;
      throw error;
    }
  }

  private async read(response: Response, abort: AbortController): Promise<void> {
    try {
      for await (const { name, data } of eventsOf(response)) {
        if (this.abort !== abort) return;
        if (name) this.tell(name, JSON.parse(data === "[DONE]" ? "null" : data));
        else if (JSON.parse(data).taken) return this.leave();
        else this.takeList(JSON.parse(data).chats ?? []);
      }
    } catch {
      // Opened again below.
    }
    if (this.abort === abort) await this.openAgain();
  }

  /** Another page reads all of it now. */
  private leave(): void {
    this.abort = null;
    this.opening = null;
    this.lose([...this.chats.keys()], "taken");
  }

  private async openAgain(): Promise<void> {
    this.opening = null;
    if (this.chats.size === 0) return;
    try {
      await (this.opening = this.open());
    } catch {
      await new Promise((done) => setTimeout(done, tryAgainMs));
      this.opening ??= this.open();
      await this.opening.catch(() => this.lose([...this.chats.keys()], "gone"));
    }
  }

  /** The chats that the server knows, just after the channel was opened; what they said follows. */
  private takeList(known: string[]): void {
    const begun = [...this.chats].filter(([, { isBegun }]) => isBegun);
    this.lose(begun.map(([name]) => name).filter((name) => !known.includes(name)), "forgotten");
    for (const name of known) this.chats.get(name)?.events.restart();
  }

  private lose(names: string[], why: Loss): void {
    for (const name of names) {
      const chat = this.chats.get(name);
      this.forget(name);
      chat?.events.lost(why);
    }
  }

  private tell(name: string, data: any): void {
    const events = this.chats.get(name)?.events;
    if (!events || data === null) return;
    if (data.ended) {
      this.forget(name);
      this.stop(name); // says that it has arrived
      events.ended();
    } else if (typeof data.status === "number") {
      events.refused(errorOf(data.status, data.body, data.retry_after ?? 0));
    } else if (data.error) {
      events.refused(new ApiError(data.error.code ?? 500, data.error.message ?? "The server failed."));
    } else {
      events.chunk(data);
    }
  }

  // The server keeps few channels open, so an unused one is released.
  private forget(name: string): void {
    this.chats.delete(name);
    if (this.chats.size > 0) return;
    clearTimeout(this.idleTimer);
    this.idleTimer = setTimeout(() => {
      if (this.chats.size > 0) return;
      this.abort?.abort();
      this.abort = null;
      this.opening = null;
    }, idleMs) as unknown as number;
  }
}

/** This page's. */
export const channel = new Channel(`page-${randomName()}`);
const others = new Map<string, Channel>();

/** Also a former page's. */
export function channelNamed(name: string): Channel {
  if (name === channel.name) return channel;
  const known = others.get(name) ?? new Channel(name);
  others.set(name, known);
  return known;
}

// --- whose channel it is ------------------------------------------------------------

// A channel has one reader. After a reload the page reads its former channel, unless the page of
// another tab does.
const tabs = new BroadcastChannel("weft.channels");
const answerMs = 250;

tabs.onmessage = ({ data }) => {
  if (data.whose && (data.whose === channel.name || others.has(data.whose))) tabs.postMessage({ mine: data.whose });
};

/** Whether another tab reads the channel. */
export function isAnothers(name: string): Promise<boolean> {
  return new Promise((done) => {
    const asking = new BroadcastChannel("weft.channels");
    const end = (answer: boolean) => {
      asking.close();
      done(answer);
    };
    asking.onmessage = ({ data }) => data.mine === name && end(true);
    setTimeout(end, answerMs, false);
    asking.postMessage({ whose: name });
  });
}
