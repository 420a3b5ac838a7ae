// The engine at a glance: a line with its activity, and a panel with all of its figures.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { Chart } from "./chart";
import { find, shownTitle } from "./conversations";
import {
  health,
  healthReason,
  history,
  lastRates,
  loadedPercent,
  metrics,
  model,
  props,
  rates,
  type Session,
  sessions,
} from "./engine";
import { Weave } from "./weave";
import "./engine.css";
import { bytes, count, duration, milliseconds, percent, plural, rate } from "./format";
import { Icon } from "./icons";
import { facts, nameOf } from "./models";
import { change, settings } from "./settings";

function metric(name: string): number {
  return metrics.value.get(name) ?? 0;
}

function pages(kind: "used" | "in_index" | "budget"): number {
  return metric(`weft_pages{kind="${kind}"}`);
}

function memory(kind: string): number {
  return metric(`weft_bytes{kind="${kind}"}`);
}

const memoryKinds = [
  ["weights", "Weights"],
  ["pages", "Pages"],
  ["slots", "Recurrent state"],
  ["checkpoints", "Its checkpoints"],
  ["scratch", "Scratch"],
] as const;

function allMemory(): number {
  return memoryKinds.reduce((sum, [kind]) => sum + memory(kind), 0);
}

/** Parts of a whole; the rest of `whole` stays empty. */
function Bar({ parts, whole }: { parts: [name: string, value: number][]; whole: number }) {
  return (
    <span class="bar" aria-hidden="true">
      {parts.map(([name, value]) => (
        <span
          class={`part ${name}`}
          style={{ width: `${whole > 0 ? (100 * value) / whole : 0}%` }}
        />
      ))}
    </span>
  );
}

/** The prompt tokens so far that did not have to be computed. */
function cachedShare(): [number, number] {
  const cached = metric("weft_cached_tokens_total");
  return [cached, cached + metric("weft_prompt_tokens_total")];
}

/** What goes on, in a line; opens the panel. */
export function EngineLine() {
  if (health.value !== "ready") return null;
  const hasMetrics = metrics.value.size > 0;
  const now = hasMetrics ? metric("weft_turns_running") : (history.value.running?.at(-1) ?? 0);
  const queued = hasMetrics ? metric("weft_turns_queued") : (history.value.waiting?.at(-1) ?? 0);
  const last = lastRates.value;
  const [cached, prompt] = cachedShare();
  const parts = [now > 0 ? `${now} answering` : "Idle"];
  if (queued > 0) parts.push(`${queued} waiting`);
  if (now > 0 && last.tokens > 0) parts.push(`${rate(last.tokens)} tokens/s`);
  else if (now > 0 && last.prompt > 0) parts.push(`${rate(last.prompt)} tokens/s read`);
  if (cached > 0) parts.push(`${percent(cached, prompt)} remembered`);
  const text = parts.join(", ");
  const open = settings.value.engineOpen;
  return (
    <button
      class="quiet line"
      aria-pressed={open}
      aria-label={`Engine: ${text}`}
      title={`${count(cached)} of ${count(prompt)} prompt tokens came from the KV cache. Opens the engine (Alt+E).`}
      onClick={() => change({ engineOpen: !open })}
    >
      <Icon name="gauge" /> <span>{text}</span>
    </button>
  );
}

// --- the panel -------------------------------------------------------------------------

