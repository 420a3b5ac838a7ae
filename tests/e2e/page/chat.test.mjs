// A conversation as people know it: a field first, other versions, files, forms of answers; and what
// the page says when an answer is not what was expected.
import assert from "node:assert/strict";
import { mkdtemp, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, afterEach, before, beforeEach, describe } from "node:test";

import {
  audit,
  bounded,
  card,
  closeAll,
  lastAnswer,
  launch,
  open,
  say,
  startScripted,
  startSeveral,
  startWeft,
  until,
  untilAnswered,
} from "./common.mjs";

const script = (text) => `<<say>>${text}<</say>>`;

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
  opened = await open(browser, server.url);
});
afterEach(async () => {
  await opened.context.close();
  assert.deepEqual(opened.faults, []);
});

/** The bodies of all requests for answers. */
function bodiesOf(page) {
  const bodies = [];
  page.on("request", (request) => {
    if (request.url().includes("/chats/") && request.method() === "POST") bodies.push(request.postDataJSON());
  });
  return bodies;
}

async function settings(page, work) {
  await page.keyboard.press("Alt+s");
  await work(page.getByRole("dialog", { name: "Settings" }));
  await page.keyboard.press("Escape");
}

async function begin(page, text) {
  await page.getByRole("textbox", { name: "Write a message" }).fill(text);
  await page.keyboard.press("Enter");
}

