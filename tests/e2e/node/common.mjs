// What the tests of all clients share: where the server is, and how to make its model say
// something (see tests/support/scripted_host.h).
export const url = process.env.WEFT_URL;

const slow = process.env.WEFT_SCRIPT ?? "";
export const say = (text) =>
  `<<say>>${text.startsWith("<<slow>>") ? "" : slow}${text}<</say>>`;

export const call = (city) =>
  `<tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}"}}\n</tool_call>`;

export const citySchema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
};

// Waits until no turn runs: what an aborted request has left behind must end by itself.
export async function untilIdle() {
  for (let i = 0; i < 200; ++i) {
    const text = await (await fetch(`${url}/metrics`)).text();
    const running = /^llamacpp:requests_processing (\d+)/m.exec(text);
    if (running === null) throw new Error("no llamacpp:requests_processing in /metrics");
    if (running[1] === "0") return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error("a turn still runs 10 s after its client has left");
}
