// The input field: grows with its text; Enter sends, Shift+Enter starts a new line. Files are chosen,
// dropped or pasted.
import { useLayoutEffect, useRef } from "preact/hooks";

import { AttachButton, type Attached, AttachedList, isLong, pasted, readAll } from "./attached";
import { Icon } from "./icons";

interface Props {
  id: string;
  label: string;
  placeholder: string;
  text: string;
  busy: boolean;
  change(text: string): void;
  send(): void;
  stop?(): void;
  action?: string; // label for sending, where an arrow is not clear enough
  autofocus?: boolean;
  files?: readonly Attached[]; // absent: takes none
  attach?(files: Attached[]): void; // all there are now
}

// On a touch screen Enter starts a new line; the button sends.
const hasKeyboard = matchMedia("(hover: hover)").matches;

export function Composer(props: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [props.text]);
  useLayoutEffect(() => {
    if (props.autofocus && hasKeyboard) area.current?.focus();
  }, []);

  const files = props.files ?? [];
  // Reading takes a while, in which others may be added or removed.
  const now = useRef(props);
  now.current = props;
  const add = (more: Attached[]) => now.current.attach?.([...(now.current.files ?? []), ...more]);
  const takeFiles = async (list: Iterable<File>) => add(await readAll(list));
  const onPaste = (event: ClipboardEvent) => {
    const data = event.clipboardData;
    if (!props.attach || !data) return;
    const text = data.getData("text/plain");
    if (data.files.length > 0) void takeFiles([...data.files]);
    else if (isLong(text)) add([pasted(text, files)]);
    else return;
    event.preventDefault();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && (hasKeyboard || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!props.busy) props.send();
    } else if (event.key === "Escape") {
      if (props.busy && props.stop) props.stop();
      else area.current?.blur();
    }
  };

  const empty = props.text.trim() === "" && files.length === 0;
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        if (!props.busy) props.send();
      }}
      onDragOver={(event) => props.attach && event.preventDefault()}
      onDrop={(event) => {
        if (!props.attach || !event.dataTransfer?.files.length) return;
        event.preventDefault();
        void takeFiles([...event.dataTransfer.files]);
      }}
    >
      <AttachedList files={files} remove={(file) => props.attach?.(files.filter((other) => other !== file))} />
      {props.attach && <AttachButton add={add} />}
      <textarea
        ref={area}
        id={props.id}
        rows={1}
        aria-label={props.label}
        placeholder={props.placeholder}
        value={props.text}
        onInput={(event) => props.change(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      {props.busy && props.stop ? (
        <button type="button" class="round stop" aria-label="Stop" title="Stop (Esc)" onClick={props.stop}>
          <Icon name="stop" />
        </button>
      ) : (
        <button
          type="submit"
          class={props.action ? "primary" : "round primary"}
          aria-label={props.action ?? "Send"}
          title="Send (Enter)"
          disabled={empty || props.busy}
        >
          {props.action ?? <Icon name="send" />}
        </button>
      )}
    </form>
  );
}