/** A PDF of a line per page. A locked one asks for a password, because no one fits its key. */
function pdfOf(lines, { isLocked } = {}) {
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Count ${lines.length} /Kids [${lines.map((_, i) => `${4 + 2 * i} 0 R`).join(" ")}] >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ];
  for (const [i, line] of lines.entries()) {
    const drawn = line && `BT /F 12 Tf 72 700 Td (${line}) Tj ET`;
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${5 + 2 * i} 0 R /Resources << /Font << /F 3 0 R >> >> >>`,
      `<< /Length ${drawn.length} >>\nstream\n${drawn}\nendstream`,
    );
  }
  const key = "00".repeat(32);
  if (isLocked) objects.push(`<< /Filter /Standard /V 1 /R 2 /P -4 /O <${key}> /U <${key}> >>`);
  let file = "%PDF-1.4\n";
  const places = objects.map((object, i) => {
    const place = file.length;
    file += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return `${String(place).padStart(10, "0")} 00000 n \n`;
  });
  const lock = isLocked ? ` /Encrypt ${objects.length} 0 R /ID [<00> <00>]` : "";
  const size = objects.length + 1;
  const start = file.length;
  file += `xref\n0 ${size}\n0000000000 65535 f \n${places.join("")}trailer\n<< /Size ${size} /Root 1 0 R${lock} >>\nstartxref\n${start}\n%%EOF\n`;
  return Buffer.from(file, "latin1");
}

describe("the first screen", () => {
  bounded("is a field that has the focus: Enter starts", async () => {
    const { page } = opened;
    assert.equal(await page.evaluate(() => document.activeElement.id), "say-first");
    assert.equal(await page.locator(".suggestions button").count(), 3);
    await page.keyboard.insertText(`Hello ${script("Here I am.")}`);
    await page.keyboard.press("Enter");
    await untilAnswered(page, 1);
    assert.equal(await lastAnswer(page, 0), "Here I am.");
    // The next words go into the field at the bottom, without a frame around the conversation.
    assert.match(await page.evaluate(() => document.activeElement.ariaLabel), /^Write to /);
    assert.equal(await card(page, 0).evaluate((element) => getComputedStyle(element).borderTopWidth), "0px");
    assert.deepEqual(await audit(page), []);
  });

  bounded("fits a phone, and starts with what it proposes", async () => {
    const { page } = opened;
    await page.setViewportSize({ width: 360, height: 740 });
    const widths = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(widths[0] <= widths[1], `the page is ${widths[0]} wide`);
    await page.locator(".suggestions button").first().click();
    await card(page, 0).locator(".message.assistant").waitFor();
    await page.keyboard.press("Alt+x");
  });
});

describe("a message", () => {
  bounded("is edited in place, and each version is kept", async () => {
    const { page } = opened;
    await begin(page, `One ${script("First answer.")}`);
    await untilAnswered(page, 1);
    await say(page, 0, `Then ${script("And then.")}`);
    await untilAnswered(page, 2);
    const first = card(page, 0).locator(".message.user").first();
    await first.hover();
    await first.getByRole("button", { name: "Edit", exact: true }).click();
    const field = page.getByRole("textbox", { name: "Edit the message" });
    await field.fill(`Two ${script("Second answer.")}`);
    await field.press("Enter");
    await untilAnswered(page, 1);
    assert.equal(await lastAnswer(page, 0), "Second answer.");
    const versions = card(page, 0).getByRole("group", { name: "Versions" });
    assert.equal(await versions.innerText(), "2 / 2");
    await versions.getByRole("button", { name: "Version before" }).click();
    await untilAnswered(page, 2);
    assert.equal(await lastAnswer(page, 0), "And then.");
    // Both are there after a reload, and the other one goes on.
    await page.reload();
    await page.waitForSelector('[data-health="ready"]');
    await versions.getByRole("button", { name: "Version after" }).click();
    assert.equal(await lastAnswer(page, 0), "Second answer.");
    await say(page, 0, `More ${script("On.")}`);
    await untilAnswered(page, 2);
    assert.equal(await lastAnswer(page, 0), "On.");
  });

  bounded("gets another answer, and the one before stays", async () => {
    const { page } = opened;
    await begin(page, `Again ${script("An answer.")}`);
    await untilAnswered(page, 1);
    await card(page, 0).getByRole("button", { name: "Regenerate" }).click();
    const versions = card(page, 0).getByRole("group", { name: "Versions" });
    await versions.filter({ hasText: "2 / 2" }).waitFor();
    await untilAnswered(page, 1);
    await versions.getByRole("button", { name: "Version before" }).click();
    await versions.filter({ hasText: "1 / 2" }).waitFor();
    assert.equal(await lastAnswer(page, 0), "An answer.");
    assert.deepEqual(await audit(page), []);
  });

  bounded("carries text files and long pastes, and refuses what is no text", async () => {
    const { page } = opened;
    const bodies = bodiesOf(page);
    const folder = await mkdtemp(path.join(process.env.WEFT_SCRATCH, "files-"));
    const code = path.join(folder, "loom.py");
    const archive = path.join(folder, "loom.zip");
    const picture = path.join(folder, "loom.png");
    await writeFile(code, "weave = '''\n```\n'''\n");
    await writeFile(archive, Buffer.from([0x50, 0x4b, 3, 4, 0, 0xff]));
    await writeFile(picture, Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0xff]));
    await page.locator("input[type=file]").setInputFiles(picture);
    await page.getByText("“loom.png” is a picture, and this model sees none.").waitFor();
    await page.locator("input[type=file]").setInputFiles([code, archive]);
    await page.getByText("“loom.zip” is not text. Attach text, code, or a PDF.").waitFor();
    const field = page.getByRole("textbox", { name: "Write a message" });
    const long = "a line of a log\n".repeat(80);
    await field.evaluate((element, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      element.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    }, long);
    assert.deepEqual(await page.locator(".attached .file").allInnerTexts(), ["loom.py 20 B", "paste-1.txt 1.3 KiB"]);
    assert.equal(await field.inputValue(), "");
    await page.getByRole("button", { name: "Remove paste-1.txt" }).click();
    await begin(page, `Read it. ${script("I have.")}`);
    await untilAnswered(page, 1);
    const { content } = bodies[0].messages[0];
    assert.ok(content.startsWith("loom.py:\n````py\nweave = '''\n```\n'''\n````\n\nRead it."), content);
    assert.equal(await card(page, 0).locator(".said .attached summary").innerText(), "loom.py 20 B");
    assert.deepEqual(await audit(page), []);
  });

  bounded("carries the text of PDFs, whose reader is loaded with the first one", async () => {
    const { page } = opened;
    const bodies = bodiesOf(page);
    const loaded = [];
    page.on("request", (request) => loaded.push(new URL(request.url()).pathname));
    const attach = (name, buffer) => page.locator("input[type=file]").setInputFiles({ name, mimeType: "application/pdf", buffer });
    // None of these is attached, and each says why.
    await attach("scan.pdf", pdfOf(["", ""]));
    await page.getByText("“scan.pdf” has no text: its pages are pictures. Attach one with text.").waitFor();
    await attach("secret.pdf", pdfOf(["Hidden"], { isLocked: true }));
    await page.getByText("“secret.pdf” cannot be read: it is locked by a password.").waitFor();
    await attach("torn.pdf", Buffer.from("%PDF-1.4\nand no more"));
    await page.getByText(/^“torn.pdf” cannot be read: /).waitFor();
    assert.equal(await page.locator(".attached .file").count(), 0);

    const evil = "<img src=x onerror=alert\\(1\\)>";
    await attach("loom.pdf", pdfOf(["The warp is long.", evil]));
    await page.locator(".attached .file", { hasText: "loom.pdf" }).waitFor();
    assert.deepEqual(await audit(page), []);
    await begin(page, `Read it. ${script("I have.")}`);
    await untilAnswered(page, 1);
    const { content } = bodies[0].messages[0];
    const text = "[page 1]\nThe warp is long.\n\n[page 2]\n<img src=x onerror=alert(1)>";
    assert.ok(content.startsWith(`loom.pdf:\n\`\`\`\n${text}\n\`\`\`\n\nRead it.`), content);
    assert.equal(await page.locator(".said img").count(), 0);
    assert.deepEqual(new Set(loaded.filter((name) => name.includes("pdf"))), new Set(["/page/pdf.js", "/page/pdf_worker.js"]));
    assert.equal(page.workers().length, 0);
  });
});

