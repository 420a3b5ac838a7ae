#!/usr/bin/env python3
"""Writes what llama.cpp computes for tiny models, for the conformance tests.

  tools/make_goldens.py [NAME...]        all of tools/golden_models.py without names
  tools/make_goldens.py --heads          the prediction heads of tools/golden_heads.py
  tools/make_goldens.py --pictures       the prompts with pictures of tools/golden_pictures.py
  tools/make_goldens.py --adapters       the adapters of tools/golden_adapters.py

Each model becomes two files in tests/conformance/testdata: NAME.json says how the model
is made (metadata, shapes of tensors, a seed) and which tokens it reads; NAME.f32 holds
the logits. The tests make the same weights from the seed, so that no weights are stored.

Needs the packages gguf, numpy and llama-cpp-python, the latter with its library built
without GGML_GELU_FP16, whose table of GELU has three digits. LLAMA_CPP_LIB_PATH chooses
the library. A model whose tokens are nearly a tie is tried again with other tokens.
"""

import ctypes
import json
import os
import pathlib
import sys
import tempfile

import gguf
import numpy

import golden_adapters
import golden_heads
import golden_models
import golden_pictures

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/conformance/testdata"
SHORT, LONG, CONTEXT = 64, 300, 512
POSITIONS = [15, 16, 63, 64, 65, 127, 128, 191, 255, 256, 298, 299]
MIN_MARGIN = 3e-3  # of the best logit over the second, where rows are compared


def scatter(x):
    """splitmix64's finish, as in tools/random_weights.cc."""
    with numpy.errstate(over="ignore"):
        x = numpy.uint64(x) + numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return x ^ (x >> numpy.uint64(31))


def random_values(seed, name, n, low, high):
    """RandomWeights::MakeVector: the same bits."""
    for byte in name.encode():
        seed = int(scatter(seed ^ byte))
    index = (numpy.uint64(seed) + numpy.arange(n, dtype=numpy.uint64))
    unit = (scatter(index) >> numpy.uint64(40)).astype(numpy.float32) * numpy.float32(2**-24)
    low, high = numpy.float32(low), numpy.float32(high)
    return low + (high - low) * unit


