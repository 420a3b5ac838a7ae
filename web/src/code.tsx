// A code block: its language, highlighting, and a copy button.
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { copy } from "./copy";
import { Icon } from "./icons";

const highlighter = createLowlight({ bash, cpp, diff, go, java, json, python, rust, sql, typescript, xml, yaml });
// A grammar that covers more than the language: sharing one for both halves the size.
highlighter.registerAlias({ typescript: ["javascript", "js", "jsx", "mjs", "cjs"], bash: ["shell", "console"] });

// Longer ones are not highlighted: they would be redrawn for each token.
const mostColoured = 20_000;

type Node = ReturnType<typeof highlighter.highlight>["children"][number];

function coloured(nodes: readonly Node[]): ComponentChildren {
  return nodes.map((node) => {
    if (node.type === "text") return node.value;
    if (node.type !== "element") return null;
    const { className } = node.properties;
    return <span class={Array.isArray(className) ? className.join(" ") : undefined}>{coloured(node.children)}</span>;
  });
}

/** `language`: the fence's info string. */
export function CodeBlock({ text, language }: { text: string; language: string }) {
  const name = language.trim().split(/[\s{,]/)[0].slice(0, 24);
  const drawn = useMemo(() => {
    const known = name.toLowerCase();
    if (!known || text.length > mostColoured || !highlighter.registered(known)) return text;
    return coloured(highlighter.highlight(known, text).children);
  }, [text, name]);
  return (
    <figure class="code">
      <figcaption>
        <span>{name || "text"}</span>
        {navigator.clipboard && (
          <button class="small" onClick={() => copy(text)} title="Copy the code" aria-label="Copy the code">
            <Icon name="copy" />
          </button>
        )}
      </figcaption>
      <pre tabIndex={0} aria-label={name ? `Code, ${name}` : "Code"} role="group"><code>{drawn}</code></pre>
    </figure>
  );
}
