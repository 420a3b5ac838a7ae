// The conversations as a picture: one thread of its colour for each, as long as it has tokens. A fork
// leaves its parent's thread where it was made, and threads of one system prompt begin as one.
import { entries, type Conversation } from "./conversations";
import { sessions } from "./engine";
import { count, plural } from "./format";
import { running } from "./turns";

const mostThreads = 12;
const [width, lane, margin, stem] = [640, 15, 8, 10]; // units of the picture
const bend = 26; // a branch reaches its own lane within this
const charactersPerToken = 4; // until the server has counted
const warpEvery = 32;

interface Thread {
  conversation: Conversation;
  from: number; // tokens that belong to another thread
  to: number;
  parent: Thread | null;
  row: number;
}

function lengthOf(conversation: Conversation, until = conversation.messages.length): number {
  const { messages, system, id } = conversation;
  const whole = until === messages.length ? sessions.value.get(id)?.tokens : undefined;
  const told = whole || messages[until - 1]?.usage?.end;
  if (told) return told;
  const characters = messages.slice(0, until).reduce((sum, { text }) => sum + text.length, system.length);
  return Math.ceil(characters / charactersPerToken);
}

/** Parents before their forks, in rows from the top. */
function threadsOf(all: readonly Conversation[]): Thread[] {
  const threads: Thread[] = [];
  const byId = new Map(all.map((conversation) => [conversation.id, conversation]));
  const add = (conversation: Conversation, parent: Thread | null) => {
    const shared = parent ? Math.min(lengthOf(conversation, conversation.forkedAt), parent.to) : 0;
    const thread = { conversation, parent, from: shared, to: Math.max(lengthOf(conversation), shared), row: threads.length };
    threads.push(thread);
    for (const fork of all) {
      if (fork.parent === conversation.id && fork !== conversation && !threads.some((other) => other.conversation === fork)) add(fork, thread);
    }
  };
  for (const conversation of all) {
    if (!conversation.parent || !byId.has(conversation.parent)) add(conversation, null);
  }
  return threads;
}

/** The thread with which another one without a parent begins: that of the same system prompt. */
function beginOf(thread: Thread, threads: readonly Thread[]): Thread | null {
  const { system } = thread.conversation;
  if (thread.parent || !system.trim()) return thread.parent;
  return threads.find((other) => !other.parent && other.conversation.system === system && other.row < thread.row) ?? null;
}

export function Weave() {
  const all = entries.value.map((entry) => entry.value).filter(({ messages }) => messages.length > 0);
  const shown = all.sort((a, b) => Number(b.open) - Number(a.open) || a.order - b.order).slice(0, mostThreads);
  if (shown.length < 2) return null;
  const threads = threadsOf(shown);
  const longest = Math.max(1, ...threads.map(({ to }) => to));
  const height = threads.length * lane + 2 * margin;
  const x = (tokens: number) => margin + stem + ((width - 2 * margin - stem) * tokens) / longest;
  const y = (row: number) => margin + lane * (row + 0.5);
  const pathOf = (thread: Thread) => {
    const begin = beginOf(thread, threads);
    const end = Math.max(x(thread.to), margin + stem);
    if (!begin) return `M${margin} ${y(thread.row)}H${end}`;
    const system = Math.ceil(thread.conversation.system.length / charactersPerToken);
    const from = x(Math.min(thread.parent ? thread.from : system, begin.to));
    const reached = Math.min(from + bend, Math.max(end, from + 2));
    const middle = (from + reached) / 2;
    return `M${from} ${y(begin.row)}C${middle} ${y(begin.row)} ${middle} ${y(thread.row)} ${reached} ${y(thread.row)}H${Math.max(end, reached)}`;
  };
  const forks = threads.filter(({ parent }) => parent).length;
  const shared = threads.reduce((sum, { from }) => sum + from, 0);
  const label = [plural(threads.length, "conversation"), plural(forks, "fork"), `${count(shared)} tokens shared`].join(", ");
  return (
    <svg class="weave" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      {Array.from({ length: Math.floor(width / warpEvery) }, (_, i) => (
        <line class="warp" x1={(i + 0.5) * warpEvery} x2={(i + 0.5) * warpEvery} y1={0} y2={height} />
      ))}
      {threads.toReversed().map((thread) => (
        <g data-color={thread.conversation.color} data-running={running.value.has(thread.conversation.id)}>
          <path d={pathOf(thread)} />
          <circle cx={Math.max(x(thread.to), margin + stem)} cy={y(thread.row)} r={3} />
        </g>
      ))}
    </svg>
  );
}
