// What stays: over a reload, over a restart of the server, and behind an API key.
import assert from "node:assert/strict";
import { mkdtemp, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe } from "node:test";

import {
  bounded,
  card,
  closeAll,
  lastAnswer,
  launch,
  open,
  say,
  sessionsOf,
  startSeveral,
  startWeft,
  untilAnswered,
  waitMs,
} from "./common.mjs";

const scratch = process.env.WEFT_SCRATCH;
const lines = Array.from({ length: 8 }, (_, i) => `Conversation ${i} says hello, and a little more than that.`);

describe("what stays", () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => closeAll(browser));

  bounded("is there after a reload and after a restart of the server, and goes on", async () => {
    const state = await mkdtemp(path.join(scratch, "state-"));
    let server = await startWeft("--port", "0", "--state-dir", state);
    const { page, context, faults } = await open(browser, server.url);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Max tokens").fill("24");
    await page.keyboard.press("Escape");
    await startSeveral(page, lines);
    await untilAnswered(page, 8);
    await card(page, 0).locator(".message.assistant").hover();
    await card(page, 0).getByRole("button", { name: "Fork here" }).click();
    await say(page, 1, "The fork goes on.");
    await untilAnswered(page, 10);

    const answers = async () => Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map((n) => lastAnswer(page, n)));
    const said = await answers();
    await page.reload();
    await page.waitForSelector('[data-health="ready"]');
    assert.equal(await page.locator(".card").count(), 9);
    assert.deepEqual(await answers(), said);

    const { port } = new URL(server.url);
    assert.equal(await server.stop(), 0);
    await page.waitForSelector('[data-health="unreachable"]');
    assert.deepEqual(await answers(), said);
    server = await startWeft("--port", port, "--state-dir", state);
    await page.waitForSelector('[data-health="ready"]');
    const parked = (await sessionsOf(server.url)).filter((session) => session.state === "parked");
    assert.equal(parked.length, 9);
    await page.waitForFunction(() => document.querySelectorAll('.session[data-state="parked"]').length === 9);

    for (const n of [0, 1, 7, 8]) await say(page, n, "And on.");
    await untilAnswered(page, 14);
    assert.deepEqual(await page.getByRole("alert").allInnerTexts(), []);
    // Their state came from the disk, and what it holds was not computed again.
    const restores = /^weft_restores_total (\d+)/m.exec(await (await fetch(`${server.url}/metrics`)).text());
    assert.ok(Number(restores[1]) >= 4, restores[0]);
    for (const n of [0, 1, 7, 8]) {
      const facts = await card(page, n).locator(".message.assistant").last().locator(".facts").innerText();
      assert.match(facts, /read \d+ in .*, [1-9]\d* cached/);
    }
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);
  });

  bounded("works behind an API key, which the page asks for", async () => {
    const keys = path.join(scratch, "keys.txt");
    await writeFile(keys, "sesame page\n");
    const server = await startWeft("--port", "0", "--api-key-file", keys);
    const context = await browser.newContext();
    context.setDefaultTimeout(waitMs);
    const page = await context.newPage();
    await page.goto(server.url);
    await page.getByLabel("This server asks for an API key.").fill("wrong");
    await page.getByRole("button", { name: "Use" }).click();
    await page.getByLabel("This API key is not valid.").fill("sesame");
    await page.getByRole("button", { name: "Use" }).click();
    await page.waitForSelector('[data-health="ready"]');
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Max tokens").fill("8");
    await page.keyboard.press("Escape");
    await startSeveral(page, lines.slice(0, 2));
    await untilAnswered(page, 2);
    assert.equal((await sessionsOf(server.url, { Authorization: "Bearer sesame" })).length, 2);
    await context.close();
    assert.equal(await server.stop(), 0);
  });
});
