// The engine's figures, polled while the page is visible: /health for the server's status, /metrics
// for its activity, /load/history for the last five minutes, /v1/sessions for what each conversation
// holds.
import { computed, effect, signal } from "@preact/signals";

import { ApiError, ask, askJson } from "./api";
import { exchange } from "./kept";
import { loadServers } from "./mcp";
import { settings } from "./settings";
import { answerLost, running } from "./turns";

export type Health = "unknown" | "ready" | "loading" | "unreachable" | "key";

export interface Session {
  id: string;
  state: "ready" | "running" | "parked" | "poisoned";
  tokens: number;
  pages: number;
  shared_pages: number; // also held by other sessions
  shared_with: number; // number of other sessions
  state_bytes: number;
  idle_ms: number;
  note?: string;
}

export interface Model {
  id: string;
  meta: {
    n_ctx: number;
    n_params: number;
    size: number;
    n_vocab: number;
    title: string; // empty: the file has none
    quantization: string; // empty: unknown
  };
  input_modalities?: string[]; // "text", and "image" if it sees
  // Only from a server with several models:
  status?: { value: "unloaded" | "loading" | "loaded"; progress?: number; failed?: boolean; reason?: string };
  memory_bytes?: number;
}

/** The defaults for requests, and the model's capabilities. */
export interface Props {
  default_generation_settings: { params: Partial<Record<string, number>> };
  chat_template_caps: { supports_tools: boolean; supports_preserve_reasoning: boolean };
  backend: string;
  total_slots: number; // answers that are computed at the same time
  same_bits: boolean; // whether an answer is independent of the others that are computed
}

/** Names in /metrics, with labels as in `weft_pages{kind="used"}`, and their values. */
export type Metrics = ReadonlyMap<string, number>;

/** The activity between two polls. Rates refer to the time in which the engine computed, not to
 *  the time between the polls, during which it may have been idle. */
export interface Rates {
  tokens: number; // generated per second
  prompt: number; // prompt tokens computed per second
  stepMs: number; // in recent steps; 0: there were none
  busy: number; // the fraction of time spent computing
}

export const health = signal<Health>("unknown");
export const healthReason = signal("");
/** How much of the model is loaded, while it is; undefined: not known. */
export const loadedPercent = signal<number | undefined>(undefined);
/** The server's models; a conversation that names none gets the first. */
export const models = signal<Model[]>([]);
export const model = signal<Model | null>(null);
/** Whether the model that answers sees pictures. */
export const sees = computed(() => {
  const name = settings.value.model.trim();
  const chosen = models.value.find(({ id }) => id === name) ?? model.value;
  return chosen?.input_modalities?.includes("image") ?? false;
});
export const props = signal<Props | null>(null);
export const metrics = signal<Metrics>(new Map());
export const sessions = signal<ReadonlyMap<string, Session>>(new Map());
/** Activity between the last polls. */
const recent = signal<Rates[]>([]);
const nothing: Rates = { tokens: 0, prompt: 0, stepMs: 0, busy: 0 };
export const rates = computed<Rates>(() => recent.value.at(-1) ?? nothing);
/** The rates of the last poll that found tokens. (If a poll falls between a step's tokens and its
 *  end, the next one finds only time.) */
export const lastRates = computed<Rates>(
  () => recent.value.findLast(({ tokens, prompt }) => tokens > 0 || prompt > 0) ?? nothing,
);

const recentLength = 60;
const busyMs = 1000;
const quietMs = 3000;

export function parseMetrics(text: string): Metrics {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    if (space <= 0) continue;
    // Several models are told as one.
    const name = line.slice(0, space).replace(/model="(?:[^"\\]|\\.)*",?/, "").replace("{}", "");
    values.set(name, (values.get(name) ?? 0) + Number(line.slice(space + 1)));
  }
  return values;
}

/** `change`: how much a number in /metrics has grown within `seconds`. */
export function ratesOf(change: (name: string) => number, seconds: number): Rates {
  const computing = change("weft_step_seconds_sum");
  const steps = change("weft_step_seconds_count");
  // A key that is not an operator's is not told how long the engine computed.
  const each = (name: string) => Math.max(0, change(name) / (computing > 0 ? computing : seconds));
  return {
    tokens: each("weft_generated_tokens_total"),
    prompt: each("weft_prompt_tokens_total"),
    stepMs: steps > 0 ? (1000 * computing) / steps : 0,
    busy: Math.min(1, Math.max(0, computing / seconds)),
  };
}

let former: { at: number; values: Metrics } | null = null;

