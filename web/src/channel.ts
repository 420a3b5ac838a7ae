// All answers arrive over one connection: a browser opens about six connections to a server, and
// there are more conversations than that. See "Channels" in docs/api.md.
import { ApiError, ask, eventsOf, randomName } from "./api";

/** A chat's callbacks, in order; `ended` comes last, exactly once. */
export interface ChatEvents {
  chunk(chunk: any): void;
  refused(error: ApiError): void;
  ended(): void;
  lost(): void; // instead of `ended`: the connection broke
}

const idleMs = 30_000;

class Channel {
  private readonly path = `v1/channels/page-${randomName()}`;
  private readonly chats = new Map<string, ChatEvents>();
  private opening: Promise<void> | null = null;
  private abort: AbortController | null = null;
  private idleTimer = 0;

  /** Starts a chat. Rejects if the server refuses it. */
  async start(name: string, body: object, events: ChatEvents): Promise<void> {
    clearTimeout(this.idleTimer);
    this.chats.set(name, events);
    try {
      await (this.opening ??= this.open());
      const init = { method: "POST", body: JSON.stringify(body) };
      await ask(`${this.path}/chats/${name}`, init);
    } catch (error) {
      this.forget(name);
      throw error;
    }
  }

  /** Stops a chat; `ended` is called when its turn is over. */
  stop(name: string): void {
    ask(`${this.path}/chats/${name}`, { method: "DELETE" }).catch(() => {});
  }

  private async open(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    try {
      const response = await ask(this.path, { signal: abort.signal });
      void this.read(response, abort);
    } catch (error) {
      this.opening = null;
      throw error;
    }
  }

  private async read(response: Response, abort: AbortController): Promise<void> {
    try {
      for await (const event of eventsOf(response)) this.tell(event.name, JSON.parse(event.data === "[DONE]" ? "null" : event.data));
    } catch {
      // Reported below.
    }
    if (this.abort !== abort) return;
    this.opening = null;
    const lost = [...this.chats.values()];
    this.chats.clear();
    for (const events of lost) events.lost();
  }

  private tell(name: string, data: any): void {
    const events = this.chats.get(name);
    if (!events || data === null) return;
    if (data.ended) {
      this.forget(name);
      events.ended();
    } else if (typeof data.status === "number") {
      const message = data.body?.error?.message ?? `The server answered ${data.status}.`;
      events.refused(new ApiError(data.status, message, data.retry_after ?? 0));
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

export const channel = new Channel();
