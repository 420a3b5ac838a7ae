// Tools that run in this page when a model calls them: they have no access to the page or the
// network, and return text.
import { calculate } from "./calculator";
import { settings } from "./settings";

export interface Call {
  id: string;
  name: string;
  arguments: string; // JSON, as the model wrote it
  result?: string;
  failed?: boolean;
}

interface Tool {
  name: string;
  label: string; // for display
  about: string;
  parameters: Record<string, { type: "string"; description: string }>;
  required: string[];
  run(values: Record<string, string>): string; // throws an Error with a sentence for the model
}

function clock(format = "time"): string {
  const now = new Date();
  const time = now.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const date = now.toLocaleDateString("en-GB", { dateStyle: "full" });
  if (format === "time") return time;
  if (format === "date") return date;
  if (format === "both") return `${time}, ${date}, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  throw new Error(`“${format}” is not understood: it is time, date or both.`);
}

export const tools: readonly Tool[] = [
  {
    name: "clock",
    label: "Clock",
    about: "Tells the time of day or the date.",
    parameters: { format: { type: "string", description: "time, date or both; without it, time." } },
    required: [],
    run: ({ format }) => clock(format),
  },
  {
    name: "calculator",
    label: "Calculator",
    about: "Computes an arithmetic expression, such as (12 + 3) * 4 or sqrt(2).",
    parameters: { expression: { type: "string", description: "What to compute." } },
    required: ["expression"],
    run: ({ expression }) => calculate(expression),
  },
];

export function switchedOn(): readonly Tool[] {
  return tools.filter(({ name }) => settings.value.tools.includes(name));
}

export function labelOf(name: string): string {
  return tools.find((tool) => tool.name === name)?.label ?? name;
}

/** In the form of a request; undefined if none is enabled. */
export function offered(): object[] | undefined {
  const list = switchedOn();
  if (list.length === 0) return undefined;
  return list.map(({ name, about, parameters, required }) => ({
    type: "function",
    function: { name, description: about, parameters: { type: "object", properties: parameters, required } },
  }));
}

function valuesOf(tool: Tool, text: string): Record<string, string> {
  let given: unknown;
  try {
    given = JSON.parse(text || "{}");
  } catch {
    throw new Error("The arguments are not JSON.");
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new Error("The arguments are not an object.");
  }
  const values: Record<string, string> = {};
  for (const [name, value] of Object.entries(given)) {
    // For arithmetic such as "7", models pass a number.
    if (typeof value === "string" || typeof value === "number") values[name] = String(value);
  }
  for (const name of tool.required) {
    if (values[name] === undefined) throw new Error(`“${name}” is missing.`);
  }
  return values;
}

/** The call with its result. Errors are results too: they let the model correct itself. */
export function run(call: Call): Call {
  try {
    const tool = switchedOn().find(({ name }) => name === call.name);
    if (!tool) throw new Error(`There is no tool “${call.name}” here.`);
    return { ...call, result: tool.run(valuesOf(tool, call.arguments)) };
  } catch (error) {
    return { ...call, failed: true, result: error instanceof Error ? error.message : String(error) };
  }
}
