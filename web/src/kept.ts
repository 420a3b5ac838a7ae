// The conversations that the server keeps, the same in every browser with the key. Each is written
// with the version that the change is based on; where another browser was first, the two are
// merged. An answer that another browser reads is followed by its versions, and taken up where that
// browser has left.
import { signal } from "@preact/signals";

import { ApiError, ask, askJson } from "./api";
import { channelNamed } from "./channel";
import {
  begin, changedElsewhere, type Conversation, dropKept, entries, type Entry, find, forgotten, isSame, type Message, removed,
  serverKeeps, sharedPart, shownTitle, storageTrouble, takeKept, update,
} from "./conversations";
import { isFollowed, resume, running, takeUpAll } from "./turns";

interface Listing {
  kept: boolean;
  store: string;
  data: { id: string; version: number }[];
}

const all = "v1/page/conversations";
const atOnce = 4; // requests
const whileRunningMs = 2500; // between two versions of an answer that is being written
const otherTabMs = 10_000; // another tab sends its changes within this time
const leftMs = 4000; // without news, whoever reads an answer may have left

let tag = "";
let store = "";
const sentAt = new Map<string, number>();
const refused = new Map<string, Conversation>(); // too large, as they were

async function fetchKept(id: string): Promise<Conversation | null> {
  try {
    const { version, conversation } = await askJson<{ version: number; conversation: Conversation }>(`${all}/${id}`);
    if (!Array.isArray(conversation.messages)) return null;
    return { ...conversation, id, kept: { store, version } };
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 500)) return null;
    throw error;
  }
}

// --- merging -------------------------------------------------------------------------

function progressOf({ status, text, steps = [], reasoning = "" }: Message): number {
  return (status === "running" ? 0 : 1e12) + steps.length * 1e6 + text.length + reasoning.length;
}

/** Which of the two goes on from the other: more than 0: ours; null: neither. */
function furtherOf({ messages: ours }: Conversation, { messages: theirs }: Conversation): number | null {
  const common = Math.min(ours.length, theirs.length);
  for (let i = 0; i < common; ++i) {
    if (ours[i].id !== theirs[i].id) return null;
  }
  if (ours.length !== theirs.length || common === 0) return ours.length - theirs.length;
  return progressOf(ours[common - 1]) - progressOf(theirs[common - 1]);
}

/** Both were changed. Neither is lost. */
function merge(entry: Entry, theirs: Conversation): void {
  const ours = entry.peek();
  const further = furtherOf(ours, theirs);
  if (further !== null && further > 0) {
    update(entry, { kept: theirs.kept, title: ours.title || theirs.title });
    return;
  }
  if (further === null) {
    const { system, messages, sentFrom, forkedFrom, parent, forkedAt } = ours;
    const title = `${shownTitle(ours)} (this browser's)`;
    begin({ title, system, messages, sentFrom, forkedFrom, parent, forkedAt, open: ours.open, unsent: true }, entry);
  }
  takeKept(entry, theirs);
  if (ours.title && ours.title !== theirs.title && further !== null) update(entry, { title: ours.title });
}

// --- what others have changed --------------------------------------------------------

async function take(id: string, version: number): Promise<void> {
  const entry = find(id);
  const kept = entry?.peek().kept;
  if (forgotten.has(id) || removed.has(id) || running.peek().has(id)) return;
  if (kept?.store === store && kept.version >= version) return;
  const theirs = await fetchKept(id);
  if (!theirs || forgotten.has(id) || removed.has(id)) return;
  const now = find(id);
  if (now && isUnsent(now.peek())) merge(now, theirs);
  else takeKept(now, theirs);
}

async function inTurn<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const rest = [...items];
  const work = async () => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await act(item);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}

async function takeList(): Promise<void> {
  const response = await ask(all, { headers: tag ? { "If-None-Match": tag } : {} });
  const list = (await response.json()) as Listing;
  serverKeeps.value = list.kept;
  if (!list.kept) return;
  store = list.store;
  // The largest first: versions are times.
  await inTurn([...list.data].sort((a, b) => b.version - a.version), ({ id, version }) => take(id, version));
  const there = new Set(list.data.map(({ id }) => id));
  for (const entry of entries.peek()) {
    const { id, kept, unsent } = entry.peek();
    if (kept?.store !== store || there.has(id) || running.peek().has(id)) continue;
    if (unsent) update(entry, { kept: undefined });
    else dropKept(entry);
  }
  tag = response.headers.get("ETag") ?? "";
}

