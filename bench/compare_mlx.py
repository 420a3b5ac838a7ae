#!/usr/bin/env python3
"""Weft's mlx backend and mlx-lm side by side, on the same weights.

Turns a GGUF file of the architecture llama, whose matrices are Q4_0, Q4_1 or Q8_0, into mlx-lm's
form without changing a value: MLX's groups of 32 hold these types as they are. Then measures a
prompt, one conversation and four together with both in turn, RUNS times over; prints the medians
as Markdown table rows, with the ratio of Weft to mlx-lm (above 1: Weft is faster).

  bench/compare_mlx.py --python PYTHON [--runs N] MODEL.gguf

PYTHON is one that has mlx-lm, gguf and numpy, for example:
  python3 -m venv /tmp/peer && /tmp/peer/bin/pip install 'mlx[cpu]==0.32.4' mlx-lm gguf
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm", "token_embd": "model.embed_tokens",
         "output_norm": "model.norm", "output": "lm_head"}
SEEN, WRITTEN = 128, 24  # tokens of a prompt, of an answer


def mlx_name(name):
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}"
    return NAMES[parts[0]]


def levels_of(tensor, rows, columns):
    """Levels, scales and biases of a matrix in groups of 32, and a level's bits."""
    import numpy as np
    raw = np.array(tensor.data).reshape(rows, columns // 32, -1)

    def half(at):
        return raw[..., at:at + 2].copy().view(np.float16)[..., 0].astype(np.float32)

    kind = tensor.tensor_type.name
    if kind == "Q8_0":
        levels = raw[..., 2:].view(np.int8).astype(np.int32) + 128
        return levels, half(0), -128 * half(0), 8
    if kind not in ("Q4_0", "Q4_1"):
        sys.exit(f"compare_mlx: {tensor.name} is {kind}; Q4_0, Q4_1 and Q8_0 are known here")
    nibbles = raw[..., 2 if kind == "Q4_0" else 4:]
    levels = np.concatenate([nibbles & 15, nibbles >> 4], -1)
    return levels, half(0), (-8 * half(0) if kind == "Q4_0" else half(2)), 4


def convert(source, out):
    """Floats are F32, as in Weft's backend, and on a processor the faster ones."""
    import gguf
    import mlx.core as mx
    import numpy as np
    reader = gguf.GGUFReader(source)

    def field(name):
        return reader.fields[f"llama.{name}"].contents()

    arrays, quantized = {}, {"group_size": 32, "bits": 4}
    for tensor in reader.tensors:
        name = mlx_name(tensor.name)
        shape = [int(n) for n in reversed(tensor.shape)]
        if tensor.tensor_type.name == "F32":
            arrays[f"{name}.weight"] = mx.array(np.array(tensor.data).reshape(shape))
            continue
        levels, scales, biases, bits = levels_of(tensor, *shape)
        words = levels.reshape(shape[0], -1, 32 // bits).astype(np.uint32)
        words <<= np.arange(32 // bits, dtype=np.uint32) * bits
        arrays[f"{name}.weight"] = mx.array(np.bitwise_or.reduce(words, axis=-1))
        arrays[f"{name}.scales"], arrays[f"{name}.biases"] = mx.array(scales), mx.array(biases)
        if bits != 4:
            quantized[name] = {"group_size": 32, "bits": bits}
    mx.save_safetensors(f"{out}/model.safetensors", arrays, metadata={"format": "mlx"})
    vocabulary = arrays["model.embed_tokens.weight"].shape[0]
    pathlib.Path(out, "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": field("embedding_length"),
        "num_hidden_layers": field("block_count"),
        "intermediate_size": field("feed_forward_length"),
        "num_attention_heads": field("attention.head_count"),
        "num_key_value_heads": field("attention.head_count_kv"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"), "vocab_size": vocabulary,
        # A GGUF file has its rows in the order of rope's pairs.
        "rope_theta": field("rope.freq_base"), "rope_traditional": True,
        "tie_word_embeddings": "lm_head.weight" not in arrays, "quantization": quantized}))


def measure_peer(folder):
    """Tokens per second: prompt, one conversation, four."""
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.utils import load_model
    model, _ = load_model(pathlib.Path(folder))
    rates = []
    for n_together in (1, 4):
        generator = BatchGenerator(model, max_tokens=WRITTEN, stop_tokens=[])
        prompts = [[(7 * i * i + 300 + i + 131 * k) % 20000 for i in range(SEEN)]
                   for k in range(n_together)]
        begin = time.perf_counter()
        generator.insert(prompts, [WRITTEN] * n_together)
        n, first = 0, None
        while n < n_together * WRITTEN:
            _, said = generator.next()
            if said and first is None:
                first, n_first = time.perf_counter(), len(said)
            n += len(said)
        if n_together == 1:
            rates.append(SEEN / (first - begin))
        rates.append((n - n_first) / (time.perf_counter() - first))
        generator.close()
    print(json.dumps(rates))


def measure_weft(weft, model, threads):
    done = subprocess.run([weft, "bench", "-m", model, "--backend", "mlx", "--kv", "f32",
                           "--threads", threads, "--prompt", str(SEEN), "--depth", str(SEEN),
                           "--decode", str(WRITTEN), "--sessions", "1,4", "--repeat", "1",
                           "--json"], check=True, capture_output=True, text=True)
    return [json.loads(line)["tokens_per_s"] for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--python", required=True, help="one that has mlx-lm")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--convert", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--measure", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convert:
        return convert(options.model, options.convert)
    if options.measure:
        return measure_peer(options.measure)
    ask = [options.python, os.path.abspath(__file__), "--python", options.python, options.model]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*ask, "--convert", folder], check=True)
        runs = []
        for i in range(options.runs):
            print(f"compare_mlx: run {i + 1} of {options.runs}", file=sys.stderr)
            mine = measure_weft(options.weft, options.model, options.threads)
            theirs = subprocess.run([*ask, "--measure", folder], check=True, capture_output=True,
                                    text=True)
            runs.append((mine, json.loads(theirs.stdout)))
    for i, work in enumerate([f"prompt {SEEN}", "decode, 1 session", "decode, 4 together"]):
        mine, theirs = (statistics.median(run[side][i] for run in runs) for side in (0, 1))
        print(f"| {pathlib.Path(options.model).stem}, {work} | {mine:.2f} | {theirs:.2f} | "
              f"{mine / theirs:.2f}x |")


if __name__ == "__main__":
    main()
