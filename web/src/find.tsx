// All conversations of this browser, on the board or parked: found by their words, and opened.
import { signal } from "@preact/signals";

import { focusCard } from "./card";
import { type Conversation, entries, type Entry, shownTitle, update } from "./conversations";
import { plural } from "./format";

const sought = signal("");
const mostShown = 100;
const around = 40; // characters before what was found

interface Found {
  entry: Entry;
  before: string;
  match: string;
  after: string;
}

/** The first place where the words stand; null: nowhere. */
function placeIn(conversation: Conversation, words: string): Omit<Found, "entry"> | null {
  if (!words) return { before: plural(conversation.messages.length, "message"), match: "", after: "" };
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

export function Find({ leave }: { leave(): void }) {
  const words = sought.value.trim().toLowerCase();
  const found = entries.value.flatMap((entry): Found[] => {
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
      <p class="hint" role="status">{found.length === 0 ? "No conversation has these words." : plural(found.length, "conversation")}</p>
    </>
  );
}
