// Dialogs over the page: settings, starting several conversations, keyboard shortcuts.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { showNew } from "./card";
import { Compare } from "./compare";
import { entries, serverKeeps } from "./conversations";
import { model, models, props } from "./engine";
import { exportJson, exportMarkdown, importJson } from "./export";
import { Find } from "./find";
import { plural } from "./format";
import { Icon } from "./icons";
import { type Server, servers, tryAgain } from "./mcp";
import { ModelsList } from "./models";
import { tell } from "./notice";
import { proposed } from "./prompts";
import { SessionText, shownSession } from "./session";
import { change, type Form, schemaProblem, type Settings, settings } from "./settings";
import { tools } from "./tools";
import { sendSeveral } from "./turns";

export const dialog = signal<"settings" | "several" | "keys" | "models" | "compare" | "find" | "session" | null>(null);

function Dialog({ title, wide, children }: { title: string; wide?: boolean; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    element.current?.showModal();
    (element.current?.querySelector<HTMLElement>("[data-first]") ?? element.current)?.focus();
  }, []);
  // At once, not when the browser later reports that it has closed: the next key press belongs to
  // the page.
  const leave = () => {
    element.current?.close();
    dialog.value = null;
  };
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : undefined}
      aria-label={title}
      tabIndex={-1}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        leave();
      }}
      onClose={() => element.current && leave()} // another may be open by now
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

type TextSetting = { [name in keyof Settings]: string extends Settings[name] ? name : never }[keyof Settings];

interface FieldProps {
  name: TextSetting;
  label: string;
  hint?: string;
  placeholder?: string;
  kind?: "number" | "password" | "area" | "code";
  list?: string;
  problem?: string; // with its value
}

function Field({ name, label, hint, placeholder, kind, list, problem }: FieldProps) {
  const shared = {
    id: `setting-${name}`,
    value: settings.value[name],
    placeholder,
    "aria-describedby": hint || problem ? `hint-${name}` : undefined,
    "aria-invalid": problem ? true : undefined,
    onInput: (event: Event) =>
      change({ [name]: (event.currentTarget as HTMLInputElement).value }),
  };
  return (
    <div class="field">
      <label for={shared.id}>{label}</label>
      {kind === "area" && <textarea rows={3} {...shared} />}
      {kind === "code" && <textarea class="code" rows={6} spellcheck={false} autocomplete="off" {...shared} />}
      {kind === "password" && <input type="password" autocomplete="off" {...shared} />}
      {kind === "number" && <input type="text" inputMode="decimal" autocomplete="off" {...shared} />}
      {!kind && <input type="text" autocomplete="off" spellcheck={false} list={list} {...shared} />}
      {(hint || problem) && <p id={`hint-${name}`} class={problem ? "warn" : undefined}>{problem || hint}</p>}
    </div>
  );
}

function shownDefault(value: number | undefined): string {
  return value === undefined ? "The server's" : String(Number(value.toPrecision(3)));
}

function McpServer({ server: { url, state, trouble, connection } }: { server: Server }) {
  const { mcp } = settings.value;
  const isOn = mcp.includes(url);
  const toggle = () => change({ mcp: isOn ? mcp.filter((other) => other !== url) : [...mcp, url] });
  return (
    <>
      <label>
        <input type="checkbox" checked={isOn} onChange={toggle} />
        <span>
          <strong>MCP server</strong> {url}
          {state === "connecting" && " · connecting …"}
          {connection && ` · ${plural(connection.tools.length, "tool")}: ${connection.tools.map(({ name }) => name).join(", ")}`}
        </span>
      </label>
      {trouble && (
        <p class="warn" role="alert">
          {trouble} <button class="link" onClick={() => tryAgain(url)}>Try again</button>
        </p>
      )}
    </>
  );
}

function ToolsField() {
  const { tools: on } = settings.value;
  const toggle = (name: string) =>
    change({ tools: on.includes(name) ? on.filter((other) => other !== name) : [...on, name] });
  return (
    <fieldset class="field tools">
      <legend>Tools that the model may call</legend>
      {tools.map(({ name, label, about }) => (
        <label>
          <input type="checkbox" checked={on.includes(name)} onChange={() => toggle(name)} />
          <span><strong>{label}</strong> {about}</span>
        </label>
      ))}
      {servers.value.map((server) => <McpServer key={server.url} server={server} />)}
      <p>
        What they were asked and gave is shown. The clock and the calculator run in this page.
        {servers.value.length > 0 ? " An MCP server is asked only after you allowed the call." : " With --page-mcp URL, the tools of an MCP server are here, too."}
        {props.value?.chat_template_caps.supports_tools === false &&
          " This model was not made for tools: it may not call them, or call them wrongly."}
      </p>
    </fieldset>
  );
}