describe("an answer", () => {
  bounded("goes on where it was cut", async () => {
    const { page } = opened;
    const bodies = bodiesOf(page);
    await settings(page, (dialog) => dialog.getByLabel("Max tokens").fill("6"));
    await begin(page, `Tell ${script("abcdefghij")}`);
    await card(page, 0).locator('.message[data-status="length"]').waitFor();
    assert.equal(await lastAnswer(page, 0), "abcdef");
    await card(page, 0).getByRole("button", { name: "Continue" }).click();
    await until(() => bodies.length === 2);
    await untilAnswered(page, 1);
    assert.deepEqual(bodies[1].messages.at(-1), { role: "assistant", content: "abcdef" });
    assert.ok((await lastAnswer(page, 0)).startsWith("abcdef"));
    assert.ok((await lastAnswer(page, 0)).length > 6);
  });

  bounded("says when it was empty, and when it repeated itself", async () => {
    const { page } = opened;
    await begin(page, `Nothing ${script("")}`);
    await card(page, 0).getByText("The model ended its answer before the first word.").waitFor();
    await say(page, 0, `Round ${script("again, and ".repeat(40))}`);
    await card(page, 0).getByText("It repeated itself, so the server ended it.").waitFor();
    assert.equal(await card(page, 0).getByRole("button", { name: "Try again" }).count(), 1);
    assert.deepEqual(await audit(page), []);
  });

  bounded("that does not fit the context is given without the oldest turns", async () => {
    const { page } = opened;
    const bodies = bodiesOf(page);
    await begin(page, `${"old ".repeat(1000)} ${script("One.")}`);
    await untilAnswered(page, 1);
    await say(page, 0, `${"new ".repeat(700)} ${script("Two.")}`);
    await untilAnswered(page, 2);
    await say(page, 0, `${"last ".repeat(1400)} ${script("Three.")}`);
    await card(page, 0).getByRole("button", { name: "Leave out the oldest turns and go on" }).click();
    await card(page, 0).locator('.message[data-status="done"]').nth(2).waitFor();
    assert.equal(await lastAnswer(page, 0), "Three.");
    assert.doesNotMatch(JSON.stringify(bodies.at(-1).messages), /old old/);
    await card(page, 0).getByText("The messages above are no longer sent").waitFor();
    assert.deepEqual(await audit(page), []);
  });

  bounded("has the form that the settings ask for", async () => {
    const { page } = opened;
    const bodies = bodiesOf(page);
    await settings(page, async (dialog) => {
      await dialog.getByLabel("Answers are").selectOption("schema");
      await dialog.getByLabel("JSON Schema", { exact: true }).fill("{ no");
      await dialog.getByText(/^This is not JSON/).waitFor();
      assert.deepEqual(await audit(page), []);
    });
    await begin(page, `Give ${script("{}")}`);
    await card(page, 0).getByRole("alert").filter({ hasText: "JSON Schema in the settings cannot be used" }).waitFor();
    assert.equal(bodies.length, 0);
    const schema = { type: "object", properties: {}, additionalProperties: false };
    await settings(page, async (dialog) => {
      await dialog.getByLabel("JSON Schema", { exact: true }).fill(JSON.stringify(schema));
      await dialog.getByLabel("Reasoning", { exact: true }).selectOption("off");
      await dialog.getByText("More sampling parameters").click();
      await dialog.getByLabel("Top-k").fill("7");
      await dialog.getByLabel("Stop strings").fill("one\ntwo");
    });
    await card(page, 0).getByRole("button", { name: "Try again" }).click();
    await untilAnswered(page, 1);
    const { response_format: form, top_k: k, stop, enable_thinking: thinks } = bodies[0];
    assert.deepEqual([form.json_schema.schema, k, stop, thinks], [schema, 7, ["one", "two"], false]);
    assert.equal(await lastAnswer(page, 0), "{}");
  });

  bounded("that the server's end cut short goes on when it is back", async () => {
    let own = await startWeft("--port", "0");
    const { port } = new URL(own.url);
    const { page, context, faults } = await open(browser, own.url);
    await settings(page, async (dialog) => {
      await dialog.getByText("More sampling parameters").click();
      await dialog.getByLabel("Min tokens").fill("3000"); // so that it does not end by itself
    });
    const isTaken = page.waitForResponse((response) => /\/chats\//.test(response.url()) && response.status() === 202);
    await begin(page, "Tell me a long story.");
    await isTaken;
    await own.kill();
    await card(page, 0).locator('.message.assistant[data-status="failed"]').waitFor();
    await page.waitForSelector('[data-health="unreachable"]');
    const before = await lastAnswer(page, 0);
    own = await startWeft("--port", port);
    await card(page, 0).locator('.message.assistant:not([data-status="failed"])').waitFor();
    await page.waitForFunction(
      (length) => document.querySelector(".message.assistant .markdown").textContent.length > length,
      before.length,
    );
    await page.keyboard.press("Alt+x");
    await untilAnswered(page, 1);
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await own.stop(), 0);
  });
});

