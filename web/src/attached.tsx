// Text, code, PDFs and pictures that go along with a message: files, and pastes too long for the
// field.
import { useRef } from "preact/hooks";

import { sees } from "./engine";
import { bytes } from "./format";
import { Icon } from "./icons";
import { tell } from "./notice";

export interface Attached {
  name: string;
  text: string;
  picture?: string; // a data: URL, instead of a text
}

const mostBytes = 512 << 10;
const longPasteChars = 4000;
const longPasteLines = 60;

/** Whether a pasted text becomes an attachment. */
export function isLong(text: string): boolean {
  return text.length > longPasteChars || text.split("\n", longPasteLines + 1).length > longPasteLines;
}

const mostPdfBytes = 64 << 20;

async function readPdf(file: File): Promise<Attached> {
  if (file.size > mostPdfBytes) throw new Error(`“${file.name}” has ${bytes(file.size)}; attach PDFs of at most ${bytes(mostPdfBytes)}.`);
  tell(`Reading “${file.name}” …`);
  const { textOfPdf } = await import("./pdf");
  const text = await textOfPdf(await file.arrayBuffer(), mostBytes).catch((error: Error) => {
    throw new Error(`“${file.name}” cannot be read: ${error.message.replace(/\.$/, "")}.`);
  });
  if (!text) throw new Error(`“${file.name}” has no text: its pages are pictures. Attach one with text.`);
  if (text.length > mostBytes) throw new Error(`The text of “${file.name}” has more than ${bytes(mostBytes)}. Attach a part of it.`);
  tell(`Read “${file.name}”.`);
  return { name: file.name, text };
}

const mostPictureBytes = 64 << 20;
/** Models look at no more than about so many pixels to a side, and the browser keeps the picture. */
const longestSide = 1344;
const smallEnough = 300 << 10;

async function readPicture(file: File): Promise<Attached> {
  if (!sees.value) throw new Error(`“${file.name}” is a picture, and this model sees none. Choose one that does, or start the server with its projector: --mmproj FILE.`);
  if (file.size > mostPictureBytes) throw new Error(`“${file.name}” has ${bytes(file.size)}; attach pictures of at most ${bytes(mostPictureBytes)}.`);
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`“${file.name}” cannot be read as a picture.`);
  });
  const scale = Math.min(1, longestSide / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw pictures.");
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  // Lossless if that is short, as it is for drawings and screenshots.
  let picture = canvas.toDataURL("image/png");
  if (picture.length > smallEnough) {
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    picture = canvas.toDataURL("image/jpeg", 0.85);
  }
  return { name: file.name, text: "", picture };
}

async function read(file: File): Promise<Attached> {
  if (/^image\/(?!svg)/.test(file.type)) return readPicture(file);
  if (file.type === "application/pdf" || /\.pdf$/i.test(file.name)) return readPdf(file);
  if (file.size > mostBytes) throw new Error(`“${file.name}” has ${bytes(file.size)}; attach at most ${bytes(mostBytes)}.`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { name: file.name, text };
  } catch {
    // Not UTF-8.
  }
  throw new Error(`“${file.name}” is not text. Attach text, code, ${sees.value ? "a picture " : ""}or a PDF.`);
}

/** The files that have text; says which have none. */
export async function readAll(files: Iterable<File>): Promise<Attached[]> {
  const all: Attached[] = [];
  for (const file of files) {
    try {
      all.push(await read(file));
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
    }
  }
  return all;
}

/** The next free name for a paste. */
export function pasted(text: string, others: readonly Attached[]): Attached {
  let n = 1;
  while (others.some(({ name }) => name === `paste-${n}.txt`)) ++n;
  return { name: `paste-${n}.txt`, text };
}

/** The message's text as the model gets it: each attachment in a fence that it cannot close. */
export function withAttached(text: string, files: readonly Attached[] = []): string {
  const parts = files.filter(({ picture }) => !picture).map((file) => {
    const longest = Math.max(2, ...(file.text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    const ending = /\.(\w{1,10})$/.exec(file.name)?.[1] ?? "";
    const kind = /^pdf$/i.test(ending) ? "" : ending;
    return `${file.name}:\n${fence}${kind}\n${file.text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...parts, text].filter(Boolean).join("\n\n");
}

/** The pictures among them, as parts of a message. */
export function picturesOf(files: readonly Attached[] = []): { type: "image_url"; image_url: { url: string } }[] {
  return files.flatMap(({ picture }) => (picture ? [{ type: "image_url" as const, image_url: { url: picture } }] : []));
}

export function AttachButton({ add }: { add(files: Attached[]): void }) {
  const picker = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={picker}
        class="hidden"
        type="file"
        multiple
        tabIndex={-1}
        aria-hidden="true"
        onChange={async (event) => {
          const input = event.currentTarget;
          add(await readAll(input.files ?? []));
          input.value = "";
        }}
      />
      <button type="button" class="small attach" title={`Attach text, code${sees.value ? ", pictures" : ""} or PDFs`} aria-label="Attach" onClick={() => picker.current?.click()}>
        <Icon name="attach" />
      </button>
    </>
  );
}

/** The attachments of a draft, or of a message if they cannot be removed. */
export function AttachedList({ files, remove }: { files: readonly Attached[]; remove?(file: Attached): void }) {
  if (files.length === 0) return null;
  return (
    <ul class="attached" aria-label="Attachments">
      {files.map((file) => (
        <li class={file.picture ? "picture" : undefined}>
          {file.picture ? (
            <img src={file.picture} alt={file.name} title={file.name} />
          ) : remove ? (
            <span class="file">{file.name} <span class="detail">{bytes(file.text.length)}</span></span>
          ) : (
            <details>
              <summary class="file">{file.name} <span class="detail">{bytes(file.text.length)}</span></summary>
              <pre tabIndex={0} aria-label={file.name} role="group"><code>{file.text}</code></pre>
            </details>
          )}
          {remove && (
            <button type="button" class="small" title="Remove" aria-label={`Remove ${file.name}`} onClick={() => remove(file)}>
              <Icon name="close" />
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}
