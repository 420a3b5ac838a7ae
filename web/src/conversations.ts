// The page's conversations: the messages are stored in the browser, one entry per conversation, so
// that tabs do not overwrite each other's, and on a server with a state directory (see kept.ts).
// Their state in the engine is a server session of the same name; without it the server recomputes
// the conversation.
import { batch, computed, signal, type Signal } from "@preact/signals";

import { ask, randomName } from "./api";
import type { Attached } from "./attached";
import { settings } from "./settings";
import type { Call } from "./tools";

/** The cost of an answer as counted by the server; if it called tools, of all its requests. */
export interface Usage {
  prompt: number; // in the last request
  cached: number; // in the last request
  completion: number;
  perSecond: number;
  // Conversations stored by older pages lack this and the following.
  waitedMs?: number; // in the queue
  readMs?: number;
  read?: number; // prompt tokens computed
  end?: number; // tokens in the session now
  why?: string; // why more of the prompt was computed than is new
  found?: string; // how much of the prompt was cached, and why not more
}

/** What a model said before it called tools, and their results. */
export interface Step {
  text: string;
  reasoning?: string;
  calls: Call[];
}

/** Progress of computing a prompt. */
export interface Progress {
  done: number;
  total: number;
  perSecond: number; // 0: not known yet
  behind: number; // tokens of other prompts for which it waits; 0: it does not
}

export interface Message {
  id: string;
  role: "user" | "assistant";
  text: string;
  files?: Attached[]; // precede the user's text
  reasoning?: string;
  steps?: Step[]; // precede the text
  // For an answer: its status and its usage.
  status?: "running" | "done" | "length" | "stopped" | "failed";
  cut?: "context" | "loop"; // why its length ended it, if not by max tokens
  overflows?: boolean; // failed, because the conversation is longer than the context
  error?: string;
  usage?: Usage;
  progress?: Progress; // while a long prompt is computed
  // While it is written: where it can be heard again, and how much of the text and of the reasoning
  // there was before.
  chat?: { channel: string; name: string; text: number; reasoning: number };
  // Other versions of the conversation from here on, in the order of their making. The place of the
  // one that is shown, `version`, is empty.
  versions?: Message[][];
  version?: number;
}

export interface Conversation {
  id: string; // also the session's name
  title: string; // empty: derived from the first message
  system: string;
  messages: Message[];
  draft: string;
  draftFiles?: Attached[];
  sentFrom?: number; // messages before this one are no longer sent: they did not fit the context
  open: boolean; // on the board
  color: number; // an index
  order: number;
  forkedFrom?: string; // a title
  parent?: string; // the id of that conversation
  forkedAt?: number; // number of messages taken from there
  kept?: { store: string; version: number }; // the server's version that this one is based on
  unsent?: boolean; // has changes that the server does not have
}

/** What each browser has of its own. */
const ownParts = new Set<string>(["open", "draft", "draftFiles", "kept", "unsent"]);

/** What the server keeps. */
export function sharedPart(conversation: Conversation): Partial<Conversation> {
  return Object.fromEntries(Object.entries(conversation).filter(([name]) => !ownParts.has(name)));
}

/** Whether the server would keep the same of both. */
export function isSame(a: Conversation, b: Conversation): boolean {
  const [left, right] = [sharedPart(a), sharedPart(b)] as Record<string, unknown>[];
  return Object.keys({ ...left, ...right }).every((name) => left[name] === right[name]);
}

export type Entry = Signal<Conversation>;

export const colors = 8;
const prefix = "weft.conversation.";

export const entries = signal<Entry[]>([]);
export const opened = computed(() => entries.value.filter((entry) => entry.value.open));
export const putAway = computed(() => entries.value.filter((entry) => !entry.value.open));
/** A warning if the browser can store nothing more. */
export const storageTrouble = signal("");

const longestTitle = 48;

function shortened(text: string): string {
  return text.length > longestTitle ? `${text.slice(0, longestTitle - 1).trimEnd()}…` : text;
}

/** Its topic: the first message, or in a fork the first one after the fork. */
function subjectOf({ messages, forkedAt }: Conversation): string {
  const said = messages.slice(forkedAt ?? 0).find((message) => message.role === "user");
  const text = said?.text || said?.files?.[0]?.name;
  return text?.slice(0, 2000).replace(/\s+/g, " ").trim() ?? "";
}

export function titleOf(conversation: Conversation): string {
  const { title, forkedFrom } = conversation;
  return title || shortened(subjectOf(conversation)) || (forkedFrom ? `Fork of ${forkedFrom}` : "New conversation");
}

