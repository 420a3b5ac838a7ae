// The `ollama` package against the server.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Ollama } from "ollama";

import { call, citySchema, say, untilIdle, url } from "./common.mjs";

const client = new Ollama({ host: url });
const model = "scripted:latest";
const tools = [
  { type: "function", function: { name: "get_weather", description: "", parameters: citySchema } },
];
const user = (text) => ({ role: "user", content: say(text) });

test("models", async () => {
  assert.deepEqual((await client.list()).models.map((entry) => entry.name), [model]);
  assert.equal((await client.ps()).models[0].model, model);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  assert.ok((await client.show({ model })).capabilities.includes("thinking"));
});

test("chat", async () => {
  const done = await client.chat({ model, messages: [user("Hello.")], keep_alive: "5m" });
  assert.equal(done.message.content, "Hello.");
  assert.equal(done.done_reason, "stop");
  assert.ok(done.eval_count > 0 && done.total_duration > 0);
});

test("chat, streamed, with thoughts and a call", async () => {
  const messages = [user(`<think>\nhm\n</think>\n\nLet me see.\n${call("Köln")}`)];
  const stream = await client.chat({ model, messages, tools, think: true, stream: true });
  let text = "", thinking = "", last;
  const calls = [];
  for await (const part of stream) {
    text += part.message.content;
    thinking += part.message.thinking ?? "";
    calls.push(...(part.message.tool_calls ?? []));
    last = part;
  }
  assert.equal(text.trim(), "Let me see.");
  assert.match(thinking, /hm/);
  assert.deepEqual(calls.map((one) => one.function.arguments), [{ city: "Köln" }]);
  assert.ok(last.done);
  messages.push({ role: "assistant", content: text, thinking, tool_calls: calls });
  messages.push({ role: "tool", tool_name: "get_weather", content: say("It rains.") });
  assert.equal((await client.chat({ model, messages, tools })).message.content, "It rains.");
});

test("generate, and on from its context", async () => {
  const first = await client.generate({ model, prompt: say("Hello."), system: "Be brief." });
  assert.equal(first.response, "Hello.");
  const stream = await client.generate(
    { model, prompt: say("Again."), context: first.context, stream: true });
  let text = "";
  for await (const part of stream) text += part.response;
  assert.equal(text, "Again.");
});

test("abort of a stream", async () => {
  const stream = await client.chat(
    { model, messages: [user("<<slow>>" + "x".repeat(3000))], stream: true });
  await assert.rejects(async () => {
    for await (const part of stream) {
      if (part.message.content) stream.abort();
    }
  }, { name: "AbortError" });
  await untilIdle();
});

test("errors", async () => {
  await assert.rejects(client.chat({ model: "llama9", messages: [user("x")] }),
                       (error) => error.status_code === 404 &&
                                  error.error === "model 'llama9' not found");
  await assert.rejects(client.embed({ model, input: "x" }),
                       (error) => error.status_code === 400 && /gives no embeddings/.test(error.error));
  const stream = await client.chat({ model, messages: [user("ab<<fail>>")], stream: true });
  await assert.rejects(async () => {
    for await (const part of stream) assert.ok(part);
  }, /no token may come next/);
});

test("pull of what is served", async () => {
  assert.equal((await client.pull({ model })).status, "success");
});
