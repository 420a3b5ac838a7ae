// One message of a conversation, and the actions on it.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { AttachedList } from "./attached";
import { type Entry, type Message, type Progress, showVersion, type Step, update } from "./conversations";
import { copy } from "./copy";
import { model } from "./engine";
import { count, duration, milliseconds, rate } from "./format";
import { Icon } from "./icons";
import { Markdown } from "./markdown";
import { asked, remoteTools } from "./mcp";
import { type Call, labelOf } from "./tools";
import { dropOldest, edit, fork, goOn, retry, running } from "./turns";

interface Props {
  entry: Entry;
  message: Message;
  isLast: boolean;
  canDrop: boolean; // whether there are older turns that could be left out
  focus(id: string): void;
}

const fewestMsToTell = 100;

function Facts({ message }: { message: Message }) {
  const parts: string[] = [];
  const { usage } = message;
  if (message.status === "stopped") parts.push("stopped");
  if (message.status === "length" && !message.cut) parts.push("cut at max tokens");
  if (usage && usage.perSecond > 0) parts.push(`${rate(usage.perSecond)} tokens/s`);
  if (usage?.read !== undefined && usage.readMs !== undefined) {
    const cached = usage.cached > 0 ? `, ${count(usage.cached)} cached` : "";
    parts.push(`read ${count(usage.read)} in ${milliseconds(usage.readMs)}${cached}`);
  }
  if (usage?.waitedMs !== undefined && usage.waitedMs >= fewestMsToTell) {
    parts.push(`waited ${milliseconds(usage.waitedMs)}`);
  }
  return <span class="facts" title={usage?.found}>{parts.join(" · ")}</span>;
}

/** Why more of the prompt was read than is new. */
function Why({ message }: { message: Message }) {
  const why = message.usage?.why;
  return why ? <p class="why">{why}</p> : null;
}

/** Why an answer is not what was expected, and what can be done about it. */
function Trouble({ entry, message, isLast, canDrop }: Props) {
  const { status, cut, text, steps, reasoning, error, overflows } = message;
  const isEmpty = status === "done" && !text && !steps;
  const context = model.value?.meta.n_ctx.toLocaleString("en");
  let said = error;
  if (cut === "loop") said = "It repeated itself, so the server ended it.";
  if (cut === "context") said = `The context of ${context ?? "the model's"} tokens is full.`;
  if (isEmpty) said = reasoning ? "It ended after its reasoning, without an answer." : "The model ended its answer before the first word.";
  if (!said) return null;
  return (
    <div class="error" role={error ? "alert" : undefined}>
      <p>{said}</p>
      {isLast && (cut === "context" || overflows) && canDrop && (
        <button onClick={() => dropOldest(entry)}>Leave out the oldest turns and go on</button>
      )}
      {isLast && (cut === "context" || overflows) && !canDrop && <p>There are no older turns to leave out. Start the server with a larger --ctx, or send less.</p>}
      {isLast && (isEmpty || cut === "loop" || (status === "failed" && !overflows)) && (
        <button onClick={() => retry(entry)}>Try again</button>
      )}
    </div>
  );
}

/** Goes from one version of the conversation to another. */
function Versions({ entry, message }: Props) {
  const { id, versions, version = 0 } = message;
  if (!versions) return null;
  const n = versions.length;
  const isBusy = running.value.has(entry.value.id);
  return (
    <span class="versions" role="group" aria-label="Versions">
      <button class="small" disabled={isBusy || version === 0} title="Version before" aria-label="Version before" onClick={() => showVersion(entry, id, version - 1)}>
        <Icon name="left" />
      </button>
      <span>{version + 1} / {n}</span>
      <button class="small" disabled={isBusy || version === n - 1} title="Version after" aria-label="Version after" onClick={() => showVersion(entry, id, version + 1)}>
        <Icon name="right" />
      </button>
    </span>
  );
}

/** What the user said, to be said differently. */
function Editor({ entry, message, done }: { entry: Entry; message: Message; done(): void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    field.current?.focus();
    field.current?.setSelectionRange(message.text.length, message.text.length);
  }, []);
  const isBusy = running.value.has(entry.value.id);
  const say = () => {
    if (isBusy) return;
    const text = field.current!.value;
    done();
    edit(entry, message, text);
  };
  return (
    <div class="editor">
      <textarea
        ref={field}
        aria-label="Edit the message"
        rows={Math.min(12, message.text.split("\n").length + 1)}
        onKeyDown={(event) => {
          if (event.isComposing) return;
          if (event.key === "Escape") done();
          else if (event.key !== "Enter" || event.shiftKey) return;
          else say();
          event.preventDefault();
          event.stopPropagation();
        }}
        defaultValue={message.text}
      />
      <div class="buttons end">
        <button onClick={done}>Cancel</button>
        <button class="primary" disabled={isBusy} onClick={say}>Send</button>
      </div>
    </div>
  );
}

