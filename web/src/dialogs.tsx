// What opens above the page: settings, several conversations at once, the keys.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { entries } from "./conversations";
import { model } from "./engine";
import { exportJson, exportMarkdown } from "./export";
import { Icon } from "./icons";
import { change, settings } from "./settings";
import { sendSeveral } from "./turns";

export const dialog = signal<"settings" | "several" | "keys" | null>(null);

function Dialog({ title, children }: { title: string; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    element.current?.showModal();
    (element.current?.querySelector<HTMLElement>("[data-first]") ?? element.current)?.focus();
  }, []);
  // At once, not when the browser says later that it has closed: the next key is the page's.
  const leave = () => {
    element.current?.close();
    dialog.value = null;
  };
  return (
    <dialog
      ref={element}
      aria-label={title}
      tabIndex={-1}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        leave();
      }}
      onClose={() => element.current && leave()} // of this one; another may be open by now
      onClick={(event) => event.target === element.current && leave()}
    >
      <header>
        <h2>{title}</h2>
        <button class="small" aria-label="Close" title="Close (Esc)" onClick={leave}>
          <Icon name="close" />
        </button>
      </header>
      {children}
    </dialog>
  );
}

type TextSetting = "model" | "system" | "temperature" | "topP" | "maxTokens" | "seed" | "apiKey";

interface FieldProps {
  name: TextSetting;
  label: string;
  hint?: string;
  placeholder?: string;
  kind?: "number" | "password" | "area";
  list?: string;
}

function Field({ name, label, hint, placeholder, kind, list }: FieldProps) {
  const shared = {
    id: `setting-${name}`,
    value: settings.value[name],
    placeholder,
    "aria-describedby": hint ? `hint-${name}` : undefined,
    onInput: (event: Event) =>
      change({ [name]: (event.currentTarget as HTMLInputElement).value }),
  };
  return (
    <div class="field">
      <label for={shared.id}>{label}</label>
      {kind === "area" && <textarea rows={3} {...shared} />}
      {kind === "password" && <input type="password" autocomplete="off" {...shared} />}
      {kind === "number" && <input type="text" inputMode="decimal" autocomplete="off" {...shared} />}
      {!kind && <input type="text" autocomplete="off" spellcheck={false} list={list} {...shared} />}
      {hint && <p id={`hint-${name}`}>{hint}</p>}
    </div>
  );
}

function SettingsDialog() {
  const all = entries.value.map((entry) => entry.value);
  return (
    <Dialog title="Settings">
      <Field name="system" label="System prompt" kind="area" placeholder="None" hint="For conversations that you begin from now on." />
      <div class="row">
        <Field name="temperature" label="Temperature" kind="number" placeholder="0.8" />
        <Field name="topP" label="Top-p" kind="number" placeholder="0.95" />
        <Field name="maxTokens" label="Most tokens" kind="number" placeholder="No limit" />
        <Field name="seed" label="Seed" kind="number" placeholder="Random" />
      </div>
      <Field name="model" label="Model" placeholder={model.value?.id ?? "The one served"} list="models" />
      <datalist id="models">{model.value && <option value={model.value.id} />}</datalist>
      <Field
        name="apiKey"
        label="API key"
        kind="password"
        placeholder="None"
        hint="Kept in this browser and sent to this server only."
      />
      <div class="field">
        <span class="label">All conversations</span>
        <div class="buttons">
          <button disabled={all.length === 0} onClick={() => exportMarkdown(all)}>Export as Markdown</button>
          <button disabled={all.length === 0} onClick={() => exportJson(all)}>Export as JSON</button>
        </div>
      </div>
    </Dialog>
  );
}

// What the model in the box understands: names that differ, and one conversation without.
const examples = [
  "My name is Mira and my boat is green.",
  "My name is Jonas and my sister is called Ida.",
  "My name is Lena and my favourite drink is tea.",
  "My name is Ravi and I have a yellow kite.",
  "My name is Hugo and I have seven stamps.",
  "My name is Theo and I left my umbrella in the kitchen.",
  "My name is Zoe and my party is on Friday.",
  "Tell me a story about a fox.",
].join("\n");

const several = signal(examples);

function SeveralDialog() {
  const lines = several.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const start = () => {
    dialog.value = null;
    sendSeveral(lines);
  };
  return (
    <Dialog title="Start several at once">
      <div class="field">
        <label for="several">Each line begins a conversation</label>
        <textarea
          id="several"
          data-first
          rows={9}
          value={several.value}
          onInput={(event) => (several.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
          }}
        />
        <p>Then ask all of them, in the line below the board: “What is my name?”</p>
      </div>
      <div class="buttons end">
        <button class="primary" disabled={lines.length === 0} onClick={start}>
          Start {lines.length}
        </button>
      </div>
    </Dialog>
  );
}

const keys: [string, string][] = [
  ["Enter", "Send"],
  ["Shift Enter", "New line"],
  ["Esc", "Stop the answer, or leave the field"],
  ["Alt N", "New conversation"],
  ["Alt M", "Start several at once"],
  ["Alt A", "Write to all"],
  ["Alt 1 … 9", "Go to a conversation"],
  ["F2", "Rename the conversation"],
  ["Alt X", "Stop all answers"],
  ["Alt E", "Engine"],
  ["Alt S", "Settings"],
  ["?", "These keys"],
];

function KeysDialog() {
  return (
    <Dialog title="Keys">
      <dl class="keys">
        {keys.map(([key, what]) => (
          <>
            <dt>
              {key.split(" ").map((part) => (part === "…" ? " … " : <kbd>{part}</kbd>))}
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
      <p class="hint">Outside of a text field Alt may be left out.</p>
    </Dialog>
  );
}

export function Dialogs() {
  if (dialog.value === "settings") return <SettingsDialog />;
  if (dialog.value === "several") return <SeveralDialog />;
  if (dialog.value === "keys") return <KeysDialog />;
  return null;
}