// Where several titles share a beginning longer than the visible part ("You are an agent. Your task
// is to ..."), show the part that differs.
const seenOfATitle = 20;

function titlesOf(all: readonly Conversation[]): string[] {
  const alike = new Map<string, string[]>();
  for (const conversation of all) {
    if (conversation.title) continue;
    const subject = subjectOf(conversation);
    const beginning = subject.slice(0, seenOfATitle);
    if (subject.length > seenOfATitle) alike.set(beginning, [...(alike.get(beginning) ?? []), subject]);
  }
  const titles = all.map((conversation) => {
    const subject = subjectOf(conversation);
    const others = alike.get(subject.slice(0, seenOfATitle));
    if (conversation.title || !others || others.length < 2) return titleOf(conversation);
    let common = 0;
    while (common < subject.length && others.every((other) => other[common] === subject[common])) ++common;
    const word = subject.lastIndexOf(" ", common) + 1;
    const differs = common < subject.length && word > seenOfATitle;
    return differs ? shortened(`…${subject.slice(word)}`) : titleOf(conversation);
  });
  const used = new Map<string, number>();
  return titles.map((title) => {
    const n = (used.get(title) ?? 0) + 1;
    used.set(title, n);
    return n > 1 ? `${title} (${n})` : title;
  });
}

let formerTitles: ReadonlyMap<string, string> = new Map();
const titles = computed(() => {
  const all = entries.value.map((entry) => entry.value);
  const list = titlesOf(all);
  const next = new Map(all.map(({ id }, i) => [id, list[i]]));
  // Return the same map if nothing has changed, or each token would redraw all of them.
  const same = next.size === formerTitles.size && [...next].every(([id, title]) => formerTitles.get(id) === title);
  return same ? formerTitles : (formerTitles = next);
});

/** The displayed title, unique on the page. */
export function shownTitle(conversation: Conversation): string {
  return titles.value.get(conversation.id) ?? titleOf(conversation);
}

export function find(id: string): Entry | undefined {
  return entries.value.find((entry) => entry.peek().id === id);
}

// --- storage -------------------------------------------------------------------------

const dirty = new Set<Entry>();
/** Deleted: an answer, or a list, may still be arriving. */
export const forgotten = new Set<string>();
/** Deleted, but it can still be undone. */
export const removed = new Set<string>();
/** Whether the server keeps conversations; undefined: not known yet. */
export const serverKeeps = signal<boolean | undefined>(undefined);
/** Conversations that another tab has changed, which it also sends, and when. */
export const changedElsewhere = new Map<string, number>();
let saveTimer = 0;

export function saveNow(): void {
  clearTimeout(saveTimer);
  saveTimer = 0;
  for (const entry of dirty) {
    const conversation = entry.peek();
    try {
      localStorage.setItem(prefix + conversation.id, JSON.stringify(conversation));
      storageTrouble.value = "";
    } catch {
      if (conversation.kept && !conversation.unsent) localStorage.removeItem(prefix + conversation.id);
      else storageTrouble.value = "The browser's storage is full. Export some conversations and delete them.";
    }
  }
  dirty.clear();
}

function saveSoon(entry: Entry): void {
  if (forgotten.has(entry.peek().id)) return;
  dirty.add(entry);
  saveTimer ||= setTimeout(saveNow, 1000) as unknown as number;
}

function parse(text: string | null): Conversation | null {
  try {
    const conversation = JSON.parse(text ?? "null");
    return conversation && Array.isArray(conversation.messages) ? conversation : null;
  } catch {
    return null;
  }
}

// An answer that was being written when the page was left goes on if the server keeps it.
function settled(conversation: Conversation): Conversation {
  const messages = conversation.messages.map((message) =>
    message.status === "running" && !message.chat ? { ...message, status: "stopped" as const } : message,
  );
  return { ...conversation, messages };
}

function sorted(list: Entry[]): Entry[] {
  return list.sort((a, b) => a.peek().order - b.peek().order);
}

export function loadAll(): void {
  const found: Entry[] = [];
  for (let i = 0; i < localStorage.length; ++i) {
    const key = localStorage.key(i);
    if (!key?.startsWith(prefix)) continue;
    const conversation = parse(localStorage.getItem(key));
    if (conversation) found.push(signal(settled(conversation)));
  }
  entries.value = sorted(found);
}

// Another tab of this page has changed, added or deleted a conversation.
addEventListener("storage", (event) => {
  if (!event.key?.startsWith(prefix)) return;
  const entry = find(event.key.slice(prefix.length));
  const conversation = parse(event.newValue);
  if (conversation) changedElsewhere.set(conversation.id, performance.now());
  if (!conversation) {
    if (entry) entries.value = entries.value.filter((other) => other !== entry);
  } else if (entry) {
    entry.value = { ...conversation, draft: entry.peek().draft };
  } else {
    entries.value = sorted([...entries.value, signal(conversation)]);
  }
});
addEventListener("pagehide", saveNow);

