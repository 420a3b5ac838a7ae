// Exports conversations as files: complete as JSON, readable as Markdown. Imports the former.
import { randomName } from "./api";
import { type Attached, withAttached } from "./attached";
import { begin, type Conversation, type Entry, type Message, titleOf } from "./conversations";

function download(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function fileName(conversations: Conversation[]): string {
  const only = conversations.length === 1 ? titleOf(conversations[0]) : "";
  const words = only.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  return `weft-${words || new Date().toISOString().slice(0, 10)}`;
}

export function toJson(conversations: Conversation[]): string {
  const rows = conversations.map((conversation) => ({
    title: titleOf(conversation),
    session_id: conversation.id,
    forked_from: conversation.forkedFrom,
    messages: [
      ...(conversation.system ? [{ role: "system", content: conversation.system }] : []),
      ...conversation.messages.map((message) => ({
        role: message.role,
        content: message.text,
        files: message.files,
        reasoning_content: message.reasoning,
        steps: message.steps,
        status: message.status,
        usage: message.usage,
      })),
    ],
  }));
  return `${JSON.stringify({ conversations: rows }, null, 2)}\n`;
}

function shown({ text, files = [] }: Message): string {
  const pictures = files.filter(({ picture }) => picture).map(({ name }) => `*Picture: ${name}*`);
  return [...pictures, withAttached(text, files)].filter(Boolean).join("\n\n");
}

export function toMarkdown(conversations: Conversation[]): string {
  const parts: string[] = [];
  for (const conversation of conversations) {
    parts.push(`# ${titleOf(conversation)}`);
    if (conversation.forkedFrom) parts.push(`*Forked from “${conversation.forkedFrom}”.*`);
    if (conversation.system) parts.push(`**System**\n\n${conversation.system}`);
    for (const message of conversation.messages) {
      for (const { text, calls } of message.steps ?? []) {
        if (text) parts.push(`**Model**\n\n${text}`);
        for (const call of calls) parts.push(`**Tool** \`${call.name}\` ${call.arguments}\n\n${call.result}`);
      }
      if (!message.text && !message.files) continue; // an answer that failed or was stopped before its first word
      parts.push(`**${message.role === "user" ? "You" : "Model"}**\n\n${shown(message)}`);
    }
  }
  return `${parts.join("\n\n")}\n`;
}

export function exportJson(conversations: Conversation[]): void {
  download(`${fileName(conversations)}.json`, "application/json", toJson(conversations));
}

export function exportMarkdown(conversations: Conversation[]): void {
  download(`${fileName(conversations)}.md`, "text/markdown", toMarkdown(conversations));
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function filesOf(value: unknown): Attached[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.map((file) => {
    const picture = text(file?.picture);
    const attached = { name: text(file?.name), text: text(file?.text) };
    return picture.startsWith("data:image/") ? { ...attached, picture } : attached;
  });
}

// Only what was said: steps and usage belong to the server where they were made.
function messageOf(row: any): Message | null {
  if (row?.role !== "user" && row?.role !== "assistant") return null;
  const message: Message = { id: randomName(), role: row.role, text: text(row.content) };
  if (row.role === "user") return { ...message, files: filesOf(row.files) };
  return { ...message, reasoning: text(row.reasoning_content) || undefined, status: "done" };
}

/** The conversations of a file that was exported as JSON, on the board. Throws an Error with a
 *  sentence. */
export function importJson(source: string): Entry[] {
  let rows: any[];
  try {
    rows = JSON.parse(source).conversations;
  } catch {
    rows = [];
  }
  if (!Array.isArray(rows) || rows.length === 0) throw new Error("That file has no conversations. Choose one that was exported as JSON.");
  return rows.map((row) => {
    const all: any[] = Array.isArray(row?.messages) ? row.messages : [];
    const system = text(all.find(({ role }) => role === "system")?.content);
    const messages = all.map(messageOf).filter((message) => message !== null);
    return begin({ title: text(row?.title), system, messages });
  });
}
