// A line at the bottom about the last action, with an undo button.
import { signal } from "@preact/signals";

interface Notice {
  text: string;
  undo?: () => void;
}

const notice = signal<Notice | null>(null);
const showMs = 6000;
let timer = 0;
let settle: (() => void) | undefined;

/** `settled` is called when undo is no longer possible. */
export function tell(text: string, undo?: () => void, settled?: () => void): void {
  end();
  notice.value = { text, undo };
  settle = settled;
  timer = setTimeout(end, showMs) as unknown as number;
}

function end(): void {
  clearTimeout(timer);
  notice.value = null;
  const settled = settle;
  settle = undefined;
  settled?.();
}

addEventListener("pagehide", end);

export function Notice() {
  const shown = notice.value;
  return (
    <div class="notice-place" role="status">
      {shown && (
        <div class="notice">
          <span>{shown.text}</span>
          {shown.undo && (
            <button
              class="link"
              onClick={() => {
                settle = undefined;
                shown.undo?.();
                end();
              }}
            >
              Undo
            </button>
          )}
        </div>
      )}
    </div>
  );
}
