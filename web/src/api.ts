// Requests to the server that this page came from. Each carries the API key that the user entered,
// if any.
import { settings } from "./settings";

export class ApiError extends Error {
  constructor(
    readonly status: number, // 0: no answer
    message: string,
    readonly retryAfterSeconds = 0,
    readonly kind = "", // the server's name for the error, if it has one
    readonly loadedPercent?: number, // while the model is loading
  ) {
    super(message);
  }
}

export function address(path: string): string {
  return new URL(path, document.baseURI).href;
}

/** The error message in a response body, in the form of any of the server's APIs. */
export function messageOf(body: unknown, status: number): string {
  const error = (body as { error?: { message?: unknown } } | null)?.error;
  return typeof error?.message === "string" ? error.message : `The server answered ${status}.`;
}

/** The error that a response's body tells. */
export function errorOf(status: number, body: unknown, retryAfterSeconds: number): ApiError {
  const error = (body as { error?: { code?: unknown; type?: unknown; loaded_percent?: number } } | null)?.error;
  const kind = [error?.code, error?.type].find((name) => typeof name === "string");
  return new ApiError(status, messageOf(body, status), retryAfterSeconds, kind as string | undefined, error?.loaded_percent);
}

async function failure(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const wait = Number(response.headers.get("Retry-After") ?? 0);
  return errorOf(response.status, body, wait);
}

export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = settings.value.apiKey.trim();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  if (init.body) headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(address(path), { ...init, headers, cache: "no-store" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function askJson<T>(path: string, init: RequestInit = {}): Promise<T> {
  return (await ask(path, init)).json() as Promise<T>;
}

/** Unique letters and digits. */
export function randomName(length = 12): string {
  const letters = "0123456789abcdefghijklmnopqrstuvwxyz";
  const bytes = crypto.getRandomValues(new Uint8Array(length));
  return Array.from(bytes, (byte) => letters[byte % letters.length]).join("");
}

export interface ServerEvent {
  name: string;
  data: string;
}

/** The server-sent events of a response, as they arrive. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    buffered += value;
    let end: number;
    let start = 0;
    while ((end = buffered.indexOf("\n\n", start)) >= 0) {
      const event: ServerEvent = { name: "", data: "" };
      for (const line of buffered.slice(start, end).split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      start = end + 2;
      if (event.data) yield event;
    }
    buffered = buffered.slice(start);
  }
}
