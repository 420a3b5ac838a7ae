// The user's settings, stored in the browser.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

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
  tools: string[]; // names of the enabled tools
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
  tools: [],
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

/** The fields for a chat request; unset ones are omitted. */
export function samplingFields(): Record<string, number | string | undefined> {
  const { model, temperature, topP, maxTokens, seed } = settings.value;
  return {
    model: model.trim() || undefined,
    temperature: number(temperature),
    top_p: number(topP),
    max_tokens: number(maxTokens),
    seed: number(seed),
  };
}
