// Formats numbers for display.

export function count(value: number): string {
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(value >= 1e5 ? 0 : 1)} k`;
  return String(Math.round(value));
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function rate(value: number): string {
  if (value >= 1e4) return count(value);
  return value >= 100 || value === 0 ? String(Math.round(value)) : value.toFixed(1);
}

export function milliseconds(value: number): string {
  if (value === 0) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value >= 10 ? Math.round(value) : value.toFixed(value >= 1 ? 1 : 2)} ms`;
}

export function duration(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** 3: "3rd". */
export function ordinal(n: number): string {
  const endings: Record<number, string> = { 1: "st", 2: "nd", 3: "rd" };
  const isTeen = n % 100 >= 11 && n % 100 <= 13;
  return `${n}${(!isTeen && endings[n % 10]) || "th"}`;
}
