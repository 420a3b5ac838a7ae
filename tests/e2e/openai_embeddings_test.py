#!/usr/bin/env python3
"""`embeddings.create` of the `openai` packages of PyPI and npm, in both encodings, against
`weft serve` with an encoder of random weights. The packages are installed once into
$WEFT_PYTHON_DIR and $WEFT_NODE_DIR; a case is skipped where pip or npm cannot get its package, and
exit code 77 says that both were."""

import base64
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import npm_packages
import python_packages
from embed_test import TEXTS, Server
from weft_process import make_model, weft

HERE = pathlib.Path(__file__).resolve().parent
DIMENSIONS = 8
MODEL = "encoder"


def rounded(vector):
    """As 32-bit floats, which is what the model computes."""
    return list(struct.unpack(f"<{len(vector)}f", struct.pack(f"<{len(vector)}f", *vector)))


def decoded(text):
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def told_by_python(url, tokens):
    import openai
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def vectors(of, **options):
        answer = client.embeddings.create(model=MODEL, input=of, **options)
        return [entry.embedding for entry in answer.data]

    told = {
        "plain": vectors(TEXTS),  # asks for base64 and decodes it
        "float": vectors(TEXTS, encoding_format="float"),
        "base64": vectors(TEXTS, encoding_format="base64"),
        "tokens": vectors(tokens),
        "one": vectors(TEXTS[0]),
        "dimensions": vectors(TEXTS, dimensions=DIMENSIONS),
        "usage": client.embeddings.create(model=MODEL, input=TEXTS).usage.model_dump(),
    }
    try:
        client.embeddings.create(model=MODEL, input=TEXTS, dimensions=100000)
    except openai.APIStatusError as error:
        told["refusal"] = [error.status_code, type(error).__name__]
    return told


def told_by_node(url, tokens):
    asked = json.dumps({"texts": TEXTS, "tokens": tokens, "model": MODEL})
    done = subprocess.run(["node", "embeddings.mjs", asked], cwd=os.environ["WEFT_NODE_DIR"],
                          env={**os.environ, "WEFT_URL": url}, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class OpenAIEmbeddingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = make_model(pathlib.Path(cls.folder.name) / "bert.gguf", "tiny-bert")
        lines = weft("embed", "-m", model, "-", stdin="\n".join(TEXTS)).json_lines
        cls.expected = [rounded(line["embedding"]) for line in lines]
        cls.n_tokens = sum(line["tokens"] for line in lines)
        cls.tokens = [weft("tokenize", "-m", model, "--add-bos", "--json", text).json["tokens"]
                      for text in TEXTS]
        cls.server = Server("-m", model, "--alias", MODEL)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def check(self, told):
        for kind in ("plain", "float", "tokens"):
            self.assertEqual([rounded(vector) for vector in told[kind]], self.expected, kind)
        self.assertEqual([decoded(text) for text in told["base64"]], self.expected)
        self.assertEqual([rounded(vector) for vector in told["one"]], self.expected[:1])
        for vector, whole in zip(told["dimensions"], self.expected, strict=True):
            length = sum(value * value for value in whole[:DIMENSIONS]) ** 0.5
            for value, cut in zip(vector, whole[:DIMENSIONS], strict=True):
                self.assertAlmostEqual(value, cut / length, places=5)
        self.assertEqual(told["usage"], {"prompt_tokens": self.n_tokens,
                                         "total_tokens": self.n_tokens})
        self.assertEqual(told["refusal"], [400, "BadRequestError"])

    def test_python(self):
        if not python_packages.install(HERE / "openai_requirements.txt",
                                       os.environ["WEFT_PYTHON_DIR"]):
            self.skipTest("pip cannot get the package")
        self.check(told_by_python(self.server.url, self.tokens))

    def test_node(self):
        if not npm_packages.install(HERE / "node", os.environ["WEFT_NODE_DIR"]):
            self.skipTest("npm cannot get the package")
        self.check(told_by_node(self.server.url, self.tokens))


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(OpenAIEmbeddingsTest)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    return python_packages.SKIP if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
