#!/usr/bin/env python3
"""Agents that arrive together, over HTTP: Weft beside other servers, on the same file.

  bench/burst.py --server 'NAME=COMMAND' [--server ...] [--runs N] MODEL

COMMAND starts a server that has llama-server's /completion; {model} and {port} in it are replaced, as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 2'
Each server is started afresh for each run, alone on the machine, and the servers take
turns, so that a machine that speeds up or slows down does so for all of them. Two works:

  burst    16 requests of 130 tokens, all different, 4 at a time, 80 ms apart, 64 tokens each
  fan-out  8 requests that share 1,300 tokens but for the last word, 4 at a time, 32 tokens each

Prompts are words, enough to give about that many tokens with the model's vocabulary. The time to
first token counts from the moment at which a request may be sent. Prints medians over the runs as
a Markdown table.
"""
import statistics
import sys
import threading
import time

from serving import arguments, chosen, events, in_turns, words


class Work:
    def __init__(self, name, requests, n_tokens, n_prompt, prompt):
        self.name, self.requests, self.n_tokens = name, requests, n_tokens
        self.n_prompt, self.prompt = n_prompt, prompt  # the latter: (run, request, words) -> text


WORKS = {
    "burst": Work("burst", 16, 64, 130, lambda run, i, n: words(1000 * run + i, n)),
    "fan-out": Work("fan-out", 8, 32, 1300,
                    lambda run, i, n: words(run, n - 1) + " " + words(1000 * run + i, 1)),
}


def complete(server, prompt, n_tokens, bias):
    """Sends one request; returns the seconds to its first token, and its counts."""
    body = {"prompt": prompt, "n_predict": n_tokens, "temperature": 0, "stream": True,
            "ignore_eos": True, "cache_prompt": True, "logit_bias": bias}
    begin, first, last = time.monotonic(), None, {}
    reply = server.post("/completion", body)
    if reply.status != 200:
        raise RuntimeError(f"HTTP {reply.status}: {reply.read(300)!r}")
    for last in events(reply):
        if "error" in last:
            raise RuntimeError(str(last["error"]))
        if first is None:
            first = time.monotonic() - begin
    if first is None or last.get("tokens_predicted") != n_tokens:
        raise RuntimeError(f"asked for {n_tokens} tokens, got {last.get('tokens_predicted')}")
    return first, last["timings"]


def measure(server, work, run, options):
    sample = 500
    ids = server.tokens_of(words(0, sample))
    n_words = round(work.n_prompt * sample / len(ids))
    # Answers are words too: models with random weights would write broken text, at which
    # some servers give up.
    bias = [[token, 100] for token in sorted(set(ids))]
    place = threading.Semaphore(options.concurrency)
    lock, results, failures = threading.Lock(), [], []

    def request(i):
        with place:
            try:
                result = complete(server, work.prompt(run, i, n_words), work.n_tokens, bias)
                with lock:
                    results.append(result)
            except (OSError, RuntimeError, ValueError) as error:
                with lock:
                    failures.append(str(error))

    begin, threads = time.monotonic(), []
    for i in range(work.requests):
        threads.append(threading.Thread(target=request, args=(i,)))
        threads[-1].start()
        time.sleep(options.stagger_ms / 1000)
    for thread in threads:
        thread.join()
    wall = time.monotonic() - begin
    if failures:
        sys.exit(f"burst: {len(failures)} of {work.requests} requests failed: {failures[0]}")
    first = sorted(1000 * result[0] for result in results)
    return {
        "p50": statistics.median(first), "p90": first[int(0.9 * (len(first) - 1) + 0.5)],
        "max": first[-1], "wall": wall, "rate": work.requests * work.n_tokens / wall,
        "computed": sum(timings["prompt_n"] for _, timings in results),
        "memory": server.own_memory(),
    }


def main():
    parser = arguments(__doc__)
    parser.add_argument("--works", default="burst,fan-out", help=f"some of {','.join(WORKS)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--stagger-ms", type=float, default=80)
    options = parser.parse_args()
    works = chosen(parser, options.works, WORKS, "work")

    print(f"| median of {options.runs} | first token, ms: p50 | p90 | max | max / p50 | tokens/s "
          "| wall, s | prompt tokens computed | own memory, MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for work in (WORKS[name] for name in works):
        runs = in_turns(f"burst: {work.name}", options,
                        lambda server, run, work=work: measure(server, work, run, options))
        for name, results in runs.items():
            middle = {key: statistics.median(result[key] for result in results) for key in results[0]}
            print(f"| {work.name}, {name} | {middle['p50']:.0f} | {middle['p90']:.0f} | {middle['max']:.0f} "
                  f"| {middle['max'] / middle['p50']:.1f} | {middle['rate']:.1f} | {middle['wall']:.1f} "
                  f"| {middle['computed']:.0f} | {middle['memory']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
