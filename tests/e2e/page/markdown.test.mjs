// What a model writes is shown as it is meant, and does nothing.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe } from "node:test";

import { audit, bounded, card, closeAll, launch, open, startScripted, startSeveral, untilAnswered } from "./common.mjs";

const script = (text) => `<<say>>${text}<</say>>`;
const fence = "```";
const rich = `# Report

See www.example.com, https://example.org/a?b=1&c=2, <mail@example.org> and [the docs](https://example.org "x").

| City | People |
|:-----|-------:|
| Rome | 2.8 *million* |
| \`a\\|b\` | 3 |

1. first
   - inner
     - innermost
   - other
2. second

- [x] done
- [ ] to do

> quoted **text**

${fence}python
def double(n):
    return 2 * n  # twice
${fence}

${fence}
no language
${fence}

AT&amp;T, ~~gone~~, \`code &amp; more\`, 5 &lt; 7, a  
broken line.

---

The end.`;

const hostile = `<script>document.title = "hit"</script>

<img src=x onerror="document.title='hit'"> <b onclick="document.title='hit'">bold</b>

[one](javascript:document.title='hit') [two](JaVaScRiPt&#58;document.title='hit') [three](data:text/html,<script>1</script>)
[four](vbscript:x) [five](/v1/models) [six](//evil.example/a) <javascript:document.title='hit'>

![picture](https://evil.example/pixel.png) ![inner](/page/icon.svg) ![p](javascript:alert(1))

[ref]: javascript:document.title='hit'
[ref] and <iframe src="https://evil.example"></iframe> and <style>*{display:none}</style>

<details open ontoggle="document.title='hit'"><summary>x</summary></details>
<a href="javascript:document.title='hit'">link</a> <svg onload="document.title='hit'"></svg> <form action="https://evil.example"><input autofocus onfocus="document.title='hit'"></form>

${fence}<img src=x onerror=document.title='hit'>
<script>document.title='hit'</script>
${fence}

${fence}xml
<script>document.title='hit'</script>
${fence}`;

const beyond = String.raw`Half is $\frac{1}{2}$, and \(x \in \mathbb{R}\). It costs $5 and $10. Broken: $\unknown{x$ here.

$$
\frac{1}{2}
= 0.5
$$

\[ \href{javascript:document.title='hit'}{x} \htmlStyle{color:red}{y} \includegraphics{https://evil.example/a.png} z \]

\[ a_1 \]

A claim.[^1]

[^1]: Its source.

for line in text:
    print(line)

<details>
<summary>More &amp; more</summary>

**Inside** it.

</details>`;

