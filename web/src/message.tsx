// One message of a conversation, and the actions on it.
import { useMemo } from "preact/hooks";

import { type Entry, type Message, type Progress, type Step, update } from "./conversations";
import { copy } from "./copy";
import { count, duration, milliseconds, rate } from "./format";
import { Icon } from "./icons";
import { Markdown } from "./markdown";
import { labelOf } from "./tools";
import { fork, retry } from "./turns";

interface Props {
  entry: Entry;
  message: Message;
  isLast: boolean;
  focus(id: string): void;
}

const fewestMsToTell = 100;

function Facts({ message }: { message: Message }) {
  const parts: string[] = [];
  const { usage } = message;
  if (message.status === "stopped") parts.push("stopped");
  if (message.status === "length") parts.push("cut at its greatest length");
  if (usage && usage.perSecond > 0) parts.push(`${rate(usage.perSecond)} tokens/s`);
  if (usage?.read !== undefined && usage.readMs !== undefined) {
    const cached = usage.cached > 0 ? `, ${count(usage.cached)} cached` : "";
    parts.push(`read ${count(usage.read)} in ${milliseconds(usage.readMs)}${cached}`);
  }
  if (usage?.waitedMs !== undefined && usage.waitedMs >= fewestMsToTell) {
    parts.push(`waited ${milliseconds(usage.waitedMs)}`);
  }
  return <span class="facts">{parts.join(" · ")}</span>;
}

/** Why more of the prompt was read than is new. */
function Why({ message }: { message: Message }) {
  const why = message.usage?.why;
  return why ? <p class="why">{why}</p> : null;
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
          <p class="result"><span class="hidden">{call.failed ? "Failed: " : "Result: "}</span>{call.result}</p>
        </div>
      ))}
    </>
  );
}

/** Redrawn only if it has changed, because every token redraws the conversation. */
export function MessageView(props: Props) {
  return useMemo(() => <Drawn {...props} />, [props.entry, props.message, props.isLast]);
}

function Drawn({ entry, message, isLast, focus }: Props) {
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
      {isUsers ? <div class="said">{message.text}</div> : <Markdown text={message.text} />}
      {isRunning && message.progress && <Reading {...message.progress} />}
      {isRunning && !message.text && <span class="cursor" />}
      {message.error && <p class="error" role="alert">{message.error}</p>}
      {!isRunning && !isUsers && <Why message={message} />}
      {!isRunning && (
        <div class="actions">
          {!isUsers && <Facts message={message} />}
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
          <button
            class="small"
            onClick={() => focus(fork(entry, message).peek().id)}
            title={isUsers ? "Edit this message in a fork" : "Fork here"}
            aria-label={isUsers ? "Edit in a fork" : "Fork here"}
          >
            <Icon name={isUsers ? "edit" : "fork"} />
          </button>
        </div>
      )}
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
