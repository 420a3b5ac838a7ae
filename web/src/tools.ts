// The tools that a model may call. Those of the page run in it, without access to the page or the
// network. Those of MCP servers are asked for first. All return text.
import { calculate } from "./calculator";
import { callRemote, remoteTools } from "./mcp";
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
  const own = switchedOn().map(({ name, about, parameters, required }) => ({
    type: "function",
    function: { name, description: about, parameters: { type: "object", properties: parameters, required } },
  }));
  const taken = new Set(own.map((tool) => tool.function.name));
  const remote = [...remoteTools()].filter(([name]) => !taken.has(name)).map(([name, { tool }]) => ({
    type: "function",
    function: { name, description: tool.description, parameters: tool.parameters },
  }));
  return own.length + remote.length > 0 ? [...own, ...remote] : undefined;
}

function objectOf(text: string): Record<string, unknown> {
  let given: unknown;
  try {
    given = JSON.parse(text || "{}");
  } catch {
    throw new Error("The arguments are not JSON.");
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new Error("The arguments are not an object.");
  }
  return given as Record<string, unknown>;
}

function valuesOf(tool: Tool, text: string): Record<string, string> {
  const values: Record<string, string> = {};
  for (const [name, value] of Object.entries(objectOf(text))) {
    // For arithmetic such as "7", models pass a number.
    if (typeof value === "string" || typeof value === "number") values[name] = String(value);
  }
  for (const name of tool.required) {
    if (values[name] === undefined) throw new Error(`“${name}” is missing.`);
  }
  return values;
}

/** The call with its result. Errors are results too: they let the model correct itself. */
export async function run(call: Call, signal: AbortSignal): Promise<Call> {
  try {
    const tool = switchedOn().find(({ name }) => name === call.name);
    if (tool) return { ...call, result: tool.run(valuesOf(tool, call.arguments)) };
    const remote = remoteTools().get(call.name);
    if (!remote) throw new Error(`There is no tool “${call.name}” here.`);
    return { ...call, result: await callRemote(remote, call.id, objectOf(call.arguments), signal) };
  } catch (error) {
    return { ...call, failed: true, result: error instanceof Error ? error.message : String(error) };
  }
}
