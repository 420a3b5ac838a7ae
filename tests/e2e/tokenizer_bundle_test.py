#!/usr/bin/env python3
"""tokenizer.json as another program reads it: the same ids as the model's own tokenizer.

A small reader of the format, written from its description and not from Weft, encodes
the reference texts of each golden vocabulary with the file that Weft wrote.
"""

import base64
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata
import unittest
import zipfile

WRITE = os.environ["WEFT_WRITE_TOKENIZER_BUNDLE"]
GOLDENS = pathlib.Path(__file__).resolve().parents[2].parent / "shared/goldens/tokenizers"
SPACES = "\t\n\v\f\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@functools.cache
def property_class(name):
    """The characters of a general category, as Python's re wants them in brackets."""
    ranges, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(name)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(ranges)


def python_pattern(pattern):
    """The same pattern for re, which knows neither \\p nor the Unicode meaning of \\s."""
    out, i, in_brackets = "", 0, False
    while i < len(pattern):
        c = pattern[i]
        named = re.match(r"\\p\{(\w+)\}", pattern[i:])
        if named or pattern.startswith(("\\s", "\\S"), i):
            inside = property_class(named[1]) if named else SPACES
            negated = pattern.startswith("\\S", i)
            if in_brackets:
                assert not negated or pattern[i - 2:i] == "\\s", pattern
                out += "\\U00000000-\\U0010ffff" if negated else inside
            else:
                out += f"[{'^' if negated else ''}{inside}]"
            i += len(named[0]) if named else 2
            continue
        if c == "\\":
            out += pattern[i:i + 2]
            i += 2
            continue
        if c in "[]":
            in_brackets = c == "["
        out += "\\" + c if in_brackets and c in "&~|" else c
        i += 1
    return re.compile(out)