function takeMetrics(values: Metrics): void {
  const now = performance.now();
  metrics.value = values;
  const seconds = former ? (now - former.at) / 1000 : 0;
  // Two polls in quick succession are merged into one interval.
  if (former && seconds <= 0.2) return;
  const change = (name: string) => (values.get(name) ?? 0) - (former?.values.get(name) ?? 0);
  const steps = change("weft_step_seconds_count");
  // A restarted server counts from zero.
  if (former && steps >= 0) {
    recent.value = [...recent.value, ratesOf(change, seconds)].slice(-recentLength);
  }
  former = { at: now, values };
}

// --- the last five minutes -----------------------------------------------------------

/** One value a second, the latest last. Keys that are not an operator's see only their own turns. */
export interface History {
  running: number[];
  waiting: number[];
  idle: number[]; // sessions in memory without a turn
  pages_used: number[];
  page_budget: number[];
  generated_tokens: number[];
  prompt_tokens: number[];
  steps: number[];
  step_us: number[];
}

interface HistoryAnswer extends Partial<History> {
  first: number;
  next: number;
  queue: { length: number; own: { session_id: string; place: number }[] };
}

export const historySeconds = 300;
export const history = signal<Partial<History>>({});
/** The places of this page's conversations in the server's queue. */
export const queue = signal<{ length: number; places: ReadonlyMap<string, number> }>({ length: 0, places: new Map() });

const columns = ["running", "waiting", "idle", "pages_used", "page_budget", "generated_tokens", "prompt_tokens", "steps", "step_us"] as const;
let nextSample = 0;

/** Of several models, the first one's, while it is loaded. */
async function historyAnswer(): Promise<HistoryAnswer | null> {
  try {
    return await askJson<HistoryAnswer>(`load/history?after=${nextSample}`);
  } catch (error) {
    if (error instanceof ApiError && error.status === 503 && models.value.length > 1) return null;
    throw error;
  }
}

async function takeHistory(): Promise<void> {
  const answer = await historyAnswer();
  if (!answer) return;
  // Otherwise it is another server's, or the page was away for longer than the server keeps.
  const goesOn = answer.first === nextSample;
  const next: Partial<History> = {};
  for (const name of columns) {
    const values = answer[name];
    if (values) next[name] = [...(goesOn ? (history.value[name] ?? []) : []), ...values].slice(-historySeconds);
  }
  nextSample = answer.next;
  history.value = next;
  const places = new Map(answer.queue.own.map(({ session_id, place }) => [session_id, place]));
  queue.value = { length: answer.queue.length, places };
}

// A server may keep them for its operators, or have none.
async function lookAtMetrics(): Promise<void> {
  try {
    takeMetrics(parseMetrics(await (await ask("metrics")).text()));
  } catch (error) {
    if (!(error instanceof ApiError) || (error.status !== 403 && error.status !== 501)) throw error;
  }
}

async function lookAtModels(): Promise<void> {
  models.value = (await askJson<{ data: Model[] }>("v1/models")).data;
  model.value = models.value[0] ?? null;
}

async function look(): Promise<void> {
  try {
    if (health.value !== "ready") {
      await ask("health");
      await lookAtModels();
      props.value = await askJson<Props>("props");
      await loadServers();
    } else if (models.value.length > 1) {
      await lookAtModels();
    }
    await lookAtMetrics();
    const list = (await askJson<{ data: Session[] }>("v1/sessions")).data;
    sessions.value = new Map(list.map((session) => [session.id, session]));
    await takeHistory();
    const isBack = health.value !== "ready";
    health.value = "ready";
    await exchange();
    if (isBack) answerLost();
  } catch (error) {
    const status = error instanceof ApiError ? error.status : 0;
    former = null;
    healthReason.value = error instanceof Error ? error.message : String(error);
    loadedPercent.value = error instanceof ApiError ? error.loadedPercent : undefined;
    if (status === 401) health.value = "key";
    else health.value = status === 503 ? "loading" : "unreachable";
  }
}

let timer = 0;
let looking = false;

/** Polls now, and then repeatedly. */
export async function watch(): Promise<void> {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  await look();
  looking = false;
  if (document.hidden) return;
  const busy =
    running.value.size > 0 || health.value !== "ready" ||
    (metrics.value.get("weft_turns_running") ?? 0) > 0 || rates.value.busy > 0;
  timer = setTimeout(watch, busy || settings.value.engineOpen ? busyMs : quietMs) as unknown as number;
}

document.addEventListener("visibilitychange", () => void watch());
// At once when something begins or ends, or another key is entered.
let formerKey = settings.peek().apiKey;
effect(() => {
  const key = settings.value.apiKey;
  void running.value.size;
  if (key !== formerKey) health.value = "unknown";
  formerKey = key;
  setTimeout(() => void watch(), 60);
});
