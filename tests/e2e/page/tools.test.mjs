// Tools that run in the page: switched on, called, shown; and one conversation alone, titles, the
// models at hand, and that each state is fit for everybody.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe } from "node:test";

import { audit, bounded, card, closeAll, lastAnswer, launch, open, say, startScripted, startSeveral, untilAnswered } from "./common.mjs";

const script = (text) => `<<say>>${text}<</say>>`;
const call = (name, values) => `<tool_call>${JSON.stringify({ name, arguments: values })}</tool_call>`;
// In the arguments, where the model that says what it is told must not see it yet.
const hidden = (text) => script(text).replaceAll("<", "\\u003c");

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

async function switchOn(page, ...labels) {
  await page.keyboard.press("Alt+s");
  for (const label of labels) await page.getByRole("checkbox", { name: label }).check();
  await page.keyboard.press("Escape");
}

describe("tools", () => {
  bounded("are offered only when they are switched on", async () => {
    const { page } = opened;
    const bodies = [];
    page.on("request", (request) => {
      if (request.url().includes("/chats/") && request.method() === "POST") bodies.push(request.postDataJSON());
    });
    await startSeveral(page, [`Hi ${script("Hello.")}`]);
    await untilAnswered(page, 1);
    await switchOn(page, "Clock");
    await say(page, 0, `Again ${script("Hello again.")}`);
    await untilAnswered(page, 2);
    assert.equal(bodies[0].tools, undefined);
    assert.deepEqual(bodies[1].tools.map((tool) => tool.function.name), ["clock"]);
  });

  bounded("are run and shown, their failures too, and the model goes on with what they gave", async () => {
    const { page } = opened;
    await switchOn(page, "Clock", "Calculator");
    const format = hidden("It is 42.");
    const calls =
      call("calculator", { expression: "(2+4) * 7" }) + "\n" +
      `<tool_call>{"name": "clock", "arguments": {"format": "${format}"}}</tool_call>`;
    await startSeveral(page, [`How much? ${script(`I shall compute it. ${calls.replaceAll("\n", " ")}`)}`]);
    await untilAnswered(page, 1);
    assert.equal(await lastAnswer(page, 0), "It is 42.");
    const shown = card(page, 0).locator(".call");
    assert.equal(await shown.count(), 2);
    assert.match(await shown.nth(0).innerText(), /Calculator[^]*\(2\+4\) \* 7[^]*42/);
    assert.equal(await shown.nth(0).getAttribute("data-failed"), "false");
    assert.match(await shown.nth(1).innerText(), /Clock[^]*is not understood/);
    assert.equal(await shown.nth(1).getAttribute("data-failed"), "true");
    assert.match(await card(page, 0).locator(".message.assistant").innerText(), /^[^]*I shall compute it\./);
    assert.deepEqual(await audit(page), []);
    // All of it is there after a reload, and is sent again with the next question.
    await page.reload();
    await page.waitForSelector('[data-health="ready"]');
    assert.equal(await card(page, 0).locator(".call").count(), 2);
    const sent = page.waitForRequest((request) => request.url().includes("/chats/") && request.method() === "POST");
    await say(page, 0, `And now? ${script("Still 42.")}`);
    const roles = (await sent).postDataJSON().messages.map(({ role }) => role);
    assert.deepEqual(roles, ["user", "assistant", "tool", "tool", "assistant", "user"]);
    await untilAnswered(page, 2);
    assert.equal(await lastAnswer(page, 0), "Still 42.");
  });

  bounded("compute as mathematics does, and say what they cannot", async () => {
    const { page } = opened;
    await switchOn(page, "Clock", "Calculator");
    const sums = [
      ["2 + 3 * 4", "14"], ["(2 + 3) * 4", "20"], ["-2^2", "-4"], ["2^3^2", "512"], ["2 ** 10", "1024"],
      ["10 / 4 - 7 % 4", "-0.5"], ["0.1 + 0.2", "0.3"], ["1,250 * 2", "2500"], ["max(1,2) + sqrt(16)", "6"],
      ["round(2 * pi)", "6"], ["6 × 7 ÷ 2", "21"], ["1.5e3 / 3", "500"],
      ["1 / 0", /Division by zero/], ["2 +", /is incomplete/], ["(1 + 2", /not closed/], ["alert(1)", /“alert” is not understood/],
      ["constructor", /not understood/], ["2; 3", /“;” is not understood/], ["(".repeat(80) + "1", /too deeply/],
      ["9".repeat(501), /too long/], ["", /is empty/], ["sqrt(-1)", /not a number/],
    ];
    const calls = sums.map(([expression]) => call("calculator", { expression }));
    calls.push(`<tool_call>{"name": "clock", "arguments": {"format": "${hidden("Done.")}"}}</tool_call>`);
    await startSeveral(page, [`Compute. ${script(calls.join(" "))}`]);
    await untilAnswered(page, 1);
    assert.equal(await lastAnswer(page, 0), "Done.");
    const results = await card(page, 0).locator(".call .result").allTextContents();
    assert.equal(results.length, sums.length + 1);
    for (const [i, [expression, result]] of sums.entries()) {
      const said = results[i].replace(/^(Failed|Result): /, "");
      if (typeof result === "string") assert.equal(said, result, expression);
      else assert.match(said, result, expression);
    }
  });

  bounded("are not called without an end", async () => {
    const { page } = opened;
    await switchOn(page, "Calculator");
    await startSeveral(page, [`Sum ${script(call("calculator", { expression: "1 / 0" }))}`]);
    await card(page, 0).locator('.message[data-status="failed"]').waitFor();
    assert.match(await card(page, 0).getByRole("alert").innerText(), /called tools 8 times/);
    assert.match(await card(page, 0).locator(".call").first().innerText(), /Division by zero/);
  });
});