// --- changes made here ---------------------------------------------------------------

function isUnsent({ unsent, kept, messages, title, system }: Conversation): boolean {
  return (unsent || !kept) && (messages.length > 0 || title !== "" || system !== "");
}

function isDue({ id, messages }: Conversation): boolean {
  const now = performance.now();
  const theirs = changedElsewhere.get(id);
  if (theirs !== undefined && now - theirs < otherTabMs) return false;
  return messages.at(-1)?.status !== "running" || now - (sentAt.get(id) ?? -Infinity) >= whileRunningMs;
}

async function put(sent: Conversation, keepalive = false): Promise<number> {
  const based = sent.kept?.store === store ? sent.kept.version : 0;
  const init = { method: "PUT", body: JSON.stringify(sharedPart(sent)), keepalive };
  return (await askJson<{ version: number }>(`${all}/${sent.id}?version=${based}`, init)).version;
}

async function send(entry: Entry): Promise<void> {
  const sent = entry.peek();
  const { id } = sent;
  sentAt.set(id, performance.now());
  try {
    const version = await put(sent);
    if (forgotten.has(id)) return void ask(`${all}/${id}`, { method: "DELETE" }).catch(() => {});
    update(entry, { kept: { store, version }, unsent: !isSame(entry.peek(), sent) });
    if (refused.delete(id) && refused.size === 0) storageTrouble.value = "";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 409) {
      const theirs = await fetchKept(id);
      if (theirs && !forgotten.has(id)) merge(entry, theirs);
    } else if (error.status === 404) {
      update(entry, { kept: undefined });
    } else if (error.status >= 400 && error.status < 500 && error.status !== 401 && error.status !== 429) {
      refused.set(id, sent);
      storageTrouble.value = `“${shownTitle(sent)}” stays in this browser: ${error.message}`;
    } else {
      throw error;
    }
  }
}

// --- answers that another browser reads ------------------------------------------------

const news = new Map<string, { length: number; at: number }>();

async function takeUp(entry: Entry): Promise<void> {
  const { id, messages } = entry.peek();
  const last = messages.at(-1)!;
  const known = news.get(id);
  const now = performance.now();
  const length = progressOf(last);
  if (known?.length !== length) return void news.set(id, { length, at: now });
  if (now - known.at < leftMs) return;
  news.set(id, { length, at: now });
  if (await channelNamed(last.chat!.channel).isFree()) resume(entry);
}

/** Whether the list of conversations has arrived once. */
export const isListed = signal(false);

async function exchangeAll(): Promise<void> {
  try {
    await takeList();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 304) throw error;
  }
  // Only now: another browser may have read these answers to their end.
  if (!isListed.peek()) await takeUpAll();
  isListed.value = true;
  for (const entry of entries.peek()) {
    if (isFollowed(entry.peek())) await takeUp(entry);
  }
  if (!serverKeeps.peek()) return;
  const due = entries.peek().filter((entry) => {
    const conversation = entry.peek();
    const former = refused.get(conversation.id);
    return isUnsent(conversation) && isDue(conversation) && (!former || !isSame(former, conversation));
  });
  await inTurn(due, send);
}

/** Exchanges changes with the server. Throws if it does not answer. */
export async function exchange(): Promise<void> {
  try {
    await exchangeAll();
  } catch (error) {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 0 || status === 401 || status === 503) throw error;
    storageTrouble.value = `The conversations stay in this browser: ${(error as ApiError).message}`;
  }
}

const longestKeepalive = 60_000; // characters; browsers allow 64 KiB

addEventListener("pagehide", () => {
  if (!serverKeeps.peek()) return;
  for (const entry of entries.peek()) {
    const conversation = entry.peek();
    if (!isUnsent(conversation) || JSON.stringify(conversation).length > longestKeepalive) continue;
    put(conversation, true).catch(() => {});
  }
});
