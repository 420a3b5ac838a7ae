import { tell } from "./notice";

/** Copies to the clipboard, which browsers offer only to local and HTTPS pages. */
export function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => tell("Copied."),
    () => tell("The browser blocked copying. Select the text and press Ctrl+C."),
  );
}
