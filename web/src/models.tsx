// The dialog of models: each one's facts and memory, and the command that serves it. A server of
// one model keeps it, so another one means typing a command.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { ApiError, askJson } from "./api";
import { entries } from "./conversations";
import { copy } from "./copy";
import { type Model, model, models, props, sessions } from "./engine";
import { bytes, count, plural } from "./format";
import { Icon } from "./icons";

export interface LocalModel {
  id: string;
  where: string;
  bytes: number;
  served: boolean;
  command: string;
  error?: string; // if set, the following are absent
  title?: string;
  quantization?: string;
  parameters?: number;
  context_tokens?: number;
  session?: { tokens: number; bytes: number };
}

/** A file's title up to its size: "Smollm2 135M 8k Lc100K Mix1 Ep2" is SmolLM2 135M. */
export function shortName(title: string): string {
  const words = title.replace(/[-_]+/g, " ").split(" ");
  const size = words.findIndex((word) => /^\d+(\.\d+)?[KMBT]$/i.test(word));
  const name = size > 0 ? words.slice(0, size + 1).join(" ") : title;
  return name.replace(/^smollm/i, "SmolLM");
}

export function nameOf({ id, meta }: Model): string {
  return shortName(meta.title || id);
}

/** A one-line summary of the model. */
export function facts({ meta }: Model): string[] {
  return [
    `${count(meta.n_params)} parameters`,
    ...(meta.quantization ? [meta.quantization] : []),
    bytes(meta.size),
    `context of ${meta.n_ctx.toLocaleString("en")} tokens`,
  ];
}

/** One that can be downloaded. */
interface KnownModel {
  id: string;
  use: "chat" | "code" | "embeddings";
  about: string;
  license: string;
  bytes: number;
  context_tokens: number;
  session: { tokens: number; bytes: number };
  sessions_that_fit: number;
  command: string;
}

const list = signal<LocalModel[] | null>(null);
const known = signal<KnownModel[]>([]);
const trouble = signal("");
const chosen = signal("");

async function load(): Promise<void> {
  try {
    const answer = await askJson<{ data: LocalModel[]; known?: KnownModel[] }>("v1/models/local");
    list.value = answer.data;
    known.value = answer.known ?? [];
    trouble.value = "";
  } catch (error) {
    list.value = null;
    trouble.value =
      error instanceof ApiError && error.status === 403
        ? "Only the server's operator can see the models on its computer."
        : `The models cannot be listed: ${error instanceof Error ? error.message : error}`;
  }
}

function LocalFacts({ of }: { of: LocalModel }) {
  if (of.error) return <span class="warn">{of.error}</span>;
  const parts = [
    ...(of.quantization ? [of.quantization] : []),
    bytes(of.bytes),
    `context ${count(of.context_tokens ?? 0)}`,
    of.where,
  ];
  return <>{parts.join(" · ")}</>;
}

function Command({ text }: { text: string }) {
  return (
    <p class="command">
      <code tabIndex={0}>{text}</code>
      {navigator.clipboard && (
        <button class="small" onClick={() => copy(text)} title="Copy the command" aria-label="Copy the command">
          <Icon name="copy" />
        </button>
      )}
    </p>
  );
}

/** All that is needed to serve another model. */
function Cost({ of }: { of: LocalModel }) {
  const known = entries.value.map((entry) => sessions.value.get(entry.value.id)).filter((session) => session !== undefined);
  const tokens = known.reduce((sum, session) => sum + session.tokens, 0);
  const now = model.value?.meta.size ?? 0;
  return (
    <div class="cost">
      <p>
        {models.value.length > 1 ? "This server was started without it." : "This server runs one model."} Stop it with
        Ctrl-C and start it with:
      </p>
      <Command text={of.command} />
      <ul>
        <li>{bytes(of.bytes)} of weights are loaded (now {bytes(now)}).</li>
        {of.session && (
          <li>A conversation of {of.session.tokens.toLocaleString("en")} tokens takes {bytes(of.session.bytes)} more.</li>
        )}
        <li>
          The conversations stay. Their KV cache belongs to the model:{" "}
          {known.length > 0
            ? `the ${count(tokens)} tokens of ${plural(known.length, "conversation")} are computed again when they go on.`
            : "there is none now."}
        </li>
      </ul>
    </div>
  );
}

function stateOf({ status, memory_bytes: memory }: Model): string {
  if (status?.failed) return `cannot be loaded: ${status.reason}`;
  if (status?.value === "loaded") return `loaded, ${bytes(memory ?? 0)}`;
  if (status?.value === "loading") return `loading: ${Math.round(100 * (status.progress ?? 0))} %`;
  return "loaded when a conversation asks for it";
}

