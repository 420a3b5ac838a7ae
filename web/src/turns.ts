// Asks the model: one turn at a time per conversation, any number of conversations at once.
import { signal } from "@preact/signals";

import { ask, randomName } from "./api";
import type { Attached } from "./attached";
import { channelNamed, isAnothers } from "./channel";
import { begin, type Conversation, entries, type Entry, type Message, shownTitle, update, updateMessage, withVersion } from "./conversations";
import { settings } from "./settings";
import { lost, Turn } from "./turn";

/** The conversations with a running turn, by id. */
export const running = signal<ReadonlyMap<string, Turn>>(new Map());

async function run(entry: Entry, turn: Turn): Promise<void> {
  const { id } = entry.peek();
  running.value = new Map(running.peek()).set(id, turn);
  try {
    await turn.run();
  } finally {
    const rest = new Map(running.peek());
    rest.delete(id);
    running.value = rest;
  }
}

/** Whether its answer is being written, and another page reads it. */
export function isFollowed({ id, messages }: Conversation): boolean {
  const last = messages.at(-1);
  return last?.status === "running" && last.chat !== undefined && !running.value.has(id);
}

function isBusy(entry: Entry): boolean {
  return running.peek().has(entry.peek().id) || isFollowed(entry.peek());
}

function newAnswer(): Message {
  return { id: randomName(), role: "assistant", text: "", status: "running" };
}

/** `messages` end with the answer to come. */
function answer(entry: Entry, messages: Message[]): void {
  update(entry, { messages });
  void run(entry, new Turn(entry, messages[messages.length - 1].id));
}

export function send(entry: Entry, text: string, files: readonly Attached[] = []): void {
  if ((!text.trim() && files.length === 0) || isBusy(entry)) return;
  const message: Message = { id: randomName(), role: "user", text: text.trim() };
  if (files.length > 0) message.files = [...files];
  answer(entry, [...entry.peek().messages, message, newAnswer()]);
}

/** Says a message of the user's differently; what came of the former one stays as a version. */
export function edit(entry: Entry, { id, files }: Message, text: string): void {
  const { messages } = entry.peek();
  const at = messages.findIndex((message) => message.id === id);
  if (at < 0 || isBusy(entry) || (!text.trim() && !files)) return;
  const message: Message = { id: randomName(), role: "user", text: text.trim(), files };
  answer(entry, withVersion(messages, at, [message, newAnswer()]));
}

/** Goes on with the last answer where it ended. */
export function goOn(entry: Entry): void {
  const former = entry.peek().messages.at(-1);
  if (former?.role !== "assistant" || isBusy(entry)) return;
  again(entry, { ...former, chat: undefined });
}

function again(entry: Entry, former: Message): void {
  updateMessage(entry, former.id, { status: "running", error: undefined, cut: undefined, overflows: undefined });
  void run(entry, new Turn(entry, former.id, former));
}

/** Leaves out the older half of what is sent, and answers again, or goes on. */
export function dropOldest(entry: Entry): void {
  const { messages, sentFrom = 0 } = entry.peek();
  const turns = messages.map(({ role }, i) => (role === "user" && i > sentFrom ? i : -1)).filter((i) => i >= 0);
  const length = (from: number) =>
    messages.slice(from).reduce((sum, { text, files = [] }) => sum + text.length + files.reduce((all, file) => all + file.text.length, 0), 0);
  const next = turns.find((i) => length(i) <= length(sentFrom) / 2) ?? turns.at(-1);
  if (next === undefined || isBusy(entry)) return;
  update(entry, { sentFrom: next });
  if (messages.at(-1)?.text) goOn(entry);
  else retry(entry);
}

/** Whether there are turns that could be left out. */
export function canDrop({ messages, sentFrom = 0 }: Conversation): boolean {
  return messages.some(({ role }, i) => role === "user" && i > sentFrom);
}

/** Asks again for the answers whose connection was lost: the server may have gone on with them. */
export function answerLost(): void {
  const all = [...lost];
  lost.clear();
  for (const [id, entry] of all) {
    const last = entry.peek().messages.at(-1);
    if (last?.id !== id || last.status !== "failed" || isBusy(entry)) continue;
    if (last.chat) again(entry, last);
    else if (last.text) goOn(entry);
    else retry(entry);
  }
}

/** Goes on with the answers that were being written when a page was left. */
export async function takeUpAll(): Promise<void> {
  const left = entries.peek().flatMap((entry) => {
    const last = entry.peek().messages.at(-1);
    return last?.status === "running" && last.chat ? [{ entry, last, channel: last.chat.channel }] : [];
  });
  const names = [...new Set(left.map(({ channel }) => channel))];
  const isTheirs = await Promise.all(names.map(isAnothers));
  const free = new Set(names.filter((_, i) => !isTheirs[i]));
  for (const { entry, last, channel } of left) {
    if (free.has(channel) && !running.peek().has(entry.peek().id)) again(entry, last);
  }
}

/** Reads on an answer that nobody reads any more. */
export function resume(entry: Entry): void {
  const last = entry.peek().messages.at(-1);
  if (last && isFollowed(entry.peek())) again(entry, last);
}

export function stop(entry: Entry): void {
  const { id, messages } = entry.peek();
  const turn = running.peek().get(id);
  const chat = messages.at(-1)?.chat;
  if (turn) turn.stop();
  else if (chat && isFollowed(entry.peek())) channelNamed(chat.channel).stop(chat.name);
}

export function stopAll(): void {
  for (const turn of running.peek().values()) turn.stop();
}

/** Another version of the last answer; one without words is replaced. */
export function retry(entry: Entry): void {
  if (isBusy(entry)) return;
  const { messages } = entry.peek();
  const at = messages.findLastIndex(({ role }) => role === "user") + 1;
  if (at === 0) return;
  const former = messages[at];
  if (!former) return answer(entry, [...messages, newAnswer()]);
  if (former.text || former.steps) return answer(entry, withVersion(messages, at, [newAnswer()]));
  const { versions, version } = former;
  answer(entry, [...messages.slice(0, at), { ...newAnswer(), versions, version }]);
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
      draftFiles: isUsers ? message.files : undefined,
      sentFrom: from.sentFrom === undefined ? undefined : Math.min(from.sentFrom, messages.length),
      forkedFrom: shownTitle(from),
      parent: from.id,
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
