// The engine at a glance: a strip of six figures above the board, and a panel with all of them.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { find, shownTitle } from "./conversations";
import {
  health,
  history,
  historyLength,
  lastRates,
  metrics,
  model,
  props,
  type Rates,
  rates,
  type Session,
  sessions,
} from "./engine";
import { bytes, count, duration, milliseconds, percent, plural, rate } from "./format";
import { Icon } from "./icons";
import { facts, nameOf } from "./models";
import { change } from "./settings";

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

/** A line chart of one of the rates over the last minute. */
function Trend({ of, tall }: { of: keyof Rates; tall?: boolean }) {
  const values = history.value.map((entry) => entry[of]);
  const most = Math.max(...values, 1e-9);
  const [width, height] = [historyLength - 1, 20];
  const x = (i: number) => width - (values.length - 1 - i);
  const y = (value: number) => height - 1 - (value / most) * (height - 2);
  const points = values.map((value, i) => `${x(i)},${y(value).toFixed(2)}`);
  return (
    <svg class={tall ? "trend tall" : "trend"} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      {points.length > 1 && (
        <>
          <polygon points={`${x(0)},${height} ${points.join(" ")} ${width},${height}`} />
          <polyline points={points.join(" ")} />
        </>
      )}
    </svg>
  );
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

interface TileProps {
  label: string;
  value: string;
  unit?: string;
  detail: string;
  about?: string;
  extra?: boolean; // omitted where space is short
  children?: ComponentChildren;
}

function Tile({ label, value, unit, detail, about, extra, children }: TileProps) {
  return (
    <div class={extra ? "tile extra" : "tile"} title={about}>
      <dt>{label}</dt>
      <dd>
        <strong>{value}</strong>
        {unit && <span class="unit"> {unit}</span>}
        <span class="detail">{detail}</span>
      </dd>
      {children}
    </div>
  );
}

/** The prompt tokens so far that did not have to be computed. */
function cachedShare(): [number, number] {
  const cached = metric("weft_cached_tokens_total");
  return [cached, cached + metric("weft_prompt_tokens_total")];
}

function sessionCount(state: Session["state"]): number {
  return metric(`weft_sessions{state="${state}"}`);
}

export function EngineStrip() {
  if (health.value !== "ready" || metrics.value.size === 0) return null;
  // The last rates stay visible while the engine is idle: nobody looks at exactly the right second.
  const last = lastRates.value;
  const isIdle = rates.value.busy === 0;
  const reads = last.tokens === 0 && last.prompt > 0;
  const queued = metric("weft_turns_queued");
  const [used, inIndex] = [pages("used"), pages("in_index")];
  const parked = sessionCount("parked");
  const idle = sessionCount("ready");
  const resting = parked > 0 ? `${idle} idle, ${parked} on disk` : `${plural(idle, "session")} idle`;
  return (
    <section aria-label="Engine at a glance">
      <dl class="strip">
        <Tile
          label="Speed"
          value={rate(reads ? last.prompt : last.tokens)}
          unit={reads ? "tokens/s read" : "tokens/s"}
          detail={isIdle ? "idle" : reads ? `${rate(last.tokens)} written/s` : `${rate(last.prompt)} read/s`}
          about="Measured while the engine computes"
        >
          <Trend of="tokens" />
        </Tile>
        <Tile label="Step" value={milliseconds(last.stepMs)} detail={isIdle ? "idle" : `busy ${percent(rates.value.busy, 1)}`}>
          <Trend of="stepMs" />
        </Tile>
        <Tile
          label="Turns"
          value={String(metric("weft_turns_running"))}
          unit="running"
          detail={queued > 0 ? `${queued} waiting` : resting}
        />
        <Tile
          extra
          label="Pages"
          value={count(used)}
          unit={`of ${count(pages("budget"))}`}
          detail={`${count(inIndex)} cached`}
        >
          <Bar parts={[["index", inIndex], ["own", used - inIndex]]} whole={used} />
        </Tile>
        <Tile
          extra
          label="Prefix cache"
          value={percent(...cachedShare())}
          unit="of prompts"
          detail={plural(metric("weft_index_nodes"), "node")}
        >
          <Bar parts={[["index", cachedShare()[0]]]} whole={cachedShare()[1]} />
        </Tile>
        <Tile extra label="Memory" value={bytes(allMemory())} detail={`${bytes(memory("weights"))} of weights`}>
          <Bar parts={memoryKinds.map(([kind]) => [kind, memory(kind)])} whole={allMemory()} />
        </Tile>
      </dl>
    </section>
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

export function EnginePanel() {
  const panel = useRef<HTMLElement>(null);
  useEffect(() => panel.current?.focus(), []);
  const now = lastRates.value;
  const list = [...sessions.value.values()];
  const held = list.reduce((sum, session) => sum + session.pages, 0);
  const shared = list.reduce((sum, session) => sum + session.shared_pages, 0);
  const [cached, prompt] = cachedShare();
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
      {props.value?.same_bits === false && (
        <p class="hint">
          The backend {props.value.backend} rounds differently when it computes several conversations
          at once: the same question with the same seed may get another answer.
        </p>
      )}
      <section>
        <h3>The last minute <span>{rates.value.busy > 0 ? `busy ${percent(rates.value.busy, 1)}` : "idle"}</span></h3>
        <dl>
          <Row name="Decode"><strong>{rate(now.tokens)}</strong> tokens/s</Row>
          <Trend of="tokens" tall />
          <Row name="Prefill"><strong>{rate(now.prompt)}</strong> tokens/s</Row>
          <Trend of="prompt" tall />
          <Row name="A step takes"><strong>{milliseconds(now.stepMs)}</strong></Row>
          <Trend of="stepMs" tall />
        </dl>
      </section>
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
        <Bar parts={[["own", pages("used") - pages("in_index")], ["index", pages("in_index")]]} whole={pages("used")} />
        <dl>
          <Row name="Own pages of sessions" mark="own">{count(pages("used") - pages("in_index"))}</Row>
          <Row name="In the prefix cache" mark="index">{count(pages("in_index"))}</Row>
          <Row name="Pages of your sessions">{count(held)}, of these with others {count(shared)}</Row>
          <Row name="Copied on write">{count(metric("weft_pages_copied_total"))}</Row>
        </dl>
      </section>
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
    </aside>
  );
}
