// Servers and browsers for the tests of the page.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

export const waitMs = 120_000; // a failure, not a slow machine

async function addressOf(stream) {
  for await (const line of createInterface({ input: stream })) {
    const match = /^listening on (http:\S+)$/.exec(line);
    if (match) return match[1];
  }
  throw new Error("the server ended before it listened");
}

/** A server whose model says what it is told; see tests/support/scripted_host.h. */
export async function startScripted() {
  const child = spawn(process.env.WEFT_SCRIPTED_SERVER, { stdio: ["pipe", "pipe", "inherit"] });
  const url = await addressOf(child.stdout);
  return {
    url,
    async stop() {
      const exited = once(child, "exit");
      child.stdin.end();
      await exited;
    },
  };
}

/** `weft serve` with a small model of random weights. */
export async function startWeft(...flags) {
  const args = ["serve", "-m", process.env.WEFT_MODEL, ...flags];
  const child = spawn(process.env.WEFT, args, { stdio: ["ignore", "inherit", "pipe"] });
  const url = await addressOf(child.stderr);
  child.stderr.resume();
  return {
    url,
    async stop() {
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      const [code] = await exited;
      return code;
    },
  };
}

export async function launch() {
  return chromium.launch({
    executablePath: process.env.WEFT_CHROMIUM,
    args: ["--disable-gpu", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
  });
}

/** The page, and what it should never do: fail, or ask another server. */
export async function open(browser, url, options = {}) {
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
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("blob:")) {
      faults.push(`asked ${request.url()}`);
    }
  });
  await page.goto(url);
  await page.waitForSelector('[data-health="ready"]', { state: "attached" });
  return { page, context, faults };
}

export function card(page, n) {
  return page.locator(".card").nth(n);
}

/** One new conversation for each line. */
export async function startSeveral(page, lines) {
  await page.getByRole("button", { name: "Start several at once" }).first().click();
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
  return (await card(page, n).locator(".message.assistant").last().locator(".markdown").innerText()).trim();
}

export async function sessionsOf(url, headers = {}) {
  const answer = await fetch(`${url}/v1/sessions`, { headers });
  return (await answer.json()).data;
}
