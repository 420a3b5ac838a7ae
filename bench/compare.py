#!/usr/bin/env python3
"""Weft and other engines side by side, on the same files with the same threads.

Every measurement is made with each engine in turn, RUNS times over, so that a machine
that speeds up or slows down does so for all of them; the medians are printed as Markdown
table rows per model and work, with the ratio of Weft to the best other engine (above 1:
Weft is faster) and the most memory that each program held, mapped files included (of Weft
without what measuring the machine's limits took).

  bench/compare.py --peer llama.cpp=DIR [--peer NAME=DIR]... [--runs N] [--kv TYPE]
                   [--neighbour] MODEL...

DIR holds llama-bench and llama-batched-bench (llama.cpp or a fork with the same options). Models
of real shapes with random weights come from weft-make-model. --kv sets the type of keys and values
in all engines; --neighbour keeps one core busy with another process.
"""
import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WEFT = "weft"

# Options that all runs of each engine get.
FLAGS = {WEFT: ["--packed-cache", "none"], "llama-bench": [], "llama-batched-bench": []}

# A finished program: its output, wall time and peak memory.
Done = collections.namedtuple("Done", "out err wall_s peak_mb")
# What one run of an engine gave, a value for each row of its work: tokens per second, or
# seconds. `shares` are of the machine's limit, and Weft's alone.
Result = collections.namedtuple("Result", "values peak_mb shares", defaults=([],))


def run(command):
    with (tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err,
          tempfile.TemporaryDirectory() as home):  # some leave a log where they run
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=home)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        done = Done(out.read(), err.read(), wall_s, usage.ru_maxrss / 1024)
        if process.returncode != 0:
            sys.exit(f"compare: {' '.join(command)} ended with {process.returncode}:\n"
                     f"{done.err[-2000:]}")
        return done


def run_weft_bench(weft, model, threads, *options):
    return run([weft, "bench", "-m", model, "--threads", threads, "--repeat", "1", "--json",
                *FLAGS[WEFT], *options])


def weft_bench(weft, model, threads, *options):
    done = run_weft_bench(weft, model, threads, *options)
    lines = [json.loads(line) for line in done.out.splitlines()]
    return Result([line["tokens_per_s"] for line in lines], done.peak_mb,
                  [line["limit_share"] for line in lines])


def llama_bench(directory, model, threads, *options):
    done = run([f"{directory}/llama-bench", "-m", model, "-t", threads, "-r", "1", "-o", "json",
                *FLAGS["llama-bench"], *options])
    return Result([json.loads(done.out[done.out.index("["):])[-1]["avg_ts"]], done.peak_mb)


def llama_batched_bench(directory, model, threads, sessions, depth, n):
    """Tokens per second in the prompts, in decoding; the peak."""
    done = run([f"{directory}/llama-batched-bench", "-m", model, "-t", threads,
                "-c", str(sessions * (depth + n) + 256), "-npp", str(depth), "-ntg", str(n),
                "-npl", str(sessions), *FLAGS["llama-batched-bench"]])
    # A table, which some print to one stream and some to the other.
    rows = [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in (done.out + done.err).splitlines() if line.startswith("|")]
    names, values = rows[0], rows[-1]
    return *(float(values[names.index(name)]) for name in ("S_PP t/s", "S_TG t/s")), done.peak_mb


class Prompt:
    """A prompt of n tokens, alone."""

    def __init__(self, n):
        self.rows, self.n = [f"prompt {n}"], n

    def weft(self, weft, model, threads):
        return weft_bench(weft, model, threads, "--prompt", str(self.n), "--decode", "0")

    def peer(self, directory, model, threads):
        return llama_bench(directory, model, threads, "-p", str(self.n), "-n", "0")


class Decode:
    """n tokens for each of `sessions` conversations, after `depth` tokens of context."""

    def __init__(self, sessions, depth, n):
        self.sessions, self.depth, self.n = sessions, depth, n
        self.rows = [f"decode, {sessions} together" if sessions > 1 else "decode, 1 session"]

    def weft(self, weft, model, threads):
        return weft_bench(weft, model, threads, "--prompt", "0", "--decode", str(self.n),
                          "--sessions", str(self.sessions), "--depth", str(self.depth))

    def peer(self, directory, model, threads):
        if self.sessions == 1:
            return llama_bench(directory, model, threads, "-p", "0", "-n", str(self.n))
        _, speed, peak_mb = llama_batched_bench(directory, model, threads, self.sessions,
                                                self.depth, self.n)
        return Result([speed], peak_mb)


