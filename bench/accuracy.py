#!/usr/bin/env python3
"""What weight types and the types of keys and values cost: perplexity, and KL to exact arithmetic.

  bench/accuracy.py [--types LIST] [--kv LIST] [--peer llama.cpp=LLAMA_PERPLEXITY] MODEL
  bench/accuracy.py --kv "" --types IQ3_M,IQ2_M --imatrix FILE --quantizer LLAMA_QUANTIZE MODEL

MODEL's own weights, computed by the reference backend in F32 with keys and values in F32, are
what is exact. (--exact cpu is faster: its rounding of inputs is then in no row's KL.) Each weight
type is converted from MODEL with weft-quantize, and computed with keys and values in F32; each
type of keys and values is computed with MODEL as it is. A peer's llama-perplexity reads the same
files and text. Files of another quantizer are computed by Weft, so only the weights differ.

The text is cut into chunks of 512 tokens, each computed by itself. Rows that have less than 256
tokens before them do not count, as in llama-perplexity. Needs numpy.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

from serving import named_command

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHUNK, FIRST = 512, 256
TYPES = "Q8_0,Q6_K,Q5_K_M,Q4_K_M,Q4_1,Q4_0,Q3_K_M,Q2_K"
KV_TYPES = "f32,f16,bf16,q8_0"


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"accuracy: {' '.join(map(str, command))} ended with {done.returncode}:\n"
                 f"{done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout.decode()


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


class Weft:
    def __init__(self, build, chunks, scratch):
        self.binary, self.chunks, self.scratch = build / "weft", chunks, scratch

    def log_probs(self, model, *flags):
        """Of each chunk's rows that count."""
        for tokens in self.chunks:
            ids, out = self.scratch / "ids.json", self.scratch / "logits.f32"
            ids.write_text(json.dumps([int(token) for token in tokens]))
            run([self.binary, "logits", "-m", model, "--tokens", ids, "--out", out, *flags])
            rows = numpy.fromfile(out, dtype="<f4").reshape(len(tokens), -1)
            yield log_softmax(rows[FIRST:-1])


class Peer:
    """llama-perplexity, and the file in which it saves logits: a head, the tokens, and for each
    row two floats (step and least) and a step count of 16 bits for each token."""

    def __init__(self, binary, text, n_chunks, scratch):
        self.binary, self.text, self.n_chunks = binary, text, n_chunks
        self.out = scratch / "peer.kld"

    def log_probs(self, model, *flags):
        run([self.binary, "-m", model, "-f", self.text, "-c", CHUNK, "-b", CHUNK, "--chunks",
             self.n_chunks, "-t", os.cpu_count(), "--kl-divergence-base", self.out, *flags])
        data = self.out.read_bytes()
        assert data[:8] == b"_logits_", data[:8]
        n_ctx, n_vocab, n_chunks = numpy.frombuffer(data, "<i4", 3, 8)
        assert (n_ctx, n_chunks) == (CHUNK, self.n_chunks), (n_ctx, n_chunks)
        width = 2 * ((n_vocab + 1) // 2) + 4
        rows = numpy.frombuffer(data, "<u2", offset=20 + 4 * CHUNK * n_chunks)
        rows = rows.reshape(n_chunks, CHUNK - 1 - FIRST, width)
        for chunk in rows:
            head = numpy.ascontiguousarray(chunk[:, :4]).view("<f4").astype(numpy.float64)
            yield head[:, :1] * chunk[:, 4:4 + n_vocab] + head[:, 1:2]


def score(exact, other, chunks):
    """Perplexity, mean KL to what is exact, and how often the best token is the same one."""
    losses, divergences, agreed = [], [], []
    for p, q, tokens in zip(exact, other, chunks):
        following = numpy.asarray(tokens[FIRST + 1:])
        losses.append(-q[numpy.arange(len(following)), following])
        divergences.append((numpy.exp(p) * (p - q)).sum(axis=1))
        agreed.append(p.argmax(axis=1) == q.argmax(axis=1))
    return (numpy.exp(numpy.concatenate(losses).mean()), numpy.concatenate(divergences).mean(),
            100 * numpy.concatenate(agreed).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--kv", default=KV_TYPES)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "tests/real/text.txt")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peer", type=named_command, metavar="NAME=LLAMA_PERPLEXITY")
    parser.add_argument("--imatrix", type=pathlib.Path, help="from weft imatrix")
    parser.add_argument("--quantizer", type=pathlib.Path, metavar="LLAMA_QUANTIZE")
    parser.add_argument("--exact", default="reference", metavar="BACKEND")
    parser.add_argument("model", metavar="MODEL", type=pathlib.Path)
    args = parser.parse_args()
    shown = json.loads(run([args.build / "weft", "tokenize", "-m", args.model, "--json", "--add-bos",
                            args.text.read_text()]))
    tokens = shown["tokens"]
    bare = json.loads(run([args.build / "weft", "tokenize", "-m", args.model, "--json",
                           args.text.read_text()]))["tokens"]
    chunks = [tokens[i * CHUNK:(i + 1) * CHUNK] for i in range(args.chunks)]
    if len(chunks[-1]) < CHUNK:
        parser.error(f"the text has {len(tokens)} tokens, not {args.chunks} times {CHUNK}")
    if tokens != bare:  # each chunk begins as a text does, in place of its first token
        chunks = [[tokens[0], *chunk[1:]] for chunk in chunks]

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        weft = Weft(args.build, chunks, folder)
        exact = list(weft.log_probs(args.model, "--backend", args.exact, "--kv", "f32"))
        engines = [("Weft", weft, lambda kv: ["--kv", kv])]
        if args.peer:
            engines.append((args.peer[0], Peer(args.peer[1], args.text, args.chunks, folder),
                            lambda kv: ["-ctk", kv, "-ctv", kv, "-fa", "on"]))
        print(f"{args.model.name}, {args.chunks} chunks of {CHUNK} tokens; exact arithmetic: "
              f"perplexity {score(exact, exact, chunks)[0]:.4f}\n")
        print("| weights | keys, values | MB | engine | perplexity | KL to exact | same best token |")
        print("|---|---|---|---|---|---|---|")

        def rows(weights, model, kv):
            for name, engine, flags in engines:
                perplexity, kl, same = score(exact, engine.log_probs(model, *flags(kv)), chunks)
                print(f"| {weights} | {kv} | {model.stat().st_size / 1e6:.0f} | {name} "
                      f"| {perplexity:.4f} | {kl:.5f} | {same:.1f} % |", flush=True)

        for kv in filter(None, args.kv.split(",")):
            rows("as they are", args.model, kv)
        importance = ["--imatrix", args.imatrix] if args.imatrix else []
        made = folder / "made.gguf"
        for kind in filter(None, args.types.split(",")):
            run([args.build / "weft-quantize", "--type", kind, *importance, args.model, made])
            rows(kind, made, "f32")
            if args.quantizer:
                run([args.quantizer, "--allow-requantize", *importance, args.model, made, kind])
                rows(f"{kind} of {args.quantizer.name}", made, "f32")


if __name__ == "__main__":
    main()