function Choice<Name extends "reasoning" | "form" | "columns">({ name, label, options }: { name: Name; label: string; options: [Settings[Name], string][] }) {
  return (
    <div class="field">
      <label for={`setting-${name}`}>{label}</label>
      <select
        id={`setting-${name}`}
        value={settings.value[name]}
        onChange={(event) => change({ [name]: event.currentTarget.value })}
      >
        {options.map(([value, text]) => <option value={value}>{text}</option>)}
      </select>
    </div>
  );
}

/** The system prompt of new conversations, and those kept by name. */
function SystemField() {
  const { system, prompts } = settings.value;
  const name = useRef<HTMLInputElement>(null);
  const chosen = prompts.find(({ text }) => text === system)?.name ?? "";
  const keep = () => {
    const called = name.current!.value.trim();
    if (!called || !system.trim()) return;
    const others = prompts.filter((prompt) => prompt.name !== called);
    change({ prompts: [...others, { name: called, text: system }] });
    name.current!.value = "";
  };
  return (
    <>
      <Field name="system" label="System prompt" kind="area" placeholder="None" hint="Applies to new conversations." />
      <div class="field kept">
        {prompts.length > 0 && (
          <>
            <select
              aria-label="Kept system prompts"
              value={chosen}
              onChange={(event) => {
                const prompt = prompts.find((other) => other.name === event.currentTarget.value);
                change({ system: prompt?.text ?? "" });
              }}
            >
              <option value="">{system && !chosen ? "Not kept yet" : "None"}</option>
              {prompts.map((prompt) => <option value={prompt.name}>{prompt.name}</option>)}
            </select>
            {chosen && (
              <button onClick={() => change({ prompts: prompts.filter((prompt) => prompt.name !== chosen) })}>Delete</button>
            )}
          </>
        )}
        {system.trim() && !chosen && (
          <>
            <input
              ref={name}
              type="text"
              aria-label="Name of the system prompt"
              placeholder="Name"
              autocomplete="off"
              maxLength={60}
              onKeyDown={(event) => event.key === "Enter" && keep()}
            />
            <button onClick={keep}>Keep</button>
          </>
        )}
      </div>
    </>
  );
}

function ReasoningFields() {
  return (
    <div class="row">
      <Choice name="reasoning" label="Reasoning" options={[["", "Default"], ["on", "On"], ["off", "Off"]]} />
      {settings.value.reasoning !== "off" && (
        <Field name="reasoningBudget" label="Max reasoning tokens" kind="number" placeholder="No limit" />
      )}
    </div>
  );
}

const forms: [Form, string][] = [
  ["", "Free text"],
  ["json", "Any JSON object"],
  ["schema", "JSON that fits a JSON Schema"],
  ["grammar", "Text that fits a grammar (GBNF)"],
  ["regex", "Text that fits a regular expression"],
];

function FormFields() {
  const { form, schema } = settings.value;
  return (
    <>
      <Choice name="form" label="Answers are" options={forms} />
      {form === "schema" && (
        <Field
          name="schema"
          label="JSON Schema"
          kind="code"
          placeholder={'{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'}
          problem={schema.trim() ? schemaProblem(schema) : ""}
        />
      )}
      {form === "grammar" && <Field name="grammar" label="Grammar" kind="code" placeholder={'root ::= "yes" | "no"'} />}
      {form === "regex" && <Field name="regex" label="Regular expression" placeholder="[0-9]{4}-[0-9]{2}-[0-9]{2}" />}
    </>
  );
}

function MoreSampling() {
  const defaults = props.value?.default_generation_settings.params;
  return (
    <details class="more">
      <summary>More sampling parameters</summary>
      <div class="row">
        <Field name="topK" label="Top-k" kind="number" placeholder={shownDefault(defaults?.top_k)} />
        <Field name="minP" label="Min-p" kind="number" placeholder={shownDefault(defaults?.min_p)} />
        <Field name="repeatPenalty" label="Repeat penalty" kind="number" placeholder={shownDefault(defaults?.repeat_penalty)} />
        <Field name="repeatLastN" label="Repeat last n" kind="number" placeholder={shownDefault(defaults?.repeat_last_n)} />
        <Field name="presencePenalty" label="Presence penalty" kind="number" placeholder={shownDefault(defaults?.presence_penalty)} />
        <Field name="frequencyPenalty" label="Frequency penalty" kind="number" placeholder={shownDefault(defaults?.frequency_penalty)} />
        <Field name="minTokens" label="Min tokens" kind="number" placeholder="0" />
      </div>
      <Field name="stop" label="Stop strings" kind="area" placeholder="None" hint="One in each line." />
    </details>
  );
}

