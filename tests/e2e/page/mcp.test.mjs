// Tools of an MCP server that the operator named: offered, asked before each call, their results
// shown as text; and no other server can be asked.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, describe } from "node:test";

import { audit, bounded, card, closeAll, lastAnswer, launch, open, say, startScripted, startSeveral, until, untilAnswered } from "./common.mjs";

const script = (text) => `<<say>>${text}<</say>>`;
// What the model says next, in the arguments, where it must not see it yet: the server's result tells it.
const hidden = (text) => script(text).replaceAll("<", "\\u003c");
const call = (values) => `<tool_call>{"name": "look_up", "arguments": ${values}}</tool_call>`;
const evil = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>`;

/** A server of one tool over streamable HTTP, as JSON answers. */
async function startMcp() {
  const calls = [];
  const results = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "library", version: "1" } }),
    "tools/list": () => ({
      tools: [{ name: "look_up", description: "Looks a word up.", inputSchema: { type: "object", properties: { word: { type: "string" } }, required: ["word"] } }],
    }),
    "tools/call": ({ name, arguments: values }) => {
      calls.push({ name, values });
      if (values.word === "fail") return { content: [{ type: "text", text: `No such word. ${values.then}` }], isError: true };
      return { content: [{ type: "text", text: `${values.word}: the thread that crosses ${evil} ${values.then}` }] };
    },
  };
  const http = createServer(async (request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "*");
    response.setHeader("Access-Control-Expose-Headers", "Mcp-Session-Id");
    if (request.method === "OPTIONS") return response.writeHead(204).end();
    if (request.method !== "POST") return response.writeHead(405).end();
    let body = "";
    for await (const piece of request) body += piece;
    const { id, method, params } = JSON.parse(body);
    if (id === undefined) return response.writeHead(202).end();
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result: results[method]?.(params) ?? {} }));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const origin = `http://127.0.0.1:${http.address().port}`;
  return { origin, url: `${origin}/mcp`, calls, stop: () => http.close() && http.closeAllConnections() };
}

describe("an MCP server", () => {
  let browser;
  let mcp;
  let server;
  before(async () => {
    mcp = await startMcp();
    server = await startScripted({ mcp: mcp.url });
    browser = await launch();
  });
  after(async () => {
    assert.equal(await server?.stop(), 0);
    mcp?.stop();
    await closeAll(browser);
  });

  const openWith = () => open(browser, server.url, { mayAsk: mcp.origin });

  async function switchOn(page) {
    await page.keyboard.press("Alt+s");
    const box = page.getByRole("checkbox", { name: /MCP server/ });
    await box.check();
    await page.getByText(/1 tool: look_up/).waitFor();
    assert.deepEqual(await audit(page), []);
    await page.keyboard.press("Escape");
  }

  bounded("is asked for a result only after the user has allowed it", async () => {
    mcp.calls.length = 0;
    const { page, context, faults } = await openWith();
    await switchOn(page);
    const bodies = [];
    page.on("request", (request) => request.url().includes("/chats/") && request.method() === "POST" && bodies.push(request.postDataJSON()));
    const values = `{"word": "weft", "then": "${hidden("It crosses.")}"}`;
    await startSeveral(page, [`What is weft? ${script(`I look. ${call(values)}`)}`]);
    const permission = card(page, 0).getByRole("group", { name: "Allow look_up?" });
    await permission.waitFor();
    assert.match(await permission.innerText(), new RegExp(mcp.url));
    assert.deepEqual(await audit(page), []);
    assert.deepEqual(mcp.calls, []);
    await permission.getByRole("button", { name: "Allow" }).click();
    await untilAnswered(page, 1);
    assert.equal(await lastAnswer(page, 0), "It crosses.");
    assert.equal(mcp.calls[0].values.word, "weft");
    // It is text, in the page and for the model, which gets it as the tool's turn.
    const shown = await card(page, 0).locator(".call .result").innerText();
    assert.match(shown, /weft: the thread that crosses <img/);
    assert.equal(await page.locator(".call img, .call script").count(), 0);
    assert.notEqual(await page.title(), "broken");
    assert.deepEqual(bodies[0].tools.map((tool) => tool.function.name), ["look_up"]);
    assert.equal(bodies[1].messages.at(-1).role, "tool");
    assert.match(bodies[1].messages.at(-1).content, /^weft: the thread/);
    await context.close();
    assert.deepEqual(faults, []);
  });

  bounded("is not asked where the user refuses or stops, and its errors go to the model", async () => {
    mcp.calls.length = 0;
    const { page, context, faults } = await openWith();
    await switchOn(page);
    const asking = (word, next) => `Ask ${script(call(`{"word": "${word}", "then": "${hidden(next)}"}`))}`;
    await startSeveral(page, [asking("weft", "Never said.")]);
    const permission = () => card(page, 0).getByRole("group", { name: "Allow look_up?" });
    await permission().getByRole("button", { name: "Refuse" }).click();
    await card(page, 0).locator('.call[data-failed="true"]').getByText(/did not allow/).waitFor();
    // The model asks again.
    await permission().waitFor();
    await card(page, 0).getByRole("button", { name: "Stop", exact: true }).click();
    await untilAnswered(page, 1);
    assert.equal(await permission().count(), 0);
    assert.equal(mcp.calls.length, 0);
    await say(page, 0, asking("fail", "There is none."));
    await permission().getByRole("button", { name: "Allow" }).click();
    await untilAnswered(page, 2);
    assert.equal(await lastAnswer(page, 0), "There is none.");
    assert.match(await card(page, 0).locator(".call").last().innerText(), /No such word/);
    await context.close();
    assert.deepEqual(faults, []);
  });

  bounded("is the only other one: the content policy refuses all the rest", async () => {
    const other = await startMcp();
    const { page, context } = await openWith();
    const reached = await page.evaluate((url) => fetch(url, { method: "POST", body: "{}" }).then(() => true, () => false), other.url);
    assert.equal(reached, false);
    assert.equal(other.calls.length, 0);
    await context.close();
    other.stop();
  });

  bounded("that does not answer is told in a sentence, and tried again", async () => {
    const { page, context, faults } = await open(browser, server.url, { mayAsk: mcp.origin });
    await page.route(`${mcp.origin}/**`, (route) => route.abort());
    await page.keyboard.press("Alt+s");
    await page.getByRole("checkbox", { name: /MCP server/ }).check();
    await page.getByText(/It cannot be asked: .*It must run, and allow this page's origin/).waitFor();
    await page.unroute(`${mcp.origin}/**`);
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText(/1 tool: look_up/).waitFor();
    await until(async () => (await page.getByRole("alert").count()) === 0);
    await context.close();
    assert.deepEqual(faults, []);
  });
});
