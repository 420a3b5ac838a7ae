// Exports conversations as files: complete as JSON, readable as Markdown.
import { type Conversation, titleOf } from "./conversations";

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
        reasoning_content: message.reasoning,
        steps: message.steps,
        status: message.status,
        usage: message.usage,
      })),
    ],
  }));
  return `${JSON.stringify({ conversations: rows }, null, 2)}\n`;
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
      if (!message.text) continue; // an answer that failed or was stopped before its first word
      parts.push(`**${message.role === "user" ? "You" : "Model"}**\n\n${message.text}`);
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
