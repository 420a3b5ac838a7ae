// Renders a model's text as elements. `marked` parses the Markdown; the kinds of tokens below
// become elements, with no attributes except those given here. Text from a model is never passed to
// the browser as markup: HTML is shown verbatim, an image becomes a link to it, and only links to
// the web or to a mailbox are clickable. The one exception is <details> without attributes.
import type { Token, Tokens } from "marked";
import type { ComponentChildren, VNode } from "preact";
import { useMemo } from "preact/hooks";

import { CodeBlock } from "./code";
import { dialect } from "./dialect";
import { Formula } from "./math";

// Entities that models write. Unknown names stay as they are.
const named: Record<string, string> = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™",
  hellip: "…", mdash: "—", ndash: "–", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", laquo: "«",
  raquo: "»", bull: "•", middot: "·", times: "×", divide: "÷", deg: "°", plusmn: "±", le: "≤",
  ge: "≥", ne: "≠", asymp: "≈", infin: "∞", larr: "←", rarr: "→", uarr: "↑", darr: "↓", euro: "€",
  pound: "£", yen: "¥", sect: "§", para: "¶", micro: "µ", alpha: "α", beta: "β", pi: "π",
};

function plain(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{2,8}));/g, (all, decimal, hex, name) => {
    if (name) return Object.hasOwn(named, name) ? named[name] : all;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
  });
}

/** The URL as the browser would open it; null if links to it are not allowed. */
export function safeAddress(href: string): string | null {
  try {
    const { protocol, href: whole } = new URL(plain(href)); // no base: relative links are invalid
    return ["http:", "https:", "mailto:"].includes(protocol) ? whole : null;
  } catch {
    return null;
  }
}

function Anchor({ href, children }: { href: string; children: ComponentChildren }) {
  const address = safeAddress(href);
  if (!address) return <>{children}</>;
  return <a href={address} target="_blank" rel="noopener noreferrer">{children}</a>;
}

function inlines(tokens: Token[] | undefined): ComponentChildren {
  return (tokens ?? []).map((token) => inline(token as Tokens.Generic));
}

function inline(token: Tokens.Generic): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong>{inlines(token.tokens)}</strong>;
    case "em":
      return <em>{inlines(token.tokens)}</em>;
    case "del":
      return <del>{inlines(token.tokens)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "link":
      return <Anchor href={token.href}>{inlines(token.tokens)}</Anchor>;
    case "image": // never loaded
      return <Anchor href={token.href}>{plain(token.text) || token.href}</Anchor>;
    case "checkbox":
      return <input type="checkbox" checked={token.checked} disabled aria-label={token.checked ? "Done" : "To do"} />;
    case "html":
      return /^<br\s*\/?>$/i.test(token.raw) ? <br /> : token.raw;
    case "formula":
      return <Formula tex={token.tex} display={token.display} raw={token.raw} />;
    case "footnoteMark":
      return <sup class="footnote-mark">{token.label}</sup>;
    case "escape":
      return token.text;
    case "text":
      return token.tokens ? inlines(token.tokens) : plain(token.text);
    default:
      return token.raw;
  }
}

function ListOf({ list }: { list: Tokens.List }) {
  const items = list.items.map((item) => (
    <li class={item.task ? "task" : undefined}>{blocks(item.tokens)}</li>
  ));
  return list.ordered ? <ol start={Number(list.start)}>{items}</ol> : <ul>{items}</ul>;
}

