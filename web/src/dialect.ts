// What models write beyond GitHub's Markdown: formulas and footnotes, as extensions of `marked`.
import { Marked, type TokenizerAndRendererExtension, type TokenizerThis, type Tokens } from "marked";

// "$5 or 10$" is money.
function isMoney(tex: string): boolean {
  return /^\d/.test(tex) && /\s/.test(tex) && !/[\\^_={}]/.test(tex);
}

const blockFormula: TokenizerAndRendererExtension = {
  name: "formula",
  level: "block",
  start: (source: string) => /^ {0,3}(?:\$\$|\\\[)/m.exec(source)?.index,
  tokenizer(source: string) {
    const found = /^ {0,3}(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])[ \t]*(?:\n+|$)/.exec(source);
    if (!found) return undefined;
    return { type: "formula", raw: found[0], tex: found[1] ?? found[2], display: true };
  },
};

const inlineFormula: TokenizerAndRendererExtension = {
  name: "inlineFormula",
  level: "inline",
  start: (source: string) => /\$|\\[([]/.exec(source)?.index,
  tokenizer(source: string) {
    const display = /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])/.exec(source);
    if (display) return { type: "formula", raw: display[0], tex: display[1] ?? display[2], display: true };
    const found = /^(?:\\\(([^]+?)\\\)|\$(?![\s$])((?:\\.|[^\\$\n])+?)(?<!\s)\$(?!\d))/.exec(source);
    const tex = found?.[1] ?? found?.[2];
    if (!found || tex === undefined || (found[2] && isMoney(tex))) return undefined;
    return { type: "formula", raw: found[0], tex, display: false };
  },
};

const footnote: TokenizerAndRendererExtension = {
  name: "footnote",
  level: "block",
  start: (source: string) => /^\[\^[\w.-]{1,40}\]:/m.exec(source)?.index,
  tokenizer(this: TokenizerThis, source: string) {
    const found = /^\[\^([\w.-]{1,40})\]:[ \t]+([^\n]+(?:\n(?!\s*\n|\[\^)[^\n]+)*)(?:\n+|$)/.exec(source);
    if (!found) return undefined;
    const token: Tokens.Generic = { type: "footnote", raw: found[0], label: found[1], tokens: [] };
    this.lexer.inline(found[2], token.tokens);
    return token;
  },
};

const footnoteMark: TokenizerAndRendererExtension = {
  name: "footnoteMark",
  level: "inline",
  start: (source: string) => {
    const at = source.indexOf("[^");
    return at < 0 ? undefined : at;
  },
  tokenizer(source: string) {
    const found = /^\[\^([\w.-]{1,40})\]/.exec(source);
    return found ? { type: "footnoteMark", raw: found[0], label: found[1] } : undefined;
  },
};

export const dialect = new Marked({
  gfm: true,
  extensions: [blockFormula, inlineFormula, footnote, footnoteMark],
});
