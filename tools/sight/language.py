"""The language model that the encoder speaks to: SmolLM2's weights, frozen, and what it pays for
answers that it does not give. Prompts are cut into tokens by Weft."""

import json
import subprocess
from functools import partial

import gguf
import jax
import jax.numpy as jnp
import numpy as np

BEFORE = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
          "<|im_end|>\n<|im_start|>user\n<fake_token_around_image><global-img>")
AFTER = "<fake_token_around_image>"
_ASKED = "<|im_end|>\n<|im_start|>assistant\n"
_END = "<|im_end|>"
BRANCHES = 3  # questions about one picture, which do not see each other


class Tokens:
    """Texts as tokens, each cut once."""

    def __init__(self, weft, model):
        self.command = [weft, "tokenize", "-m", model, "--json", "-"]
        self.known = {}

    def of(self, text):
        if text not in self.known:
            cut = subprocess.run(self.command, input=text, check=True, capture_output=True, text=True)
            self.known[text] = json.loads(cut.stdout)["tokens"]
        return self.known[text]

    def turn(self, question):
        """The tokens that follow a picture, and how many of them are the answer."""
        answer = self.of(question.answer + _END)
        return self.of(AFTER + question.text + _ASKED)[len(self.of(AFTER)):] + answer, len(answer)


def read(path):
    """The weights of a GGUF file in F32, those of all layers in one array, and its numbers."""
    reader = gguf.GGUFReader(path)

    def number(name):
        return reader.fields["llama." + name].contents()

    numbers = {"layers": number("block_count"), "heads": number("attention.head_count"),
               "kv_heads": number("attention.head_count_kv"), "base": number("rope.freq_base"),
               "epsilon": number("attention.layer_norm_rms_epsilon")}
    tensors = {t.name: t for t in reader.tensors}

    def values(name):
        tensor = tensors[name]
        return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
             "ffn_up", "ffn_down")
    layers = {name: np.stack([values(f"blk.{i}.{name}.weight").T for i in range(numbers["layers"])])
              for name in names}
    return {"embeddings": values("token_embd.weight"), "norm": values("output_norm.weight"),
            "layers": layers}, numbers


def _norm(x, weight, epsilon):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def _turn(x, positions, base):
    """Ropes over pairs of neighbors; x is (batch, token, head, value)."""
    n = x.shape[-1] // 2
    angles = positions[..., None] * base ** (-np.arange(n, dtype=np.float32) / n)
    cos, sin = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


class Language:
    def __init__(self, path, weft):
        self.weights, self.numbers = read(path)
        self.tokens = Tokens(weft, path)
        self.width = self.weights["embeddings"].shape[1]
        before = np.array([self.tokens.of(BEFORE)])
        self.n_before = before.shape[1]
        causal = np.tril(np.ones((1, self.n_before, self.n_before), bool))
        none = np.zeros((self.numbers["layers"], 1, 0, self.numbers["kv_heads"],
                         self.width // self.numbers["heads"]), np.float32)
        run = jax.jit(partial(_run, numbers=self.numbers))
        _, self.cache = run(self.weights, (none, none), self.weights["embeddings"][before],
                            np.arange(self.n_before)[None].astype(np.float32), causal)
        self.after = np.array(self.tokens.of(AFTER))

    def pack(self, turns, n_rows, length):
        """Token ids, positions, mask and what is learned, for a picture's turns one after the
        other: each sees the picture and itself. `turns`: BRANCHES pairs of Tokens.turn."""
        shared = n_rows + len(self.after)
        ids, at = np.zeros(length, np.int32), np.zeros(length, np.float32)
        part, learned = np.full(length, -1), []
        ids[n_rows:shared], at[:shared], part[:shared] = self.after, np.arange(shared), 0
        n = shared
        for i, (tokens, n_answer) in enumerate(turns):
            end = n + len(tokens)
            ids[n:end], part[n:end] = tokens, i + 1
            at[n:end] = shared + np.arange(len(tokens))
            learned += [(place - 1, ids[place]) for place in range(end - n_answer, end)]
            n = end
        sees = np.tril(np.ones((length, length), bool))
        sees &= (part[None, :] == 0) | (part[None, :] == part[:, None])
        whole = np.concatenate([np.ones((length, self.n_before), bool), sees], 1)
        return ids, at + self.n_before, whole, learned

    def batch(self, asked, n_rows, length, most):
        """Arrays for `loss`: of each picture's questions. `most`: answers' tokens of a picture."""
        packed = [self.pack([self.tokens.turn(q) for q in questions], n_rows, length)
                  for questions in asked]
        places, wanted = np.zeros((2, len(asked), most), np.int32)
        weights = np.zeros((len(asked), most), np.float32)
        for i, (_, _, _, learned) in enumerate(packed):
            for j, (place, token) in enumerate(learned):
                places[i, j], wanted[i, j], weights[i, j] = place, token, 1
        ids, at, sees = (np.stack(column) for column in list(zip(*packed))[:3])
        return ids, at, sees, places, wanted, weights

    def loss(self, weights, cache, rows, batch):
        """Nats per token of the answers, and the share of tokens that would be said."""
        ids, at, sees, places, wanted, counts = batch
        x = weights["embeddings"][ids].at[:, :rows.shape[1]].set(rows)
        x, _ = _run(weights, cache, x, at, sees, numbers=self.numbers)
        x = jnp.take_along_axis(x, places[..., None], 1)
        logs = jax.nn.log_softmax(x @ weights["embeddings"].T, -1)
        told = jnp.take_along_axis(logs, wanted[..., None], -1)[..., 0]
        right = (logs.argmax(-1) == wanted) * counts
        return -(told * counts).sum() / counts.sum(), right.sum() / counts.sum()


def _run(weights, cache, x, at, sees, numbers):
    """The last states after the tokens of the cache, and the keys and values of all."""
    batch, length, width = x.shape
    heads, kv_heads = numbers["heads"], numbers["kv_heads"]
    bias = jnp.where(sees, 0.0, -1e9)[:, None, None]

    def layer(x, item):
        w, keys, values = item

        def known(cached, new):
            return jnp.concatenate([jnp.broadcast_to(cached, (batch, *cached.shape[1:])), new], 1)

        y = _norm(x, w["attn_norm"], numbers["epsilon"])
        q = _turn((y @ w["attn_q"]).reshape(batch, length, heads, -1), at, numbers["base"])
        k = _turn((y @ w["attn_k"]).reshape(batch, length, kv_heads, -1), at, numbers["base"])
        k, v = known(keys, k), known(values, (y @ w["attn_v"]).reshape(batch, length, kv_heads, -1))
        q = q.reshape(batch, length, kv_heads, heads // kv_heads, -1)
        scores = jnp.einsum("btghd,bsgd->bghts", q, k) * q.shape[-1] ** -0.5 + bias
        seen = jnp.einsum("bghts,bsgd->btghd", jax.nn.softmax(scores, -1), v)
        x = x + seen.reshape(batch, length, width) @ w["attn_output"]
        y = _norm(x, w["ffn_norm"], numbers["epsilon"])
        x = x + (jax.nn.silu(y @ w["ffn_gate"]) * (y @ w["ffn_up"])) @ w["ffn_down"]
        return x, (k, v)

    x, known = jax.lax.scan(layer, x, (weights["layers"], *cache))
    return _norm(x, weights["norm"], numbers["epsilon"]), known
