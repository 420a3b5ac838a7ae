// Asks the server at $WEFT_URL about a PNG, by every package as its own examples do, and prints how
// many tokens each was told the prompt has. Arguments: the file, and the model's name.
import { readFile } from "node:fs/promises";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateText } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";

const url = process.env.WEFT_URL;
const [file, model] = process.argv.slice(2);
const bytes = await readFile(file);
const base64 = bytes.toString("base64");
const dataUrl = `data:image/png;base64,${base64}`;
const question = "What is it?";
const few = 4; // tokens of an answer

async function openaiChat() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const content = [
    { type: "image_url", image_url: { url: dataUrl, detail: "high" } },
    { type: "text", text: question },
  ];
  const done = await client.chat.completions.create({ model, max_tokens: few, messages: [{ role: "user", content }] });
  return done.usage.prompt_tokens;
}

async function openaiResponses() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const content = [
    { type: "input_image", image_url: dataUrl, detail: "auto" },
    { type: "input_text", text: question },
  ];
  const done = await client.responses.create({ model, max_output_tokens: few, input: [{ role: "user", content }] });
  return done.usage.input_tokens;
}

const image = { type: "image", source: { type: "base64", media_type: "image/png", data: base64 } };
const inputOf = (usage) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);

async function anthropicMessage() {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const messages = [{ role: "user", content: [image, { type: "text", text: question }] }];
  const message = await client.messages.create({ model, max_tokens: few, messages });
  const counted = await client.messages.countTokens({ model, messages });
  return counted.input_tokens === inputOf(message.usage) ? counted.input_tokens : -1;
}

/** A tool's result with the picture, less the same one without. */
async function anthropicToolResult() {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const ask = async (content) => {
    const message = await client.messages.create({
      model,
      max_tokens: few,
      messages: [
        { role: "user", content: "Look." },
        { role: "assistant", content: [{ type: "tool_use", id: "look_1", name: "look", input: {} }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "look_1", content }] },
      ],
    });
    return inputOf(message.usage);
  };
  const text = { type: "text", text: question };
  return (await ask([image, text])) - (await ask([text]));
}

async function ollamaChat() {
  const done = await new Ollama({ host: url }).chat({
    model,
    options: { num_predict: few },
    messages: [{ role: "user", content: question, images: [new Uint8Array(bytes)] }],
  });
  return done.prompt_eval_count;
}

async function ollamaGenerate() {
  const done = await new Ollama({ host: url }).generate({ model, prompt: question, images: [base64], options: { num_predict: few } });
  return done.prompt_eval_count;
}

async function aiSdk() {
  const provider = createOpenAICompatible({ name: "weft", baseURL: `${url}/v1` });
  const done = await generateText({
    model: provider(model),
    maxOutputTokens: few,
    messages: [{ role: "user", content: [{ type: "image", image: new Uint8Array(bytes) }, { type: "text", text: question }] }],
  });
  return done.usage.inputTokens;
}

const told = {};
for (const ask of [openaiChat, openaiResponses, anthropicMessage, anthropicToolResult, ollamaChat, ollamaGenerate, aiSdk]) {
  told[ask.name] = await ask();
}
console.log(JSON.stringify(told));
