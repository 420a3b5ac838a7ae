// The text of PDF files, by Mozilla's PDF.js. A file of its own, loaded with the first PDF. The
// parser runs in a worker, so that a damaged file neither stops the page nor runs for ever.
import { getDocument, PasswordException, PDFWorker } from "pdfjs-dist/legacy/build/pdf.mjs";
import workerUrl from "pdfjs-dist/legacy/build/pdf.worker.min.mjs?url";

const slowestPageMs = 30_000;

interface Policy {
  createScriptURL(url: string): URL;
}
interface PolicyFactory {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): Policy;
}

// The only address from which the content policy lets this page start a worker.
const policy = (globalThis as { trustedTypes?: PolicyFactory }).trustedTypes?.createPolicy("weft-pdf", {
  createScriptURL: () => workerUrl,
});

/** Fails when the work takes longer than a page may. */
async function bounded<T>(work: Promise<T>): Promise<T> {
  let timer = 0;
  const late = new Promise<never>((_, fail) => {
    timer = window.setTimeout(() => fail(new Error("reading it takes too long")), slowestPageMs);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** The text, page by page; of scanned pages it is empty. Stops after `most` characters. Throws an
 *  Error with the reason. */
export async function textOfPdf(data: ArrayBuffer, most: number): Promise<string> {
  const thread = new Worker(policy?.createScriptURL(workerUrl) ?? workerUrl, { type: "module" });
  try {
    const worker = PDFWorker.create({ port: thread });
    const loading = getDocument({ data, worker, verbosity: 0, useWasm: false, enableXfa: false, stopAtErrors: false });
    const pdf = await bounded(loading.promise);
    const pages: string[] = [];
    for (let n = 1, length = 0; n <= pdf.numPages && length <= most; ++n) {
      const { items } = await bounded(pdf.getPage(n).then((page) => page.getTextContent()));
      const text = items.map((item) => ("str" in item ? item.str + (item.hasEOL ? "\n" : "") : "")).join("").trim();
      if (text) pages.push(pdf.numPages > 1 ? `[page ${n}]\n${text}` : text);
      length += text.length;
    }
    return pages.join("\n\n");
  } catch (error) {
    if (error instanceof PasswordException) throw new Error("it is locked by a password");
    throw error;
  } finally {
    thread.terminate();
  }
}
