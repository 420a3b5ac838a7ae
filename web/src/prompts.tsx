// The prompts that the page proposes, chosen for the current model by measurement: see
// web/README.md.
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
  then: string; // a question for all of them
}

interface PromptSet extends Proposed {
  title?: string; // a pattern for the model's title; absent: any
  mostParameters?: number;
}

/** The first set that matches the model; the last one matches all. */
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

/** Whether the built-in model is served. */
export const isToy = computed(() => proposed.value === sets[0]);

export function Suggestions({ choose, most }: { choose(text: string): void; most: number }) {
  return (
    <ul class="suggestions" aria-label="Proposed">
      {proposed.value.prompts.slice(0, most).map(({ label, text }) => (
        <li>
          <button title={text} onClick={() => choose(text)}>{label}</button>
        </li>
      ))}
    </ul>
  );
}
