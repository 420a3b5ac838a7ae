// All conversations, on the board or parked, and the sessions of other programs: found by their
// words, and opened.
import { signal } from "@preact/signals";

import { focusCard } from "./card";
import { type Conversation, entries, type Entry, serverKeeps, shownTitle, update } from "./conversations";
import { duration, plural } from "./format";
import { foreignSessions, shownSession } from "./session";

const sought = signal("");
const mostShown = 100;
const around = 40; // characters before a match

interface Found {
  entry: Entry;
  before: string;
  match: string;
  after: string;
}

/** Versions are times. */
function ageOf({ kept }: Conversation): string {
  return kept ? ` · ${duration(Math.max(0, Date.now() - kept.version))} ago` : "";
}

/** The first place where the words stand; null: nowhere. */
function placeIn(conversation: Conversation, words: string): Omit<Found, "entry"> | null {
  if (!words) return { before: plural(conversation.messages.length, "message") + ageOf(conversation), match: "", after: "" };
  for (const text of [shownTitle(conversation), ...conversation.messages.map((message) => message.text)]) {
    const at = text.toLowerCase().indexOf(words);
    if (at < 0) continue;
    const from = Math.max(0, at - around);
    return {
      before: `${from > 0 ? "…" : ""}${text.slice(from, at)}`,
      match: text.slice(at, at + words.length),
      after: text.slice(at + words.length, at + words.length + 3 * around),
    };
  }
  return null;
}

function Sessions({ words, show }: { words: string; show(id: string): void }) {
  const found = foreignSessions().filter(({ id }) => id.toLowerCase().includes(words));
  if (found.length === 0) return null;
  return (
    <>
      <h3>Sessions of other programs</h3>
      <ul class="found">
        {found.slice(0, mostShown).map(({ id, tokens, idle_ms: idle }) => (
          <li key={id}>
            <button onClick={() => show(id)}>
              {id}
              <span class="detail">{plural(tokens, "token")} · {duration(idle)} ago · read-only</span>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

export function Find({ leave, showSession }: { leave(): void; showSession(): void }) {
  const words = sought.value.trim().toLowerCase();
  const latest = entries.value.slice().sort((a, b) => (b.value.kept?.version ?? Infinity) - (a.value.kept?.version ?? Infinity));
  const found = latest.flatMap((entry): Found[] => {
    const place = placeIn(entry.value, words);
    return place ? [{ entry, ...place }] : [];
  });
  const open = (entry: Entry) => {
    leave();
    update(entry, { open: true });
    focusCard(entry.peek().id);
  };
  return (
    <>
      <input
        type="search"
        data-first
        aria-label="Find"
        placeholder="Words of a conversation"
        autocomplete="off"
        value={sought.value}
        onInput={(event) => (sought.value = event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && found[0] && open(found[0].entry)}
      />
      <ul class="found">
        {found.slice(0, mostShown).map(({ entry, before, match, after }) => (
          <li key={entry.value.id}>
            <button data-color={entry.value.color} onClick={() => open(entry)}>
              {shownTitle(entry.value)} {!entry.value.open && <span class="badge">parked</span>}
              <span class="detail">{before}{match && <mark>{match}</mark>}{after}</span>
            </button>
          </li>
        ))}
      </ul>
      <p class="hint" role="status">
        {found.length === 0 ? words ? "No conversation has these words" : "No conversation" : plural(found.length, "conversation")}
        {serverKeeps.value === true && ", kept on the server for every browser with this key."}
        {serverKeeps.value === false && ", kept in this browser alone: the server runs without --state-dir."}
      </p>
      <Sessions
        words={words}
        show={(id) => {
          shownSession.value = id;
          showSession();
        }}
      />
    </>
  );
}
