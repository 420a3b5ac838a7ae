// The page: a bar, the board of conversations, the engine's panel, and a field to write to all.
// Before the first conversation, one field in the middle.
import { effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Attached } from "./attached";
import { alone, Card, focusCard, toggleAlone } from "./card";
import { Composer } from "./composer";
import { begin, entries, type Entry, find, opened, putAway, shownTitle, storageTrouble, update } from "./conversations";
import { dialog, Dialogs } from "./dialogs";
import { health, healthReason, loadedPercent, model, watch } from "./engine";
import { EngineLine, EnginePanel } from "./engine_view";
import { plural } from "./format";
import { Icon } from "./icons";
import { isListed } from "./kept";
import { facts, nameOf } from "./models";
import { Notice } from "./notice";
import { isToy, Suggestions } from "./prompts";
import { change, settings, type Theme } from "./settings";
import { retry, running, send, stop, stopAll } from "./turns";
import { Weave } from "./weave";

const toAllId = "say-to-all";
const toAll = signal("");
const toAllFiles = signal<Attached[]>([]);
// The text in the field of the first screen.
const first = signal("");
const firstFiles = signal<Attached[]>([]);
const firstId = "say-first";
// On a phone, where the board shows one conversation at a time.
const inView = signal(0);

/** The first field to write in: one stop for the keyboard. */
function focusField(): void {
  const field = document.querySelector<HTMLElement>(`#${firstId}, [data-conversation] footer textarea`);
  field?.focus();
}

function newConversation(): void {
  focusCard(begin().peek().id);
}

function startFirst(text: string, files: Attached[] = []): void {
  const entry = begin();
  send(entry, text, files);
  focusCard(entry.peek().id);
}

function nextTheme(): void {
  const order: Theme[] = ["system", "light", "dark"];
  change({ theme: order[(order.indexOf(settings.value.theme) + 1) % order.length] });
}

const themeIcons = { system: "system", light: "sun", dark: "moon" } as const;

function healthText(): string {
  switch (health.value) {
    case "ready":
      return model.value ? nameOf(model.value) : "";
    case "loading":
      return loadedPercent.value === undefined ? healthReason.value : `Loading the model: ${loadedPercent.value} %`;
    case "unreachable":
      return "No answer from the server";
    case "key":
      return "A key is needed";
    default:
      return "";
  }
}

function TopBar() {
  const { theme } = settings.value;
  const n = running.value.size;
  return (
    <header class="top">
      <h1>
        <img src="./page/icon.svg" alt="" width="22" height="22" />
        Weft
      </h1>
      <p class="model" data-health={health.value} title={healthReason.value}>
        <span class="lamp" />
        {health.value === "ready" ? (
          <button class="quiet" onClick={() => (dialog.value = "models")} title="Local models (Alt+O)" aria-haspopup="dialog">
            <span>{healthText()}</span> <Icon name="down" />
          </button>
        ) : (
          healthText()
        )}
      </p>
      <EngineLine />
      <nav aria-label="Actions">
        {n > 0 && (
          <button class="quiet stop" onClick={stopAll} title="Stop all answers (Alt+X)">
            <Icon name="stop" /> <span>Stop {n > 1 ? `all ${n}` : ""}</span>
          </button>
        )}
        <button class="quiet" onClick={newConversation} title="New conversation (Alt+N)" aria-label="New conversation">
          <Icon name="plus" /> <span>New</span>
        </button>
        <button class="small" onClick={() => (dialog.value = "find")} title="Find a conversation (Alt+K)" aria-label="Find a conversation">
          <Icon name="find" />
        </button>
        <button class="quiet" onClick={() => (dialog.value = "several")} title="Start several conversations (Alt+M)" aria-label="Start several conversations">
          <Icon name="rows" /> <span>Several</span>
        </button>
        <button class="small" onClick={() => (dialog.value = "settings")} title="Settings (Alt+S)" aria-label="Settings">
          <Icon name="settings" />
        </button>
        <button class="small" onClick={nextTheme} title={`Colours: ${theme}`} aria-label={`Colours: ${theme}`}>
          <Icon name={themeIcons[theme]} />
        </button>
        <button class="small wide-only" onClick={() => (dialog.value = "keys")} title="Keyboard shortcuts (?)" aria-label="Keyboard shortcuts">
          <Icon name="help" />
        </button>
      </nav>
    </header>
  );
}

/** While the model is loaded: what is written already waits in its field. */
function Loading() {
  if (health.value !== "loading" || loadedPercent.value === undefined) return null;
  return (
    <p class="banner loading" role="status">
      <progress value={loadedPercent.value} max={100} aria-label="Weights loaded" />
      The model is being loaded: {loadedPercent.value} % of its weights. A message is answered after that.
    </p>
  );
}

