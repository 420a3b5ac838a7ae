// The Vercel AI SDK with its openai-compatible provider against the server.
import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

import { call, say, untilIdle, url } from "./common.mjs";

const provider = createOpenAICompatible({
  name: "weft", baseURL: `${url}/v1`, apiKey: "none", includeUsage: true });
const model = provider("scripted");
const common = { model, maxRetries: 0 };

test("text", async () => {
  const { text, finishReason, usage } = await generateText({ ...common, prompt: say("Hello.") });
  assert.equal(text, "Hello.");
  assert.equal(finishReason, "stop");
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
});

test("a stream with reasoning and tools, and the steps after them", async () => {
  const asked = [];
  const result = streamText({
    ...common,
    prompt: say(`<think>\nWhere?\n</think>\n\nLet me see.\n${call("Bonn")}`),
    stopWhen: stepCountIs(3),
    tools: {
      get_weather: tool({
        description: "The weather",
        inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => { asked.push(city); return say("It rains."); },
      }),
    },
  });
  const steps = await result.steps;
  assert.deepEqual(asked, ["Bonn"]);
  assert.equal(steps.length, 2);
  assert.match(steps[0].reasoningText, /Where\?/);
  assert.match(steps[0].text, /^Let me see\./);
  assert.equal(steps[0].finishReason, "tool-calls");
  assert.match(steps[1].text, /^It rains\./);
  assert.ok((await result.totalUsage).inputTokens > 0);
});

test("objects by a schema, whole and streamed", async () => {
  const schema = z.object({ city: z.string(), days: z.array(z.number().int()).max(3) });
  const said = { city: "Köln", days: [1, 2] };
  const provider = createOpenAICompatible({
    name: "weft", baseURL: `${url}/v1`, apiKey: "none", supportsStructuredOutputs: true });
  const common = { model: provider("scripted"), maxRetries: 0, schema };
  const { object } = await generateObject({ ...common, prompt: say(JSON.stringify(said)) });
  assert.deepEqual(object, said);
  const stream = streamObject({ ...common, prompt: say(JSON.stringify(said)) });
  let parts = 0;
  for await (const part of stream.partialObjectStream) parts += part.city !== "";
  assert.ok(parts > 1);
  assert.deepEqual(await stream.object, said);
  await assert.rejects(generateObject({ ...common, prompt: say("Certainly!") }));
});

test("abort", async () => {
  const control = new AbortController();
  const result = streamText({
    ...common, prompt: say("<<slow>>" + "x".repeat(3000)), abortSignal: control.signal });
  let aborted = false;
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") control.abort();
    if (part.type === "abort") aborted = true;
  }
  assert.ok(aborted);
  await untilIdle();
});

test("errors", async () => {
  await assert.rejects(generateText({ ...common, prompt: "x", temperature: 9 }), (error) =>
    error.statusCode === 400 && /temperature/.test(error.message));
  const errors = [];
  const result = streamText({
    ...common, prompt: say("ab<<fail>>"), onError: ({ error }) => errors.push(error) });
  await result.consumeStream();
  assert.equal(errors.length, 1);
  assert.match(JSON.stringify(errors[0]) + String(errors[0]), /no token may come next/);
});
