// What the user has set, kept in the browser.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export interface Settings {
  theme: Theme;
  engineOpen: boolean;
  apiKey: string;
  model: string; // empty: whichever is served
  system: string; // of conversations begun from now on
  // Empty: the server's own.
  temperature: string;
  topP: string;
  maxTokens: string;
  seed: string; // empty: another one each time
  tools: string[]; // names of those that are switched on
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
    // A browser that keeps nothing: they hold until the page is left.
  }
}

// Other tabs of this page.
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

/** The fields of a request for a chat; those that are not set are left out. */
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