function Trouble() {
  if (health.value === "key") {
    return (
      <form
        class="banner"
        onSubmit={(event) => {
          event.preventDefault();
          change({ apiKey: event.currentTarget.querySelector("input")!.value.trim() });
        }}
      >
        <label for="key">
          {settings.value.apiKey ? "This API key is not valid." : "This server asks for an API key."}
        </label>
        <input id="key" type="password" autocomplete="off" placeholder="Key" autofocus />
        <button class="primary">Use</button>
      </form>
    );
  }
  if (health.value === "unreachable") {
    return <p class="banner" role="alert">{healthReason.value} The page tries again by itself; what was said is kept here.</p>;
  }
  if (storageTrouble.value) return <p class="banner" role="alert">{storageTrouble.value}</p>;
  return null;
}

function ModelPicker() {
  return (
    <button type="button" class="quiet picker" onClick={() => (dialog.value = "models")} title="Local models (Alt+O)" aria-haspopup="dialog">
      <span>{model.value ? nameOf(model.value) : "Models"}</span> <Icon name="down" />
    </button>
  );
}

function Welcome() {
  const start = () => {
    const [text, files] = [first.peek(), firstFiles.peek()];
    first.value = "";
    firstFiles.value = [];
    startFirst(text, files);
  };
  return (
    <div class="welcome">
      <Weave />
      <h2>{model.value ? nameOf(model.value) : "Weft"}</h2>
      <Composer
        id={firstId}
        label="Write a message"
        placeholder="Write a message"
        text={first.value}
        busy={false}
        autofocus
        files={firstFiles.value}
        change={(text) => (first.value = text)}
        attach={(files) => (firstFiles.value = files)}
        send={start}
      />
      <Suggestions choose={(text) => startFirst(text)} most={3} />
      <div class="below-field">
        <ModelPicker />
        <button class="quiet" onClick={() => (dialog.value = "several")} title="Alt+M">
          <Icon name="rows" /> <span>Start several</span>
        </button>
      </div>
      {isToy.value && (
        <p>
          This is the built-in toy model. For a real one, type <code>weft serve smollm2</code>.
        </p>
      )}
      {model.value && <p class="about">{facts(model.value).join(" · ")}</p>}
    </div>
  );
}

/** In how many steps it was forked from the first one on the board. */
function depthOf(entry: Entry): number {
  let depth = 0;
  for (let at = entry.value.parent; at && depth < 6; ++depth) {
    const parent = opened.value.find(({ value }) => value.id === at);
    if (!parent) break;
    at = parent.value.parent;
  }
  return depth;
}

function Tabs() {
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [inView.value]);
  if (opened.value.length < 2 && !alone.value) return null;
  return (
    <nav class="tabs" aria-label="Conversations" ref={nav}>
      {opened.value.map((entry, i) => {
        const { id, color } = entry.value;
        return (
          <button
            key={id}
            data-color={color}
            style={{ "--depth": depthOf(entry) }}
            aria-current={(alone.value ? id === alone.value : i === inView.value) || undefined}
            onClick={() => {
              if (alone.peek()) return focusCard(id);
              document.querySelector(`[data-conversation="${id}"]`)?.scrollIntoView({ inline: "center", block: "nearest" });
            }}
          >
            <span class="dot" data-running={running.value.has(id)} />
            <span class="name">{shownTitle(entry.value)}</span>
          </button>
        );
      })}
    </nav>
  );
}

const mostOnShelf = 8;

function Shelf() {
  const all = putAway.value;
  if (all.length === 0) return null;
  const latest = all.slice().sort((a, b) => (b.value.kept?.version ?? Infinity) - (a.value.kept?.version ?? Infinity));
  return (
    <div class="shelf">
      <span>Parked</span>
      {latest.slice(0, mostOnShelf).map((entry) => (
        <button
          key={entry.value.id}
          data-color={entry.value.color}
          title="Restore"
          onClick={() => {
            update(entry, { open: true });
            focusCard(entry.peek().id);
          }}
        >
          <span class="dot" data-running={running.value.has(entry.value.id)} />
          <span class="name">{shownTitle(entry.value)}</span>
        </button>
      ))}
      {all.length > mostOnShelf && (
        <button class="quiet" onClick={() => (dialog.value = "find")}>All {all.length} …</button>
      )}
    </div>
  );
}