class Long:
    """A long prompt alone, and n tokens decoded after it."""

    def __init__(self, depth, n):
        self.rows, self.depth, self.n = [f"prompt {depth}", f"decode, 1 session, at {depth}"], depth, n

    def weft(self, weft, model, threads):
        done = run_weft_bench(weft, model, threads, "--prompt", "0", "--sessions", "1",
                              "--decode", str(self.n), "--depth", str(self.depth))
        line = json.loads(done.out)
        return Result([line["context_tokens_per_s"], line["tokens_per_s"]], done.peak_mb,
                      [line["context_limit_share"], line["limit_share"]])

    def peer(self, directory, model, threads):
        *speeds, peak_mb = llama_batched_bench(directory, model, threads, 1, self.depth, self.n)
        return Result(speeds, peak_mb)


class Load:
    """From the start of the program to its end, with one token computed."""

    rows = ["load, s"]

    def weft(self, weft, model, threads, copies="none"):
        done = run([weft, "run", "-m", model, "--threads", threads, "-n", "1", "--raw",
                    "--packed-cache", copies, "a"])
        return Result([done.wall_s], done.peak_mb)

    def peer(self, directory, model, threads):
        done = run([f"{directory}/llama-bench", "-m", model, "-t", threads, "-r", "1", "-p", "0",
                    "-n", "1"])
        return Result([done.wall_s], done.peak_mb)


class LoadAgain(Load):
    """The same where Weft finds a packed copy, which another start has left."""

    rows = ["load again, s"]

    def weft(self, weft, model, threads, *options):
        with tempfile.TemporaryDirectory() as folder:
            super().weft(weft, model, threads, folder)
            return super().weft(weft, model, threads, folder)


WORKS = {
    "prompt128": Prompt(128),
    "prompt512": Prompt(512),
    "long4096": Long(4096, 32),
    "long8000": Long(8000, 32),
    "long16000": Long(16000, 32),
    "decode1": Decode(1, 0, 64),
    "decode8": Decode(8, 128, 32),
    "decode16": Decode(16, 128, 32),
    "load": Load(),
    "load-again": LoadAgain(),
}


@contextlib.contextmanager
def neighbour():
    """Another process that computes all the time."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def measure(work, model, peers, options):
    results = {name: [] for name in [WEFT, *peers]}
    for i in range(options.runs):
        print(f"compare: {model}: {work.rows[0]}: run {i + 1} of {options.runs}", file=sys.stderr)
        results[WEFT].append(work.weft(options.weft, model, options.threads))
        for name, directory in peers.items():
            results[name].append(work.peer(directory, model, options.threads))
    return results


def cell(values):
    middle = statistics.median(values)
    spread = (max(values) - min(values)) / middle / 2
    return f"{middle:.{1 if middle >= 10 else 2}f} ± {100 * spread:.0f} %"


def print_rows(label, work, results):
    peaks = " / ".join(f"{max(r.peak_mb for r in runs):.0f}" for runs in results.values())
    for i, row in enumerate(work.rows):
        values = {name: [r.values[i] for r in runs] for name, runs in results.items()}
        middles = {name: statistics.median(v) for name, v in values.items()}
        shares = [r.shares[i] for r in results[WEFT] if r.shares]
        cells = [f"{label}, {row}", cell(values[WEFT]),
                 f"{100 * statistics.median(shares):.0f} %" if shares else ""]
        others = [name for name in results if name != WEFT]
        cells += [cell(values[name]) for name in others]
        if others:
            in_seconds = row.endswith(", s")
            best = (min if in_seconds else max)(middles[name] for name in others)
            ratio = best / middles[WEFT] if in_seconds else middles[WEFT] / best
            cells.append(f"{ratio:.2f}x")
        print("| " + " | ".join([*cells, peaks]) + " |", flush=True)


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
    parser.add_argument("--kv", help="the type of keys and values, of all engines: f16, q8_0 ...")
    parser.add_argument("--neighbour", action="store_true",
                        help="while another process computes on one core")
    options = parser.parse_args()
    if options.kv:
        FLAGS[WEFT] += ["--kv", options.kv]
        FLAGS["llama-bench"] = ["-ctk", options.kv, "-ctv", options.kv, "-fa", "1"]
        FLAGS["llama-batched-bench"] = ["-ctk", options.kv, "-ctv", options.kv, "-fa", "on"]
    peers = dict(peer.split("=", 1) for peer in options.peer)
    peers = {name: os.path.abspath(directory) for name, directory in peers.items()}
    options.weft = os.path.abspath(options.weft)
    unknown = [name for name in options.works.split(",") if name not in WORKS]
    if unknown:
        parser.error(f"no work is called {unknown[0]}; there are {', '.join(WORKS)}")

    header = [f"tokens/s, {options.threads} threads, median of {options.runs}", WEFT,
              "of the limit", *peers, *(["ratio"] if peers else []),
              "peak memory, MB: " + " / ".join([WEFT, *peers])]
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    with neighbour() if options.neighbour else contextlib.nullcontext():
        for model in map(os.path.abspath, options.models):
            label = model.rsplit("/", 1)[-1].removesuffix(".gguf")
            for key in options.works.split(","):
                print_rows(label, WORKS[key], measure(WORKS[key], model, peers, options))


if __name__ == "__main__":
    main()
