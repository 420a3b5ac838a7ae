// Conversations that the server keeps: the same in every browser, also in the middle of an answer,
// after a crash, and where two browsers change one at the same time.
import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import path from "node:path";
import { after, before, describe } from "node:test";

import { audit, bounded, card, closeAll, lastAnswer, launch, open, say, sessionsOf, startScripted, startSeveral, startWeft, until, untilAnswered } from "./common.mjs";

const script = (text) => `<<say>>${text}<</say>>`;
const scratch = process.env.WEFT_SCRATCH;
// Long enough for two browsers, and no loop.
const words = Array.from({ length: 150 }, (_, i) => `thread ${i} crosses ${(i * 7919) % 1009}`).join(", ");
const phone = { viewport: { width: 360, height: 740 } };

const keptOf = async (url) => (await (await fetch(`${url}/v1/page/conversations`)).json()).data;
const versionsOf = async (url) => JSON.stringify(await keptOf(url));
const textOf = (page, n) => card(page, n).locator(".message.assistant .markdown").last().innerText();

async function openParked(page, name) {
  await page.locator(".shelf").getByRole("button", { name }).click();
  await page.locator(".card").first().waitFor();
}

describe("conversations on the server", () => {
  let browser;
  let server;
  let state;
  before(async () => {
    browser = await launch();
    state = await mkdtemp(path.join(scratch, "kept-"));
    server = await startScripted({ stateDir: state });
  });
  after(async () => {
    assert.equal(await server?.stop(), 0);
    await closeAll(browser);
  });

  async function emptied() {
    for (const { id } of await keptOf(server.url)) await fetch(`${server.url}/v1/page/conversations/${id}`, { method: "DELETE" });
  }

  bounded("are the same in another browser, which finds, renames and deletes them", async () => {
    await emptied();
    const one = await open(browser, server.url);
    await startSeveral(one.page, [`I am Mira ${script("Hello Mira.")}`, `I am Tomas ${script("Hello Tomas.")}`]);
    await untilAnswered(one.page, 2);
    await until(async () => (await keptOf(server.url)).length === 2);

    const two = await open(browser, server.url, phone);
    await two.page.locator(".shelf").getByRole("button", { name: /Mira/ }).waitFor();
    await two.page.getByRole("button", { name: "Find a conversation" }).click();
    await two.page.getByRole("searchbox", { name: "Find" }).fill("hello tomas");
    const found = two.page.getByRole("dialog", { name: "Conversations" });
    assert.match(await found.getByRole("status").innerText(), /1 conversation, kept on the server/);
    assert.deepEqual(await audit(two.page), []);
    await found.getByRole("button", { name: /Tomas/ }).click();
    assert.equal(await lastAnswer(two.page, 0), "Hello Tomas.");

    await two.page.getByRole("button", { name: /^More about/ }).click();
    await two.page.getByRole("menuitem", { name: "Rename" }).click();
    await two.page.getByLabel("Title").fill("The second one");
    await two.page.getByLabel("Title").press("Enter");
    await one.page.getByRole("heading", { name: "The second one" }).waitFor();

    await say(two.page, 0, `And? ${script("Going on.")}`);
    await untilAnswered(two.page, 2);
    await until(async () => (await textOf(one.page, 1)) === "Going on.");

    await two.page.getByRole("button", { name: /^More about/ }).click();
    await two.page.getByRole("menuitem", { name: "Delete" }).click();
    await two.page.getByRole("button", { name: "Undo" }).click();
    assert.equal(await lastAnswer(two.page, 0), "Going on.");
    await two.page.getByRole("button", { name: /^More about/ }).click();
    await two.page.getByRole("menuitem", { name: "Delete" }).click();
    await one.page.waitForFunction(() => document.querySelectorAll(".card").length === 1);
    assert.equal((await keptOf(server.url)).length, 1);
    assert.deepEqual(await audit(one.page), []);
    for (const { context, faults } of [one, two]) {
      await context.close();
      assert.deepEqual(faults, []);
    }
  });

  bounded("go on at their own address, in the middle of an answer, when the first browser is gone", async () => {
    await emptied();
    const one = await open(browser, server.url);
    await startSeveral(one.page, [`Long ${script(`<<slow>>${words}`)}`]);
    await until(async () => (await textOf(one.page, 0)).length > 20);
    await until(async () => (await keptOf(server.url)).length === 1);
    const url = one.page.url();
    assert.match(url, /#page-/);

    // It grows there too, can be stopped but not written to, and goes on over a reload of the first.
    const two = await open(browser, url, phone);
    await until(async () => (await two.page.locator(".card").count()) === 1 && (await textOf(two.page, 0)).length > 20);
    await two.page.getByRole("button", { name: "Stop", exact: true }).waitFor();
    const seen = (await textOf(two.page, 0)).length;
    await until(async () => (await textOf(two.page, 0)).length > seen);
    await one.page.reload();
    await one.page.waitForSelector('[data-health="ready"]');
    const before = (await textOf(one.page, 0)).length;
    await until(async () => (await textOf(one.page, 0)).length > before);
    await one.context.close();
    await untilAnswered(two.page, 1);
    assert.equal(await lastAnswer(two.page, 0), words);
    await say(two.page, 0, `And? ${script("The end.")}`);
    await untilAnswered(two.page, 2);
    assert.equal(await lastAnswer(two.page, 0), "The end.");
    await two.context.close();
    assert.deepEqual([...one.faults, ...two.faults], []);
  });

  bounded("are stopped from another browser", async () => {
    await emptied();
    const one = await open(browser, server.url);
    await startSeveral(one.page, [`Long ${script(`<<slow>>${words}, ${words}`)}`]);
    await until(async () => (await keptOf(server.url)).length === 1 && (await textOf(one.page, 0)).length > 20);
    const two = await open(browser, one.page.url());
    await two.page.locator("footer").getByRole("button", { name: "Stop", exact: true }).click();
    await untilAnswered(one.page, 1);
    await untilAnswered(two.page, 1);
    await until(async () => (await textOf(one.page, 0)) === (await textOf(two.page, 0)));
    for (const { context, faults } of [one, two]) {
      await context.close();
      assert.deepEqual(faults, []);
    }
  });

  bounded("keep both changes where two browsers change one at the same time", async () => {
    await emptied();
    const one = await open(browser, server.url);
    await startSeveral(one.page, [`Begin ${script("Begun.")}`]);
    await untilAnswered(one.page, 1);
    await until(async () => (await keptOf(server.url)).length === 1);
    const two = await open(browser, one.page.url());
    await card(two.page, 0).waitFor();
    // The second one's changes wait, as on a bad connection.
    await two.page.route("**/v1/page/conversations**", (route) => route.abort());
    await two.page.getByRole("button", { name: "Edit", exact: true }).click();
    await two.page.getByLabel("Edit the message").fill(`Otherwise ${script("Theirs.")}`);
    await two.page.getByLabel("Edit the message").press("Enter");
    await untilAnswered(two.page, 1);
    const versions = await versionsOf(server.url);
    await say(one.page, 0, `On ${script("Ours.")}`);
    await untilAnswered(one.page, 2);
    await until(async () => (await versionsOf(server.url)) !== versions);
    await two.page.unroute("**/v1/page/conversations**");
    await two.page.waitForFunction(() => document.querySelectorAll(".card").length === 2);
    await until(async () => (await keptOf(server.url)).length === 2);
    const answers = [await lastAnswer(two.page, 0), await lastAnswer(two.page, 1)];
    assert.deepEqual(answers.sort(), ["Ours.", "Theirs."]);
    await two.page.getByRole("heading", { name: /this browser's/ }).waitFor();
    assert.equal(await card(one.page, 0).locator(".message.assistant").count(), 2);
    for (const { context, faults } of [one, two]) {
      await context.close();
      assert.deepEqual(faults, []);
    }
  });

  bounded("of agents are read-only until they are adopted", async () => {
    await emptied();
    const body = { session_id: "agent-7", messages: [{ role: "user", content: `Fix it ${script("It is fixed.")}` }] };
    const headers = { "Content-Type": "application/json" };
    assert.equal((await fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) })).status, 200);
    const { page, context, faults } = await open(browser, server.url);
    await page.getByRole("button", { name: "Find a conversation" }).click();
    await page.getByRole("button", { name: /agent-7/ }).click();
    const dialog = page.getByRole("dialog", { name: "agent-7" });
    await dialog.getByText("It is fixed.", { exact: true }).waitFor();
    assert.deepEqual(await audit(page), []);
    assert.equal(await dialog.getByRole("textbox").count(), 0);
    await dialog.getByRole("button", { name: "Adopt" }).click();
    assert.equal(await lastAnswer(page, 0), "It is fixed.");
    await say(page, 0, `And now? ${script("Still fixed.")}`);
    await untilAnswered(page, 2);
    assert.equal(await lastAnswer(page, 0), "Still fixed.");
    // The agent's own session is as it was.
    const ids = (await sessionsOf(server.url)).map(({ id }) => id);
    assert.ok(ids.includes("agent-7") && ids.some((id) => id.startsWith("page-")), ids.join());
    await context.close();
    assert.deepEqual(faults, []);
  });
});