function ToAll() {
  const all = opened.value;
  if (all.length < 2 || alone.value) return null;
  const busy = all.filter((entry) => running.value.has(entry.value.id));
  const again = all.filter((entry) => !busy.includes(entry) && entry.value.messages.at(-1)?.role === "assistant");
  return (
    <div class="to-all">
      <Composer
        id={toAllId}
        label={`Write to all ${all.length} conversations`}
        placeholder={`Write to all ${all.length}`}
        text={toAll.value}
        busy={busy.length === all.length}
        action={`Send to ${all.length - busy.length || all.length}`}
        files={toAllFiles.value}
        change={(text) => (toAll.value = text)}
        attach={(files) => (toAllFiles.value = files)}
        send={() => {
          const [text, files] = [toAll.peek(), toAllFiles.peek()];
          toAll.value = "";
          toAllFiles.value = [];
          for (const entry of all) send(entry, text, files);
        }}
        stop={() => busy.forEach(stop)}
      />
      <div class="buttons">
        <button class="quiet" disabled={again.length === 0} onClick={() => again.forEach(retry)}>
          <Icon name="retry" /> Regenerate all
        </button>
        <button class="quiet" disabled={again.length < 2} onClick={() => (dialog.value = "compare")}>
          <Icon name="board" /> Compare two answers
        </button>
      </div>
    </div>
  );
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || dialog.peek()) return;
  const target = event.target as HTMLElement;
  const typing = target.matches("input, textarea, select");
  if (typing && !event.altKey) return;
  if (event.key === "Escape" && alone.peek()) {
    toggleAlone(alone.peek()!);
  } else if (event.key === "?" && !typing) {
    dialog.value = "keys";
  } else if (/^Digit[1-9]$/.test(event.code)) {
    const entry = opened.peek()[Number(event.code.at(-1)) - 1];
    if (!entry) return;
    focusCard(entry.peek().id);
  } else {
    const acts: Record<string, () => void> = {
      KeyN: newConversation,
      KeyM: () => (dialog.value = "several"),
      KeyA: () => document.getElementById(toAllId)?.focus(),
      KeyF: () => {
        const id = alone.peek() ?? (target.closest("[data-conversation]") as HTMLElement | null)?.dataset.conversation ?? opened.peek()[0]?.peek().id;
        if (id) toggleAlone(id);
      },
      KeyK: () => (dialog.value = "find"),
      KeyO: () => (dialog.value = "models"),
      KeyX: stopAll,
      KeyE: () => change({ engineOpen: !settings.peek().engineOpen }),
      KeyS: () => (dialog.value = "settings"),
    };
    const act = event.shiftKey ? undefined : acts[event.code];
    if (!act) return;
    act();
  }
  event.preventDefault();
}

// The address names the conversation that is shown by itself, so that it can be bookmarked. It may
// be one that only the server has.
const awaited = signal("");

function openAddressed(): void {
  const id = location.hash.slice(1);
  const entry = find(id);
  awaited.value = entry || isListed.peek() ? "" : id;
  if (!entry) return;
  update(entry, { open: true });
  if (opened.peek().length > 1) alone.value = entry.peek().id;
}

function keepAddress(): void {
  if (awaited.value) {
    if (isListed.value || entries.value.some((entry) => entry.peek().id === awaited.value)) openAddressed();
    if (awaited.peek()) return;
  }
  const only = alone.value ?? (opened.value.length === 1 ? opened.value[0].peek().id : "");
  const hash = only ? `#${only}` : "";
  if (location.hash !== hash) window.history.replaceState(null, "", hash || location.pathname + location.search);
}

export function App() {
  useEffect(() => {
    openAddressed();
    addEventListener("hashchange", openAddressed);
    return effect(keepAddress);
  }, []);
  useEffect(() => {
    void watch();
    if (opened.peek().length === 1 && matchMedia("(hover: hover)").matches) focusField();
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  const only = opened.value.find((entry) => entry.peek().id === alone.value);
  const cards = only ? [only] : opened.value;
  return (
    <>
      <button class="skip" onClick={focusField}>Write</button>
      <TopBar />
      <Trouble />
      <Loading />
      <div class="below">
        <main data-alone={only !== undefined}>
          <Tabs />
          {opened.value.length === 0 ? (
            <Welcome />
          ) : (
            <div
              class="board"
              data-count={Math.min(cards.length, 9)}
              style={settings.value.columns ? { "--columns": settings.value.columns } : undefined}
              onScroll={({ currentTarget: { scrollLeft, scrollWidth, clientWidth } }) => {
                const part = scrollLeft / Math.max(1, scrollWidth - clientWidth);
                inView.value = Math.round(part * (cards.length - 1));
              }}
            >
              {cards.map((entry) => (
                <Card key={entry.peek().id} entry={entry} number={opened.value.indexOf(entry) + 1} />
              ))}
            </div>
          )}
          <Shelf />
          <ToAll />
          <p class="hidden" role="status">
            {running.value.size > 0 ? `${plural(running.value.size, "answer")} being written` : ""}
          </p>
        </main>
        {settings.value.engineOpen && <EnginePanel />}
      </div>
      <Dialogs />
      <Notice />
    </>
  );
}
