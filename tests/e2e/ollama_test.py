#!/usr/bin/env python3
"""The `ollama` package of PyPI against the real server with a scripted model:
$WEFT_SCRIPTED_SERVER. The package is installed once into $WEFT_PYTHON_DIR; exit code 77, a skip,
when pip cannot get it. (That of npm is tested beside the other clients from there.)

Once as it is, and once with a model that is slow and a server that shows between two tokens that
the stream is alive: the client may not mind that."""

import asyncio
import os
import pathlib
import subprocess
import sys
import unittest

from python_packages import SKIP, install

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "scripted:latest"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>'


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
      city: Its name
    """
    return f"<<say>>Sunny in {city}.<</say>>"


class OllamaClientTest(unittest.TestCase):
    url = None
    before_script = ""

    def setUp(self):
        self.client = ollama.Client(host=self.url)

    def say(self, text):
        return {"role": "user", "content": f"<<say>>{self.before_script}{text}<</say>>"}

    def test_models(self):
        models = self.client.list().models
        self.assertEqual([model.model for model in models], [MODEL])
        self.assertEqual(models[0].details.format, "gguf")
        self.assertIsNotNone(models[0].modified_at.tzinfo)
        self.assertEqual(self.client.ps().models[0].context_length, 8192)
        shown = self.client.show(MODEL)
        self.assertIn("tools", shown.capabilities)
        self.assertEqual(shown.modelinfo["general.architecture"], "llama")

    def test_chat(self):
        done = self.client.chat(MODEL, [self.say("Hello.")], options={"temperature": 0.5},
                                keep_alive="5m")
        self.assertEqual(done.message.content, "Hello.")
        self.assertEqual((done.done, done.done_reason, done.eval_count), (True, "stop", 7))
        self.assertGreater(done.eval_duration, 0)

    def test_chat_streamed(self):
        parts = list(self.client.chat(MODEL, [self.say("<think>\nhm\n</think>\n\nHello you.")],
                                      think=True, stream=True))
        self.assertEqual("".join(part.message.content for part in parts), "Hello you.")
        self.assertIn("hm", "".join(part.message.thinking or "" for part in parts))
        self.assertEqual([part.done for part in parts].count(True), 1)
        self.assertTrue(parts[-1].done)
        self.assertGreater(parts[-1].prompt_eval_count, 0)

    def test_tools(self):
        messages = [self.say(f"Let me see.\n{CALL}")]
        done = self.client.chat(MODEL, messages, tools=[get_weather])
        self.assertEqual(done.message.content.strip(), "Let me see.")
        call = done.message.tool_calls[0].function
        self.assertEqual((call.name, dict(call.arguments)), ("get_weather", {"city": "Bonn"}))
        messages += [done.message, {"role": "tool", "tool_name": call.name,
                                    "content": get_weather(**call.arguments)}]
        next_one = self.client.chat(MODEL, messages, tools=[get_weather])
        self.assertEqual(next_one.message.content, "Sunny in Bonn.")
        streamed = list(self.client.chat(MODEL, messages[:1], tools=[get_weather], stream=True))
        calls = [call for part in streamed for call in part.message.tool_calls or []]
        self.assertEqual([call.function.name for call in calls], ["get_weather"])

    def test_generate(self):
        prompt = self.say("Hello.")["content"]
        done = self.client.generate(MODEL, prompt, system="Be brief.")
        self.assertEqual(done.response, "Hello.")
        again = self.client.generate(MODEL, prompt, context=done.context, stream=True)
        self.assertEqual("".join(part.response for part in again), "Hello.")
        raw = self.client.generate(MODEL, prompt, raw=True)
        self.assertEqual((raw.response, raw.context), ("Hello.", None))
        self.assertEqual(self.client.generate(MODEL, keep_alive=0).done_reason, "unload")

    def test_answers_of_a_given_form(self):
        schema = {"type": "object", "properties": {"rain": {"type": "boolean"}},
                  "required": ["rain"]}
        for form in ("json", schema):
            answer = self.client.chat(MODEL, [self.say('{"rain": true}')], format=form)
            self.assertEqual(answer.message.content, '{"rain": true}')
            with self.assertRaises(ollama.ResponseError):
                self.client.chat(MODEL, [self.say("Certainly!")], format=form)

    def test_errors(self):
        def error_of(ask):
            with self.assertRaises(ollama.ResponseError) as raised:
                ask()
            return raised.exception
        missing = error_of(lambda: self.client.chat("llama9", [self.say("x")]))
        self.assertEqual((missing.status_code, missing.error), (404, "model 'llama9' not found"))
        refused = error_of(lambda: self.client.chat(MODEL, [self.say("x")],
                                                    format={"type": "nothing"}))
        self.assertEqual(refused.status_code, 400)
        no_vectors = error_of(lambda: self.client.embed(MODEL, "x"))
        self.assertEqual(no_vectors.status_code, 400)
        self.assertIn("gives no embeddings", no_vectors.error)
        for ask in (lambda: self.client.copy(MODEL, "y"), lambda: self.client.delete(MODEL), lambda: self.client.push("me/mine"),
                    lambda: self.client.create("mine", from_=MODEL)):
            self.assertEqual(error_of(ask).status_code, 501)
        stream = self.client.chat(MODEL, [self.say("ab<<fail>>")], stream=True)
        self.assertIn("no token may come next", error_of(lambda: list(stream)).error)

    def test_pull_of_what_is_served(self):
        self.assertEqual(self.client.pull(MODEL).status, "success")
        self.assertEqual([line.status for line in self.client.pull(MODEL, stream=True)],
                         ["success"])

    def test_asynchronous(self):
        async def chat():
            client = ollama.AsyncClient(host=self.url)
            text = ""
            async for part in await client.chat(MODEL, [self.say("Hello.")], stream=True):
                text += part.message.content
            return text
        self.assertEqual(asyncio.run(chat()), "Hello.")


def run(arguments, before_script):
    server = subprocess.Popen([os.environ["WEFT_SCRIPTED_SERVER"], *arguments],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        assert line.startswith("listening on "), line
        OllamaClientTest.url = line.split()[-1]
        OllamaClientTest.before_script = before_script
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(OllamaClientTest)
        passed = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite).wasSuccessful()
    finally:
        server.stdin.close()
        code = server.wait(timeout=30)
    assert code == 0, f"the server ended with {code}"
    return passed


def main():
    global ollama
    if not install(HERE / "ollama_requirements.txt", os.environ["WEFT_PYTHON_DIR"]):
        return SKIP
    import ollama
    return 0 if run([], "") and run(["32", "256", "8192", "2"], "<<slow>>") else 1


if __name__ == "__main__":
    sys.exit(main())