describe("several", () => {
  bounded("are asked again all at once, and two answers compared", async () => {
    const { page } = opened;
    await startSeveral(page, [`One ${script("The red fox runs home.")}`, `Two ${script("The grey fox runs far.")}`]);
    await untilAnswered(page, 2);
    assert.match(await page.evaluate(() => document.activeElement.ariaLabel), /^Write to One/, "the view follows");
    await page.getByRole("button", { name: "Regenerate all" }).click();
    await until(async () => (await page.getByRole("group", { name: "Versions" }).count()) === 2);
    await untilAnswered(page, 2);
    await page.getByRole("button", { name: "Compare two answers" }).click();
    const dialog = page.getByRole("dialog", { name: "Compare two answers" });
    const marks = await dialog.locator("mark").allInnerTexts();
    assert.deepEqual(marks.map((text) => text.trim()), ["red", "home.", "grey", "far."]);
    assert.deepEqual(await audit(page), []);
  });

  bounded("fit the window in two rows of four", async () => {
    const { page } = opened;
    await page.setViewportSize({ width: 1280, height: 800 });
    await startSeveral(page, Array.from({ length: 8 }, (_, i) => `Line ${i} ${script(`Answer ${i}.`)}`));
    await untilAnswered(page, 8);
    const places = await page.locator(".card").evaluateAll((cards) => cards.map((card) => card.getBoundingClientRect().toJSON()));
    assert.equal(new Set(places.map(({ top }) => Math.round(top))).size, 2);
    assert.ok(places.every(({ bottom, right }) => bottom <= 800 && right <= 1280), JSON.stringify(places.at(-1)));
    await page.setViewportSize({ width: 1920, height: 1080 });
    const rows = await page.locator(".card").evaluateAll((cards) => cards.map((card) => Math.round(card.getBoundingClientRect().top)));
    assert.equal(rows.filter((top) => top === rows[0]).length, 4);
    await settings(page, (dialog) => dialog.getByLabel("Columns of the board").selectOption("3"));
    await until(async () => {
      const tops = await page.locator(".card").evaluateAll((cards) => cards.map((card) => Math.round(card.getBoundingClientRect().top)));
      return new Set(tops).size === 3;
    });
  });
});