def byte_level():
    """The printable character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    chars = {b: chr(b) for b in printable}
    for n, b in enumerate(b for b in range(256) if b not in chars):
        chars[b] = chr(256 + n)
    return chars


class Reader:
    """Encodes as tokenizer.json says."""

    def __init__(self, spec):
        self.spec = spec
        model = spec["model"]
        assert model["type"] == "BPE", model["type"]
        self.vocab = model["vocab"]
        self.fallback = model["byte_fallback"]
        self.whole_words = model["ignore_merges"]
        self.unknown = model["unk_token"]
        pairs = (m.split(" ") if isinstance(m, str) else m for m in model["merges"])
        self.ranks = {}
        for rank, (left, right) in enumerate(pairs):
            for text in (left, right, left + right):
                assert text in self.vocab, (left, right)
            self.ranks.setdefault((left, right), rank)
        added = sorted(spec["added_tokens"], key=lambda t: -len(t["content"]))
        self.added = {t["content"]: t for t in added}
        for text, token in self.added.items():
            assert self.vocab[text] == token["id"], token
        self.added_pattern = re.compile("|".join(map(re.escape, self.added)) or r"(?!)")
        self.steps = (spec["pre_tokenizer"] or {"pretokenizers": []})["pretokenizers"]
        self.patterns = [python_pattern(s["pattern"]["Regex"]) if s["type"] == "Split" else None
                         for s in self.steps]
        self.bytes = byte_level()

    def encode(self, text):
        ids, rest = [], 0
        for match in self.added_pattern.finditer(text):
            token = self.added[match[0]]
            before = text[rest:match.start()]
            ids += self.encode_plain(before.rstrip() if token["lstrip"] else before)
            ids.append(token["id"])
            rest = match.end()
            while token["rstrip"] and rest < len(text) and text[rest].isspace():
                rest += 1
        ids += self.encode_plain(text[rest:])
        if self.spec["post_processor"] is None:
            return ids
        whole = []
        for part in self.spec["post_processor"]["single"]:
            if "SpecialToken" in part:
                special = self.spec["post_processor"]["special_tokens"][part["SpecialToken"]["id"]]
                whole += special["ids"]
            else:
                assert part["Sequence"]["id"] == "A"
                whole += ids
        return whole

    def encode_plain(self, text):
        if not text:
            return []
        pieces = [self.normalize(text, self.spec["normalizer"])]
        for step, pattern in zip(self.steps, self.patterns):
            if step["type"] == "Split":
                assert step["behavior"] == "Isolated" and not step["invert"]
                pieces = [p for piece in pieces for p in self.cut(piece, pattern)]
            else:
                assert step["type"] == "ByteLevel" and not step["use_regex"]
                pieces = ["".join(self.bytes[b] for b in p.encode()) for p in pieces]
        return [i for piece in pieces for i in self.merge(piece)]

    def normalize(self, text, normalizer):
        if normalizer is None:
            return text
        if normalizer["type"] == "Sequence":
            for step in normalizer["normalizers"]:
                text = self.normalize(text, step)
            return text
        if normalizer["type"] == "Prepend":
            return normalizer["prepend"] + text
        assert normalizer["type"] == "Replace"
        return text.replace(normalizer["pattern"]["String"], normalizer["content"])

    @staticmethod
    def cut(piece, pattern):
        rest = 0
        for match in pattern.finditer(piece):
            if match.start() > rest:
                yield piece[rest:match.start()]
            if match[0]:
                yield match[0]
            rest = match.end()
        if rest < len(piece):
            yield piece[rest:]

    def merge(self, word):
        if self.whole_words and word in self.vocab:
            return [self.vocab[word]]
        parts = list(word)
        ranks = [self.ranks.get(pair, 1 << 40) for pair in zip(parts, parts[1:])]
        while ranks and (best := min(ranks)) < 1 << 40:
            i = ranks.index(best)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
            del ranks[i]
            for j in (i - 1, i):
                if 0 <= j < len(ranks):
                    ranks[j] = self.ranks.get((parts[j], parts[j + 1]), 1 << 40)
        return [i for part in parts for i in self.ids_of(part)]

    def ids_of(self, part):
        if part in self.vocab:
            return [self.vocab[part]]
        if self.fallback:
            names = [f"<0x{b:02X}>" for b in part.encode()]
            if all(name in self.vocab for name in names):
                return [self.vocab[name] for name in names]
        return [self.vocab[self.unknown]] if self.unknown is not None else []


class TokenizerBundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def read_bundle(self, model):
        path = pathlib.Path(self.folder.name) / "bundle.zip"
        subprocess.run([WRITE, str(model), str(path)], check=True, timeout=120)
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip())
            names = ["tokenizer.json", "tokenizer_config.json"]
            self.assertEqual(archive.namelist(), [*names, "config.json"])
            return [json.loads(archive.read(name)) for name in names]

    def check(self, name):
        model = GOLDENS / f"ggml-vocab-{name}.gguf"
        if not model.exists():
            self.skipTest(f"{model} is not there")
        spec, config = self.read_bundle(model)
        self.assertEqual(config["chat_template"], "{{ bos_token }}")
        reader = Reader(spec)
        golden = json.loads((GOLDENS / f"{name}.extra.json").read_text())
        for key in ("bos", "eos"):
            if golden[key] >= 0:
                self.assertEqual(spec["model"]["vocab"][config[key + "_token"]], golden[key])
        self.assertEqual(config["add_bos_token"], golden["add_bos"])
        self.assertGreater(len(golden["cases"]), 100)
        for case in golden["cases"]:
            text = base64.b64decode(case["text_b64"]).decode()
            self.assertEqual(reader.encode(text), case["ids_add_special_parse_special"], repr(text))

    def test_gpt_2(self):
        self.check("gpt-2")

    def test_falcon(self):
        self.check("falcon")

    def test_starcoder(self):
        self.check("starcoder")

    def test_deepseek_llm(self):
        self.check("deepseek-llm")

    def test_llama_spm(self):
        self.check("llama-spm")

    def test_phi_3(self):
        self.check("phi-3")


if __name__ == "__main__":
    unittest.main()
