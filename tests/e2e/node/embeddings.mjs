// The `openai` package's embeddings, of the server at WEFT_URL: what the package gives for the
// texts that are an argument, as JSON. Compared in openai_embeddings_test.py.
import OpenAI from "openai";

import { url } from "./common.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const { texts, tokens, model } = JSON.parse(process.argv[2]);

const vectorsOf = async (input, options) => {
  const { data } = await client.embeddings.create({ model, input, ...options });
  return data.map((entry) => entry.embedding);
};

const told = {
  plain: await vectorsOf(texts, {}),  // asks for base64 and decodes it
  float: await vectorsOf(texts, { encoding_format: "float" }),
  base64: await vectorsOf(texts, { encoding_format: "base64" }),
  tokens: await vectorsOf(tokens, {}),
  one: await vectorsOf(texts[0], {}),
  dimensions: await vectorsOf(texts, { dimensions: 8 }),
  usage: (await client.embeddings.create({ model, input: texts })).usage,
};
try {
  await client.embeddings.create({ model, input: texts, dimensions: 100000 });
} catch (error) {
  told.refusal = [error.status, error.constructor.name];
}
console.log(JSON.stringify(told));
