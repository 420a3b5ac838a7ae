// Charts of the server's last five minutes: areas on top of each other, or a line, and the values at
// the pointer.
import { signal } from "@preact/signals";

import { historySeconds } from "./engine";
import { duration } from "./format";

export interface Series {
  name: string;
  kind: string; // its colour: a class
  values: readonly number[];
  show(value: number): string;
}

interface Props {
  series: readonly Series[]; // stacked in this order, from below
  limit?: number; // the top of the chart; absent: the largest sum
}

const width = historySeconds - 1;
const height = 40;

/** Seconds before now that the pointer is at, in all charts; null: nowhere. */
const pointed = signal<number | null>(null);

function x(secondsAgo: number): number {
  return width - secondsAgo;
}

/** `values[i]` is that many seconds before now. */
function at(values: readonly number[], secondsAgo: number): number {
  return values[values.length - 1 - secondsAgo] ?? 0;
}

function Area({ lower, upper, top, kind }: { lower: number[]; upper: number[]; top: number; kind: string }) {
  const y = (value: number) => (height * (1 - value / top)).toFixed(2);
  const n = upper.length;
  const along = upper.map((value, i) => `${x(n - 1 - i)},${y(value)}`);
  const back = lower.map((value, i) => `${x(n - 1 - i)},${y(value)}`).reverse();
  return (
    <g class={`area ${kind}`}>
      <polygon points={[...along, ...back].join(" ")} />
      <polyline points={along.join(" ")} />
    </g>
  );
}

export function Chart({ series, limit }: Props) {
  const shown = Math.max(0, ...series.map(({ values }) => values.length));
  const rows: number[][] = [new Array<number>(shown).fill(0)];
  for (const { values } of series) {
    const below = rows[rows.length - 1];
    rows.push(below.map((sum, i) => sum + at(values, shown - 1 - i)));
  }
  const top = limit || Math.max(...rows[rows.length - 1], 1e-9);
  const ago = pointed.value !== null && pointed.value < shown ? pointed.value : null;
  const look = (event: PointerEvent) => {
    const { left, width: wide } = (event.currentTarget as Element).getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - left) / wide));
    pointed.value = Math.round((1 - part) * width);
  };
  return (
    <figure class="chart">
      <figcaption>
        {series.map(({ name, kind, values, show }) => (
          <span>
            <span class={`swatch ${kind}`} />
            {name} <strong>{show(at(values, ago ?? 0))}</strong>
          </span>
        ))}
        {ago !== null && <span class="ago">{duration(1000 * ago)} ago</span>}
      </figcaption>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        preserveAspectRatio="none"
        aria-hidden="true"
        onPointerMove={look}
        onPointerLeave={() => (pointed.value = null)}
      >
        {shown > 1 &&
          series.map(({ kind }, i) => <Area kind={kind} lower={rows[i]} upper={rows[i + 1]} top={top} />)}
        {ago !== null && <line x1={x(ago)} x2={x(ago)} y1={0} y2={height} />}
      </svg>
    </figure>
  );
}
