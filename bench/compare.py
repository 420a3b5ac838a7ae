#!/usr/bin/env python3
"""Weft and other engines side by side, on the same files with the same threads.

Every measurement is made with each engine in turn, RUNS times over, so that a machine
that speeds up or slows down does so for all of them; the medians are printed as one
Markdown table row per model and work, with the ratio of Weft to the best other engine.

  bench/compare.py --peer llama.cpp=DIR [--peer NAME=DIR]... [--runs N] MODEL...

DIR holds llama-bench and llama-batched-bench (llama.cpp or a fork with the same
options). Models of real shapes with random weights come from weft-make-model.
"""
import argparse
import json
import statistics
import subprocess
import sys

WEFT = "weft"


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


# A work is measured by one function per kind of engine: (binaries, model, threads) ->
# tokens per second.


class Prompt:
    """A prompt of n tokens, alone."""

    def __init__(self, n):
        self.name, self.n = f"prompt {n}", n

    def weft(self, weft, model, threads):
        out = run([weft, "bench", "-m", model, "--threads", threads, "--prompt", str(self.n),
                   "--decode", "0", "--repeat", "1", "--json"])
        return next(r for r in json_lines(out) if r["work"] == "prompt")

    def peer(self, directory, model, threads):
        out = run([f"{directory}/llama-bench", "-m", model, "-t", threads, "-p", str(self.n),
                   "-n", "0", "-r", "1", "-o", "json"])
        return json.loads(out[out.index("["):])[-1]["avg_ts"]


class Decode:
    """n tokens for each of `sessions` conversations, after `depth` tokens of context."""

    def __init__(self, sessions, depth, n):
        self.sessions, self.depth, self.n = sessions, depth, n
        self.name = f"decode, {sessions} together" if sessions > 1 else "decode, 1 session"
        if depth > 128:
            self.name += f", at {depth}"

    def weft(self, weft, model, threads):
        out = run([weft, "bench", "-m", model, "--threads", threads, "--prompt", "0", "--decode",
                   str(self.n), "--sessions", str(self.sessions), "--depth", str(self.depth),
                   "--repeat", "1", "--json"])
        return next(r for r in json_lines(out) if r["work"] == "decode")

    def peer(self, directory, model, threads):
        if self.sessions == 1:
            depth = ["-d", str(self.depth)] if self.depth else []
            out = run([f"{directory}/llama-bench", "-m", model, "-t", threads, "-p", "0",
                       "-n", str(self.n), "-r", "1", "-o", "json", *depth])
            return json.loads(out[out.index("["):])[-1]["avg_ts"]
        context = self.sessions * (max(self.depth, 16) + self.n) + 256
        out = run([f"{directory}/llama-batched-bench", "-m", model, "-t", threads,
                   "-c", str(context), "-npp", str(max(self.depth, 16)), "-ntg", str(self.n),
                   "-npl", str(self.sessions), "--output-format", "jsonl"])
        return json_lines(out)[-1]["speed_tg"]


WORKS = {
    "prompt128": Prompt(128),
    "prompt512": Prompt(512),
    "prompt4096": Prompt(4096),
    "prompt16000": Prompt(16000),
    "decode1": Decode(1, 0, 64),
    "decode8": Decode(8, 128, 32),
    "decode16": Decode(16, 128, 32),
    "depth4096": Decode(1, 4096, 32),
    "depth16000": Decode(1, 16000, 32),
}


def measure(work, model, peers, options):
    speeds = {name: [] for name in [WEFT, *peers]}
    shares = []
    for i in range(options.runs):
        print(f"compare: {model}: {work.name}: run {i + 1} of {options.runs}", file=sys.stderr)
        result = work.weft(options.weft, model, options.threads)
        speeds[WEFT].append(result["tokens_per_s"])
        shares.append(result["limit_share"])
        for name, directory in peers.items():
            speeds[name].append(work.peer(directory, model, options.threads))
    return speeds, statistics.median(shares)


def cell(values):
    middle = statistics.median(values)
    spread = (max(values) - min(values)) / middle / 2
    return f"{middle:.1f} ± {100 * spread:.0f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--works", default="prompt512,decode1,decode8",
                        help=f"some of {','.join(WORKS)}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    peers = dict(peer.split("=", 1) for peer in options.peer)
    unknown = [name for name in options.works.split(",") if name not in WORKS]
    if unknown:
        parser.error(f"no work is called {unknown[0]}; there are {', '.join(WORKS)}")

    print(f"| tokens/s, {options.threads} threads, median of {options.runs} | weft | of the limit | "
          + "".join(f"{name} | " for name in peers) + ("ratio |" if peers else ""))
    print("|---|---|---|" + "---|" * len(peers) + ("---|" if peers else ""))
    for model in options.models:
        label = model.rsplit("/", 1)[-1].removesuffix(".gguf")
        for key in options.works.split(","):
            speeds, share = measure(WORKS[key], model, peers, options)
            row = f"| {label}, {WORKS[key].name} | {cell(speeds[WEFT])} | {100 * share:.0f} % | "
            row += "".join(f"{cell(speeds[name])} | " for name in peers)
            if peers:
                best = max(statistics.median(speeds[name]) for name in peers)
                row += f"{statistics.median(speeds[WEFT]) / best:.2f}x |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
