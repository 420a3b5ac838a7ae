// The `openai` package against the server.
import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";
import {
  zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

import { call, citySchema, say, untilIdle, url } from "./common.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const model = "scripted";
const tools = [
  { type: "function", function: { name: "get_weather", parameters: citySchema, strict: true } },
];
const user = (text) => ({ role: "user", content: say(text) });

test("models", async () => {
  const ids = [];
  for await (const entry of client.models.list()) ids.push(entry.id);
  assert.deepEqual(ids, [model]);
});

test("chat", async () => {
  const done = await client.chat.completions.create({
    model, messages: [user("Hello.")], store: false, metadata: { a: "b" } });
  assert.equal(done.choices[0].message.content, "Hello.");
  assert.equal(done.choices[0].finish_reason, "stop");
  assert.ok(done.usage.prompt_tokens_details.cached_tokens >= 0);
});

test("chat, streamed and put together by the client", async () => {
  const stream = client.chat.completions.stream({
    model, messages: [user("<think>\nhm\n</think>\n\nHello you.")],
    stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (delta) => { text += delta; });
  const done = await stream.finalChatCompletion();
  assert.equal(text, "Hello you.");
  assert.equal(done.choices[0].message.content, "Hello you.");
  assert.equal(done.usage.total_tokens, done.usage.prompt_tokens + done.usage.completion_tokens);
  assert.ok(done.usage.completion_tokens_details.reasoning_tokens > 0);
});

test("tools, streamed, with an answer to them", async () => {
  const messages = [user(`Let me see.\n${call("Bonn")}\n${call("Köln")}`)];
  const done = await client.chat.completions
    .stream({ model, messages, tools, parallel_tool_calls: true,
              stream_options: { include_usage: true } }).finalChatCompletion();
  const message = done.choices[0].message;
  assert.equal(done.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(message.tool_calls.map((c) => JSON.parse(c.function.arguments).city),
                   ["Bonn", "Köln"]);
  assert.notEqual(message.tool_calls[0].id, message.tool_calls[1].id);
  messages.push(message);
  messages.push({ role: "tool", tool_call_id: message.tool_calls[0].id, content: "rain" });
  messages.push({ role: "tool", tool_call_id: message.tool_calls[1].id,
                  content: say("It rains.") });
  const next = await client.chat.completions.create({ model, messages, tools });
  assert.equal(next.choices[0].message.content, "It rains.");
  // The calls that were sent back are the tokens that the model wrote.
  assert.ok(next.usage.prompt_tokens_details.cached_tokens > done.usage.prompt_tokens);
});

test("parsed by a schema", async () => {
  const Weather = z.object({ city: z.string(), rain: z.boolean(), note: z.string().nullable() });
  const said = { city: "Bonn", rain: true, note: null };
  const request = { model, messages: [user(JSON.stringify(said))],
                    response_format: zodResponseFormat(Weather, "weather") };
  const done = await client.chat.completions.parse(request);
  assert.deepEqual(done.choices[0].message.parsed, said);
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, said);
  const response = await client.responses.parse({
    model, input: say(JSON.stringify(said)), text: { format: zodTextFormat(Weather, "weather") } });
  assert.deepEqual(response.output_parsed, said);
  // What the schema does not allow is never said.
  await assert.rejects(client.chat.completions.parse({ ...request, messages: [user("Sure.")] }));
});

test("strict tools by a schema", async () => {
  const tool = { name: "get_weather", parameters: z.object({ city: z.string() }) };
  const request = { model, messages: [user(call("Bonn"))], tools: [zodFunction(tool)],
                    tool_choice: "required" };
  const done = await client.chat.completions.parse(request);
  assert.deepEqual(done.choices[0].message.tool_calls[0].function.parsed_arguments,
                   { city: "Bonn" });
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.tool_calls[0].function.parsed_arguments,
                   { city: "Bonn" });
  // A model that repeats its call has called once, where a call is demanded.
  const again = Array(5).fill(call("Bonn")).join("\n");
  const once = await client.chat.completions.parse({ ...request, messages: [user(again)] });
  assert.equal(once.choices[0].message.tool_calls.length, 1);
  const stream = client.chat.completions.stream({ ...request, messages: [user(again)] });
  assert.equal((await stream.finalChatCompletion()).choices[0].message.tool_calls.length, 1);
  const response = await client.responses.parse({
    model, input: say(call("Köln")), tools: [zodResponsesFunction(tool)] });
  assert.deepEqual(response.output[0].parsed_arguments, { city: "Köln" });
  // What no call of a tool can be is never said.
  const wrong = call("Bonn").replace("city", "town");
  for (const text of ["It rains.", wrong]) {
    await assert.rejects(client.chat.completions.parse({ ...request, messages: [user(text)] }));
  }
  await assert.rejects(
    client.responses.parse({ model, input: say(wrong), tools: [zodResponsesFunction(tool)] }));
});

test("runTools drives a whole conversation", async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model,
    messages: [user(call("Bonn"))],
    tools: [{
      type: "function",
      function: {
        name: "get_weather",
        parse: JSON.parse,
        parameters: citySchema,
        function: ({ city }) => { asked.push(city); return say("Sunny there."); },
      },
    }],
  });
  assert.equal(await runner.finalContent(), "Sunny there.");
  assert.deepEqual(asked, ["Bonn"]);
});