function TableOf({ table }: { table: Tokens.Table }) {
  const cell = (of: Tokens.TableCell) => of.align && `to-${of.align}`;
  return (
    <div class="table" role="group" aria-label="Table" tabIndex={0}>
      <table>
        <thead>
          <tr>{table.header.map((of) => <th scope="col" class={cell(of) ?? undefined}>{inlines(of.tokens)}</th>)}</tr>
        </thead>
        <tbody>
          {table.rows.map((row) => (
            <tr>{row.map((of) => <td class={cell(of) ?? undefined}>{inlines(of.tokens)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function blocks(tokens: Token[]): ComponentChildren {
  return tokens.map((token) => block(token as Tokens.Generic));
}

function block(token: Tokens.Generic): ComponentChildren {
  switch (token.type) {
    case "fold":
      return (
        <details class="fold">
          <summary>{plain(token.title)}</summary>
          {blocks(token.tokens ?? [])}
        </details>
      );
    case "footnote":
      return <p class="footnote"><sup class="footnote-mark">{token.label}</sup> {inlines(token.tokens)}</p>;
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p>{inlines(token.tokens)}</p>;
    case "heading": // the page's own headings rank above
      return <p class={`heading level-${token.depth}`} role="heading" aria-level={Math.min(6, (token.rank ?? 1) + 3)}>{inlines(token.tokens)}</p>;
    case "list":
      return <ListOf list={token as Tokens.List} />;
    case "table":
      return <TableOf table={token as Tokens.Table} />;
    case "code":
      return <CodeBlock text={token.text} language={token.lang ?? ""} />;
    case "blockquote":
      return <blockquote>{blocks(token.tokens ?? [])}</blockquote>;
    case "hr":
      return <hr />;
    case "html":
      return <p>{token.raw.trimEnd()}</p>;
    default: // in lists
      return inline(token);
  }
}

/** Redrawn only if its text or its link targets have changed: while an answer is written, only the
 *  last block. */
function Block({ token, links }: { token: Token; links: string }): VNode {
  return useMemo(() => <>{block(token as Tokens.Generic)}</>, [token.type, token.raw, (token as Tokens.Generic).rank, links]);
}

// Text that takes long to parse or draw and that nobody reads: extremely nested quotes and lists,
// as written by a model that cannot stop.
const tooDeep = /^(?:[ \t]*>){40}|^[ \t]{80,}(?:[-*+]|\d+[.)])[ \t]/m;
const tooLong = 300_000;

const foldBegin = /^<details>\s*(?:<summary>([^<>\n]{1,200})<\/summary>)?/i;
const foldEnd = /<\/details>\s*$/i;

/** What stands between <details> and </details> becomes one token; without an end, up to the last. */
function folded(tokens: Token[]): Token[] {
  const result: Token[] = [];
  for (let i = 0; i < tokens.length; ++i) {
    const begin = tokens[i].type === "html" ? foldBegin.exec(tokens[i].raw) : null;
    if (!begin) {
      result.push(tokens[i]);
      continue;
    }
    let end = i;
    while (end < tokens.length && !(tokens[end].type === "html" && foldEnd.test(tokens[end].raw))) ++end;
    const inner = tokens[i].raw.slice(begin[0].length).replace(foldEnd, "");
    const rest = end > i && end < tokens.length ? tokens[end].raw.replace(foldEnd, "") : "";
    const parts = [...dialect.lexer(inner), ...tokens.slice(i + 1, end), ...dialect.lexer(rest)];
    const raw = tokens.slice(i, end + 1).map((token) => token.raw).join("");
    result.push({ type: "fold", raw, title: begin[1]?.trim() || "Details", tokens: parts.filter(({ type }) => type !== "space") });
    i = end;
  }
  return result;
}

/** Headings for readers of the screen: none is more than one level below the one before it. */
function rankHeadings(tokens: Token[], last = 0): number {
  for (const token of tokens as Tokens.Generic[]) {
    if (token.type === "heading") token.rank = last = Math.min(token.depth, last + 1);
    else last = rankHeadings(token.tokens ?? token.items ?? [], last);
  }
  return last;
}

// If it cannot be parsed, it is shown as plain text.
function read(text: string): { tokens: Token[]; links: string } {
  try {
    if (text.length > tooLong || tooDeep.test(text)) throw new RangeError();
    const tokens = dialect.lexer(text);
    const shown = folded(tokens.filter(({ type }) => type !== "space"));
    rankHeadings(shown);
    return { tokens: shown, links: JSON.stringify(tokens.links) };
  } catch {
    return { tokens: [{ type: "html", raw: text, text, pre: false, block: true }], links: "" };
  }
}

export function Markdown({ text }: { text: string }) {
  const { tokens, links } = useMemo(() => read(text), [text]);
  return (
    <div class="markdown">
      {tokens.map((token, i) => <Block key={i} token={token} links={links} />)}
    </div>
  );
}