/** Of several: where each stands. */
function ServedModels() {
  if (models.value.length < 2) return null;
  return (
    <section>
      <h3>Models of this server</h3>
      <dl class="served">
        {models.value.map((of) => (
          <div class="fact" key={of.id}>
            <dt>{of.id}</dt>
            <dd>{stateOf(of)}</dd>
          </div>
        ))}
      </dl>
      <p class="hint">A conversation names its model in its settings; without one it gets {models.value[0].id}.</p>
    </section>
  );
}

/** What the served model can do, and its limits. */
function Served() {
  if (!model.value || !props.value) return null;
  const { meta } = model.value;
  const { chat_template_caps: caps, total_slots: slots, backend } = props.value;
  const rows: [string, string][] = [
    ["Context", `${meta.n_ctx.toLocaleString("en")} tokens`],
    ["Answers at the same time", `${slots}, others wait`],
    ["Tools", caps.supports_tools ? "made for them" : "not made for them, may call them wrongly"],
    ["Reasoning of earlier turns", caps.supports_preserve_reasoning ? "kept" : "left out"],
    ["Parameters", `${count(meta.n_params)}${meta.quantization ? `, ${meta.quantization}` : ""}`],
    ["Weights", bytes(meta.size)],
    ["Computed by", backend],
  ];
  return (
    <dl class="served">
      {rows.map(([name, value]) => (
        <div class="fact">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const uses = { chat: "Chat", code: "Code", embeddings: "Embeddings" };
const otherMemory = 3; // conversations for which the memory is told

function KnownFacts({ of }: { of: KnownModel }) {
  const { session, sessions_that_fit: fit } = of;
  const memory = of.bytes + otherMemory * session.bytes;
  const parts = [`${bytes(of.bytes)} to download`, `context ${count(of.context_tokens)}`];
  if (of.use !== "embeddings") {
    parts.push(`${bytes(memory)} with ${otherMemory} conversations`, `${fit >= 999 ? "999 and more" : fit} fit now`);
  }
  parts.push(of.license);
  return <span class="detail">{parts.join(" · ")}</span>;
}

/** What this computer could run, by what it is for. The rest is told below. */
function KnownModels() {
  const all = known.value;
  if (all.length === 0) return null;
  const fits = all.filter((of) => of.sessions_that_fit > 0);
  const tooLarge = all.filter((of) => of.sessions_that_fit === 0);
  return (
    <section class="known">
      <h3>Models to download that fit into this computer's free memory</h3>
      <p class="hint">Conversations are counted with {count(all[0].session.tokens)} tokens each.</p>
      {fits.length === 0 && <p class="hint">None of the well-known ones fits now.</p>}
      {(["chat", "code", "embeddings"] as const).map((use) => {
        const those = fits.filter((of) => of.use === use);
        if (those.length === 0) return null;
        return (
          <>
            <h4>{uses[use]}</h4>
            {those.map((of) => (
              <details key={of.id}>
                <summary>
                  <strong>{of.id}</strong> {of.about}
                  <KnownFacts of={of} />
                </summary>
                <Command text={of.command} />
              </details>
            ))}
          </>
        );
      })}
      {tooLarge.length > 0 && <p class="hint">They do not fit now: {tooLarge.map(({ id }) => id).join(", ")}.</p>}
    </section>
  );
}

export function ModelsList() {
  useEffect(() => void load(), []);
  if (trouble.value) return <p class="hint">{trouble.value}</p>;
  if (!list.value) return <p class="hint">Searching …</p>;
  const selected = list.value.find(({ id }) => id === chosen.value) ?? list.value.find(({ served }) => served);
  return (
    <>
      <ServedModels />
      <fieldset class="models">
        <legend class="hidden">Models on the server's computer</legend>
        {list.value.map((of) => (
          <label>
            <input
              type="radio"
              name="model"
              checked={of === selected}
              disabled={of.error !== undefined}
              onChange={() => (chosen.value = of.id)}
            />
            <span>
              <strong>{shortName(of.title || of.id)}</strong>
              {of.served && <span class="badge">served</span>}
              <span class="detail">{of.title && of.title !== of.id ? `${of.id} · ` : ""}<LocalFacts of={of} /></span>
            </span>
          </label>
        ))}
      </fieldset>
      {selected?.served && <Served />}
      {selected && !selected.served && !selected.error && <Cost of={selected} />}
      <KnownModels />
      <p class="hint">“weft models” has the same lists in a terminal. “weft pull NAME” downloads a model.</p>
    </>
  );
}
