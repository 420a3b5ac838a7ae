// With `weft serve` itself: the models at hand, what is shared, speeds, and a log without polling.
import assert from "node:assert/strict";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe } from "node:test";

import { audit, bounded, card, closeAll, launch, open, say, sessionsOf, startSeveral, startWeft, until, untilAnswered } from "./common.mjs";

describe("the page of weft serve", () => {
  let browser;
  let folder;
  before(async () => {
    browser = await launch();
    folder = path.join(process.env.WEFT_SCRATCH, "models");
    await mkdir(folder);
    await copyFile(process.env.WEFT_MODEL, path.join(folder, "served one.gguf"));
    await copyFile(process.env.WEFT_MODEL, path.join(folder, "another.gguf"));
    await writeFile(path.join(folder, "broken.gguf"), "GGUF and no more");
  });
  after(() => closeAll(browser));

  bounded("lists the models at hand, and says what a change takes", async () => {
    const server = await startWeft("-m", path.join(folder, "served one.gguf"), "--models-dir", folder, "--port", "0");
    const { page, context, faults } = await open(browser, server.url);
    assert.match(await page.locator(".welcome .about").innerText(), /parameters · Q8_0 · .*iB · context of [\d,]+ tokens/);
    await page.keyboard.press("Alt+o");
    const dialog = page.getByRole("dialog", { name: "Local models" });
    await dialog.getByText("served", { exact: true }).waitFor();
    assert.equal(await dialog.getByText("served", { exact: true }).count(), 1);
    assert.ok(await dialog.getByRole("radio", { name: /served one/ }).isChecked());
    assert.ok(await dialog.getByRole("radio", { name: /broken/ }).isDisabled());
    await dialog.getByRole("radio", { name: /another/ }).check();
    assert.equal(await dialog.locator(".cost .command code").innerText(), "weft serve -m another");
    assert.match(await dialog.locator(".cost").innerText(), /of weights are loaded[^]*A conversation of [\d,]+ tokens takes/);
    await dialog.getByRole("radio", { name: /weft-box/ }).check();
    assert.equal(await dialog.locator(".cost .command code").innerText(), "weft serve -m box");
    // What this computer could run besides: each with the command that gets it, or in one line what is too large.
    await dialog.getByRole("heading", { name: /Models to download/ }).waitFor();
    const known = dialog.locator(".known details");
    for (let i = 0; i < (await known.count()); ++i) {
      assert.match(await known.nth(i).locator("summary").innerText(), /iB to download · context [^]*·/);
      await known.nth(i).locator("summary").click();
      assert.match(await known.nth(i).locator(".command code").innerText(), /^weft pull \S+\/\S+$/);
    }
    const told = (await known.locator("strong").allInnerTexts()).join() + (await dialog.locator(".known").innerText());
    assert.match(told, /Qwen3-0\.6B/);
    assert.deepEqual(await audit(page), []);
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);
  });

  bounded("lets a conversation choose among the models of a server", async () => {
    const [one, other] = ["served one.gguf", "another.gguf"].map((name) => path.join(folder, name));
    const server = await startWeft("-m", one, "-m", other, "--port", "0");
    const { page, context, faults } = await open(browser, server.url);
    const generated = async (model) => {
      const text = await (await fetch(`${server.url}/metrics`)).text();
      return Number(text.match(new RegExp(`^weft_generated_tokens_total\\{model="${model}"\\} (\\d+)`, "m"))[1]);
    };
    await page.keyboard.press("Alt+s");
    const settings = page.getByRole("dialog", { name: "Settings" });
    const choice = settings.getByLabel("Model", { exact: true });
    assert.equal(await choice.getAttribute("placeholder"), "served-one");
    const offered = await settings.locator("datalist#models option").evaluateAll((all) => all.map(({ value }) => value));
    assert.deepEqual(offered, ["served-one", "another"]);
    await settings.getByLabel("Max tokens").fill("8");
    await choice.fill("another");
    await page.keyboard.press("Escape");
    await startSeveral(page, ["Hello there."]);
    await untilAnswered(page, 1);
    assert.ok((await generated("another")) > 0);
    assert.equal(await generated("served-one"), 0);
    await page.keyboard.press("Alt+o");
    const served = page.getByRole("dialog", { name: "Local models" }).locator(".served").first();
    assert.match(await served.innerText(), /served-one\s*loaded[^]*another\s*loaded/i);
    assert.deepEqual(await audit(page), []);
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);
  });

  bounded("says how much of the model is loaded, and answers after that", async () => {
    const server = await startWeft("--port", "0");
    const context = await browser.newContext();
    const page = await context.newPage();
    const error = { code: 503, message: "Loading model", type: "unavailable_error", loaded_percent: 42 };
    await page.route("**/health", (route) => route.fulfill({ status: 503, json: { error } }));
    await page.goto(server.url);
    await page.getByText("Loading the model: 42 %").waitFor();
    assert.equal(await page.getByRole("progressbar", { name: "Weights loaded", exact: true }).getAttribute("value"), "42");
    // The panel has the same share, and no chart with nothing in it.
    await page.keyboard.press("Alt+e");
    const panel = page.getByRole("complementary", { name: "Engine" });
    assert.match(await panel.innerText(), /Loading the model\s*42 %/);
    assert.equal(await panel.getByRole("progressbar").getAttribute("value"), "42");
    assert.equal(await page.locator(".chart, .panel table").count(), 0);
    assert.deepEqual(await audit(page), []);
    await page.unroute("**/health");
    await page.waitForSelector('[data-health="ready"]');
    await panel.locator(".chart .area").first().waitFor({ state: "attached" });
    assert.equal(await panel.locator(".chart").count(), await panel.locator(".chart:has(.area)").count());
    assert.equal(await page.getByRole("progressbar").count(), 0);
    await context.close();
    assert.equal(await server.stop(), 0);
  });

  bounded("tells what is shared, how fast it was, and leaves no line in the log for looking", async () => {
    const server = await startWeft("--port", "0");
    const { page, context, faults } = await open(browser, server.url);
    let looks = 0;
    page.on("request", (request) => (looks += request.url().endsWith("/metrics")));
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Max tokens").fill("40");
    await page.keyboard.press("Escape");
    await startSeveral(page, ["One conversation, long enough for some pages of its own and a few more words."]);
    await untilAnswered(page, 1);
    const shared = () => card(page, 0).locator(".session").innerText();
    await until(async () => /pages?$/.test(await shared())); // the prefix cache is no conversation
    await card(page, 0).getByRole("button", { name: "Fork here" }).click();
    await say(page, 1, "The fork goes on.");
    await untilAnswered(page, 3);
    await until(async () => /[1-9]\d* shared with 1 conversation$/.test(await shared()));
    await until(async () => (await sessionsOf(server.url)).every((session) => session.shared_with === 1));
    assert.match(await card(page, 1).locator(".facts").last().innerText(), /tokens\/s · read \d+ in .*s, \d+ cached/);
    // Idle now: the speed is that of the time in which it computed (of reading alone, where the
    // model ended at once).
    await page.keyboard.press("Alt+e");
    const panel = page.getByRole("complementary", { name: "Engine" });
    await until(async () => /(Decode|Prefill), while it computes\s*[1-9][\d.]*( [kM])? tokens\/s/.test(await panel.innerText()));
    await page.keyboard.press("Escape");
    const seen = looks;
    await until(() => looks >= seen + 2);
    assert.doesNotMatch(server.log(), /GET \/(metrics|health|v1\/sessions) 200/);
    assert.match(server.log(), /POST \/v1\/channels/);
    await context.close();
    assert.deepEqual(faults, []);
    assert.equal(await server.stop(), 0);
  });
});
