// One conversation on the board.
import { signal } from "@preact/signals";
import { Fragment } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { Composer } from "./composer";
import { type Entry, forget, remove, restore, shownTitle, update } from "./conversations";
import { queue, sessions } from "./engine";
import { pagesText } from "./engine_view";
import { exportJson, exportMarkdown } from "./export";
import { count, duration, ordinal, plural, rate } from "./format";
import { Icon } from "./icons";
import { MessageView, SystemPrompt } from "./message";
import { tell } from "./notice";
import { Suggestions } from "./prompts";
import type { Turn } from "./turn";
import { canDrop, fork, isFollowed, retry, running, send, stop } from "./turns";

export function composerId(id: string): string {
  return `say-${id}`;
}

// The new card whose text field gets the focus as soon as it is drawn: before the next key press,
// which would otherwise be taken for a shortcut.
let awaited: string | undefined;

function showField(id: string): boolean {
  const field = document.getElementById(composerId(id));
  field?.closest(".card")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  field?.focus({ preventScroll: true });
  return field !== null;
}

/** The conversation that fills the board; null if all share it. */
export const alone = signal<string | null>(null);

export function focusCard(id: string): void {
  if (alone.peek() !== null) alone.value = id;
  awaited = showField(id) ? undefined : id;
}

/** Shows the first of several new conversations. */
export function showNew(entries: readonly Entry[]): void {
  const id = entries[0]?.peek().id;
  if (id) focusCard(id);
}

export function toggleAlone(id: string): void {
  alone.value = alone.peek() === id ? null : id;
  focusCard(id);
}

/** Deletes after a delay during which it can be undone. */
export function discard(entry: Entry): void {
  stop(entry);
  if (alone.peek() === entry.peek().id) alone.value = null;
  remove(entry);
  tell(`Deleted “${shownTitle(entry.peek())}”.`, () => restore(entry), () => forget(entry));
}

function putAside(entry: Entry): void {
  if (alone.peek() === entry.peek().id) alone.value = null;
  update(entry, { open: false });
}

interface MenuItem {
  name: string;
  key?: string;
  act(): void;
  hidden?: boolean;
}

function Menu({ label, items }: { label: string; items: MenuItem[] }) {
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    place.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const leave = (event: Event) => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", leave);
    addEventListener("focusin", leave);
    return () => {
      removeEventListener("pointerdown", leave);
      removeEventListener("focusin", leave);
    };
  }, [open]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (!open) return;
    const shown = [...place.current!.querySelectorAll<HTMLElement>("[role=menuitem]")];
    const at = shown.indexOf(document.activeElement as HTMLElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      shown[(at + step + shown.length) % shown.length].focus();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      setOpen(false);
      place.current?.querySelector<HTMLElement>("button")?.focus();
    }
  };

  return (
    <div class="menu" ref={place} onKeyDown={onKeyDown}>
      <button
        class="small"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={label}
        title="More"
        onClick={() => setOpen(!open)}
      >
        <Icon name="more" />
      </button>
      {open && (
        <div role="menu" aria-label={label}>
          {items
            .filter((item) => !item.hidden)
            .map((item) => (
              <button
                role="menuitem"
                tabIndex={-1}
                onClick={() => {
                  setOpen(false);
                  item.act();
                }}
              >
                {item.name}
                {item.key && <kbd>{item.key}</kbd>}
              </button>
            ))}
        </div>
      )}
    </div>
  );
}

function Title({ entry, editing, done }: { entry: Entry; editing: boolean; done(): void }) {
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    if (editing) field.current?.select();
  }, [editing]);
  const title = shownTitle(entry.value);
  if (!editing) return <h2 title={title}>{title}</h2>;
  const keep = () => {
    const text = field.current?.value.trim();
    if (text !== undefined && text !== title) update(entry, { title: text });
    done();
  };
  return (
    <input
      ref={field}
      class="title"
      aria-label="Title"
      value={title}
      maxLength={120}
      onBlur={keep}
      onKeyDown={(event) => {
        if (event.key === "Enter") keep();
        if (event.key === "Escape") done();
        event.stopPropagation();
      }}
    />
  );
}

const lookAgainMs = 500;
const fewestMsToTell = 1000;

/** The stage of the answer in progress. */
function PhaseFacts({ id, turn }: { id: string; turn: Turn }) {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => draw((n) => n + 1), lookAgainMs);
    return () => clearInterval(timer);
  }, []);
  const { name, since, perSecond, behind, refused } = turn.phase.value;
  const ms = performance.now() - since;
  const place = queue.value.places.get(id);
  const waiting = behind
    ? `Waiting for ${count(behind)} tokens of others`
    : place
      ? `Waiting, ${ordinal(place)} of ${queue.value.length}`
      : refused
        ? "The server is full, asking again"
        : "Queued";
  const names = { waiting, reading: "Prefill", writing: "Decode", tools: "Running tools" };
  const parts = [names[name]];
  if (perSecond > 0) parts.push(`${rate(perSecond)} tokens/s`);
  else if (ms >= fewestMsToTell) parts.push(`for ${duration(ms)}`);
  return <>{parts.join(" · ")}</>;
}

