#!/usr/bin/env python3
"""Pictures as the packages of PyPI and npm send them, against `weft serve` with a tiny model that
sees: each is told the same length of the prompt, and the picture is encoded once for all. The
packages are installed once into $WEFT_PYTHON_DIR and $WEFT_NODE_DIR; a case is skipped where pip or
npm cannot get them, and exit code 77 says that both were."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import npm_packages
import python_packages
from seeing_model import coded, make_seeing, png
from serve_test import Server

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "eyes"
QUESTION = "What is it?"
FEW = 4  # tokens of an answer


def told_by_node(url, file):
    done = subprocess.run(["node", "pictures.mjs", str(file), MODEL],
                          cwd=os.environ["WEFT_NODE_DIR"], env={**os.environ, "WEFT_URL": url},
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def told_by_openai(url, file):
    import openai
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    data_url = "data:image/png;base64," + coded(file.read_bytes())
    chat = client.chat.completions.create(model=MODEL, max_tokens=FEW, messages=[
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url}},
                                     {"type": "text", "text": QUESTION}]}])
    response = client.responses.create(model=MODEL, max_output_tokens=FEW, input=[
        {"role": "user", "content": [{"type": "input_image", "image_url": data_url},
                                     {"type": "input_text", "text": QUESTION}]}])
    return {"chat": chat.usage.prompt_tokens, "responses": response.usage.input_tokens}


def told_by_anthropic(url, file):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                         "data": coded(file.read_bytes())}}
    text = {"type": "text", "text": QUESTION}

    def length(messages):
        usage = client.messages.create(model=MODEL, max_tokens=FEW, messages=messages).usage
        return (usage.input_tokens + usage.cache_read_input_tokens +
                usage.cache_creation_input_tokens)

    def result(content):
        return [{"role": "user", "content": "Look."},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "look_1", "name": "look", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "look_1", "content": content}]}]

    return {"message": length([{"role": "user", "content": [image, text]}]),
            "tool_result": length(result([image, text])) - length(result([text]))}


def told_by_ollama(url, file):
    import ollama
    client = ollama.Client(host=url)
    options = {"num_predict": FEW}
    chat = client.chat(MODEL, [{"role": "user", "content": QUESTION, "images": [str(file)]}],
                       options=options)
    generate = client.generate(MODEL, QUESTION, images=[file.read_bytes()], options=options)
    return {"chat": chat.prompt_eval_count, "generate": generate.prompt_eval_count}


class SdkPicturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model, projector = make_seeing(cls.folder.name)
        cls.file = pathlib.Path(cls.folder.name) / "stripes.png"
        cls.file.write_bytes(png(1))
        cls.server = Server(model, "--mmproj", projector, "--alias", MODEL)
        cls.server.__enter__()
        cls.server.ready()
        cls.length = cls.asked({"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": coded(png(1))}},
            {"type": "text", "text": QUESTION}]})
        cls.of_picture = cls.length - cls.asked({"role": "user", "content": QUESTION})

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    @classmethod
    def asked(cls, message):
        answer = cls.server.ask("POST", "/v1/chat/completions",
                                {"messages": [message], "max_tokens": FEW})
        assert answer.status == 200, answer
        return answer.json["usage"]["prompt_tokens"]

    def check(self, told):
        self.assertGreater(self.of_picture, 8)
        for name, length in told.items():
            if "result" in name.lower():
                # A template may part it from the text.
                self.assertIn(length - self.of_picture, range(4), name)
            else:
                self.assertEqual(length, self.length, name)
        self.assertEqual(self.server.metric("weft_pictures_encoded_total"), 1)

    def test_node(self):
        if not npm_packages.install(HERE / "node", os.environ["WEFT_NODE_DIR"]):
            self.skipTest("npm cannot get the packages")
        self.check(told_by_node(self.server.url, self.file))

    def test_python(self):
        if not python_packages.install(HERE / "pictures_requirements.txt",
                                       os.environ["WEFT_PYTHON_DIR"]):
            self.skipTest("pip cannot get the packages")
        for told_by in (told_by_openai, told_by_anthropic, told_by_ollama):
            with self.subTest(told_by.__name__):
                self.check(told_by(self.server.url, self.file))


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(SdkPicturesTest)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    return python_packages.SKIP if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
