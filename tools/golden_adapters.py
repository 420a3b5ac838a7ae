"""Adapters: what llama.cpp computes for tiny models with two of them at once.

Used by tools/make_goldens.py --adapters. Each shape becomes testdata/adapters/SHAPE.f32: the
logits after each token, which tests/conformance/adapters_test.cc repeats with the same sizes,
tokens, seeds and scales. The files are made by $WEFT_MAKE_MODEL (build/release/weft-make-model).
"""

import ctypes
import os
import subprocess

import numpy

SHAPES = ("tiny-llama", "tiny-qwen3", "tiny-lfm2")
SIZES = {"embd": 32, "heads": 2, "kv-heads": 1, "head-dim": 16, "ffn": 64}
TOKENS = [(7 + 37 * i) % 256 for i in range(24)]
ADAPTERS = (("5", "3", "F32", 0.7), ("6", "20", "F32", -0.4))  # seed, rank, type, scale


def make(out, *flags):
    maker = os.environ.get("WEFT_MAKE_MODEL", "build/release/weft-make-model")
    subprocess.run([maker, "--out", out, *flags], check=True, stderr=subprocess.DEVNULL)
    return str(out).encode()


def logits_of(api, folder, shape):
    """One thread, float32 caches, plain attention, one batch."""
    sizes = [text for name, value in SIZES.items() for text in (f"--{name}", str(value))]
    base = folder / "base.gguf"
    model = api.llama_model_load_from_file(
        make(base, "--shape", shape, "--type", "F32", *sizes), api.llama_model_default_params())
    adapters = (api.llama_adapter_lora_p_ctypes * len(ADAPTERS))()
    for i, (seed, rank, form, _) in enumerate(ADAPTERS):
        adapters[i] = api.llama_adapter_lora_init(
            model, make(folder / f"{i}.gguf", "--lora-of", base, "--seed", seed, "--rank", rank,
                        "--type", form))
    params = api.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = params.flash_attn_type = 0  # F32, and none
    params.swa_full = True
    context = api.llama_init_from_model(model, params)
    scales = (ctypes.c_float * len(ADAPTERS))(*(scale for *_, scale in ADAPTERS))
    if not all(adapters) or api.llama_set_adapters_lora(context, adapters, len(ADAPTERS), scales):
        raise RuntimeError("llama.cpp cannot load the files: set GOLDENS_LOG to see why")
    batch = api.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for i, token in enumerate(TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    if api.llama_decode(context, batch) != 0:
        raise RuntimeError("llama.cpp cannot compute the tokens")
    n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    rows = numpy.ctypeslib.as_array(api.llama_get_logits(context), (len(TOKENS), n_vocab))
    rows = rows.astype(numpy.float32, copy=True)
    api.llama_batch_free(batch)
    api.llama_free(context)
    api.llama_model_free(model)
    return rows
