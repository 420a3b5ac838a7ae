// The user's settings, stored in the browser.
import { effect, signal } from "@preact/signals";

import { ApiError } from "./api";

export type Theme = "system" | "light" | "dark";

/** What form answers have to have: any, or that of the text in the field of that name. */
export type Form = "" | "json" | "schema" | "grammar" | "regex";

export interface NamedPrompt {
  name: string;
  text: string;
}

export interface Settings {
  theme: Theme;
  engineOpen: boolean;
  apiKey: string;
  model: string; // empty: whichever is served
  system: string; // for new conversations
  // Empty: the server's default.
  temperature: string;
  topP: string;
  maxTokens: string;
  seed: string; // empty: random
  topK: string;
  minP: string;
  repeatPenalty: string;
  repeatLastN: string;
  presencePenalty: string;
  frequencyPenalty: string;
  minTokens: string;
  stop: string; // a stop string in each line
  reasoning: "" | "on" | "off"; // empty: the model's own way
  reasoningBudget: string; // tokens
  form: Form;
  schema: string;
  grammar: string;
  regex: string;
  prompts: NamedPrompt[]; // system prompts kept by name
  columns: string; // on the board; empty: all that fit
  tools: string[]; // names of the enabled tools
  mcp: string[]; // addresses of the MCP servers whose tools are enabled
}

export const noSettings: Settings = {
  theme: "system",
  engineOpen: false,
  apiKey: "",
  model: "",
  system: "",
  temperature: "",
  topP: "",
  maxTokens: "",
  seed: "",
  topK: "",
  minP: "",
  repeatPenalty: "",
  repeatLastN: "",
  presencePenalty: "",
  frequencyPenalty: "",
  minTokens: "",
  stop: "",
  reasoning: "",
  reasoningBudget: "",
  form: "",
  schema: "",
  grammar: "",
  regex: "",
  prompts: [],
  columns: "",
  tools: [],
  mcp: [],
};

const place = "weft.settings";

function load(): Settings {
  try {
    return { ...noSettings, ...JSON.parse(localStorage.getItem(place) ?? "{}") };
  } catch {
    return noSettings;
  }
}

export const settings = signal<Settings>(load());

export function change(part: Partial<Settings>): void {
  settings.value = { ...settings.value, ...part };
  try {
    localStorage.setItem(place, JSON.stringify(settings.value));
  } catch {
    // If the browser cannot store them, they apply until the page is left.
  }
}

// Changes from other tabs of this page.
addEventListener("storage", (event) => {
  if (event.key === place) settings.value = load();
});

effect(() => {
  const theme = settings.value.theme;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
});

function number(text: string): number | undefined {
  const value = Number(text.replace(",", "."));
  return text.trim() === "" || !Number.isFinite(value) ? undefined : value;
}

/** What is wrong with the JSON Schema; empty: nothing. */
export function schemaProblem(text: string): string {
  try {
    const schema: unknown = JSON.parse(text);
    const isSchema = typeof schema === "object" && schema !== null && !Array.isArray(schema);
    return isSchema ? "" : "A JSON Schema is an object in braces.";
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : error}.`;
  }
}

function formFields({ form, schema, grammar, regex }: Settings): object {
  switch (form) {
    case "json":
      return { response_format: { type: "json_object" } };
    case "schema": {
      const problem = schemaProblem(schema);
      if (problem) throw new ApiError(400, `The answer's JSON Schema in the settings cannot be used. ${problem}`);
      return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(schema) } } };
    }
    case "grammar":
      return grammar.trim() ? { grammar } : {};
    case "regex":
      return regex.trim() ? { regex } : {};
    default:
      return {};
  }
}

/** The fields for a chat request; unset ones are omitted. Throws an ApiError if one is unusable. */
export function requestFields(): object {
  const all = settings.value;
  const stop = all.stop.split("\n").filter(Boolean);
  return {
    model: all.model.trim() || undefined,
    temperature: number(all.temperature),
    top_p: number(all.topP),
    top_k: number(all.topK),
    min_p: number(all.minP),
    repeat_penalty: number(all.repeatPenalty),
    repeat_last_n: number(all.repeatLastN),
    presence_penalty: number(all.presencePenalty),
    frequency_penalty: number(all.frequencyPenalty),
    max_tokens: number(all.maxTokens),
    min_tokens: number(all.minTokens),
    seed: number(all.seed),
    stop: stop.length > 0 ? stop : undefined,
    enable_thinking: all.reasoning ? all.reasoning === "on" : undefined,
    thinking_budget_tokens: all.reasoning === "off" ? undefined : number(all.reasoningBudget),
    ...formFields(all),
  };
}
