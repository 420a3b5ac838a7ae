#!/usr/bin/env python3
"""weft embed, and embeddings, reranking and refusals over HTTP with encoders of random weights."""

import base64
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from weft_process import add_metadata, command_line, make_model, weft

TEXTS = ["the warp stays", "the weft travels", "bread, and \"salt\"", "a", "x" * 40]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_npy(path):
    raw = pathlib.Path(path).read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00"
    (length,) = struct.unpack_from("<H", raw, 8)
    assert (10 + length) % 64 == 0
    header = eval(raw[10:10 + length], {"__builtins__": {}}, {})  # a literal of ours
    assert header["descr"] == "<f4" and not header["fortran_order"]
    rows, width = header["shape"]
    values = struct.unpack(f"<{rows * width}f", raw[10 + length:])
    return [list(values[i * width:(i + 1) * width]) for i in range(rows)]


class Server:
    """On a port of its own choice."""

    def __init__(self, *args):
        self.process = subprocess.Popen(command_line("serve", "--port", "0", *args),
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "listening on " in line:
                self.url = line.split("listening on ")[1].split()[0]
                return
        raise AssertionError("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait(60)
        self.process.stderr.close()

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


class EmbedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.bert = make_model(cls.dir / "bert.gguf", "tiny-bert")
        cls.reranker = make_model(cls.dir / "reranker.gguf", "tiny-reranker")
        cls.llama = make_model(cls.dir / "llama.gguf")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def embed(self, *args, stdin=""):
        result = weft("embed", *args, stdin=stdin)
        self.assertEqual(result.code, 0, result)
        return result

    def test_a_line_is_a_text_and_its_vector_a_line(self):
        lines = self.embed("-m", self.bert, "-", stdin="\n".join(TEXTS) + "\n").json_lines
        self.assertEqual([line["index"] for line in lines], list(range(len(TEXTS))))
        for line in lines:
            self.assertEqual(len(line["embedding"]), 96)
            self.assertAlmostEqual(math.fsum(v * v for v in line["embedding"]), 1, places=5)
            self.assertGreater(line["tokens"], 2)
        file = self.dir / "texts.txt"
        file.write_text("".join(json.dumps({"text": text}) + "\r\n" for text in TEXTS))
        self.assertEqual(self.embed("-m", self.bert, file).json_lines, lines)
        for text, line in zip(TEXTS, lines):
            alone = self.embed("-m", self.bert, "--threads", 1, "-", stdin=text).json
            self.assertEqual(alone["embedding"], line["embedding"])

    def test_a_matrix_for_numpy(self):
        lines = self.embed("-m", self.bert, "-", stdin="\n".join(TEXTS)).json_lines
        out = self.dir / "out.npy"
        self.assertEqual(self.embed("-m", self.bert, "--npy", out, "-", stdin="\n".join(TEXTS)).out,
                         b"")
        rows = read_npy(out)
        self.assertEqual(len(rows), len(TEXTS))
        for row, line in zip(rows, lines):
            self.assertEqual(row, [struct.unpack("<f", struct.pack("<f", v))[0]
                                   for v in line["embedding"]])

    def test_dimensions_lengths_and_poolings(self):
        cut = self.embed("-m", self.bert, "--dimensions", 8, "-", stdin="abc").json["embedding"]
        self.assertEqual(len(cut), 8)
        self.assertAlmostEqual(math.fsum(v * v for v in cut), 1, places=5)
        raw = self.embed("-m", self.bert, "--raw", "-", stdin="abc").json["embedding"]
        self.assertGreater(math.fsum(v * v for v in raw), 2)
        each = self.embed("-m", self.llama, "--pooling", "none", "-", stdin="abc").json
        self.assertEqual(len(each["embedding"]), each["tokens"])
        last = self.embed("-m", self.llama, "--pooling", "last", "--raw", "-", stdin="abc").json
        self.assertEqual(last["embedding"], each["embedding"][-1])

    def test_what_a_model_is_for(self):
        self.assertIn("vectors of texts (embeddings; pooling mean)",
                      weft("inspect", self.bert).text)
        self.assertEqual(weft("inspect", self.reranker, "--json").json["purpose"],
                         "scores of pairs of texts (reranking)")
        self.assertEqual(weft("inspect", self.llama, "--json").json["purpose"], "text")
        for args, says in ((("embed", "-m", self.llama, "-"), "--pooling"),
                           (("embed", "-m", self.reranker, "-"), "reranking"),
                           (("embed", "-m", self.bert, "--dimensions", 97, "-"), "96 values"),
                           (("embed", "-m", self.bert, "--ctx", 301, "-"), "learned: 300"),
                           (("embed", "-m", self.bert, self.dir / "none"), "cannot read"),
                           (("run", "-m", self.bert, "hello"), "writes no text")):
            result = weft(*args, stdin="x")
            self.assertEqual(result.code, 1, result)
            self.assertIn(says, result.err)
        long = weft("embed", "-m", self.bert, "-", stdin="ok\n" + "! " * 400)
        self.assertEqual(long.code, 1)
        self.assertIn("text 2: ", long.err)

    def test_over_http(self):
        lines = self.embed("-m", self.bert, "-", stdin="\n".join(TEXTS)).json_lines
        with Server("-m", self.bert) as server:
            status, answer = server.post("/v1/embeddings", {"input": TEXTS})
            self.assertEqual(status, 200)
            self.assertEqual([entry["embedding"] for entry in answer["data"]],
                             [line["embedding"] for line in lines])
            status, answer = server.post("/v1/chat/completions",
                                         {"messages": [{"role": "user", "content": "hi"}]})
            self.assertEqual(status, 400)
            self.assertIn("writes no text", answer["error"]["message"])
        with Server("-m", self.reranker) as server:
            status, answer = server.post("/v1/rerank", {"query": "weft", "documents": TEXTS})
            self.assertEqual(status, 200)
            self.assertEqual(sorted(result["index"] for result in answer["results"]),
                             list(range(len(TEXTS))))

    def test_pairs_have_the_separators_of_the_tokenizer(self):
        """BERT's have one between the texts, RoBERTa's two."""
        roberta = {"tokenizer.ggml.eos_token_id": 3, "tokenizer.ggml.add_eos_token": True,
                   "tokenizer.ggml.add_sep_token": True}
        pairs = add_metadata(self.reranker, roberta, self.dir / "pairs.gguf")
        counts = []
        for model in (self.reranker, pairs):
            with Server("-m", model) as server:
                status, answer = server.post("/v1/rerank", {"query": "a", "documents": ["b", "c"]})
                self.assertEqual(status, 200, answer)
                counts.append(answer["usage"]["prompt_tokens"])
        self.assertEqual(counts, [2 * (2 + 3), 2 * (2 + 4)])

    def test_a_model_of_text_does_both(self):
        with Server("-m", self.llama, "--pooling", "mean") as server:
            status, answer = server.post("/v1/embeddings", {"input": TEXTS})
            self.assertEqual(status, 200)
            self.assertEqual(len(answer["data"]), len(TEXTS))
            status, _ = server.post("/v1/completions", {"prompt": "The loom", "max_tokens": 3})
            self.assertEqual(status, 200)

    def test_a_vector_for_each_token(self):
        each = self.embed("-m", self.llama, "--pooling", "none", "-", stdin="abc").json["embedding"]
        with Server("-m", self.llama, "--pooling", "none") as server:
            for path, field in (("/embedding", "content"), ("/embeddings", "input")):
                self.assertEqual(server.post(path, {field: "abc"}),
                                 (200, [{"index": 0, "embedding": each}]), path)
            status, answer = server.post("/v1/embeddings", {"input": "abc"})
            self.assertEqual(status, 400)
            self.assertIn("/embedding", answer["error"]["message"])


class PromptEmbedsTest(unittest.TestCase):
    """Vectors in place of tokens: what the model's own table has for them says the same."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.model = make_model(cls.dir / "llama.gguf")
        cls.tokens = weft("tokenize", "-m", cls.model, "--json", "--add-bos",
                          "The warp stays").json["tokens"]
        table = cls.dir / "table.f32"
        assert weft("inspect", cls.model, "--tensor", "token_embd.weight", "--out", table).code == 0
        raw = table.read_bytes()
        tensors = weft("inspect", cls.model, "--json", "--tensors").json["tensors"]
        width = {tensor["name"]: tensor["dims"] for tensor in tensors}["token_embd.weight"][0]
        rows = b"".join(raw[4 * width * token:4 * width * (token + 1)] for token in cls.tokens)
        shape = f"({len(cls.tokens)}, {width})"
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        cls.matrix = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + rows
        cls.npy = cls.dir / "rows.npy"
        cls.npy.write_bytes(cls.matrix)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_weft(self, *args):
        result = weft("run", "-m", self.model, "--temp", 0, "-n", 12, "--json", *args)
        self.assertEqual(result.code, 0, result)
        return result.json

    def test_run(self):
        said = self.run_weft("--raw", "The warp stays")
        by_rows = self.run_weft("--raw", "--embeds", self.npy)
        self.assertEqual(by_rows["tokens"], said["tokens"])
        self.assertEqual(by_rows["prompt_tokens"], len(self.tokens))
        more = self.run_weft("--raw", "--embeds", self.npy, " still")
        self.assertGreater(more["prompt_tokens"], len(self.tokens))
        broken = self.dir / "broken.npy"
        broken.write_bytes(self.matrix[:-4])
        for path, says in ((broken, "bytes of numbers"), (self.model, "neither a NumPy array"),
                           (self.dir / "none", "cannot")):
            result = weft("run", "-m", self.model, "--embeds", path)
            self.assertEqual(result.code, 1, result)
            self.assertIn(says, result.err)

    def test_over_http(self):
        body = {"max_tokens": 8, "temperature": 0, "logprobs": 1}
        matrix = base64.b64encode(self.matrix).decode()
        with Server("-m", self.model, "--enable-prompt-embeds") as server:
            by_tokens = server.post("/v1/completions", {"prompt": self.tokens, **body})
            by_rows = server.post("/v1/completions", {"prompt_embeds": matrix, **body})
            self.assertEqual(by_rows[0], 200, by_rows)
            self.assertEqual(by_rows[1]["choices"], by_tokens[1]["choices"])
            long = b"\x93NUMPY" + bytes(3 << 20)  # larger than a body of text may be
            status, answer = server.post("/v1/completions",
                                         {"prompt_embeds": base64.b64encode(long).decode()})
            self.assertIn(status, (400, 413), answer)
        with Server("-m", self.model) as server:
            status, answer = server.post("/v1/completions", {"prompt_embeds": matrix})
            self.assertEqual(status, 400)
            self.assertIn("--enable-prompt-embeds", answer["error"]["message"])


class ConvertTest(unittest.TestCase):
    """tools/convert_encoder.py, on a model of its own making."""

    @classmethod
    def setUpClass(cls):
        try:
            import numpy
        except ImportError:
            raise unittest.SkipTest("numpy is not installed")
        cls.numpy = numpy

    def write(self, folder, classifier):
        random = self.numpy.random.default_rng(3)
        width, inner, vocabulary = 32, 64, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
        shapes = {"embeddings.word_embeddings.weight": (7, width),
                  "embeddings.position_embeddings.weight": (16, width),
                  "embeddings.token_type_embeddings.weight": (2, width),
                  "embeddings.LayerNorm.gamma": (width,), "embeddings.LayerNorm.beta": (width,),
                  "pooler.dense.weight": (width, width), "pooler.dense.bias": (width,)}
        layer = "encoder.layer.0."
        for name, out, n_in in (("attention.self.query", width, width),
                                ("attention.self.key", width, width),
                                ("attention.self.value", width, width),
                                ("attention.output.dense", width, width),
                                ("intermediate.dense", inner, width), ("output.dense", width, inner)):
            shapes[f"{layer}{name}.weight"] = (out, n_in)
            shapes[f"{layer}{name}.bias"] = (out,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{layer}{name}.weight"] = shapes[f"{layer}{name}.bias"] = (width,)
        if classifier:
            shapes["classifier.weight"], shapes["classifier.bias"] = (1, width), (1,)
        prefix = "bert." if classifier else ""
        head, body = {}, b""
        for name, shape in shapes.items():
            raw = random.normal(size=shape).astype("<f4").tobytes()
            plain = name.startswith("classifier")
            head[name if plain else prefix + name] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
            body += raw
        text = json.dumps(head).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        (folder / "tokenizer_config.json").write_text("{}")
        config = {"model_type": "bert", "vocab_size": 7, "max_position_embeddings": 16,
                  "hidden_size": width, "num_hidden_layers": 1, "intermediate_size": inner,
                  "num_attention_heads": 2, "layer_norm_eps": 1e-12, "type_vocab_size": 2}
        (folder / "config.json").write_text(json.dumps(config))

    def convert(self, folder, kind):
        out = folder / f"{kind}.gguf"
        subprocess.run([sys.executable, ROOT / "tools/convert_encoder.py", "--type", kind, folder,
                        out], check=True, capture_output=True)
        return out

    def test_encoders_and_classifiers(self):
        for classifier in (False, True):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                self.write(folder, classifier)
                exact = self.convert(folder, "f32")
                result = weft("inspect", exact, "--json")
                self.assertEqual(result.code, 0, result)
                expected = "scores of pairs" if classifier else "pooling cls"
                self.assertIn(expected, result.json.get("purpose", str(result.json)))
                ids = weft("tokenize", "-m", exact, "--json", "--add-bos", "ab").json["tokens"]
                self.assertEqual(ids, [2, 5, 6, 3])
                if classifier:
                    continue
                vectors = [weft("embed", "-m", self.convert(folder, kind), "-", stdin="ab a").json
                           for kind in ("f32", "f16", "q8_0")]
                for other in vectors[1:]:
                    dot = math.fsum(a * b for a, b in zip(vectors[0]["embedding"],
                                                          other["embedding"]))
                    self.assertGreater(dot, 0.999)


if __name__ == "__main__":
    unittest.main()
