// Pictures in the page: attached in three ways, sent, kept and exported, with a model that sees; and
// what the page says with one that does not.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe } from "node:test";

import { audit, bounded, card, closeAll, lastAnswer, launch, open, say, startWeft, until, untilAnswered } from "./common.mjs";

const scratch = process.env.WEFT_SCRATCH;
const seeing = ["-m", process.env.WEFT_SEEING_MODEL, "--mmproj", process.env.WEFT_PROJECTOR, "--port", "0"];

/** A PNG of noise, which does not get shorter without loss. */
async function drawn(page, seed, width = 84, height = 84) {
  const url = await page.evaluate(
    ({ seed, width, height }) => {
      const canvas = Object.assign(document.createElement("canvas"), { width, height });
      const context = canvas.getContext("2d");
      const noise = context.createImageData(width, height);
      for (let i = 0, value = seed; i < noise.data.length; ++i) {
        value = (value * 48271) % 0x7fffffff;
        noise.data[i] = i % 4 === 3 ? 255 : (value >> 8) & 255;
      }
      context.putImageData(noise, 0, 0);
      return canvas.toDataURL("image/png");
    },
    { seed, width, height },
  );
  return Buffer.from(url.split(",")[1], "base64");
}

/** The bodies of all requests for answers. */
function bodiesOf(page) {
  const bodies = [];
  page.on("request", (request) => {
    if (request.url().includes("/chats/") && request.method() === "POST") bodies.push(request.postDataJSON());
  });
  return bodies;
}

