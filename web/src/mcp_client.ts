// A connection to an MCP server over streamable HTTP, by the official SDK. A file of its own, loaded
// only when a server's tools are switched on.
import "./no_eval";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

export interface RemoteTool {
  name: string;
  description: string;
  parameters: object; // a JSON Schema
}

export interface RemoteResult {
  text: string;
  isError: boolean;
}

export interface Connection {
  tools: RemoteTool[];
  call(name: string, values: Record<string, unknown>, signal: AbortSignal): Promise<RemoteResult>;
}

const mostTools = 200;

function textOf(part: { type: string; text?: string; resource?: { text?: string; uri?: string }; uri?: string }): string {
  if (part.type === "text") return part.text ?? "";
  if (part.type === "resource") return part.resource?.text ?? `[${part.resource?.uri}]`;
  if (part.type === "resource_link") return `[${part.uri}]`;
  return `[${part.type} left out: the model reads text]`;
}

export async function connect(url: string): Promise<Connection> {
  const client = new Client({ name: "weft-page", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const tools: RemoteTool[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.listTools({ cursor });
    for (const { name, description = "", inputSchema } of page.tools) tools.push({ name, description, parameters: inputSchema });
    cursor = page.nextCursor;
  } while (cursor && tools.length < mostTools);
  return {
    tools,
    async call(name, values, signal) {
      const result = await client.callTool({ name, arguments: values }, undefined, { signal });
      const content = (result.content ?? []) as Parameters<typeof textOf>[0][];
      return { text: content.map(textOf).join("\n"), isError: result.isError === true };
    },
  };
}