function Row({ name, children, mark }: { name: string; children: ComponentChildren; mark?: string }) {
  return (
    <div class="fact">
      <dt>
        {mark && <span class={`swatch ${mark}`} />}
        {name}
      </dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Pages shared only with the prefix cache count as the session's own here. */
export function pagesText({ pages, shared_pages, shared_with }: Session): string {
  const all = plural(pages, "page");
  if (shared_pages === 0) return all;
  return `${all}, ${count(shared_pages)} shared with ${plural(shared_with, "conversation")}`;
}

function SessionRow({ session, most }: { session: Session; most: number }) {
  const entry = find(session.id);
  const name = entry ? shownTitle(entry.value) : session.id;
  const own = session.pages - session.shared_pages;
  const states = {
    ready: `idle ${duration(session.idle_ms)}`,
    running: "running",
    parked: "on disk",
    poisoned: "failed",
  };
  return (
    <tr data-color={entry?.value.color}>
      <th scope="row" title={name}>
        <span class="dot" data-running={session.state === "running"} />
        <span class="name">{name}</span>
      </th>
      <td>{states[session.state]}</td>
      <td class="number">{count(session.tokens)}</td>
      <td class="pages" title={pagesText(session)}>
        <Bar parts={[["own", own], ["index", session.shared_pages]]} whole={most} />
        <span class="hidden">{pagesText(session)}</span>
      </td>
    </tr>
  );
}

const mostRows = 60;

function SessionTable() {
  const list = [...sessions.value.values()];
  const rank = { running: 0, poisoned: 1, ready: 2, parked: 3 };
  list.sort((a, b) => rank[a.state] - rank[b.state] || a.idle_ms - b.idle_ms);
  const most = Math.max(1, ...list.map((session) => session.pages));
  if (list.length === 0) return <p class="hint">No named sessions.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Session</th>
          <th scope="col">State</th>
          <th scope="col" class="number">Tokens</th>
          <th scope="col">Pages</th>
        </tr>
      </thead>
      <tbody>
        {list.slice(0, mostRows).map((session) => <SessionRow key={session.id} session={session} most={most} />)}
      </tbody>
      {list.length > mostRows && <caption>and {list.length - mostRows} more</caption>}
    </table>
  );
}

/** What operators see. `held`: pages of one's own sessions; `shared`: of these with others. */
function MemoryFacts({ held, shared }: { held: number; shared: number }) {
  return (
    <>
      <section>
        <h3>Memory <span>{bytes(allMemory())}</span></h3>
        <Bar parts={memoryKinds.map(([kind]) => [kind, memory(kind)])} whole={allMemory()} />
        <dl>
          {memoryKinds
            .filter(([kind]) => memory(kind) > 0)
            .map(([kind, name]) => (
              <Row key={kind} name={name} mark={kind}>{bytes(memory(kind))}</Row>
            ))}
        </dl>
      </section>
      <section>
        <h3>Pages <span>{count(pages("used"))} of {count(pages("budget"))}</span></h3>
        <Bar parts={[["own", pages("used") - pages("in_index")], ["index", pages("in_index")]]} whole={pages("budget")} />
        <dl>
          <Row name="Own pages of sessions" mark="own">{count(pages("used") - pages("in_index"))}</Row>
          <Row name="In the prefix cache" mark="index">{count(pages("in_index"))}</Row>
          <Row name="Pages of your sessions">{count(held)}, of these with others {count(shared)}</Row>
          <Row name="Copied on write">{count(metric("weft_pages_copied_total"))}</Row>
        </dl>
      </section>
    </>
  );
}

/** Instead of charts and figures, of which there are none yet. */
function StillLoading() {
  const percent = loadedPercent.value;
  return (
    <section>
      <h3>Loading the model <span>{percent === undefined ? "" : `${percent} %`}</span></h3>
      <progress value={percent} max={100} aria-label="Weights loaded into memory" />
      <p class="hint">{percent === undefined ? healthReason.value : "Charts and figures follow when it is loaded."}</p>
    </section>
  );
}

function FiveMinutes() {
  const { running, waiting, idle, pages_used: used, page_budget: budget, generated_tokens: written, prompt_tokens: read, steps, step_us: took } = history.value;
  const limit = budget?.at(-1) ?? 0;
  const perPage = pages("used") > 0 ? memory("pages") / pages("used") : 0;
  const sized = (value: number) => (perPage > 0 ? bytes(value * perPage) : plural(value, "page"));
  const stepMs = took?.map((us, i) => (steps?.[i] ? us / 1000 / steps[i] : 0));
  const now = lastRates.value;
  const busy = rates.value.busy > 0;
  if ((running?.length ?? 0) < 2) {
    return (
      <section class="minutes">
        <h3>The last five minutes</h3>
        <p class="hint">The charts begin in two seconds.</p>
      </section>
    );
  }
  return (
    <section class="minutes">
      <h3>The last five minutes <span>{busy ? `busy ${percent(rates.value.busy, 1)}` : "idle"}</span></h3>
      <Chart
        series={[
          { name: "running", kind: "own", values: running ?? [], show: count },
          { name: "waiting", kind: "queued", values: waiting ?? [], show: count },
          ...(idle ? [{ name: "idle", kind: "index", values: idle, show: count }] : []),
        ]}
      />
      {used && (
        <Chart limit={limit} series={[{ name: `KV cache, of ${sized(limit)}`, kind: "own", values: used, show: sized }]} />
      )}
      {written && <Chart series={[{ name: "decode, tokens/s", kind: "own", values: written, show: rate }]} />}
      {read && <Chart series={[{ name: "prefill, tokens/s", kind: "weights", values: read, show: rate }]} />}
      {stepMs && <Chart series={[{ name: "a step takes", kind: "slots", values: stepMs, show: milliseconds }]} />}
      <p class="axis"><span>5 min ago</span> <span>now</span></p>
      <dl>
        <Row name="Decode, while it computes"><strong>{rate(now.tokens)}</strong> tokens/s</Row>
        <Row name="Prefill, while it computes"><strong>{rate(now.prompt)}</strong> tokens/s</Row>
      </dl>
    </section>
  );
}

function WeaveSection() {
  const picture = Weave();
  if (!picture) return null;
  return (
    <section>
      <h3>Conversations <span>by their tokens</span></h3>
      {picture}
    </section>
  );
}

export function EnginePanel() {
  const panel = useRef<HTMLElement>(null);
  useEffect(() => panel.current?.focus(), []);
  const close = () => change({ engineOpen: false });
  return (
    <aside
      class="panel"
      aria-label="Engine"
      tabIndex={-1}
      ref={panel}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        close();
      }}
    >
      <header>
        <h2>Engine</h2>
        <button class="small" aria-label="Close" title="Close (Esc)" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      {model.value && (
        <p class="hint">
          {nameOf(model.value)}: {facts(model.value).join(", ")}
        </p>
      )}
      {health.value === "loading" ? <StillLoading /> : <Figures />}
    </aside>
  );
}

