// The `@anthropic-ai/sdk` package against the server.
import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

import { call, citySchema, say, untilIdle, url } from "./common.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const model = "scripted";
const tools = [{ name: "get_weather", description: "The weather", input_schema: citySchema }];
const ask = (text, more = {}) =>
  ({ model, max_tokens: 1000, messages: [{ role: "user", content: say(text) }], ...more });

test("a message", async () => {
  const message = await client.messages.create(ask("Hello."));
  assert.deepEqual(message.content, [{ type: "text", text: "Hello." }]);
  assert.equal(message.stop_reason, "end_turn");
  const counted = await client.messages.countTokens(
    { model, messages: [{ role: "user", content: say("Hello.") }] });
  assert.equal(counted.input_tokens,
               message.usage.input_tokens + message.usage.cache_creation_input_tokens +
                 message.usage.cache_read_input_tokens);
});

test("a stream with thinking, text and tools, and an answer to them", async () => {
  const request = ask(`<think>\nWhere?\n</think>\n\nLet me see.\n${call("Bonn")}\n${call("Köln")}`,
                      { tools, thinking: { type: "enabled", budget_tokens: 1024 } });
  const stream = client.messages.stream(request);
  let text = "";
  stream.on("text", (delta) => { text += delta; });
  const message = await stream.finalMessage();
  assert.deepEqual(message.content.map((block) => block.type),
                   ["thinking", "text", "tool_use", "tool_use"]);
  assert.equal(text.trim(), "Let me see.");
  assert.deepEqual(message.content[3].input, { city: "Köln" });
  assert.equal(message.stop_reason, "tool_use");
  const results = message.content.slice(2).map((block, i) => ({
    type: "tool_result", tool_use_id: block.id, content: i === 0 ? "rain" : say("It rains.") }));
  const next = await client.messages.create({
    ...request,
    messages: [...request.messages, { role: "assistant", content: message.content },
               { role: "user", content: results }] });
  assert.equal(next.content[0].text, "It rains.");
  assert.ok(next.usage.cache_read_input_tokens > 0);
});

test("a call that was cut is not text", async () => {
  const request = ask(`Wait.\n${call("Bonn")}`, { tools });
  for (const max_tokens of [15, 30, 55]) {
    const message = await client.messages.stream({ ...request, max_tokens }).finalMessage();
    assert.equal(message.stop_reason, "max_tokens");
    assert.match(message.content[0].text, /^Wait\.\s*$/);
    assert.ok(message.content.slice(1).every((block) => block.type === "tool_use"));
  }
});

test("answers of a given form, and calls that are demanded", async () => {
  const format = { type: "json_schema", schema: { ...citySchema, additionalProperties: false } };
  const message = await client.messages.create(
    ask('{"city": "Bonn"}', { output_config: { format } }));
  assert.deepEqual(JSON.parse(message.content[0].text), { city: "Bonn" });
  await assert.rejects(client.messages.create(ask("Sure!", { output_config: { format } })));
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_weather" }]) {
    const called = await client.messages.create(ask(call("Köln"), { tools, tool_choice }));
    assert.equal(called.stop_reason, "tool_use");
    assert.deepEqual(called.content[0].input, { city: "Köln" });
    await assert.rejects(client.messages.create(ask("It rains.", { tools, tool_choice })));
  }
});

test("strict tools, and answers parsed by a schema", async () => {
  const strict = { tools: [{
    ...tools[0], strict: true, input_schema: { ...citySchema, additionalProperties: false } }] };
  const message = await client.messages.create(ask(`Let me see.\n${call("Bonn")}`, strict));
  assert.deepEqual(message.content[1].input, { city: "Bonn" });
  const wrong = call("Bonn").replace("city", "town");
  await assert.rejects(client.messages.create(ask(wrong, strict)));
  const Weather = z.object({ city: z.string(), rain: z.boolean() });
  const said = { city: "Köln", rain: false };
  const output_config = { format: zodOutputFormat(Weather) };
  const parsed = await client.messages.parse(ask(JSON.stringify(said), { output_config }));
  assert.deepEqual(parsed.parsed_output, said);
  const streamed =
    await client.messages.stream(ask(JSON.stringify(said), { output_config })).finalMessage();
  assert.deepEqual(streamed.parsed_output, said);
  await assert.rejects(client.messages.parse(ask('{"city": "Bonn"}', { output_config })));
});

test("the tool runner drives a whole conversation", async () => {
  const asked = [];
  const last = await client.beta.messages.toolRunner(ask(call("Bonn"), {
    tools: [{
      ...tools[0],
      type: "custom",
      parse: (input) => input,
      run: ({ city }) => { asked.push(city); return say("Sunny there."); },
    }],
  }));
  assert.equal(last.content[0].text, "Sunny there.");
  assert.deepEqual(asked, ["Bonn"]);
});

test("abort", async () => {
  const stream = client.messages.stream(ask("<<slow>>" + "x".repeat(3000)));
  stream.on("text", () => stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  await untilIdle();
});

test("errors are the client's own classes", async () => {
  await assert.rejects(client.models.retrieve("claude"), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create(ask("x", { tool_choice: { type: "tool", name: "none" }, tools })),
                       (error) => error instanceof Anthropic.BadRequestError &&
                         error.error.error.type === "invalid_request_error");
  const stream = client.messages.stream(ask("ab<<fail>>"));
  await assert.rejects(stream.finalMessage(), /no token may come next/);
});
