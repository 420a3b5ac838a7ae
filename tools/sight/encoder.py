"""The encoder: a small ViT whose 6 by 6 patches become 2 by 2 rows of embeddings, in the form of
llama.cpp's idefics3 projector (layers that see everything, 3 by 3 patches joined, one product)."""

from collections import namedtuple

import gguf
import jax
import jax.numpy as jnp
import numpy as np

from scenes import SIDE

Shape = namedtuple("Shape", "patch width heads ffn layers factor epsilon",
                   defaults=(8, 128, 4, 512, 3, 3, 1e-6))
SHAPE = Shape()
_MEAN, _DEVIATION = 0.5, 0.5
GRID = SIDE // SHAPE.patch
N_ROWS = (GRID // SHAPE.factor) ** 2


def init(seed, n_out):
    rng = np.random.default_rng(seed)
    n, layers = SHAPE.width, SHAPE.layers

    def matrix(*dims):
        return rng.normal(0, dims[-2] ** -0.5, dims).astype(np.float32)

    def zeros(*dims):
        return np.zeros(dims, np.float32)

    def ones(*dims):
        return np.ones(dims, np.float32)

    blocks = {
        "ln1": ones(layers, n), "ln1_b": zeros(layers, n),
        "qkv": matrix(layers, n, 3 * n), "qkv_b": zeros(layers, 3 * n),
        "out": matrix(layers, n, n) * 0.3, "out_b": zeros(layers, n),
        "ln2": ones(layers, n), "ln2_b": zeros(layers, n),
        "up": matrix(layers, n, SHAPE.ffn), "up_b": zeros(layers, SHAPE.ffn),
        "down": matrix(layers, SHAPE.ffn, n) * 0.3, "down_b": zeros(layers, n),
    }
    return {
        "patch": matrix(SHAPE.patch ** 2 * 3, n), "patch_b": zeros(n),
        "positions": rng.normal(0, 0.3, (GRID ** 2, n)).astype(np.float32),
        "blocks": blocks, "ln": ones(n), "ln_b": zeros(n),
        "fc": matrix(SHAPE.factor ** 2 * n, n_out) * 0.3,
    }


def patches_of(pictures):
    """Values of (picture, patch, color * height * width) from bytes of (picture, y, x, color)."""
    p = SHAPE.patch
    x = (pictures.astype(jnp.float32) / 255 - _MEAN) / _DEVIATION
    x = x.reshape(-1, GRID, p, GRID, p, 3).transpose(0, 1, 3, 5, 2, 4)
    return x.reshape(-1, GRID ** 2, 3 * p * p)


def _norm(x, weight, bias):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + SHAPE.epsilon) * weight + bias


def _block(x, w):
    b, t, n = x.shape
    heads, dim = SHAPE.heads, n // SHAPE.heads
    qkv = _norm(x, w["ln1"], w["ln1_b"]) @ w["qkv"] + w["qkv_b"]
    q, k, v = qkv.reshape(b, t, 3, heads, dim).transpose(2, 0, 3, 1, 4)
    seen = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * dim ** -0.5, -1) @ v
    x = x + seen.transpose(0, 2, 1, 3).reshape(b, t, n) @ w["out"] + w["out_b"]
    inner = jax.nn.gelu(_norm(x, w["ln2"], w["ln2_b"]) @ w["up"] + w["up_b"], approximate=True)
    return x + inner @ w["down"] + w["down_b"]


def encode(weights, pictures):
    """Rows of (picture, row, output)."""
    x = patches_of(pictures) @ weights["patch"] + weights["patch_b"] + weights["positions"]
    for layer in range(SHAPE.layers):
        x = _block(x, {name: w[layer] for name, w in weights["blocks"].items()})
    x = _norm(x, weights["ln"], weights["ln_b"])
    f, side = SHAPE.factor, GRID // SHAPE.factor
    x = x.reshape(-1, side, f, side, f, SHAPE.width).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(-1, side * side, f * f * SHAPE.width) @ weights["fc"]


def n_parameters(weights):
    return sum(int(np.prod(w.shape)) for w in jax.tree.leaves(weights))


def write(path, weights):
    """A projector file. Its matrices are F16."""
    weights = jax.tree.map(lambda w: np.asarray(w, np.float32), weights)
    out = gguf.GGUFWriter(path, "clip")
    out.add_name("sight: drawn shapes, digits and words")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.projector_type", "idefics3")
    out.add_bool("clip.use_gelu", True)
    numbers = {"image_size": SIDE, "preproc_image_size": SIDE, "patch_size": SHAPE.patch,
               "embedding_length": SHAPE.width, "feed_forward_length": SHAPE.ffn,
               "block_count": SHAPE.layers, "attention.head_count": SHAPE.heads,
               "projection_dim": weights["fc"].shape[1], "projector.scale_factor": SHAPE.factor}
    for name, value in numbers.items():
        out.add_uint32("clip.vision." + name, value)
    out.add_float32("clip.vision.attention.layer_norm_epsilon", SHAPE.epsilon)
    out.add_array("clip.vision.image_mean", [_MEAN] * 3)
    out.add_array("clip.vision.image_std", [_DEVIATION] * 3)

    def vector(name, values):
        out.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def matrix(name, values):
        out.add_tensor(name, np.ascontiguousarray(values.T, np.float16))

    kernel = weights["patch"].T.reshape(SHAPE.width, 3, SHAPE.patch, SHAPE.patch)
    vector("v.patch_embd.weight", kernel)
    vector("v.patch_embd.bias", weights["patch_b"])
    vector("v.position_embd.weight", weights["positions"])
    names = {"ln1": "ln1", "ln2": "ln2", "out": "attn_out", "up": "ffn_up", "down": "ffn_down"}
    for layer in range(SHAPE.layers):
        block = {name: w[layer] for name, w in weights["blocks"].items()}
        for name, theirs in names.items():
            add = vector if name.startswith("ln") else matrix
            add(f"v.blk.{layer}.{theirs}.weight", block[name])
            vector(f"v.blk.{layer}.{theirs}.bias", block[name + "_b"])
        for i, part in enumerate("qkv"):
            columns = slice(i * SHAPE.width, (i + 1) * SHAPE.width)
            matrix(f"v.blk.{layer}.attn_{part}.weight", block["qkv"][:, columns])
            vector(f"v.blk.{layer}.attn_{part}.bias", block["qkv_b"][columns])
    vector("v.post_ln.weight", weights["ln"])
    vector("v.post_ln.bias", weights["ln_b"])
    matrix("mm.model.fc.weight", weights["fc"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