function Reading({ done, total, perSecond, behind }: Progress) {
  if (behind > 0) {
    const before = `Waiting for ${count(behind)} tokens of other prompts`;
    return <p class="reading" role="status">{before} · {count(done)} of {count(total)} read</p>;
  }
  const left = perSecond > 0 ? duration((1000 * (total - done)) / perSecond) : "";
  const parts = [`Prefill: ${count(done)} of ${count(total)} tokens`];
  if (perSecond > 0) parts.push(`${rate(perSecond)} tokens/s`, `${left} left`);
  return (
    <p class="reading" role="status">
      <progress value={done} max={total} aria-label="Prefill progress" />
      {parts.join(" · ")}
    </p>
  );
}

/** A call to a server outside waits for the user's word. */
function Permission({ call }: { call: Call }) {
  const answer = asked.value.get(call.id);
  if (!answer) return null;
  const url = remoteTools().get(call.name)?.server.url;
  return (
    <div class="permission" role="group" aria-label={`Allow ${call.name}?`}>
      <p>The model asks {url} to run this.</p>
      <button class="primary" onClick={() => answer(true)}>Allow</button>
      <button onClick={() => answer(false)}>Refuse</button>
    </div>
  );
}

/** What a model said before it called tools, the calls, and their results. */
function StepView({ step }: { step: Step }) {
  return (
    <>
      {step.reasoning && (
        <details class="reasoning">
          <summary>Reasoning</summary>
          <div>{step.reasoning}</div>
        </details>
      )}
      {step.text && <Markdown text={step.text} />}
      {step.calls.map((call) => (
        <div class="call" data-failed={call.failed ?? false}>
          <p><Icon name="tool" /> {labelOf(call.name)} <code>{call.arguments}</code></p>
          {call.result === undefined ? (
            <Permission call={call} />
          ) : (
            <p class="result"><span class="hidden">{call.failed ? "Failed: " : "Result: "}</span>{call.result}</p>
          )}
        </div>
      ))}
    </>
  );
}

/** Redrawn only if it has changed, because every token redraws the conversation. */
export function MessageView(props: Props) {
  return useMemo(() => <Drawn {...props} />, [props.entry, props.message, props.isLast, props.canDrop]);
}

function Actions(props: Props & { startEditing(): void }) {
  const { entry, message, isLast, focus, startEditing } = props;
  const isUsers = message.role === "user";
  const canGoOn = message.text && !message.cut && ["length", "stopped", "failed"].includes(message.status ?? "");
  return (
    <div class="actions">
      {!isUsers && <Facts message={message} />}
      <Versions {...props} />
      {isLast && !isUsers && canGoOn && (
        <button class="small" onClick={() => goOn(entry)} title="Continue" aria-label="Continue">
          <Icon name="goOn" />
        </button>
      )}
      {isLast && !isUsers && (
        <button class="small" onClick={() => retry(entry)} title="Regenerate" aria-label="Regenerate">
          <Icon name="retry" />
        </button>
      )}
      {navigator.clipboard && message.text && (
        <button class="small" onClick={() => copy(message.text)} title="Copy" aria-label="Copy">
          <Icon name="copy" />
        </button>
      )}
      {isUsers && (
        <button class="small" onClick={startEditing} title="Edit" aria-label="Edit">
          <Icon name="edit" />
        </button>
      )}
      <button
        class="small"
        onClick={() => focus(fork(entry, message).peek().id)}
        title={isUsers ? "Edit this message in a fork" : "Fork here"}
        aria-label={isUsers ? "Edit in a fork" : "Fork here"}
      >
        <Icon name="fork" />
      </button>
    </div>
  );
}

function Drawn(props: Props) {
  const { entry, message } = props;
  const [isEdited, setEdited] = useState(false);
  const isUsers = message.role === "user";
  const isRunning = message.status === "running";
  return (
    <article class={`message ${message.role}`} data-status={message.status}>
      <h3 class="hidden">{isUsers ? "You" : "Model"}</h3>
      {message.steps?.map((step, i) => <StepView key={i} step={step} />)}
      {message.reasoning && (
        <details class="reasoning" open={isRunning && !message.text}>
          <summary>Reasoning</summary>
          <div>{message.reasoning}</div>
        </details>
      )}
      {isUsers && isEdited && <Editor entry={entry} message={message} done={() => setEdited(false)} />}
      {isUsers && !isEdited && (
        <div class="said">
          <AttachedList files={message.files ?? []} />
          {message.text}
        </div>
      )}
      {!isUsers && <Markdown text={message.text} />}
      {isRunning && message.progress && <Reading {...message.progress} />}
      {isRunning && !message.text && <span class="cursor" />}
      {!isRunning && !isUsers && <Trouble {...props} />}
      {!isRunning && !isUsers && <Why message={message} />}
      {!isRunning && !isEdited && <Actions {...props} startEditing={() => setEdited(true)} />}
    </article>
  );
}

/** A conversation's system prompt, which is fixed once the conversation has begun. */
export function SystemPrompt({ entry }: { entry: Entry }) {
  const { system, messages } = entry.value;
  if (!system && messages.length > 0) return null;
  return (
    <details class="reasoning system">
      <summary>{system ? "System prompt" : "Add a system prompt"}</summary>
      {messages.length > 0 ? (
        <div>{system}</div>
      ) : (
        <textarea
          rows={3}
          aria-label="System prompt"
          value={system}
          onInput={(event) => update(entry, { system: event.currentTarget.value })}
        />
      )}
    </details>
  );
}
