#!/usr/bin/env python3
"""From a text to a quantized model that uses what the text showed: imatrix and weft-quantize."""

import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from weft_process import WEFT, make_model, read_floats, weft

QUANTIZE = os.environ.get("WEFT_QUANTIZE", str(pathlib.Path(WEFT).parent / "weft-quantize"))
TEXT = "The weft travels; the warp stays. 12 + 34 = 46, and so on to the selvage.\n" * 40


def quantize(*args):
    return subprocess.run([QUANTIZE, *map(str, args)], capture_output=True, text=True, timeout=300)


class ImatrixTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.llama = make_model(cls.dir / "llama.gguf")
        cls.text = cls.dir / "text.txt"
        cls.text.write_text(TEXT)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def measure(self, out, *args, model=None):
        result = weft("imatrix", "-m", model or self.llama, "--chunk", 64, "-o", out, *args)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.out, b"", result)
        return result.err

    def fail(self, *args, says, code=1):
        result = weft("imatrix", *args)
        self.assertEqual(result.code, code, result)
        self.assertIn(says, result.err, result)
        self.assertEqual(len(result.err.splitlines()), 1, result)

    def last_sums_of(self, path):
        """The file ends with sums and counts, all of them floats."""
        return struct.unpack("<4096f", path.read_bytes()[-16384:])

    def test_a_text_becomes_a_file(self):
        out = self.dir / "i.gguf"
        said = self.measure(out, "-f", self.text, "--chunks", 5)
        self.assertRegex(said, r"measured 5 chunks of 64 tokens: perplexity \d+\.\d{3}\n")
        self.assertRegex(said, r"wrote \S+i\.gguf: 29 matrices, 5 chunks\n")
        shown = weft("inspect", out).text
        for part in ('general.type = "imatrix"', "imatrix.chunk_count = 5",
                     "imatrix.chunk_size = 64", f'imatrix.datasets = ["{self.text}"]'):
            self.assertIn(part, shown)
        # The same text gives the same file, on however many threads.
        again = self.dir / "again.gguf"
        self.measure(again, "-f", self.text, "--chunks", 5, "--threads", 1)
        self.assertEqual(out.read_bytes(), again.read_bytes())

    def test_files_are_added_up(self):
        both, part, whole = (self.dir / f"{name}.gguf" for name in ("both", "part", "whole"))
        self.measure(part, "-f", self.text, "--chunks", 3)
        self.measure(both, "-f", self.text, "--chunks", 3, "--add", part)
        self.assertIn("29 matrices, 6 chunks",
                      self.measure(whole, "--add", part, "--add", part))
        self.assertEqual(both.read_bytes(), whole.read_bytes())
        # A later run goes on where an earlier one ended.
        self.measure(whole, "-f", self.text, "--chunks", 5)
        said = self.measure(both, "-f", self.text, "--skip", 3, "--chunks", 2, "--add", part)
        self.assertIn("29 matrices, 5 chunks", said)
        for a, b in zip(self.last_sums_of(whole), self.last_sums_of(both)):
            self.assertAlmostEqual(a, b, delta=1e-5 * abs(a))
        box = self.dir / "box.gguf"
        self.measure(box, "-f", self.text, "--chunks", 1, model="box")
        self.fail("--add", part, "--add", box, "-o", self.dir / "x.gguf", says="different models")
        self.assertFalse((self.dir / "x.gguf").exists())

    def test_what_cannot_be_measured_is_said(self):
        out = self.dir / "x.gguf"
        short = self.dir / "short.txt"
        short.write_text("Warp.")
        self.fail("-m", self.llama, "-f", short, "-o", out, says="which are 0 chunks of 512")
        self.fail("-m", self.llama, "-f", self.text, "--skip", 999, "-o", out, says="--skip")
        self.fail("-m", self.llama, "-f", self.dir / "absent.txt", "-o", out, says="absent.txt")
        self.fail("--add", self.llama, "-o", out, says="is not an importance matrix")
        self.fail("--add", self.text, "-o", out, says="is not an importance matrix")
        self.fail("-m", self.llama, says="give a text to measure with -f", code=2)
        self.assertFalse(out.exists())

    def test_importance_changes_the_weights(self):
        importance = self.dir / "importance.gguf"
        self.measure(importance, "-f", self.text)
        tokens = self.dir / "tokens.json"
        tokens.write_text(weft("tokenize", "-m", self.llama, "--json", TEXT[:400]).text)

        def logits(model):
            out = self.dir / "logits.f32"
            result = weft("logits", "-m", model, "--tokens", tokens, "--out", out)
            self.assertEqual(result.code, 0, result)
            return read_floats(out)

        def distance(made):
            return sum((a - b) ** 2 for a, b in zip(logits(self.llama), logits(made)))
        for kind in ("IQ2_XXS", "IQ3_S", "Q3_K_M", "Q4_K_S"):
            without, with_it = self.dir / "without.gguf", self.dir / "with.gguf"
            done = quantize("--type", kind, "--threads", 2, self.llama, without)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("importance", done.stderr)
            done = quantize("--type", kind, "--imatrix", importance, self.llama, with_it)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("29 weighed by importance", done.stderr)
            self.assertLess(distance(with_it), distance(without), kind)
            self.assertIn(f'quantize.imatrix.file = "{importance}"', weft("inspect", with_it).text)
        done = quantize("--imatrix", self.text, self.llama, self.dir / "x.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^weft-quantize: \S+text\.txt is not an importance matrix")


if __name__ == "__main__":
    unittest.main()