// --- changes -------------------------------------------------------------------------

export function update(entry: Entry, part: Partial<Conversation>): void {
  const next = { ...entry.peek(), ...part };
  if (Object.keys(part).some((name) => !ownParts.has(name))) next.unsent = true;
  changedElsewhere.delete(next.id);
  entry.value = next;
  saveSoon(entry);
}

/** Takes what the server has: into the entry, or into a new one that is parked. */
export function takeKept(entry: Entry | undefined, theirs: Conversation): void {
  if (!entry) {
    const { length } = entries.peek();
    entry = signal<Conversation>({ ...theirs, draft: "", open: false, order: theirs.order ?? length });
    entries.value = sorted([...entries.peek(), entry]);
  } else {
    const { open, order, draft, draftFiles } = entry.peek();
    entry.value = { ...theirs, open, order, draft, draftFiles };
  }
  saveSoon(entry);
}

/** Another browser has deleted it. */
export function dropKept(entry: Entry): void {
  entries.value = entries.peek().filter((other) => other !== entry);
  dirty.delete(entry);
  localStorage.removeItem(prefix + entry.peek().id);
}

export function updateMessage(entry: Entry, id: string, part: Partial<Message>): void {
  const messages = entry.peek().messages;
  update(entry, {
    messages: messages.map((message) => (message.id === id ? { ...message, ...part } : message)),
  });
}

/** The messages up to `at`, and `tail` in place of those from there on, which stay as a version. */
export function withVersion(messages: readonly Message[], at: number, tail: readonly Message[]): Message[] {
  const { versions: others = [[]], version = 0, ...bare } = messages[at];
  const versions = others.map((other, i) => (i === version ? [bare, ...messages.slice(at + 1)] : other));
  versions.push([]);
  return [...messages.slice(0, at), { ...tail[0], versions, version: versions.length - 1 }, ...tail.slice(1)];
}

/** Shows another version of the conversation from this message on. */
export function showVersion(entry: Entry, id: string, version: number): void {
  const { messages } = entry.peek();
  const at = messages.findIndex((message) => message.id === id);
  const { versions, version: shown = 0, ...bare } = messages[at];
  const tail = versions?.[version];
  if (!tail || version === shown) return;
  const kept = versions.map((other, i) => (i === version ? [] : i === shown ? [bare, ...messages.slice(at + 1)] : other));
  update(entry, { messages: [...messages.slice(0, at), { ...tail[0], versions: kept, version }, ...tail.slice(1)] });
}

export function begin(part: Partial<Conversation> = {}, after?: Entry): Entry {
  const list = entries.peek();
  const used = list.map((entry) => entry.peek().color);
  let color = 0;
  for (let i = 1; i < colors; ++i) {
    const count = (of: number) => used.filter((other) => other === of).length;
    if (count(i) < count(color)) color = i;
  }
  const last = list.at(-1)?.peek().order ?? 0;
  let order = last + 1;
  if (after) {
    const next = list[list.indexOf(after) + 1];
    order = next ? (after.peek().order + next.peek().order) / 2 : order;
  }
  const entry = signal<Conversation>({
    id: `page-${randomName()}`,
    title: "",
    system: settings.peek().system,
    messages: [],
    draft: "",
    open: true,
    color,
    order,
    ...part,
  });
  batch(() => {
    entries.value = sorted([...list, entry]);
    saveSoon(entry);
  });
  return entry;
}

/** Removes it from the page; `forget` deletes it for good. */
export function remove(entry: Entry): void {
  entries.value = entries.peek().filter((other) => other !== entry);
  removed.add(entry.peek().id);
}

export function restore(entry: Entry): void {
  removed.delete(entry.peek().id);
  entries.value = sorted([...entries.peek(), entry]);
}

/** Deletes a removed conversation, here and on the server. */
export function forget(entry: Entry): void {
  const { id } = entry.peek();
  forgotten.add(id);
  removed.delete(id);
  dirty.delete(entry);
  localStorage.removeItem(prefix + id);
  ask(`v1/sessions/${id}`, { method: "DELETE", keepalive: true }).catch(() => {
    // The server is gone, or will evict the session when it needs room.
  });
  if (!serverKeeps.peek()) return;
  ask(`v1/page/conversations/${id}`, { method: "DELETE", keepalive: true }).catch(() => {
    // It comes back with the next list.
    forgotten.delete(id);
  });
}
