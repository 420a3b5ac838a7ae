// What people do on the board, with a model that says what it is told.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
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
  sessionsOf,
  startScripted,
  startSeveral,
  until,
  untilAnswered,
} from "./common.mjs";

const names = ["Mira", "Tomas", "Ines", "Jonas", "Aiko", "Omar", "Greta", "Lena"];
const script = (text) => `<<say>>${text}<</say>>`;
const greeting = (name) => `Nice to meet you, ${name}. I shall not forget it, ${name}.`;
const endless = "so it goes on and on ".repeat(100).trim();

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

describe("the board", () => {
  bounded("lets eight conversations answer at once, each with its own", async () => {
    const { page } = opened;
    // Long enough that on a slow machine too the last has begun before the first ends.
    const answer = (name) =>
      [greeting(name), `Mira, Ines, Jonas, Aiko, Omar and Lena greet ${name}.`, greeting(name)].join(" ");
    await startSeveral(page, names.map((name) => `I am ${name}. ${script(`<<slow>>${answer(name)}`)}`));
    // More than the six connections that a browser opens to one server.
    await page.waitForFunction(
      () =>
        [...document.querySelectorAll('.message.assistant[data-status="running"] .markdown')].filter(
          (answer) => answer.textContent.length > 0,
        ).length === 8,
    );
    await untilAnswered(page, 8);
    for (const [i, name] of names.entries()) {
      assert.equal(await lastAnswer(page, i), answer(name));
    }
  });

  bounded("forks at a message, and the two go on apart", async () => {
    const { page } = opened;
    const before = new Set((await sessionsOf(server.url)).map((session) => session.id));
    await startSeveral(page, [`First ${script("Answer one.")}`]);
    await untilAnswered(page, 1);
    await say(page, 0, `Second ${script("Answer two.")}`);
    await untilAnswered(page, 2);

    await card(page, 0).locator(".message.assistant").first().hover();
    await card(page, 0).getByRole("button", { name: "Fork here" }).first().click();
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 2);
    assert.equal(await card(page, 1).locator(".message").count(), 2);
    await say(page, 1, `Other ${script("Another way.")}`);
    await untilAnswered(page, 4);
    assert.equal(await lastAnswer(page, 1), "Another way.");
    assert.equal(await lastAnswer(page, 0), "Answer two.");
    const made = (await sessionsOf(server.url)).filter((session) => !before.has(session.id));
    assert.equal(made.length, 2);
    assert.ok(made.every((session) => session.shared_pages > 0), JSON.stringify(made));

    // At what the user said: it is not in the fork, but ready to be said differently.
    await card(page, 0).locator(".message.user").nth(1).hover();
    await card(page, 0).getByRole("button", { name: "Edit in a fork" }).nth(1).click();
    await page.waitForFunction(() => document.querySelectorAll(".card").length === 3);
    assert.equal(await card(page, 1).locator(".message").count(), 2);
    assert.match(await card(page, 1).locator("footer textarea").inputValue(), /^Second /);
  });

  bounded("shows behind how many tokens of others a prompt waits", async () => {
    const { page } = opened;
    // A server on which a prompt waits, as it is asked by the page.
    await page.evaluate(() => {
      const { fetch } = window;
      let write;
      window.fetch = async (url, init) => {
        const [, channel, chat] = /v1\/channels\/([^/]+)(?:\/chats\/(.+))?$/.exec(String(url)) ?? [];
        if (!channel) return fetch(url, init);
        if (!chat) {
          const start = (to) => (write = (text) => to.enqueue(new TextEncoder().encode(text)));
          return new Response(new ReadableStream({ start }));
        }
        window.tell = (data) => write(`event: ${chat}\ndata: ${JSON.stringify(data)}\n\n`);
        return new Response("{}");
      };
    });
    const progress = { total: 9000, cache: 812, processed: 812, time_ms: 0 };
    const tell = (data) => page.evaluate((data) => window.tell(data), data);
    await startSeveral(page, ["Are you there?"]);
    await page.waitForFunction(() => window.tell);
    await tell({ prompt_progress: { ...progress, waits_behind_tokens: 5000 } });
    const reading = page.locator(".reading");
    const waits = "Waiting for 5000 tokens of other prompts · 812 of 9000 read";
    await reading.filter({ hasText: waits }).waitFor();
    await page.getByText("Waiting for 5000 tokens of others").waitFor();
    assert.deepEqual(await audit(page), []);
    await tell({ prompt_progress: { ...progress, processed: 1812, time_ms: 1000 } });
    await reading.filter({ hasText: /^Prefill: 1812 of 9000 tokens · 1000 tokens\/s/ }).waitFor();
    await tell({ choices: [{ delta: { content: "Here." }, finish_reason: "stop" }] });
    await tell({ ended: true });
    await untilAnswered(page, 1);
    assert.equal(await reading.count(), 0);
  });

  bounded("shows how much of a long prompt has been read", async () => {
    const { page } = opened;
    await page.evaluate(() => {
      window.readings = [];
      new MutationObserver(() => {
        const text = document.querySelector(".message.assistant .reading")?.textContent;
        if (text && window.readings.at(-1) !== text) window.readings.push(text);
      }).observe(document.body, { childList: true, subtree: true, characterData: true });
    });
    await startSeveral(page, [`${"long ".repeat(900)} ${script("I have read it.")}`]);
    await untilAnswered(page, 1);
    const readings = await page.evaluate(() => window.readings);
    assert.ok(readings.length > 0, "no progress was shown");
    for (const text of readings) assert.match(text, /^Prefill: .* of .* tokens/);
    assert.equal(await page.locator(".reading").count(), 0);
    assert.equal(await lastAnswer(page, 0), "I have read it.");
  });

  bounded("stops one and lets the others go on, and can go on with it", async () => {
    const { page } = opened;
    await startSeveral(page, [
      `Long ${script(`<<slow>>${endless}`)}`,
      `Short ${script("<<slow>>This one comes to its end.")}`,
    ]);
    const first = card(page, 0);
    await page.waitForFunction(
      () => document.querySelector(".card .message.assistant .markdown")?.textContent.length > 10,
    );
    await first.getByRole("button", { name: "Stop" }).click();
    await first.locator('.message[data-status="stopped"]').waitFor();
    await untilAnswered(page, 2);
    assert.ok(endless.startsWith((await lastAnswer(page, 0)).slice(0, -1)));
    assert.ok((await lastAnswer(page, 0)).length < endless.length);
    assert.equal(await lastAnswer(page, 1), "This one comes to its end.");
    await say(page, 0, `More ${script("Here I am.")}`);
    await untilAnswered(page, 3);
    assert.equal(await lastAnswer(page, 0), "Here I am.");
  });

  bounded("goes on at a reload with what is being written, to its end", async () => {
    const { page } = opened;
    const words = Array.from({ length: 120 }, (_, i) => `w${i}`).join(" ");
    await startSeveral(page, [`Long ${script(`<<slow>>${words}`)}`, `Other ${script(`<<slow>>${words} too`)}`]);
    await page.waitForFunction(() => [...document.querySelectorAll(".message.assistant .markdown")].filter((answer) => answer.textContent.length > 10).length === 2);
    await page.reload();
    await page.waitForSelector('[data-health="ready"]');
    await untilAnswered(page, 2);
    assert.equal(await lastAnswer(page, 0), words);
    assert.equal(await lastAnswer(page, 1), `${words} too`);
    for (const n of [0, 1]) assert.equal(await card(page, n).locator(".message.assistant").getAttribute("data-status"), "done");
    await say(page, 0, `More ${script("Here I am.")}`);
    await untilAnswered(page, 3);
    assert.equal(await lastAnswer(page, 0), "Here I am.");
  });

  bounded("goes on while the page is away, and leaves to another tab what is its own", async () => {
    const { page, context } = opened;
    const words = Array.from({ length: 120 }, (_, i) => `w${i}`).join(" ");
    await startSeveral(page, [`Long ${script(`<<slow>>${words}`)}`]);
    await page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.length > 10);
    const second = await context.newPage();
    await second.goto(server.url);
    await second.locator(".card").waitFor();
    await page.waitForFunction(() => document.querySelector(".message.assistant .markdown").textContent.length > 60);
    assert.equal(await card(page, 0).locator(".message.assistant").getAttribute("data-status"), "running");
    await second.close();
    await page.goto("about:blank");
    await until(async () => (await sessionsOf(server.url)).every(({ state }) => state !== "running"));
    await page.goto(server.url);
    await untilAnswered(page, 1);
    assert.equal(await lastAnswer(page, 0), words);
  });

  bounded("writes to all, asks again, and shows what went wrong", async () => {
    const { page } = opened;
    await startSeveral(page, ["a", "b", "c"].map((name) => `${name} ${script(`I am ${name}.`)}`));
    await untilAnswered(page, 3);
    const all = page.getByRole("textbox", { name: "Write to all 3 conversations" });
    await all.fill(`You all ${script("Together.")}`);
    await all.press("Enter");
    await untilAnswered(page, 6);
    for (let i = 0; i < 3; ++i) assert.equal(await lastAnswer(page, i), "Together.");
    await card(page, 1).getByRole("button", { name: "Regenerate" }).click();
    await untilAnswered(page, 6);
    await say(page, 2, `Now ${script("It breaks<<fail>>")}`);
    await card(page, 2).getByRole("alert").waitFor();
    await say(page, 2, `And now ${script("Well again.")}`);
    await untilAnswered(page, 8);
    assert.equal(await lastAnswer(page, 2), "Well again.");
  });

  bounded("is worked with keys alone", async () => {
    const { page } = opened;
    await page.keyboard.press("Escape"); // out of the field
    await page.keyboard.press("n");
    await page.keyboard.type(`Hello ${script("By keys.")}`);
    await page.keyboard.press("Enter");
    await untilAnswered(page, 1);
    await page.keyboard.press("Alt+n");
    await page.keyboard.type("Go ");
    await page.keyboard.insertText(script(`<<slow>>${endless}`)); // at once, not key by key
    await page.keyboard.press("Enter");
    await card(page, 1).locator('.message[data-status="running"]').waitFor();
    await page.keyboard.press("Escape");
    await card(page, 1).locator('.message[data-status="stopped"]').waitFor();
    await page.keyboard.press("Alt+1");
    await page.keyboard.press("F2");
    await page.keyboard.type("Renamed");
    await page.keyboard.press("Enter");
    assert.equal(await card(page, 0).locator("h2").innerText(), "Renamed");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("s");
    await page.getByRole("dialog", { name: "Settings" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("e");
    await page.getByRole("complementary", { name: "Engine" }).waitFor();
  });

  bounded("deletes with a way back, and then for good, and puts away", async () => {
    const { page } = opened;
    await startSeveral(page, [`Keep ${script("Kept.")}`, `Drop ${script("Dropped.")}`]);
    await untilAnswered(page, 2);
    const id = await card(page, 1).getAttribute("data-conversation");
    const choose = async (n, name) => {
      await card(page, n).getByRole("button", { name: /^More about/ }).click();
      await card(page, n).getByRole("menuitem", { name }).click();
    };
    await choose(1, "Delete");
    await page.getByRole("button", { name: "Undo" }).click();
    assert.equal(await card(page, 1).getAttribute("data-conversation"), id);
    await choose(1, "Delete");
    await page.reload(); // closes the way back
    await page.waitForSelector('[data-health="ready"]');
    assert.equal(await page.locator(".card").count(), 1);
    await until(async () => (await sessionsOf(server.url)).every((session) => session.id !== id));
    await choose(0, "Park");
    await page.waitForFunction(() => !document.querySelector(".card"));
    await page.getByTitle("Restore").click();
    assert.equal(await lastAnswer(page, 0), "Kept.");
  });

  bounded("keeps to its settings, and gives everything away as files", async () => {
    const { page } = opened;
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Max tokens").fill("5");
    await page.getByLabel("System prompt", { exact: true }).fill("Be brief.");
    await page.keyboard.press("Escape");
    await startSeveral(page, [`Hello ${script("A long answer that is cut.")}`]);
    await card(page, 0).locator('.message[data-status="length"]').waitFor();
    await page.getByRole("button", { name: "Settings" }).click();
    const file = async (name) => {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("dialog").getByRole("button", { name }).click(),
      ]);
      return readFile(await download.path(), "utf8");
    };
    const [conversation] = JSON.parse(await file("Export as JSON")).conversations;
    assert.deepEqual(
      conversation.messages.map(({ role }) => role),
      ["system", "user", "assistant"],
    );
    assert.equal(conversation.messages[2].usage.completion, 5);
    assert.match(await file("Export as Markdown"), /^# Hello[^]*\*\*System\*\*\n\nBe brief\.\n[^]*\*\*You\*\*\n\nHello/);
  });

  bounded("shows the engine", async () => {
    const { page } = opened;
    await startSeveral(page, names.map((name) => `I am ${name}. ${script(greeting(name))}`));
    await untilAnswered(page, 8);
    await page.getByRole("button", { name: /^Engine: / }).click();
    const panel = page.getByRole("complementary", { name: "Engine" });
    for (const name of names) {
      await panel.getByRole("rowheader", { name: `I am ${name}.` }).first().waitFor();
    }
    await panel.getByText("In the prefix cache").waitFor();
    assert.match(await page.locator(".line").innerText(), /^Idle, \d+ % remembered$/);
    // The last five minutes come from the server: they are there after a reload.
    const seconds = () => page.evaluate(() => document.querySelector(".chart polyline")?.points.length ?? 0);
    await until(async () => (await seconds()) > 2);
    const before = await seconds();
    await page.reload();
    await page.waitForSelector('[data-health="ready"]');
    await until(async () => (await seconds()) >= before);
    assert.match(await panel.locator(".minutes").innerText(), /running[^]*waiting[^]*idle[^]*KV cache, of [^]*decode[^]*prefill/);
  });

  bounded("fits on a phone, one conversation at a time", async () => {
    const { page } = opened;
    await page.setViewportSize({ width: 390, height: 844 });
    await startSeveral(page, names.slice(0, 3).map((name) => `I am ${name}. ${script(greeting(name))}`));
    await untilAnswered(page, 3);
    const widths = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(widths[0] <= widths[1], `the page is ${widths[0]} wide`);
    await page.getByRole("navigation", { name: "Conversations" }).getByRole("button").nth(2).click();
    await page.waitForFunction(() => {
      const { left, right } = document.querySelectorAll(".card")[2].getBoundingClientRect();
      return left >= 0 && right <= innerWidth;
    });
    await page.getByRole("button", { name: "Compare two answers" }).click();
    await page.getByRole("dialog", { name: "Compare two answers" }).locator("mark").first().waitFor();
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  });
});