function Figures() {
  const list = [...sessions.value.values()];
  const held = list.reduce((sum, session) => sum + session.pages, 0);
  const shared = list.reduce((sum, session) => sum + session.shared_pages, 0);
  const [cached, prompt] = cachedShare();
  return (
    <>
      {props.value?.same_bits === false && (
        <p class="hint">
          The backend {props.value.backend} rounds differently when it computes several conversations
          at once: the same question with the same seed may get another answer.
        </p>
      )}
      <WeaveSection />
      <FiveMinutes />
      {allMemory() > 0 && <MemoryFacts held={held} shared={shared} />}
      <section>
        <h3>Prefix cache <span>{percent(cached, prompt)} of prompts</span></h3>
        <Bar parts={[["index", cached]]} whole={prompt} />
        <dl>
          <Row name="Cached prompt tokens">{count(cached)} of {count(prompt)}</Row>
          <Row name="Nodes">{count(metric("weft_index_nodes"))}</Row>
          <Row name="Evicted pages">{count(metric("weft_index_evicted_pages_total"))}</Row>
        </dl>
      </section>
      <section>
        <h3>Sessions <span>{list.length}</span></h3>
        <SessionTable />
        <p class="legend">
          <span class="swatch own" /> own pages <span class="swatch index" /> shared with others
        </p>
      </section>
      <section>
        <h3>Since the start</h3>
        <dl>
          <Row name="Tokens generated">{count(metric("weft_generated_tokens_total"))}</Row>
          <Row name="Steps">{count(metric("weft_step_seconds_count"))}</Row>
          <Row name="Turns cancelled">{count(metric("weft_turns_cancelled_total"))}</Row>
          <Row name="Turns failed">{count(metric("weft_turns_failed_total"))}</Row>
          <Row name="Turns preempted">{count(metric("weft_preemptions_total"))}</Row>
          <Row name="Sessions parked, restored">
            {count(metric("weft_parks_total"))}, {count(metric("weft_restores_total"))}
          </Row>
        </dl>
      </section>
    </>
  );
}
