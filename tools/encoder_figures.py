#!/usr/bin/env python3
"""Computes the vectors of encoders' GGUF files with numpy, from the models' papers, in double.

  tools/encoder_figures.py MODEL.gguf TOKENS.json     vectors of these lists of token ids
  tools/encoder_figures.py --figures MAKE_MODEL       tests/conformance/encoder_figures.json
  tools/encoder_figures.py --words MAKE_MODEL         tests/conformance/word_piece_figures.json

Prints JSON: for each list some of the rows after the last norm, and the pooled vector, or the
scores of a model with a classifier. It shares no code with Weft, so that each can check the
other. --words: the tokens that the package tokenizers makes of some texts. MAKE_MODEL: the
program weft-make-model. Needs the packages numpy and gguf.
"""

import json
import math
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader, dequantize


class File:
    """Metadata and tensors, as doubles."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.meta = {key: field.contents() for key, field in reader.fields.items()}
        self.tensors = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64).reshape(
            tuple(int(n) for n in t.shape[::-1])) for t in reader.tensors}
        self.architecture = self.meta["general.architecture"]

    def get(self, key, otherwise=None):
        return self.meta.get(f"{self.architecture}.{key}", otherwise)

    def has(self, name):
        return name in self.tensors

    def linear(self, name, x):
        y = x @ self.tensors[name + ".weight"].T
        return y + self.tensors[name + ".bias"] if self.has(name + ".bias") else y

    def layer_norm(self, name, x):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        y = (x - mean) / np.sqrt(variance + self.get("attention.layer_norm_epsilon"))
        y = y * self.tensors[name + ".weight"]
        return y + self.tensors[name + ".bias"] if self.has(name + ".bias") else y

    def rms_norm(self, name, x):
        mean_square = (x ** 2).mean(-1, keepdims=True)
        epsilon = self.get("attention.layer_norm_rms_epsilon")
        return x / np.sqrt(mean_square + epsilon) * self.tensors[name + ".weight"]


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1 + np.exp(-x))


def rotate(x, base):
    """(tokens, heads, values): pairs of the two halves."""
    n, _, width = x.shape
    angles = np.outer(np.arange(n), base ** (-np.arange(0, width, 2) / width))
    cosines, sines = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :width // 2], x[..., width // 2:]
    return np.concatenate([first * cosines - second * sines, first * sines + second * cosines], -1)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, bias):
    """(tokens, heads, values) each; bias: (heads, tokens, tokens) or (tokens, tokens)."""
    repeat = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, repeat, 1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[2]) + bias
    return np.einsum("hqk,khd->qhd", softmax(scores), v).reshape(q.shape[0], -1)


def projections(file, layer, x):
    n_heads = file.get("attention.head_count")
    n_kv = file.get("attention.head_count_kv", n_heads)
    width = file.get("attention.key_length", file.get("embedding_length") // n_heads)
    name = f"blk.{layer}.attn_"
    if file.has(name + "qkv.weight"):
        q, k, v = np.split(file.linear(name + "qkv", x),
                           [n_heads * width, (n_heads + n_kv) * width], -1)
    else:
        q, k, v = (file.linear(name + part, x) for part in "qkv")
    return q, k, v, n_heads, n_kv, width


def heads(x, n, width):
    return x.reshape(len(x), n, width)


def distances(n):
    return np.abs(np.arange(n)[:, None] - np.arange(n)[None])


def window(n, size):
    return np.where(distances(n) <= size // 2, 0.0, -np.inf)


def alibi(n, n_heads):
    """As in "Train Short, Test Long", both ways."""
    def of_power(count):
        start = 2 ** (-2 ** -(math.log2(count) - 3))
        return [start ** (i + 1) for i in range(count)]
    whole = 2 ** math.floor(math.log2(n_heads))
    slopes = of_power(whole)
    if whole < n_heads:
        slopes += of_power(2 * whole)[0::2][:n_heads - whole]
    return -np.array(slopes)[:, None, None] * distances(n)


def token_types(file, tokens):
    """Those of a pair, where the model takes pairs."""
    if file.get("pooling_type") != 4:
        return [0] * len(tokens)
    separator = file.meta.get("tokenizer.ggml.seperator_token_id", 102)
    most = len(file.tensors["token_types.weight"]) - 1
    seen, types = 0, []
    for token in tokens:
        types.append(min(seen, most))
        seen += token == separator
    return types


def bert(file, tokens):
    """bert, nomic-bert, jina-bert-v2: norms after the sums."""
    kind = file.architecture
    x = file.tensors["token_embd.weight"][tokens]
    if file.has("token_types.weight"):
        x = x + file.tensors["token_types.weight"][token_types(file, tokens)]
    if kind == "bert":
        x = x + file.tensors["position_embd.weight"][:len(tokens)]
    x = file.layer_norm("token_embd_norm", x)
    for layer in range(file.get("block_count")):
        name = f"blk.{layer}."
        q, k, v, n_heads, n_kv, width = projections(file, layer, x)
        if file.has(name + "attn_q_norm.weight"):
            q, k = file.layer_norm(name + "attn_q_norm", q), file.layer_norm(name + "attn_k_norm", k)
        q, k, v = heads(q, n_heads, width), heads(k, n_kv, width), heads(v, n_kv, width)
        if kind == "nomic-bert":
            base = file.get("rope.freq_base", 10000.0)
            q, k = rotate(q, base), rotate(k, base)
        bias = alibi(len(tokens), n_heads) if kind == "jina-bert-v2" else 0
        attended = file.linear(name + "attn_output", attend(q, k, v, bias))
        x = file.layer_norm(name + "attn_output_norm", x + attended)
        if kind == "bert":
            inner = gelu(file.linear(name + "ffn_up", x))
        elif file.has(name + "ffn_gate.weight"):
            activation = silu if kind == "nomic-bert" else gelu
            inner = activation(file.linear(name + "ffn_gate", x)) * file.linear(name + "ffn_up", x)
        else:
            gate, up = np.split(file.linear(name + "ffn_up", x), 2, -1)
            inner = gelu(gate) * up
        x = file.layer_norm(name + "layer_output_norm", x + file.linear(name + "ffn_down", inner))
    return x


def modern_bert(file, tokens):
    x = file.layer_norm("token_embd_norm", file.tensors["token_embd.weight"][tokens])
    base = file.get("rope.freq_base")
    local_base = file.get("rope.freq_base_swa", base)
    for layer in range(file.get("block_count")):
        name = f"blk.{layer}."
        local = layer % 3 != 0
        h = file.layer_norm(name + "attn_norm", x) if file.has(name + "attn_norm.weight") else x
        q, k, v, n_heads, n_kv, width = projections(file, layer, h)
        q, k = (rotate(heads(a, n, width), local_base if local else base)
                for a, n in ((q, n_heads), (k, n_kv)))
        bias = window(len(tokens), file.get("attention.sliding_window")) if local else 0
        x = x + file.linear(name + "attn_output", attend(q, k, heads(v, n_kv, width), bias))
        gate, up = np.split(file.linear(name + "ffn_up", file.layer_norm(name + "ffn_norm", x)), 2, -1)
        x = x + file.linear(name + "ffn_down", gelu(gate) * up)
    return file.layer_norm("output_norm", x)


def gemma_embedding(file, tokens):
    x = file.tensors["token_embd.weight"][tokens] * math.sqrt(file.get("embedding_length"))
    for layer in range(file.get("block_count")):
        name = f"blk.{layer}."
        local = layer % 6 < 5
        q, k, v, n_heads, n_kv, width = projections(file, layer, file.rms_norm(name + "attn_norm", x))
        q = file.rms_norm(name + "attn_q_norm", heads(q, n_heads, width))
        k = file.rms_norm(name + "attn_k_norm", heads(k, n_kv, width))
        base = file.get("rope.freq_base_swa", 10000.0) if local else file.get("rope.freq_base")
        bias = window(len(tokens), file.get("attention.sliding_window")) if local else 0
        y = attend(rotate(q, base), rotate(k, base), heads(v, n_kv, width), bias)
        x = x + file.rms_norm(name + "post_attention_norm", file.linear(name + "attn_output", y))
        h = file.rms_norm(name + "ffn_norm", x)
        inner = gelu_tanh(file.linear(name + "ffn_gate", h)) * file.linear(name + "ffn_up", h)
        x = x + file.rms_norm(name + "post_ffw_norm", file.linear(name + "ffn_down", inner))
    return file.rms_norm("output_norm", x)


FORWARDS = {"bert": bert, "nomic-bert": bert, "jina-bert-v2": bert, "modern-bert": modern_bert,
            "gemma-embedding": gemma_embedding}


def pooled(file, rows):
    """Pools by pooling_type, then applies the layers that follow the pooling."""
    how = file.get("pooling_type", 0)
    if how == 4:
        by_mean = file.architecture == "modern-bert" and file.get("classifier.pooling_type", 1) == 1
        y = rows.mean(0) if by_mean else rows[0]
        if file.has("cls.weight"):
            y = file.linear("cls", y)
            y = gelu(y) if file.architecture == "modern-bert" else np.tanh(y)
            if file.has("cls.norm.weight"):
                y = file.layer_norm("cls.norm", y)
        return file.linear("cls.output", y)
    y = {1: rows.mean(0), 2: rows[0], 3: rows[-1]}.get(how)
    for name in ("dense_2", "dense_3"):
        if y is not None and file.has(name + ".weight"):
            y = file.linear(name, y)
    return y


def round_all(values):
    return [float(f"{v:.7g}") for v in values]


def texts_of(file, lists, n_values):
    texts = []
    for tokens in lists:
        rows = FORWARDS[file.architecture](file, tokens)
        vector = pooled(file, rows)
        picked = sorted({0, len(tokens) // 2, len(tokens) - 1})
        texts.append({"tokens": tokens,
                      "rows": [{"token": i, "values": round_all(rows[i][:n_values])}
                               for i in picked],
                      "vector": None if vector is None else round_all(vector)})
    return texts


def lists_of(context):
    """Texts of some lengths, and a pair."""
    random = np.random.default_rng(1)
    lists = [[2, 3]]
    for n in (7, 64, 65, min(150, context)):
        lists.append([2] + [int(t) for t in random.integers(5, 512, n - 2)] + [3])
    return lists + [[2, 40, 41, 3, 60, 61, 62, 3]]


def figures(make_model):
    names = ["tiny-bert", "tiny-nomic-bert", "tiny-jina-bert-v2", "tiny-modern-bert",
             "tiny-gemma-embedding", "tiny-reranker"]
    by_name = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.gguf"
            subprocess.run([make_model, "--shape", name, "--type", "F32", "--out", path],
                           check=True, stderr=subprocess.DEVNULL)
            file = File(path)
            by_name[name] = texts_of(file, lists_of(file.get("context_length")), 8)
    return by_name


TEXTS = ["", "  ", "the loom", "The Loom's WARP,weft!", "tab\tand\nline", "caf\u00e9 na\u00efve \u00c9COLE",
         "e\u0301 combining", "stra\u00dfe \u0130stanbul", "\u65e5\u672c\u8a9e text", "a\u4e2db",
         "\u041f\u0440\u0438\u0432\u0435\u0442", "x=y+z; [CLS] #hash ##no", "\u201cquoted\u201d \u2014 dash\u2026",
         "zero\u200bwidth soft\u00adhyphen \ufeffbom", "nul\u0000ctrl\u0007", "emoji \U0001f600!",
         "w" * 150, "don't can't", "$5.00 50% a@b.c", "\uff26\uff35\uff2c\uff2c", "\u00a0nbsp\u3000wide",
         "\u1e9e \ufb01", "a\u0300\u0316\u0301"]


def word_pieces(make_model):
    """By the package tokenizers, over the vocabulary of a made model."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.gguf"
        subprocess.run([make_model, "--shape", "tiny-bert", "--out", path, "--type", "F32"],
                       check=True, stderr=subprocess.DEVNULL)
        tokens = File(path).meta["tokenizer.ggml.tokens"]
    vocabulary = {}
    for i, token in enumerate(tokens):
        marked = token.startswith("\u2581")
        vocabulary[token[1:] if marked else token if i < 5 else "##" + token] = i
    # Here words of any length are taken apart.
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]",
                                           max_input_chars_per_word=1000))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
            for text in TEXTS]


def main():
    if sys.argv[1] == "--figures":
        result = figures(sys.argv[2])
    elif sys.argv[1] == "--words":
        result = word_pieces(sys.argv[2])
    else:
        file = File(sys.argv[1])
        result = texts_of(file, json.load(open(sys.argv[2])), None)
    json.dump(result, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