describe("one conversation alone", () => {
  bounded("has the board, and the others a list beside it", async () => {
    const { page } = opened;
    const names = ["Mira", "Tomas", "Ines", "Jonas", "Aiko", "Omar", "Greta", "Lena"];
    await startSeveral(page, names.map((name) => `I am ${name}. ${script(`Hello ${name}.`)}`));
    await untilAnswered(page, 8);
    await card(page, 2).getByRole("button", { name: "Show only this conversation" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 1);
    assert.equal(await lastAnswer(page, 0), "Hello Ines.");
    const list = page.getByRole("navigation", { name: "Conversations" });
    assert.equal(await list.getByRole("button").count(), 8);
    await list.getByRole("button", { name: /Omar/ }).click();
    assert.equal(await lastAnswer(page, 0), "Hello Omar.");
    assert.match(await list.locator("[aria-current]").innerText(), /Omar/);
    // By keys: another one, a question, and back.
    await page.keyboard.press("Alt+1");
    await page.keyboard.type("Go on ");
    await page.keyboard.insertText(script("On."));
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll('.card .message[data-status="done"]').length === 2);
    assert.equal(await lastAnswer(page, 0), "On.");
    assert.deepEqual(await audit(page), []);
    await page.keyboard.press("Alt+f");
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 8);
    await page.keyboard.press("Alt+f");
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 1);
    await page.keyboard.press("Escape"); // out of the field
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 8);
  });

  bounded("and no two have the same title", async () => {
    const { page } = opened;
    const task = (what) => `You are an agent of a team. Your task is to ${what}. ${script("Yes.")}`;
    await startSeveral(page, [task("read the sources"), task("read the tests"), task("write the report"), `Hi ${script("Hi.")}`, `Hi ${script("Hi.")}`]);
    await untilAnswered(page, 5);
    await card(page, 3).getByRole("button", { name: "Fork here" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 6);
    await say(page, 4, `Another way ${script("Yes.")}`);
    await untilAnswered(page, 7);
    const titles = await page.locator(".card h2").allInnerTexts();
    assert.equal(new Set(titles).size, 6, titles.join(" | "));
    assert.match(titles[0], /^….*sources/);
    assert.match(titles[2], /^….*report/);
    assert.match(titles[4], /^Another way/, "a fork is called by what was said there");
  });
});

describe("every state", () => {
  for (const colorScheme of ["light", "dark"]) {
    bounded(`is fit for everybody, ${colorScheme}`, async () => {
      await opened.context.close();
      opened = await open(browser, server.url, { colorScheme });
      const { page } = opened;
      const at = async (state) => assert.deepEqual(await audit(page), [], state);
      await page.locator(".suggestions button").first().waitFor();
      assert.match(await page.locator(".welcome .about").innerText(), /parameters · .* · context of [\d,]+ tokens/);
      await at("the first screen");
      await page.keyboard.press("Escape"); // out of the field
      for (const key of ["m", "s", "o", "k", "?"]) {
        await page.keyboard.press(key);
        await page.getByRole("dialog").waitFor();
        await at(`the dialog of ${key}`);
        await page.keyboard.press("Escape");
      }
      await startSeveral(page, ["a", "b", "c"].map((name) => `${name} ${script(`I am **${name}**.`)}`));
      await untilAnswered(page, 3);
      await page.keyboard.press("Alt+e");
      await page.getByRole("complementary", { name: "Engine" }).waitFor();
      await at("the board and the engine");
      await page.keyboard.press("Escape");
      await page.keyboard.press("Alt+n");
      await card(page, 3).locator(".suggestions").waitFor();
      await at("a new conversation");
      await say(page, 0, `Slowly ${script(`<<slow>>${"so it goes on ".repeat(200)}`)}`);
      await card(page, 0).locator('.message[data-status="running"]').waitFor();
      await page.getByText(/^Decode/).waitFor();
      await at("while an answer is written");
      await page.keyboard.press("Alt+x");
      await untilAnswered(page, 4);
      await page.setViewportSize({ width: 390, height: 844 });
      await at("a phone");
      const widths = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(widths[0] <= widths[1], `the page is ${widths[0]} wide`);
    });
  }
});
