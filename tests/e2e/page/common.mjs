// Servers and browsers for the tests of the page. Nothing here waits without an end.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { it } from "node:test";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import axe from "axe-core";
import { chromium } from "playwright-core";

// A failure, not a slow machine.
export const waitMs = 120_000;
const caseMs = 300_000;

/** A test that fails when it takes too long. */
export const bounded = (name, body) => it(name, { timeout: caseMs }, body);

export async function until(condition) {
  const deadline = Date.now() + waitMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`after ${waitMs} ms still not: ${condition}`);
    await sleep(50);
  }
}

const children = new Set();

/** Starts a server and waits for the address that it prints to stdout or stderr. */
async function start(command, args, stdio, output, env = {}) {
  const child = spawn(command, args, { stdio, env: { ...process.env, ...env } });
  children.add(child);
  const ended = once(child, "exit").then(([code]) => {
    children.delete(child);
    return code;
  });
  const limit = setTimeout(() => child.kill("SIGKILL"), waitMs);
  try {
    for await (const line of createInterface({ input: child[output] })) {
      const match = /^listening on (http:\S+)$/.exec(line);
      if (match) return { child, ended, url: match[1] };
    }
    throw new Error(`${command} ended, or was ended after ${waitMs} ms, before it listened`);
  } finally {
    clearTimeout(limit);
    // What comes later is read too, or a full pipe would stop the server; and shown, so that
    // one that fails says why.
    child[output].pipe(process.stderr, { end: false });
    child[output].on("data", (data) => (child.said = (child.said ?? "") + data));
  }
}

/** The exit code, null of a server that had to be killed. */
async function end(child, ended) {
  const limit = setTimeout(() => child.kill("SIGKILL"), waitMs);
  try {
    return await ended;
  } finally {
    clearTimeout(limit);
  }
}

/** A server whose model says what it is told; see tests/support/scripted_host.h. */
export async function startScripted({ stateDir, mcp } = {}) {
  const env = { ...(stateDir && { WEFT_SCRIPTED_STATE_DIR: stateDir }), ...(mcp && { WEFT_SCRIPTED_PAGE_MCP: mcp }) };
  const server = await start(process.env.WEFT_SCRIPTED_SERVER, [], ["pipe", "pipe", "inherit"], "stdout", env);
  return {
    url: server.url,
    stop() {
      server.child.stdin.end();
      return end(server.child, server.ended);
    },
  };
}

/** `weft serve` with a small model of random weights. */
export async function startWeft(...flags) {
  const model = flags.includes("-m") ? [] : ["-m", process.env.WEFT_MODEL];
  const args = ["serve", ...model, ...flags];
  const server = await start(process.env.WEFT, args, ["ignore", "inherit", "pipe"], "stderr");
  return {
    url: server.url,
    log: () => server.child.said ?? "",
    /** At once, as by a crash. */
    kill() {
      server.child.kill("SIGKILL");
      return server.ended;
    },
    stop() {
      server.child.kill("SIGTERM");
      return end(server.child, server.ended);
    },
  };
}

/** At the end of a file, also after a failure: a server that still runs would keep it open. */
export async function closeAll(browser) {
  for (const child of children) child.kill("SIGKILL");
  await Promise.race([browser?.close(), sleep(30_000, undefined, { ref: false })]);
}

export async function launch() {
  return chromium.launch({
    executablePath: process.env.WEFT_CHROMIUM,
    args: ["--disable-gpu", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
  });
}

/** The page, and what it should never do: fail, or ask another server than `mayAsk`. */
export async function open(browser, url, { mayAsk, ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    reducedMotion: "reduce",
    ...options,
  });
  context.setDefaultTimeout(waitMs);
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    // What a browser itself says of an answer that is an error is no fault of the page.
    const known = message.text().startsWith("Failed to load resource");
    if (["error", "warning"].includes(message.type()) && !known) faults.push(message.text());
  });
  const { origin } = new URL(url);
  page.on("request", (request) => {
    if (mayAsk && request.url().startsWith(mayAsk)) return;
    if (!request.url().startsWith(origin) && !request.url().startsWith("blob:")) {
      faults.push(`asked ${request.url()}`);
    }
  });
  await page.goto(url);
  await page.waitForSelector('[data-health="ready"]', { state: "attached" });
  return { page, context, faults };
}

/** What axe finds wrong with the page as it is now, in a line each. */
export async function audit(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run());
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target} ${failureSummary}`));
}

export function card(page, n) {
  return page.locator(".card").nth(n);
}

/** One new conversation for each line. */
export async function startSeveral(page, lines) {
  await page.getByRole("button", { name: "Start several conversations" }).first().click();
  await page.getByLabel("Each line begins a conversation").fill(lines.join("\n"));
  await page.getByRole("button", { name: `Start ${lines.length}`, exact: true }).click();
}

export async function say(page, n, text) {
  const field = card(page, n).locator("footer textarea");
  await field.fill(text);
  await field.press("Enter");
}

/** Waits until so many answers stand, and none is being written. */
export async function untilAnswered(page, count) {
  await page.waitForFunction(
    (wanted) =>
      document.querySelectorAll(".message.assistant").length === wanted &&
      !document.querySelector('.message[data-status="running"]'),
    count,
  );
}

export async function lastAnswer(page, n) {
  return (await card(page, n).locator(".message.assistant").last().locator(".markdown").last().innerText()).trim();
}

export async function sessionsOf(url, headers = {}) {
  const answer = await fetch(`${url}/v1/sessions`, { headers });
  return (await answer.json()).data;
}