describe("what a model writes", () => {
  let server;
  let browser;
  let opened;

  before(async () => {
    server = await startScripted();
    browser = await launch();
  });
  after(async () => {
    assert.equal(await server?.stop(), 0);
    await closeAll(browser);
  });
  beforeEach(async () => {
    opened = await open(browser, server.url, { permissions: ["clipboard-read", "clipboard-write"] });
  });
  afterEach(async () => {
    await opened.context.close();
    assert.deepEqual(opened.faults, []);
  });

  // A line of the dialog is a conversation, so texts with several lines are typed into a card.
  async function tell(text) {
    const { page } = opened;
    await page.getByRole("button", { name: "New conversation" }).first().click();
    await card(page, 0).locator("footer textarea").fill(`Write. ${script(text)}`);
    await card(page, 0).getByRole("button", { name: "Send" }).click();
    await untilAnswered(page, 1);
    return card(page, 0).locator(".message.assistant .markdown");
  }

  bounded("has headings in the order of the page's, wherever it begins", async () => {
    const { page } = opened;
    const text = await tell("## Begin\n\nOne.\n\n#### Deep\n\n- # Inside\n\n## Next");
    const levels = await text.getByRole("heading").evaluateAll((all) => all.map((heading) => heading.ariaLevel));
    assert.deepEqual(levels, ["4", "5", "4", "5"]);
    assert.deepEqual(await audit(page), []);
  });

  bounded("is set as Markdown: tables, lists, tasks, code, links", async () => {
    const { page } = opened;
    const text = await tell(rich);
    assert.equal(await text.getByRole("heading", { name: "Report" }).count(), 1);
    assert.deepEqual(await text.locator("th, td").allInnerTexts(), ["City", "People", "Rome", "2.8 million", "a|b", "3"]);
    assert.equal(await text.locator("td.to-right em").innerText(), "million");
    assert.equal(await text.locator("ol > li").count(), 2);
    assert.equal(await text.locator("ol > li > ul > li > ul > li").innerText(), "innermost");
    assert.deepEqual(
      await text.locator("li.task input").evaluateAll((boxes) => boxes.map((box) => [box.checked, box.disabled])),
      [[true, true], [false, true]],
    );
    assert.equal(await text.locator("blockquote strong").innerText(), "text");
    const links = await text.locator("a").evaluateAll((all) => all.map((a) => [a.href, a.target, a.rel]));
    assert.deepEqual(links, [
      ["http://www.example.com/", "_blank", "noopener noreferrer"],
      ["https://example.org/a?b=1&c=2", "_blank", "noopener noreferrer"],
      ["mailto:mail@example.org", "_blank", "noopener noreferrer"],
      ["https://example.org/", "_blank", "noopener noreferrer"],
    ]);
    assert.match(await text.locator("> p").last().innerText(), /^The end\.$/);
    const words = await text.innerText();
    assert.match(words, /AT&T, gone, code &amp; more, 5 < 7, a\nbroken line\./);

    const code = text.locator(".code").first();
    assert.equal(await code.locator("figcaption span").innerText(), "python");
    assert.equal(await code.locator(".hljs-keyword").first().innerText(), "def");
    assert.equal(await text.locator(".code").nth(1).locator("figcaption span").innerText(), "text");
    assert.equal(await text.locator(".code").nth(1).locator("[class^=hljs]").count(), 0);
    await code.getByRole("button", { name: "Copy the code" }).click();
    await page.getByText("Copied.").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "def double(n):\n    return 2 * n  # twice");
    assert.deepEqual(await audit(page), []);
  });

  bounded("is text, whatever it pretends to be", async () => {
    const { page } = opened;
    const text = await tell(hostile);
    const seen = await text.evaluate((root) => ({
      names: [...new Set([...root.querySelectorAll("*")].map((element) => element.localName))].sort(),
      attributes: [...new Set([...root.querySelectorAll("*")].flatMap((element) => element.getAttributeNames()))].sort(),
      links: [...root.querySelectorAll("a")].map((a) => a.href),
    }));
    // No element and no attribute but the page's own.
    assert.deepEqual(
      seen.names.filter((name) => !["p", "a", "figure", "figcaption", "span", "button", "svg", "path", "pre", "code", "br"].includes(name)),
      [],
    );
    assert.deepEqual(
      seen.attributes.filter((name) => !["class", "href", "target", "rel", "title", "tabindex", "role", "aria-label", "aria-hidden", "viewBox", "d"].includes(name)),
      [],
    );
    assert.deepEqual(seen.links, ["https://evil.example/pixel.png"], "a picture is a link to it");
    const words = await text.innerText();
    for (const shown of ["<script>document.title = \"hit\"</script>", "<img src=x onerror", "<iframe src=", "one", "two", "five"]) {
      assert.ok(words.includes(shown), `${shown} is not shown in ${words}`);
    }
    for (const link of await text.locator("a, button").all()) await link.hover();
    assert.equal(await page.title(), "Weft");
  });

  bounded("may have formulas, footnotes and folds, as elements that do nothing", async () => {
    const { page } = opened;
    const text = await tell(beyond);
    assert.equal(await text.locator("math").count(), 5);
    assert.equal(await text.locator(".formula math").count(), 3);
    assert.match(await text.locator(".formula mfrac").first().textContent(), /^12$/);
    assert.match(await text.locator("math").nth(1).textContent(), /ℝ/);
    const words = await text.innerText();
    assert.match(words, /It costs \$5 and \$10\./);
    assert.match(words, /\$\\unknown\{x\$/, "what cannot be read is shown as it is");
    assert.match(words, /A claim\.1/);
    assert.match(words, /1 Its source\./);
    const fold = text.locator("details.fold");
    assert.equal(await fold.count(), 1);
    assert.equal(await fold.locator("summary").innerText(), "More & more");
    await fold.locator("summary").click();
    assert.equal(await fold.locator("strong").innerText(), "Inside");
    // Code without a fence keeps its blanks.
    assert.match(await text.locator("p").filter({ hasText: "for line" }).innerText(), /for line in text:\n {4}print\(line\)/);
    const seen = await text.evaluate((root) => [...root.querySelectorAll("*")].flatMap((element) => element.getAttributeNames()));
    assert.deepEqual(seen.filter((name) => name.startsWith("on") || ["href", "style", "src"].includes(name)), []);
    assert.equal(await text.locator("a, img, iframe, script").count(), 0);
    assert.deepEqual(await audit(page), []);
    assert.equal(await page.title(), "Weft");
  });

  bounded("may be nested without end or never close what it opens", async () => {
    const quote = `${">".repeat(400)} deep ${"[".repeat(300)} ${"*a ".repeat(50)}`;
    const list = Array.from({ length: 45 }, (_, i) => `${"  ".repeat(i)}- ${i}`).join("\n");
    const text = await tell(`${quote}\n\n${list}\n\n${fence}js\nlet open = 1;`);
    assert.match(await text.innerText(), /deep[^]*- 44[^]*let open = 1;/);
  });
});