/** The state of the conversation on the server. */
function SessionFacts({ id }: { id: string }) {
  const session = sessions.value.get(id);
  const turn = running.value.get(id);
  if (turn) {
    return <p class="session"><PhaseFacts id={id} turn={turn} /></p>;
  }
  if (!session) return null;
  const parts = [plural(session.tokens, "token")];
  if (session.state === "parked") parts.push("kept on disk");
  else if (session.pages > 0) parts.push(pagesText(session));
  return (
    <p class="session" data-state={session.state} title={session.note ?? parts.join(" · ")}>
      {parts.join(" · ")}
    </p>
  );
}

function NoLongerSent({ entry }: { entry: Entry }) {
  return (
    <p class="no-longer-sent">
      The messages above are no longer sent: the context was full.{" "}
      <button class="link" onClick={() => update(entry, { sentFrom: undefined })}>Send them again</button>
    </p>
  );
}

export function Card({ entry, number }: { entry: Entry; number: number }) {
  const conversation = entry.value;
  const { id, messages } = conversation;
  const isRunning = running.value.has(id) || isFollowed(conversation);
  const [renaming, setRenaming] = useState(false);
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const lastTop = useRef(0);

  // Follows the text as it is written, unless the reader has scrolled away from the end. The card's
  // size also changes when others come and go.
  const follow = () => {
    const element = scroller.current;
    if (element && follows.current) element.scrollTop = element.scrollHeight;
  };
  useLayoutEffect(follow);
  useLayoutEffect(() => {
    if (awaited === id && showField(id)) awaited = undefined;
  }, []);
  useEffect(() => {
    const observer = new ResizeObserver(follow);
    observer.observe(scroller.current!);
    return () => observer.disconnect();
  }, []);

  const say = () => {
    const { draft: text, draftFiles: files } = entry.peek();
    follows.current = true;
    update(entry, { draft: "", draftFiles: undefined });
    send(entry, text, files);
  };
  const last = messages.at(-1);
  const items: MenuItem[] = [
    { name: "Rename", key: "F2", act: () => setRenaming(true) },
    { name: "Fork", hidden: !last || isRunning, act: () => focusCard(fork(entry, last!).peek().id) },
    { name: "Regenerate", hidden: !last || isRunning, act: () => retry(entry) },
    { name: "Park", act: () => putAside(entry) },
    { name: "Export as Markdown", hidden: !last, act: () => exportMarkdown([conversation]) },
    { name: "Export as JSON", hidden: !last, act: () => exportJson([conversation]) },
    { name: "Delete", act: () => discard(entry) },
  ];

  return (
    <section
      class="card"
      aria-label={shownTitle(conversation)}
      aria-busy={isRunning}
      data-color={conversation.color}
      data-conversation={id}
      data-empty={messages.length === 0}
      onKeyDown={(event) => {
        if (event.key === "F2") setRenaming(true);
      }}
    >
      <header onDblClick={() => setRenaming(true)}>
        <span class="dot" data-running={isRunning} />
        <Title entry={entry} editing={renaming} done={() => setRenaming(false)} />
        {number <= 9 && <kbd class="number" title={`Alt+${number} comes here`}>{number}</kbd>}
        <button
          class="small wide-only"
          aria-pressed={alone.value === id}
          title={alone.value === id ? "Back to the board (Alt+F)" : "Show only this conversation (Alt+F)"}
          aria-label={alone.value === id ? "Back to the board" : "Show only this conversation"}
          onClick={() => toggleAlone(id)}
        >
          <Icon name={alone.value === id ? "board" : "focus"} />
        </button>
        <Menu label={`More about ${shownTitle(conversation)}`} items={items} />
      </header>
      <div
        class="messages"
        ref={scroller}
        role="log"
        aria-label="Messages"
        aria-live="off"
        tabIndex={0}
        onScroll={(event) => {
          const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
          const end = scrollHeight - clientHeight;
          // Only scrolling up counts as leaving; a card that has shrunk does not.
          if (scrollTop >= end - 40) follows.current = true;
          else if (scrollTop < lastTop.current) follows.current = false;
          lastTop.current = scrollTop;
        }}
      >
        {conversation.forkedFrom && <p class="from">Forked from “{conversation.forkedFrom}”</p>}
        <SystemPrompt entry={entry} />
        {messages.length === 0 && <Suggestions choose={(text) => send(entry, text)} most={3} />}
        {messages.map((message, i) => (
          <Fragment key={message.id}>
            {i > 0 && i === conversation.sentFrom && <NoLongerSent entry={entry} />}
            <MessageView
              entry={entry}
              message={message}
              isLast={message === last}
              canDrop={message === last && canDrop(conversation)}
              focus={focusCard}
            />
          </Fragment>
        ))}
      </div>
      <footer>
        <Composer
          id={composerId(id)}
          label={`Write to ${shownTitle(conversation)}`}
          placeholder={messages.length > 0 ? "Reply" : "Write a message"}
          text={conversation.draft}
          busy={isRunning}
          files={conversation.draftFiles ?? []}
          change={(draft) => update(entry, { draft })}
          attach={(draftFiles) => update(entry, { draftFiles })}
          send={say}
          stop={() => stop(entry)}
        />
        <SessionFacts id={id} />
      </footer>
    </section>
  );
}
