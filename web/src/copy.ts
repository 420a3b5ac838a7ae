import { tell } from "./notice";

/** To the clipboard. Browsers have one only on pages of this machine or behind HTTPS. */
export function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => tell("Copied."),
    () => tell("The browser does not allow to copy."),
  );
}
