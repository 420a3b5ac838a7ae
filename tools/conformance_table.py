#!/usr/bin/env python3
"""Prints how far `weft logits` is from the reference data, as Markdown tables.

  tools/conformance_table.py [WEFT] [GOLDENS]       build/release/weft, $WEFT_GOLDENS

First models of float32 weights: the largest difference of any logit, and at how many
positions the most probable token is the same. Then quantized models: the mean
Kullback-Leibler divergence from the same weights decoded to float32, beside that of the
reference implementation, which quantizes activations too. Models of architectures that
are not supported are named at the end. tests/conformance holds the same figures to
limits; this shows them.
"""

import array
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/weft")
GOLDENS = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else
                       os.environ.get("WEFT_GOLDENS", ROOT / "../shared/goldens"))
VOCABULARY = 512


def rows_of(path):
    values = array.array("f", path.read_bytes())
    return [values[i:i + VOCABULARY] for i in range(0, len(values), VOCABULARY)]


def compute(model, tokens, n_tokens, backend):
    """The logits of the first `n_tokens` tokens, or None where weft refuses the model."""
    with tempfile.TemporaryDirectory() as folder:
        ids = pathlib.Path(folder) / "tokens.json"
        text = tokens.read_text()
        start = text.index("[")
        ids.write_text("[" + ",".join(text[start + 1:text.index("]")].split(",")[:n_tokens]) + "]")
        out = pathlib.Path(folder) / "logits.f32"
        done = subprocess.run([WEFT, "logits", "-m", model, "--tokens", ids, "--out", out,
                               "--backend", backend], capture_output=True, text=True)
        if "is not supported" in done.stderr:
            return None
        if done.returncode != 0:
            sys.exit(done.stderr)
        return rows_of(out)


def max_difference(a, b):
    return max(abs(x - y) for row_a, row_b in zip(a, b) for x, y in zip(row_a, row_b))


def same_choice(a, b):
    return sum(x.index(max(x)) == y.index(max(y)) for x, y in zip(a, b))


def log_softmax(row):
    top = max(row)
    total = top + math.log(math.fsum(math.exp(value - top) for value in row))
    return [value - total for value in row]


def mean_kl(a, b):
    total = 0.0
    for row_a, row_b in zip(a, b):
        p, q = log_softmax(row_a), log_softmax(row_b)
        total += math.fsum(math.exp(x) * (x - y) for x, y in zip(p, q))
    return total / len(a)


def main():
    if not (GOLDENS / "models").is_dir():
        sys.exit(f"conformance_table: no reference data in {GOLDENS}; set WEFT_GOLDENS")
    refused = []
    print("| model, float32 | cpu: max difference | reference: max difference | same first choice |")
    print("|---|---|---|---|")
    for model in sorted((GOLDENS / "models").glob("*.gguf")):
        expected = rows_of(model.with_suffix(".logits.f32"))
        tokens = model.with_suffix(".tokens.json")
        results = [compute(model, tokens, len(expected), name) for name in ("cpu", "reference")]
        if None in results:
            refused.append(model.stem)
            continue
        same = min(same_choice(expected, result) for result in results)
        print(f"| {model.stem} | {max_difference(expected, results[0]):.1e} "
              f"| {max_difference(expected, results[1]):.1e} | {same} of {len(expected)} |",
              flush=True)
    print("\n| model, quantized | cpu: mean KL | reference implementation: mean KL |")
    print("|---|---|---|")
    for model in sorted((GOLDENS / "quantized").glob("*.gguf")):
        base = model.name.removesuffix(".gguf")
        decoded = rows_of(model.with_name(base + ".deq.logits.f32"))
        theirs = rows_of(model.with_name(base + ".logits.f32"))
        tokens = GOLDENS / "models" / (base.split(".")[0] + ".tokens.json")
        mine = compute(model, tokens, len(decoded), "cpu")
        if mine is None:
            refused.append(base)
            continue
        print(f"| {base} | {mean_kl(decoded, mine):.1e} | {mean_kl(decoded, theirs):.1e} |",
              flush=True)
    if refused:
        print("\nNot supported:", ", ".join(refused))


if __name__ == "__main__":
    main()
