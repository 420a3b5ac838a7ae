#!/usr/bin/env python3
"""Pictures as the packages of npm send them, against `weft serve` with a tiny model that sees: each
is told the same length of the prompt, and the picture is encoded once for all. The packages are
installed once into $WEFT_NODE_DIR; exit code 77, a skip, when npm cannot get them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import npm_packages
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


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(SdkPicturesTest)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if not result.wasSuccessful():
        return 1
    return npm_packages.SKIP if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