function ImportButton() {
  const picker = useRef<HTMLInputElement>(null);
  const take = async (file: File | undefined) => {
    if (!file) return;
    try {
      const made = importJson(await file.text());
      dialog.value = null;
      showNew(made);
      tell(`Imported ${plural(made.length, "conversation")}.`);
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <input ref={picker} class="hidden" type="file" accept=".json,application/json" tabIndex={-1} aria-hidden="true" onChange={(event) => void take(event.currentTarget.files?.[0])} />
      <button onClick={() => picker.current?.click()}>Import JSON</button>
    </>
  );
}

function SettingsDialog() {
  const defaults = props.value?.default_generation_settings.params;
  const all = entries.value.map((entry) => entry.value);
  return (
    <Dialog title="Settings">
      <SystemField />
      <div class="row">
        <Field name="temperature" label="Temperature" kind="number" placeholder={shownDefault(defaults?.temperature)} />
        <Field name="topP" label="Top-p" kind="number" placeholder={shownDefault(defaults?.top_p)} />
        <Field name="maxTokens" label="Max tokens" kind="number" placeholder="No limit" />
        <Field name="seed" label="Seed" kind="number" placeholder="Random" />
      </div>
      <MoreSampling />
      <ReasoningFields />
      <FormFields />
      <ToolsField />
      <Choice
        name="columns"
        label="Columns of the board"
        options={[["", "As many as fit"], ...["1", "2", "3", "4", "5", "6"].map((n): [string, string] => [n, n])]}
      />
      <Field name="model" label="Model" placeholder={model.value?.id ?? "The served model"} list="models" />
      <div class="field buttons">
        <button onClick={() => (dialog.value = "models")}>Local models …</button>
      </div>
      <datalist id="models">{models.value.map(({ id }) => <option value={id} />)}</datalist>
      <Field
        name="apiKey"
        label="API key"
        kind="password"
        placeholder="None"
        hint="Stored in this browser, sent only to this server."
      />
      <div class="field">
        <span class="label">All conversations</span>
        <div class="buttons">
          <button disabled={all.length === 0} onClick={() => exportMarkdown(all)}>Export as Markdown</button>
          <button disabled={all.length === 0} onClick={() => exportJson(all)}>Export as JSON</button>
          <ImportButton />
        </div>
        <p>
          {serverKeeps.value
            ? "Kept on the server, for every browser with this key."
            : "Kept in this browser alone. With --state-dir, the server keeps them for every browser."}
        </p>
      </div>
    </Dialog>
  );
}

// Null: the prompts proposed for the current model.
const several = signal<string | null>(null);

function SeveralDialog() {
  const { then } = proposed.value;
  const text = several.value ?? proposed.value.several.join("\n");
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const start = () => {
    dialog.value = null;
    showNew(sendSeveral(lines));
  };
  return (
    <Dialog title="Start several conversations">
      <div class="field">
        <label for="several">Each line begins a conversation</label>
        <textarea
          id="several"
          data-first
          rows={9}
          value={text}
          onInput={(event) => (several.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
          }}
        />
        {several.value === null && <p>Then ask all of them, in the line below the board: “{then}”</p>}
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
  ["Alt M", "Start several conversations"],
  ["Alt K", "Find a conversation"],
  ["Alt A", "Write to all"],
  ["Alt 1 … 9", "Go to a conversation"],
  ["Alt F", "Show only this conversation, or the board"],
  ["F2", "Rename the conversation"],
  ["Alt X", "Stop all answers"],
  ["Alt E", "Engine"],
  ["Alt O", "Local models"],
  ["Alt S", "Settings"],
  ["?", "Keyboard shortcuts"],
];

function KeysDialog() {
  return (
    <Dialog title="Keyboard shortcuts">
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
      <p class="hint">Outside a text field you can omit Alt.</p>
    </Dialog>
  );
}

export function Dialogs() {
  if (dialog.value === "settings") return <SettingsDialog />;
  if (dialog.value === "models") {
    return (
      <Dialog title="Local models">
        <ModelsList />
      </Dialog>
    );
  }
  if (dialog.value === "compare") {
    return (
      <Dialog title="Compare two answers" wide>
        <Compare />
      </Dialog>
    );
  }
  if (dialog.value === "find") {
    return (
      <Dialog title="Conversations">
        <Find leave={() => (dialog.value = null)} showSession={() => (dialog.value = "session")} />
      </Dialog>
    );
  }
  if (dialog.value === "session") {
    return (
      <Dialog title={shownSession.value}>
        <SessionText leave={() => (dialog.value = null)} />
      </Dialog>
    );
  }
  if (dialog.value === "several") return <SeveralDialog />;
  if (dialog.value === "keys") return <KeysDialog />;
  return null;
}
