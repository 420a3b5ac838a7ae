// A session that another program made, such as a coding agent: its text, read-only, until it is
// adopted as a conversation of the page: a fork, which leaves the session as it is.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

import { ask, askJson, randomName } from "./api";
import { focusCard } from "./card";
import { begin, entries, type Message } from "./conversations";
import { type Session, sessions } from "./engine";
import { plural } from "./format";
import { tell } from "./notice";

/** The session that is shown. */
export const shownSession = signal("");

/** Those without a conversation on this page. */
export function foreignSessions(): Session[] {
  const own = new Set(entries.value.map((entry) => entry.value.id));
  return [...sessions.value.values()].filter(({ id, tokens }) => !own.has(id) && tokens > 0);
}

interface Said {
  role: string;
  text: string;
}

// How chat templates mark a message: its role, then its text.
const marks = [
  /<\|im_start\|>\s*(\w+)\n([^]*?)(?:<\|im_end\|>|(?=<\|im_start\|>)|$)/g,
  /<\|start_header_id\|>\s*(\w+)\s*<\|end_header_id\|>\s*([^]*?)(?:<\|eot_id\|>|<\|eom_id\|>|(?=<\|start_header_id\|>)|$)/g,
  /<start_of_turn>\s*(\w+)\n([^]*?)(?:<end_of_turn>|(?=<start_of_turn>)|$)/g,
  /<\|(system|user|assistant|tool)\|>\n?([^]*?)(?:<\|end\|>|<\|endoftext\|>|<\/s>|(?=<\|(?:system|user|assistant|tool)\|>)|$)/g,
];

// What a model ends its answer with, where that is not the template's own mark.
const ends = /\s*(?:<\/s>|<\|endoftext\|>|<\|end_of_text\|>|<eos>)\s*$/;

/** The messages of a rendered conversation; empty if its marks are not known. */
export function messagesIn(text: string): Said[] {
  const bracketed = [...text.matchAll(/\[INST\]([^]*?)\[\/INST\]([^]*?)(?:<\/s>|(?=\[INST\])|$)/g)];
  if (bracketed.length > 0) {
    return bracketed.flatMap(([, user, model]) => [{ role: "user", text: user.trim() }, { role: "assistant", text: model.trim() }]);
  }
  for (const mark of marks) {
    const found = [...text.matchAll(mark)].map(([, role, said]) => ({ role: role === "model" ? "assistant" : role, text: said.replace(ends, "").trim() }));
    if (found.length > 0) return found.filter((said) => said.text);
  }
  return [];
}

function adopt(session: string, said: Said[]): void {
  const system = said[0]?.role === "system" ? said[0].text : "";
  const messages = said.slice(system ? 1 : 0).map(({ role, text }): Message =>
    role === "assistant"
      ? { id: randomName(), role, text, status: "done" }
      : { id: randomName(), role: "user", text: role === "user" ? text : `${role}: ${text}` },
  );
  const entry = begin({ title: session, system, messages });
  const { id } = entry.peek();
  const body = JSON.stringify({ session_id: id });
  ask(`v1/sessions/${encodeURIComponent(session)}/fork`, { method: "POST", body }).catch(() => {});
  focusCard(id);
  tell(`Adopted “${session}”. The session itself stays as it is.`);
}

const names: Record<string, string> = { user: "User", assistant: "Model", system: "System prompt", tool: "Tool" };

export function SessionText({ leave }: { leave(): void }) {
  const id = shownSession.value;
  const [text, setText] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  const load = () => {
    setTrouble("");
    askJson<{ text: string }>(`v1/page/sessions/${encodeURIComponent(id)}`).then(
      (answer) => setText(answer.text),
      (error) => setTrouble(error instanceof Error ? error.message : String(error)),
    );
  };
  useEffect(load, [id]);
  const said = text === null ? [] : messagesIn(text);
  const { tokens = 0 } = sessions.value.get(id) ?? {};
  return (
    <div class="session-text">
      <p class="hint">
        Another program's session of {plural(tokens, "token")}. You can read it. To write, adopt it: a fork goes on here.
      </p>
      {trouble && <p class="warn" role="alert">{trouble}</p>}
      {text === null && !trouble && <p class="hint">Reading …</p>}
      <div class="said-list" tabIndex={0} role="region" aria-label="Messages">
        {said.map((message) => (
          <article>
            <h3>{names[message.role] ?? message.role}</h3>
            <p>{message.text}</p>
          </article>
        ))}
        {text !== null && said.length === 0 && <p>{text}</p>}
      </div>
      {text !== null && said.length === 0 && <p class="hint">The page does not know this model's chat template, so it cannot adopt the session.</p>}
      <div class="buttons end">
        <button onClick={load}>Read again</button>
        <button
          class="primary"
          disabled={said.length === 0}
          onClick={() => {
            leave();
            adopt(id, said);
          }}
        >
          Adopt
        </button>
      </div>
    </div>
  );
}
