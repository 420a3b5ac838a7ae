// The part of Markdown that models write, as elements: no text of a model ever becomes
// markup. What is not known here stays as it was written.
import type { ComponentChildren, VNode } from "preact";

const inline =
  /`([^`\n]+)`|\*\*([^*\n]+)\*\*|__([^_\n]+)__|(?<![\w*])\*([^*\s][^*\n]*)\*(?![\w*])|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

function inlines(text: string): ComponentChildren {
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const match of text.matchAll(inline)) {
    if (match.index > at) parts.push(text.slice(at, match.index));
    const [all, code, strong, strong2, emphasis, label, link] = match;
    if (code) parts.push(<code>{code}</code>);
    else if (strong || strong2) parts.push(<strong>{strong || strong2}</strong>);
    else if (emphasis) parts.push(<em>{emphasis}</em>);
    else parts.push(<a href={link} target="_blank" rel="noopener noreferrer">{label}</a>);
    at = match.index + all.length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

const fence = /^\s{0,3}(```+|~~~+)\s*(\S*)/;
const heading = /^(#{1,6})\s+(.+)$/;
const bullet = /^\s{0,8}[-*+]\s+(.*)$/;
const numbered = /^\s{0,8}(\d{1,9})[.)]\s+(.*)$/;
const rule = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;

function opensBlock(line: string): boolean {
  return [fence, heading, bullet, numbered, rule].some((pattern) => pattern.test(line)) || line.startsWith("> ");
}

class Reader {
  private at = 0;
  constructor(private readonly lines: string[]) {}

  blocks(): VNode[] {
    const result: VNode[] = [];
    while (this.at < this.lines.length) {
      if (this.lines[this.at].trim() === "") ++this.at;
      else result.push(this.block());
    }
    return result;
  }

  private block(): VNode {
    const line = this.lines[this.at];
    const opened = fence.exec(line);
    if (opened) return this.code(opened[1], opened[2]);
    const title = heading.exec(line);
    if (title) {
      ++this.at;
      return <p class={`heading level-${title[1].length}`}>{inlines(title[2])}</p>;
    }
    if (rule.test(line)) {
      ++this.at;
      return <hr />;
    }
    if (line.startsWith("> ")) {
      const quoted = this.take((next) => next.startsWith(">")).map((next) => next.replace(/^>\s?/, ""));
      return <blockquote>{new Reader(quoted).blocks()}</blockquote>;
    }
    if (bullet.test(line)) return <ul>{this.items(bullet, 1)}</ul>;
    const first = numbered.exec(line);
    if (first) return <ol start={Number(first[1])}>{this.items(numbered, 2)}</ol>;
    const [begin, ...rest] = [this.lines[this.at++], ...this.take((next) => next.trim() !== "" && !opensBlock(next))];
    return <p>{inlines([begin, ...rest].join("\n"))}</p>;
  }

  private take(belongs: (line: string) => boolean): string[] {
    const start = this.at;
    while (this.at < this.lines.length && belongs(this.lines[this.at])) ++this.at;
    return this.lines.slice(start, this.at);
  }

  private code(mark: string, language: string): VNode {
    ++this.at;
    const body = this.take((line) => !line.trimStart().startsWith(mark));
    ++this.at; // the closing fence, if it has come already
    return (
      <pre data-language={language || undefined} tabIndex={0}>
        <code>{body.join("\n")}</code>
      </pre>
    );
  }

  private items(pattern: RegExp, group: number): VNode[] {
    const items: VNode[] = [];
    while (this.at < this.lines.length) {
      const match = pattern.exec(this.lines[this.at]);
      if (!match) break;
      ++this.at;
      const rest = this.take((line) => /^\s{2,}\S/.test(line) && !pattern.test(line));
      items.push(<li>{inlines([match[group], ...rest.map((line) => line.trim())].join("\n"))}</li>);
    }
    return items;
  }
}

export function Markdown({ text }: { text: string }) {
  return <div class="markdown">{new Reader(text.split("\n")).blocks()}</div>;
}