def add_key(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def write_model(model, path):
    writer = gguf.GGUFWriter(path, model["architecture"])
    for key, value in model["keys"].items():
        add_key(writer, key, value)
    writer.add_string("tokenizer.ggml.model", "none")
    for name, dims, low, high, *form in model["tensors"]:
        values = random_values(model["seed"], name, int(numpy.prod(dims)), low, high)
        if form == ["I32"]:
            values = values.astype(numpy.int32)
        writer.add_tensor(name, values.reshape(dims[::-1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """Logits of a file by llama.cpp: one thread, float32 caches, plain attention, one batch."""

    def __init__(self):
        import llama_cpp.llama_cpp as api
        self.api = api
        self.log = api.llama_log_callback(lambda level, text, data: None)
        if "GOLDENS_LOG" not in os.environ:
            api.llama_log_set(self.log, ctypes.c_void_p(0))
        api.llama_backend_init()

    def logits(self, path, tokens):
        api = self.api
        model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {path}: set GOLDENS_LOG to see why")
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # F32
        params.flash_attn_type = 0
        params.swa_full = True
        context = api.llama_init_from_model(model, params)
        batch = api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        if api.llama_decode(context, batch) != 0:
            raise RuntimeError(f"llama.cpp cannot compute {path}")
        n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        values = numpy.ctypeslib.as_array(api.llama_get_logits(context), (len(tokens), n_vocab))
        values = values.astype(numpy.float32, copy=True)
        api.llama_batch_free(batch)
        api.llama_free(context)
        api.llama_model_free(model)
        return values


def margin(rows):
    best = numpy.sort(rows, axis=1)
    return float((best[:, -1] - best[:, -2]).min())


def tokens_of(seed, n, n_vocab):
    return [int(x) for x in scatter(numpy.uint64(seed) + numpy.arange(n, dtype=numpy.uint64))
            % numpy.uint64(n_vocab)]


def make(name, logits_of):
    model = golden_models.MODELS[name]()
    n_vocab = next(dims[1] for tensor, dims, *_ in model["tensors"] if tensor == "token_embd.weight")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.gguf"
        write_model(model, path)
        for attempt in range(100):
            first = 1000 * (attempt + 1)
            tokens, long_tokens = tokens_of(first, SHORT, n_vocab), tokens_of(2**40 + first, LONG, n_vocab)
            rows, long_rows = logits_of(path, tokens), logits_of(path, long_tokens)
            compared = long_rows[POSITIONS]
            if margin(rows) >= MIN_MARGIN and margin(compared) >= MIN_MARGIN:
                break
        else:
            sys.exit(f"make_goldens: {name}: no tokens without ties; choose another seed")
    if not numpy.isfinite(rows).all():
        sys.exit(f"make_goldens: {name}: the logits are not finite")
    write_figures(name, model, tokens, long_tokens, rows, long_rows)
    print(f"{name}: logits up to {abs(rows).max():.1f}, {attempt + 1} attempts")


def make_heads(llama_cpp):
    for name, (model_of, head_of) in golden_heads.HEADS_OF.items():
        model, head = model_of(), head_of()
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / "model.gguf", pathlib.Path(folder) / "head.gguf"]
            write_model(model, paths[0])
            write_model(head, paths[1])
            for attempt in range(100):
                tokens = tokens_of(1000 * (attempt + 1), LONG, golden_models.VOCABULARY)
                rows = golden_heads.drafts_of(llama_cpp.api, *paths, tokens)
                if margin(rows) >= MIN_MARGIN:
                    break
            else:
                sys.exit(f"make_goldens: {name}: no tokens without ties; choose another seed")
        lines = ["{"]
        for part, recipe in (("model", model), ("head", head)):
            lines += [f' "{part}": ' + "\n".join(recipe_lines(recipe)) + "},"]
        lines += [f' "tokens": {json.dumps(tokens)},', f' "depth": {golden_heads.DEPTH},',
                  f' "positions": {json.dumps(golden_heads.POSITIONS)}', "}"]
        (FOLDER / "heads").mkdir(exist_ok=True)
        (FOLDER / f"heads/{name}.json").write_text("\n".join(lines) + "\n")
        (FOLDER / f"heads/{name}.f32").write_bytes(rows.astype("<f4").tobytes())
        print(f"{name}: logits up to {abs(rows).max():.1f}, {attempt + 1} attempts")


def make_pictures(llama_cpp):
    for name, (shape, projector, width, height) in golden_pictures.PICTURES_OF.items():
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / "model.gguf", pathlib.Path(folder) / "projector.gguf"]
            golden_pictures.make_file(paths[0], shape, golden_pictures.SIZES)
            golden_pictures.make_file(paths[1], projector)
            rows = golden_pictures.logits_of(llama_cpp.api, *paths, width, height)
        if not numpy.isfinite(rows).all():
            sys.exit(f"make_goldens: {name}: the logits are not finite")
        facts = {"shape": shape, "projector": projector, "width": width, "height": height,
                 "before": golden_pictures.BEFORE, "after": golden_pictures.AFTER}
        (FOLDER / "pictures").mkdir(exist_ok=True)
        (FOLDER / f"pictures/{name}.json").write_text(json.dumps(facts) + "\n")
        (FOLDER / f"pictures/{name}.f32").write_bytes(rows.astype("<f4").tobytes())
        print(f"{name}: logits up to {abs(rows).max():.1f}")


def make_adapters(llama_cpp):
    for name in golden_adapters.SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            rows = golden_adapters.logits_of(llama_cpp.api, pathlib.Path(folder), name)
        if not numpy.isfinite(rows).all():
            sys.exit(f"make_goldens: {name}: the logits are not finite")
        (FOLDER / "adapters").mkdir(exist_ok=True)
        (FOLDER / f"adapters/{name}.f32").write_bytes(rows.astype("<f4").tobytes())
        print(f"{name}: logits up to {abs(rows).max():.1f}")


def recipe_lines(model):
    lines = ["{"]
    for key in ("architecture", "judge", "seed"):
        lines.append(f" {json.dumps(key)}: {json.dumps(model[key])},")
    lines.append(' "keys": {')
    lines.append(",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in model["keys"].items()))
    lines.append(' },\n "tensors": [')
    lines.append(",\n".join(f"  {json.dumps(tensor)}" for tensor in model["tensors"]))
    lines.append(" ]")
    return lines


def write_figures(name, model, tokens, long_tokens, rows, long_rows):
    lines = recipe_lines(model)
    lines[-1] += ","
    lines.append(f' "tokens": {json.dumps(tokens)},')
    lines.append(f' "long_tokens": {json.dumps(long_tokens)},')
    lines.append(f' "long_positions": {json.dumps(POSITIONS)}')
    lines.append("}")
    (FOLDER / f"{name}.json").write_text("\n".join(lines) + "\n")
    values = numpy.concatenate([rows.ravel(), long_rows[POSITIONS].ravel()])
    (FOLDER / f"{name}.f32").write_bytes(values.astype("<f4").tobytes())


def main():
    llama_cpp = None
    if sys.argv[1:] == ["--heads"]:
        return make_heads(LlamaCpp())
    if sys.argv[1:] == ["--pictures"]:
        return make_pictures(LlamaCpp())
    if sys.argv[1:] == ["--adapters"]:
        return make_adapters(LlamaCpp())
    for name in sys.argv[1:] or golden_models.MODELS:
        judge = golden_models.JUDGES.get(name)
        if judge is None and llama_cpp is None:
            llama_cpp = LlamaCpp()
        make(name, judge or llama_cpp.logits)


if __name__ == "__main__":
    main()
