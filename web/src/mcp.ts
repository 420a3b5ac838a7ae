// Tools of MCP servers. The page may ask only those that the operator named with --page-mcp: the
// content policy allows no other. Each call is asked for first.
import { effect, signal } from "@preact/signals";

import { askJson } from "./api";
import type { Connection, RemoteTool } from "./mcp_client";
import { settings } from "./settings";

export interface Server {
  url: string;
  state: "off" | "connecting" | "ready" | "failed";
  trouble?: string;
  connection?: Connection;
}

/** Those that the page may ask. */
export const servers = signal<readonly Server[]>([]);

/** Calls that wait for the user's word, by their ids. */
export const asked = signal<ReadonlyMap<string, (isAllowed: boolean) => void>>(new Map());

const longestResult = 100_000; // characters

function set(url: string, part: Partial<Server>): void {
  servers.value = servers.peek().map((server) => (server.url === url ? { ...server, ...part } : server));
}

async function connect(url: string): Promise<void> {
  set(url, { state: "connecting", trouble: undefined });
  try {
    const { connect: open } = await import("./mcp_client");
    set(url, { state: "ready", connection: await open(url) });
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    set(url, { state: "failed", trouble: `It cannot be asked: ${said}. It must run, and allow this page's origin (CORS).` });
  }
}

export async function loadServers(): Promise<void> {
  const { servers: urls } = await askJson<{ servers: string[] }>("v1/page/mcp");
  const known = new Map(servers.peek().map((server) => [server.url, server]));
  servers.value = urls.map((url) => known.get(url) ?? { url, state: "off" });
}

effect(() => {
  const on = settings.value.mcp;
  for (const { url, state } of servers.value) {
    if (on.includes(url) && state === "off") void connect(url);
    else if (!on.includes(url) && state !== "off" && state !== "connecting") set(url, { state: "off", connection: undefined });
  }
});

export function tryAgain(url: string): void {
  void connect(url);
}

interface Found {
  server: Server;
  tool: RemoteTool;
}

/** By the names under which they are offered: where two servers have one of the same name, the first
 *  has it. */
export function remoteTools(): ReadonlyMap<string, Found> {
  const found = new Map<string, Found>();
  for (const server of servers.value) {
    for (const tool of server.connection?.tools ?? []) {
      if (!found.has(tool.name)) found.set(tool.name, { server, tool });
    }
  }
  return found;
}

/** The user's word on a call. */
function permission(id: string, signal: AbortSignal): Promise<boolean> {
  return new Promise((done) => {
    const end = (isAllowed: boolean) => {
      const rest = new Map(asked.peek());
      rest.delete(id);
      asked.value = rest;
      done(isAllowed);
    };
    if (signal.aborted) return done(false);
    signal.addEventListener("abort", () => end(false), { once: true });
    asked.value = new Map(asked.peek()).set(id, end);
  });
}

/** The result's text. Throws an Error with a sentence for the model. */
export async function callRemote({ server, tool }: Found, id: string, values: Record<string, unknown>, signal: AbortSignal): Promise<string> {
  if (!(await permission(id, signal))) throw new Error("The user did not allow this call.");
  const { text, isError } = await server.connection!.call(tool.name, values, signal);
  const shown = text.length > longestResult ? `${text.slice(0, longestResult)} [cut: ${text.length} characters]` : text;
  if (isError) throw new Error(shown || "The tool failed.");
  return shown;
}