describe("all conversations", () => {
  bounded("are found by their words, have an address, and come back from a file", async () => {
    const { page } = opened;
    await startSeveral(page, [`Loom ${script("It weaves cloth.")}`, `Boat ${script("It sails far.")}`]);
    await untilAnswered(page, 2);
    await card(page, 1).getByRole("button", { name: /^More about/ }).click();
    await card(page, 1).getByRole("menuitem", { name: "Park" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 1);
    const address = page.url();
    assert.match(address, /#page-\w+$/);
    await page.keyboard.press("Alt+k");
    const dialog = page.getByRole("dialog", { name: "Conversations" });
    await dialog.getByLabel("Find").fill("SAILS");
    await dialog.locator("mark", { hasText: "sails" }).waitFor();
    assert.equal(await dialog.locator(".found li").count(), 1);
    assert.deepEqual(await audit(page), []);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 2);
    // The address of the first one opens it by itself.
    await page.goto("about:blank");
    await page.goto(address);
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 1);
    assert.equal(await lastAnswer(page, 0), "It weaves cloth.");

    await page.keyboard.press("Escape");
    await page.keyboard.press("Alt+s");
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("dialog").getByRole("button", { name: "Export as JSON" }).click(),
    ]);
    const file = await download.path();
    const other = await open(browser, server.url);
    await other.page.keyboard.press("Alt+s");
    await other.page.getByRole("dialog").locator("input[type=file]").setInputFiles(file);
    await other.page.waitForFunction(() => document.querySelectorAll(".card").length === 2);
    assert.equal(await lastAnswer(other.page, 1), "It sails far.");
    await say(other.page, 1, `On ${script("Further.")}`);
    await untilAnswered(other.page, 3);
    await other.context.close();
    assert.deepEqual(other.faults, []);
  });
});

describe("system prompts", () => {
  bounded("are kept by name", async () => {
    const { page } = opened;
    const bodies = bodiesOf(page);
    await settings(page, async (dialog) => {
      await dialog.getByLabel("System prompt", { exact: true }).fill("Be brief.");
      await dialog.getByLabel("Name of the system prompt").fill("Brief");
      await dialog.getByRole("button", { name: "Keep" }).click();
      await dialog.getByLabel("Kept system prompts").selectOption("");
      await dialog.getByLabel("Kept system prompts").selectOption("Brief");
      assert.deepEqual(await audit(page), []);
    });
    await begin(page, `Hello ${script("Yes.")}`);
    await untilAnswered(page, 1);
    assert.deepEqual(bodies[0].messages[0], { role: "system", content: "Be brief." });
  });
});

describe("the page's weight", () => {
  bounded("is within 400 kB compressed", async () => {
    const { gzipSync } = await import("node:zlib");
    const bodies = await Promise.all(["/", "/page/app.js", "/page/app.css", "/page/app.woff2", "/page/icon.svg"].map(async (name) => (await fetch(server.url + name)).arrayBuffer()));
    const bytes = bodies.reduce((sum, body) => sum + gzipSync(Buffer.from(body)).length, 0);
    assert.ok(bytes > 10_000 && bytes <= 400_000, `${bytes} bytes`);
  });
});
