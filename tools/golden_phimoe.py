"""Phi 3.5 MoE in float64, by what its authors published (Hugging Face's Phimoe model).

llama.cpp computes it with RMS norms and a plain softmax over all experts; the model has
layer norms, and weighs each of its two experts by a softmax over those that are not chosen
before it and whose logits are within 2 * router_jitter_noise of its own, relatively.
"""

import gguf
import numpy

NEAR = 2 * 0.01


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {t.name: numpy.array(t.data, dtype=numpy.float64) for t in reader.tensors}

    def number(self, key):
        return self.fields["phimoe." + key].contents()

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors.get(name + ".bias", 0.0)

    def norm(self, name, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred ** 2).mean(axis=-1, keepdims=True)
        scaled = centred / numpy.sqrt(variance + self.number("attention.layer_norm_rms_epsilon"))
        return scaled * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]


def rotated(file, x):
    """x: [tokens, heads, values]; the first half of a head's values pairs with the second."""
    n = x.shape[-1] // 2
    divisors = file.tensors["rope_factors_short.weight"]  # contexts here are short
    frequencies = file.number("rope.freq_base") ** (-numpy.arange(n) / n) / divisors
    angles = numpy.arange(len(x))[:, None] * frequencies
    scale = file.number("rope.scaling.attn_factor")
    cosines, sines = scale * numpy.cos(angles)[:, None], scale * numpy.sin(angles)[:, None]
    first, second = x[..., :n], x[..., n:]
    return numpy.concatenate([first * cosines - second * sines, second * cosines + first * sines], -1)


def attended(file, name, x):
    heads, kv_heads = file.number("attention.head_count"), file.number("attention.head_count_kv")
    def part(letter, n):
        return file.linear(f"{name}.attn_{letter}", x).reshape(len(x), n, -1)
    q, k, v = part("q", heads), part("k", kv_heads), part("v", kv_heads)
    q, k = rotated(file, q), rotated(file, k)
    k, v = (numpy.repeat(rows, heads // kv_heads, axis=1) for rows in (k, v))
    scores = numpy.einsum("ihd,jhd->hij", q, k) / numpy.sqrt(q.shape[-1])
    scores[:, numpy.triu(numpy.ones(scores.shape[1:], dtype=bool), 1)] = -numpy.inf
    weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return file.linear(name + ".attn_output", numpy.einsum("hij,jhd->ihd", weights, v).reshape(len(x), -1))


def choices(logits):
    """Two experts and their weights."""
    open_logits = logits.copy()
    for _ in range(2):
        best = int(open_logits.argmax())
        top = open_logits[best]
        far = (top - logits) / numpy.maximum(abs(logits), top) > NEAR
        near = numpy.where(far, -numpy.inf, open_logits)
        yield best, 1 / numpy.exp(near - top).sum()
        open_logits[best] = -numpy.inf


def mixed(file, name, x):
    gate, up, down = (file.tensors[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    out = numpy.zeros_like(x)
    for row, logits in enumerate(file.linear(name + ".ffn_gate_inp", x)):
        for expert, weight in choices(logits):
            inner = gate[expert] @ x[row]
            inner = inner / (1 + numpy.exp(-inner)) * (up[expert] @ x[row])
            out[row] += weight * (down[expert] @ inner)
    return out


def logits(path, tokens):
    file = File(path)
    x = file.tensors["token_embd.weight"][tokens]
    for layer in range(file.number("block_count")):
        name = f"blk.{layer}"
        x = x + attended(file, name, file.norm(name + ".attn_norm", x))
        x = x + mixed(file, name, file.norm(name + ".ffn_norm", x))
    return file.linear("output", file.norm("output_norm", x)).astype(numpy.float32)
