// The numbers of the engine, asked for while somebody looks: /health says how the server
// is, /metrics what it does, /v1/sessions what each conversation holds.
import { computed, effect, signal } from "@preact/signals";

import { ApiError, ask, askJson } from "./api";
import { settings } from "./settings";
import { running } from "./turns";

export type Health = "unknown" | "ready" | "loading" | "unreachable" | "key";

export interface Session {
  id: string;
  state: "ready" | "running" | "parked" | "poisoned";
  tokens: number;
  pages: number;
  shared_pages: number;
  state_bytes: number;
  idle_ms: number;
  note?: string;
}

export interface Model {
  id: string;
  meta: { n_ctx: number; n_params: number; size: number; n_vocab: number };
}

/** Names of /metrics, with labels as in `weft_pages{kind="used"}`, and their values. */
export type Metrics = ReadonlyMap<string, number>;

/** What happened between two looks. */
export interface Rates {
  tokens: number; // generated per second
  prompt: number; // prompt tokens computed per second
  stepMs: number; // of the last steps; 0: there were none
  steps: number; // per second
}

export const health = signal<Health>("unknown");
export const healthReason = signal("");
export const model = signal<Model | null>(null);
export const metrics = signal<Metrics>(new Map());
export const sessions = signal<ReadonlyMap<string, Session>>(new Map());
export const history = signal<Rates[]>([]);
export const rates = computed<Rates>(
  () => history.value.at(-1) ?? { tokens: 0, prompt: 0, stepMs: 0, steps: 0 },
);

export const historyLength = 60;
const busyMs = 1000;
const quietMs = 3000;

export function parseMetrics(text: string): Metrics {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    if (space > 0) values.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return values;
}

let former: { at: number; values: Metrics } | null = null;

function takeMetrics(values: Metrics): void {
  const now = performance.now();
  metrics.value = values;
  const seconds = former ? (now - former.at) / 1000 : 0;
  const change = (name: string) => (values.get(name) ?? 0) - (former?.values.get(name) ?? 0);
  const steps = change("weft_step_seconds_count");
  // A server that was started again counts from zero.
  if (seconds > 0.2 && steps >= 0) {
    const next: Rates = {
      tokens: Math.max(0, change("weft_generated_tokens_total") / seconds),
      prompt: Math.max(0, change("weft_prompt_tokens_total") / seconds),
      stepMs: steps > 0 ? (1000 * change("weft_step_seconds_sum")) / steps : 0,
      steps: steps / seconds,
    };
    history.value = [...history.value, next].slice(-historyLength);
  }
  former = { at: now, values };
}

async function look(): Promise<void> {
  try {
    if (health.value !== "ready") {
      await ask("health");
      model.value = (await askJson<{ data: Model[] }>("v1/models")).data[0] ?? null;
    }
    takeMetrics(parseMetrics(await (await ask("metrics")).text()));
    const list = (await askJson<{ data: Session[] }>("v1/sessions")).data;
    sessions.value = new Map(list.map((session) => [session.id, session]));
    health.value = "ready";
  } catch (error) {
    const status = error instanceof ApiError ? error.status : 0;
    former = null;
    healthReason.value = error instanceof Error ? error.message : String(error);
    if (status === 401) health.value = "key";
    else health.value = status === 503 ? "loading" : "unreachable";
  }
}

let timer = 0;
let looking = false;

/** Looks now, and then again and again. */
export async function watch(): Promise<void> {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  await look();
  looking = false;
  if (document.hidden) return;
  const busy =
    running.value.size > 0 || health.value !== "ready" ||
    (metrics.value.get("weft_turns_running") ?? 0) > 0 || rates.value.tokens > 0;
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