test("abort of a stream, and of an answer", async () => {
  const long = say("<<slow>>" + "x".repeat(3000));
  const stream = await client.chat.completions.create({
    model, messages: [{ role: "user", content: long }], stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) break;  // closes the connection
  }
  await untilIdle();
  const control = new AbortController();
  setTimeout(() => control.abort(), 200);
  await assert.rejects(
    client.chat.completions.create({ model, messages: [{ role: "user", content: long }] },
                                   { signal: control.signal }),
    OpenAI.APIUserAbortError);
  await untilIdle();
});

test("errors are the client's own classes", async () => {
  const ask = (more) => client.chat.completions.create({ model, messages: [user("x")], ...more });
  await assert.rejects(client.models.retrieve("gpt-9"), (error) =>
    error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  await assert.rejects(ask({ temperature: 9 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(ask({ messages: [user("x".repeat(9000))] }), (error) =>
    error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded");
  await assert.rejects(
    client.embeddings.create({ model, input: "x" }), (error) => error.status === 400);
});

test("a failure in the middle of a stream is thrown", async () => {
  const stream = await client.chat.completions.create({
    model, messages: [user("ab<<fail>>")], stream: true });
  let text = "";
  await assert.rejects(async () => {
    for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
  }, /no token may come next/);
  assert.equal(text, "ab");
});

test("completions", async () => {
  const done = await client.completions.create({
    model, prompt: [say("one"), say("two")], logprobs: 1, echo: true, max_tokens: 9 });
  assert.equal(done.choices.length, 2);
  assert.ok(done.choices[1].text.endsWith("two"));
  assert.equal(done.choices[0].logprobs.tokens.length,
               done.choices[0].logprobs.token_logprobs.length);
});

test("responses", async () => {
  const done = await client.responses.create({ model, input: say("Hello."), store: false });
  assert.equal(done.output_text, "Hello.");
  const text = [];
  const stream = client.responses.stream({
    model, input: [{ role: "user", content: say(`<think>\nhm\n</think>\n\nYes.\n${call("Bonn")}`) }],
    tools: [{ type: "function", name: "get_weather", parameters: citySchema, strict: false }] });
  stream.on("response.output_text.delta", (event) => text.push(event.delta));
  const last = await stream.finalResponse();
  assert.equal(text.join("").trim(), "Yes.");
  assert.equal(last.status, "completed");
  assert.deepEqual(last.output.map((item) => item.type), ["reasoning", "message", "function_call"]);
  assert.deepEqual(JSON.parse(last.output[2].arguments), { city: "Bonn" });
  const next = await client.responses.create({
    model,
    input: [{ role: "user", content: "hm" }, ...last.output,
            { type: "function_call_output", call_id: last.output[2].call_id,
              output: say("It rains.") }] });
  assert.equal(next.output_text, "It rains.");
  await assert.rejects(client.responses.create({ model, input: "x", previous_response_id: "r" }),
                       OpenAI.BadRequestError);
});