describe("conversations of weft serve", () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => closeAll(browser));

  bounded("are there in a new browser after a crash of the server, and go on", async () => {
    const state = await mkdtemp(path.join(scratch, "state-"));
    let server = await startWeft("--port", "0", "--state-dir", state);
    const one = await open(browser, server.url);
    await one.page.getByRole("button", { name: "Settings" }).click();
    await one.page.getByLabel("Max tokens").fill("12");
    await one.page.keyboard.press("Escape");
    await startSeveral(one.page, ["One says hello.", "Two says hello."]);
    await untilAnswered(one.page, 2);
    const said = [await textOf(one.page, 0), await textOf(one.page, 1)];
    // Both answers, to their ends.
    await until(async () => {
      const all = await Promise.all((await keptOf(server.url)).map(async ({ id }) => (await (await fetch(`${server.url}/v1/page/conversations/${id}`)).json()).conversation));
      return all.length === 2 && all.every(({ messages }) => messages.at(-1).status !== "running");
    });
    await one.context.close();
    const { port } = new URL(server.url);
    await server.kill();
    server = await startWeft("--port", port, "--state-dir", state);
    const two = await open(browser, server.url);
    await openParked(two.page, /One says/);
    await openParked(two.page, /Two says/);
    await two.page.waitForFunction(() => document.querySelectorAll(".card").length === 2);
    assert.deepEqual([await textOf(two.page, 0), await textOf(two.page, 1)], said);
    await say(two.page, 0, "And on.");
    await untilAnswered(two.page, 3);
    await two.context.close();
    assert.deepEqual([...one.faults, ...two.faults], []);
    assert.equal(await server.stop(), 0);
  });

  bounded("are in the browser alone without a state directory, and the page says so", async () => {
    const server = await startWeft("--port", "0");
    const { page, context, faults } = await open(browser, server.url);
    await page.keyboard.press("Alt+k");
    await page.getByText(/kept in this browser alone: the server runs without --state-dir/).waitFor();
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);
  });
});