async function metricOf(url, name) {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\d+)`, "m").exec(text)[1]);
}

/** A short answer, so that it comes soon. */
async function limit(page) {
  await page.keyboard.press("Alt+s");
  await page.getByRole("dialog", { name: "Settings" }).getByLabel("Max tokens").fill("8");
  await page.keyboard.press("Escape");
}

const field = (page) => page.getByRole("textbox", { name: "Write a message" });

async function choose(page, file) {
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.getByRole("button", { name: "Attach" }).first().click()]);
  await chooser.setFiles(file);
}

/** A drop or a paste of a file, as a browser tells the page of it. */
async function give(target, kind, name, bytes) {
  await target.evaluate(
    (element, { kind, name, base64 }) => {
      const data = new DataTransfer();
      data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name, { type: "image/png" }));
      const options = { bubbles: true, cancelable: true };
      const event = kind === "paste" ? new ClipboardEvent(kind, { ...options, clipboardData: data }) : new DragEvent(kind, { ...options, dataTransfer: data });
      element.dispatchEvent(event);
    },
    { kind, name, base64: bytes.toString("base64") },
  );
}

/** The names of the thumbnails in `list`, of which each is drawn. */
async function thumbnails(list) {
  const images = list.locator(".attached .picture img");
  await until(() => images.evaluateAll((all) => all.every((image) => image.complete)));
  return images.evaluateAll((all) => all.map((image) => (image.naturalWidth > 0 && image.clientWidth > 0 ? image.alt : `${image.alt} is not drawn`)));
}

const sourcesOf = (list) => list.locator(".attached .picture img").evaluateAll((all) => all.map(({ src }) => src));

async function exported(page, format) {
  await page.keyboard.press("Alt+s");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("dialog").getByRole("button", { name: `Export as ${format}` }).click(),
  ]);
  await page.keyboard.press("Escape");
  return download.path();
}

describe("pictures, with a model that sees", () => {
  let browser;
  let folder;
  before(async () => {
    browser = await launch();
    folder = await mkdtemp(path.join(scratch, "pictures-"));
  });
  after(() => closeAll(browser));

  bounded("are chosen, dropped and pasted, sent as parts, and stay with the conversation", async () => {
    const state = await mkdtemp(path.join(scratch, "state-"));
    const server = await startWeft(...seeing, "--state-dir", state);
    const { page, context, faults } = await open(browser, server.url);
    const bodies = bodiesOf(page);
    await limit(page);
    await choose(page, { name: "chosen.png", mimeType: "image/png", buffer: await drawn(page, 1) });
    await until(async () => (await thumbnails(page)).length === 1);
    await give(field(page), "drop", "dropped.png", await drawn(page, 2));
    await until(async () => (await thumbnails(page)).length === 2);
    await give(field(page), "paste", "pasted.png", await drawn(page, 3));
    await until(async () => (await thumbnails(page)).length === 3);
    await give(field(page), "paste", "regretted.png", await drawn(page, 4));
    await page.getByRole("button", { name: "Remove regretted.png" }).click();
    assert.deepEqual(await thumbnails(page), ["chosen.png", "dropped.png", "pasted.png"]);
    assert.deepEqual(await audit(page), []);
    await field(page).fill("What are these?");
    await page.keyboard.press("Enter");
    await untilAnswered(page, 1);
    const { content } = bodies[0].messages[0];
    assert.deepEqual(content.map(({ type }) => type), ["image_url", "image_url", "image_url", "text"]);
    for (const { image_url: image } of content.slice(0, 3)) assert.match(image.url.slice(0, 40), /^data:image\/png;base64,/);
    assert.equal(content[3].text, "What are these?");
    assert.equal(await metricOf(server.url, "weft_pictures_encoded_total"), 3);
    assert.deepEqual(await page.getByRole("alert").allInnerTexts(), []);
    assert.deepEqual(await audit(page), []);

    const said = page.locator(".said");
    const [sources, answer] = [await sourcesOf(said), await lastAnswer(page, 0)];
    assert.deepEqual(sources, content.slice(0, 3).map((part) => part.image_url.url));
    await page.reload();
    await page.waitForSelector('[data-health="ready"]');
    assert.deepEqual(await thumbnails(said), ["chosen.png", "dropped.png", "pasted.png"]);
    assert.deepEqual(await sourcesOf(said), sources);
    assert.equal(await lastAnswer(page, 0), answer);
    await say(page, 0, "And now?");
    await untilAnswered(page, 2);
    assert.deepEqual(bodies.at(-1).messages[0].content, content);
    assert.match(await card(page, 0).locator(".facts").last().innerText(), /[1-9]\d* cached/);
    assert.equal(await metricOf(server.url, "weft_pictures_encoded_total"), 3, "they are found again");

    // Another browser has them from the server.
    await until(async () => (await (await fetch(`${server.url}/v1/page/conversations`)).json()).data.length === 1);
    const other = await open(browser, page.url());
    await card(other.page, 0).waitFor();
    assert.deepEqual(await sourcesOf(other.page.locator(".said").first()), sources);
    for (const opened of [other, { context, faults }]) {
      await opened.context.close();
      assert.deepEqual(opened.faults, []);
    }
    assert.equal(await server.stop(), 0);
  });

  bounded("are made no larger than models look at, and say when they are none", async () => {
    const server = await startWeft(...seeing);
    const { page, context, faults } = await open(browser, server.url);
    const bodies = bodiesOf(page);
    await limit(page);
    await choose(page, { name: "large.png", mimeType: "image/png", buffer: await drawn(page, 1, 1500, 300) });
    await until(async () => (await thumbnails(page)).length === 1);
    const { width, height } = await page.locator(".attached img").evaluate(({ naturalWidth, naturalHeight }) => ({ width: naturalWidth, height: naturalHeight }));
    assert.deepEqual([width, height], [1344, 269]);
    await choose(page, { name: "torn.png", mimeType: "image/png", buffer: (await drawn(page, 1)).subarray(0, 40) });
    await page.getByText("“torn.png” cannot be read as a picture.").waitFor();
    assert.deepEqual(await thumbnails(page), ["large.png"]);
    // A picture alone is a message.
    await field(page).press("Enter");
    await untilAnswered(page, 1);
    const [part, ...others] = bodies[0].messages[0].content;
    assert.match(part.image_url.url.slice(0, 40), /^data:image\/jpeg;base64,/);
    assert.deepEqual(others, []);
    assert.deepEqual(await page.getByRole("alert").allInnerTexts(), []);
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);
  });

  bounded("go into a file and come back; a model without a projector says what to pass", async () => {
    const server = await startWeft(...seeing);
    const { page, context, faults } = await open(browser, server.url);
    await limit(page);
    await choose(page, { name: "chosen.png", mimeType: "image/png", buffer: await drawn(page, 1) });
    await field(page).fill("What is it?");
    await until(async () => (await thumbnails(page)).length === 1);
    await field(page).press("Enter");
    await untilAnswered(page, 1);
    const sources = await sourcesOf(page.locator(".said"));
    const json = await exported(page, "JSON");
    const [{ messages }] = JSON.parse(await readFile(json, "utf8")).conversations;
    assert.deepEqual(messages[0].files, [{ name: "chosen.png", text: "", picture: sources[0] }]);
    const markdown = await readFile(await exported(page, "Markdown"), "utf8");
    assert.match(markdown, /\*\*You\*\*\n\n\*Picture: chosen\.png\*\n\nWhat is it\?/);
    const back = path.join(folder, "back.json");
    await writeFile(back, await readFile(json));
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);

    const blind = await startWeft("--port", "0");
    const opened = await open(browser, blind.url);
    for (const [kind, name] of [["drop", "dropped.png"], ["paste", "pasted.png"]]) {
      await give(field(opened.page), kind, name, await drawn(opened.page, 2));
      await opened.page.getByText(`“${name}” is a picture, and this model sees none. Choose one that does, or start the server with its projector: --mmproj FILE.`).waitFor();
    }
    assert.deepEqual(await thumbnails(opened.page), []);
    // The server says it of a conversation that has one.
    await opened.page.keyboard.press("Alt+s");
    await opened.page.getByRole("dialog").locator("input[type=file]").setInputFiles(back);
    await card(opened.page, 0).waitFor();
    assert.deepEqual(await sourcesOf(opened.page.locator(".said")), sources);
    await say(opened.page, 0, "And now?");
    await opened.page.getByRole("alert").filter({ hasText: "--mmproj" }).waitFor();
    assert.deepEqual(await audit(opened.page), []);
    await opened.context.close();
    assert.deepEqual(opened.faults, []);
    assert.equal(await blind.stop(), 0);
  });
});
