// Formulas: KaTeX reads the TeX, and its tree becomes MathML elements, of the kinds and with the
// attributes below only. Nothing is passed to the browser as markup, and no font is needed.
import katex from "katex";
import { type ComponentChildren, h } from "preact";
import { useMemo } from "preact/hooks";

/** A node of KaTeX's tree: an element of MathML, a text, or a group of others. */
interface Node {
  type?: string;
  text?: string;
  attributes?: Record<string, string>;
  children?: Node[];
}

const names = new Set([
  "math", "mrow", "mi", "mn", "mo", "mtext", "ms", "mspace", "msup", "msub", "msubsup", "munder", "mover",
  "munderover", "mfrac", "msqrt", "mroot", "mtable", "mtr", "mtd", "mpadded", "mphantom", "menclose", "mstyle",
]);
const attributes = new Set([
  "mathvariant", "stretchy", "fence", "separator", "form", "lspace", "rspace", "width", "height", "depth", "voffset",
  "linethickness", "display", "displaystyle", "scriptlevel", "accent", "accentunder", "columnalign", "columnspacing",
  "rowspacing", "columnlines", "rowlines", "minsize", "maxsize", "mathcolor", "mathbackground", "notation",
  "movablelimits", "symmetric", "largeop",
]);

// Browsers know no variant but "normal": other alphabets have letters of their own in Unicode.
const alphabets: Record<string, { upper: number; lower: number; digits?: number; except?: Record<string, string> }> = {
  bold: { upper: 0x1d400, lower: 0x1d41a, digits: 0x1d7ce },
  "double-struck": {
    upper: 0x1d538, lower: 0x1d552, digits: 0x1d7d8,
    except: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  },
  script: {
    upper: 0x1d49c, lower: 0x1d4b6,
    except: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  },
  fraktur: {
    upper: 0x1d504, lower: 0x1d51e,
    except: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  },
};

function inAlphabet(text: string, variant: string | undefined): string {
  const alphabet = variant ? alphabets[variant] : undefined;
  if (!alphabet) return text;
  const { upper, lower, digits, except } = alphabet;
  return text.replace(/[A-Za-z0-9]/g, (letter) => {
    if (except?.[letter]) return except[letter];
    const code = letter.charCodeAt(0);
    if (code >= 97) return String.fromCodePoint(lower + code - 97);
    if (code >= 65) return String.fromCodePoint(upper + code - 65);
    return digits ? String.fromCodePoint(digits + code - 48) : letter;
  });
}

function elementsOf(nodes: readonly Node[] = [], variant?: string): ComponentChildren[] {
  return nodes.map((node) => elementOf(node, variant));
}

function elementOf(node: Node, variant?: string): ComponentChildren {
  const { type, text, children } = node;
  if (text !== undefined && !children) return inAlphabet(text, variant);
  if (type === "semantics") return elementsOf(children?.slice(0, 1), variant); // the rest is the TeX
  if (!type || !names.has(type)) return elementsOf(children, variant);
  const kept = Object.entries(node.attributes ?? {}).filter(([name]) => attributes.has(name));
  const own = node.attributes?.mathvariant ?? variant;
  return h(type, Object.fromEntries(kept), ...elementsOf(children, own));
}

type Render = (tex: string, options: object) => Node;

function treeOf(tex: string, display: boolean): Node | null {
  try {
    const render = (katex as unknown as { __renderToDomTree: Render }).__renderToDomTree;
    return render(tex, { output: "mathml", displayMode: display, strict: "ignore", trust: false, maxExpand: 200, maxSize: 20 });
  } catch {
    return null;
  }
}

/** `raw`: the TeX with its marks, shown if it cannot be read. */
export function Formula({ tex, display, raw }: { tex: string; display: boolean; raw: string }) {
  const drawn = useMemo(() => {
    const tree = treeOf(tex, display);
    return tree && elementOf(tree);
  }, [tex, display]);
  if (!drawn) return <code>{raw}</code>;
  return display ? <div class="formula" tabIndex={0} role="group" aria-label="Formula">{drawn}</div> : <>{drawn}</>;
}
