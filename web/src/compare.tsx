// Two answers side by side: the words that only one of them has are marked.
import { signal } from "@preact/signals";

import { type Conversation, opened, shownTitle } from "./conversations";

const left = signal("");
const right = signal("");

/** A run of words, and whether only this side has it. */
interface Run {
  text: string;
  isOwn: boolean;
}

// Beyond this the table would have many millions of cells; the rest is shown without marks.
const mostWords = 3000;

function wordsOf(text: string): string[] {
  return text.match(/\s*\S+/g) ?? [];
}

/** The lengths of the longest common subsequences of the rests of `a` and `b`. */
function tableOf(a: readonly string[], b: readonly string[]): Uint16Array[] {
  const rows = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; --i) {
    for (let j = b.length - 1; j >= 0; --j) {
      rows[i][j] = a[i] === b[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
    }
  }
  return rows;
}

function add(runs: Run[], text: string, isOwn: boolean): void {
  const last = runs.at(-1);
  if (last?.isOwn === isOwn) {
    last.text += text;
    return;
  }
  // The blanks before a marked word are no part of it.
  const blanks = /^\s*/.exec(text)![0];
  if (isOwn && blanks) add(runs, blanks, false);
  runs.push({ text: isOwn ? text.slice(blanks.length) : text, isOwn });
}

/** Both texts as runs of words that they share or do not. */
export function differences(one: string, other: string): [Run[], Run[]] {
  const [all, others] = [wordsOf(one), wordsOf(other)];
  const a = all.slice(0, mostWords).map((word) => word.trim());
  const b = others.slice(0, mostWords).map((word) => word.trim());
  const table = tableOf(a, b);
  const runs: [Run[], Run[]] = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      add(runs[0], all[i++], false);
      add(runs[1], others[j++], false);
    } else if (j === b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) {
      add(runs[0], all[i++], true);
    } else {
      add(runs[1], others[j++], true);
    }
  }
  add(runs[0], all.slice(mostWords).join(""), false);
  add(runs[1], others.slice(mostWords).join(""), false);
  return runs;
}

function answerOf(conversation: Conversation): string {
  return conversation.messages.findLast(({ role }) => role === "assistant")?.text ?? "";
}

function Side({ label, all, of, choose, runs }: { label: string; all: Conversation[]; of: Conversation; choose(id: string): void; runs: Run[] }) {
  return (
    <div class="side" data-color={of.color}>
      <select aria-label={label} value={of.id} onChange={(event) => choose(event.currentTarget.value)}>
        {all.map((conversation) => <option value={conversation.id}>{shownTitle(conversation)}</option>)}
      </select>
      <p tabIndex={0} role="group" aria-label={`Answer in ${shownTitle(of)}`}>
        {runs.map(({ text, isOwn }) => (isOwn ? <mark>{text}</mark> : text))}
      </p>
    </div>
  );
}

export function Compare() {
  const all = opened.value.map((entry) => entry.value).filter((conversation) => answerOf(conversation));
  if (all.length < 2) return <p class="hint">There are no two answers to compare.</p>;
  const a = all.find(({ id }) => id === left.value) ?? all[0];
  const b = all.find(({ id }) => id === right.value && id !== a.id) ?? all.find(({ id }) => id !== a.id)!;
  const [ofA, ofB] = differences(answerOf(a), answerOf(b));
  const same = [...ofA, ...ofB].every(({ isOwn }) => !isOwn);
  return (
    <>
      <div class="sides">
        <Side label="First answer" all={all} of={a} choose={(id) => (left.value = id)} runs={ofA} />
        <Side label="Second answer" all={all} of={b} choose={(id) => (right.value = id)} runs={ofB} />
      </div>
      <p class="hint" role="status">{same ? "The two are the same." : "Marked words are in one of the two only."}</p>
    </>
  );
}
