// What the page proposes to say, chosen for the model at hand by measuring: see "What it
// proposes" in docs/PAGE.md.
import { computed } from "@preact/signals";

import { model } from "./engine";
import sets from "./prompts.json";

export interface Prompt {
  label: string;
  text: string;
}

export interface Proposed {
  prompts: Prompt[];
  several: string[]; // one conversation each
  then: string; // to ask all of them
}

interface PromptSet extends Proposed {
  title?: string; // a pattern of the model's title; without one: any
  mostParameters?: number;
}

/** The first set that the model fits; the last one fits all. */
export function choose(title: string, parameters: number): Proposed {
  const all: PromptSet[] = sets;
  const fits = (set: PromptSet) =>
    (set.title === undefined || new RegExp(set.title, "i").test(title)) &&
    (set.mostParameters === undefined || parameters <= set.mostParameters);
  return all.find(fits) ?? all[all.length - 1];
}

export const proposed = computed<Proposed>(() => {
  const meta = model.value?.meta;
  return choose(meta?.title ?? "", meta?.n_params ?? Infinity);
});

export function Suggestions({ choose }: { choose(text: string): void }) {
  return (
    <ul class="suggestions" aria-label="Proposed">
      {proposed.value.prompts.map(({ label, text }) => (
        <li>
          <button title={text} onClick={() => choose(text)}>{label}</button>
        </li>
      ))}
    </ul>
  );
}
