#!/usr/bin/env python3
"""What a long prompt makes others wait for, over HTTP: Weft beside other servers, on the same file.

  bench/waits.py --server 'NAME=COMMAND' [--server ...] [--prompt TOKENS] [--runs N] MODEL

COMMAND starts a server that has llama-server's API; {model} and {port} in it are replaced, as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 2'
A fresh server, alone on the machine, first decodes for four sessions and computes a prompt, each
alone. Then, while another prompt of so many tokens is computed, it is asked for:

  routes     /metrics, /slots, /props, /v1/models and /health, over and over
  a question of 4 tokens, without and with a session name, over and over
  decoding   four sessions again: the gaps between their tokens, and both rates relative to before
  a cancel   the client of the prompt leaves; until /slots shows nothing at work

The medians over the runs are printed as a Markdown table.
"""
import http.client
import json
import statistics
import sys
import threading
import time

from serving import arguments, events, in_turns, words

ROUTES = ("/metrics", "/slots", "/props", "/v1/models", "/health")
DECODERS = 4


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Stream(threading.Thread):
    """A streamed completion: when its tokens came, and how far its prompt is."""

    def __init__(self, server, prompt, n_predict, headers=None, options=None):
        super().__init__(daemon=True)
        self.server, self.headers = server, headers or {}
        self.body = {"prompt": prompt, "n_predict": n_predict, "temperature": 0, "stream": True,
                     "ignore_eos": True, "cache_prompt": True, "return_progress": True,
                     # A token a step: gaps are those between steps, and rates do not depend on
                     # how well these words can be guessed.
                     "speculative.n_max": 0, **(options or {})}
        self.begin, self.times, self.progress, self.error = time.monotonic(), [], [], None
        self.connection = None
        self.start()

    def run(self):
        try:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=3600)
            self.connection.request("POST", "/completion", json.dumps(self.body),
                                    {"Content-Type": "application/json", **self.headers})
            reply = self.connection.getresponse()
            if reply.status != 200:
                self.error = f"HTTP {reply.status}: {reply.read(200)!r}"
                return
            for event in events(reply):
                now = time.monotonic()
                if "prompt_progress" in event:
                    self.progress.append((now, event["prompt_progress"]["processed"]))
                elif event.get("content") or event.get("tokens"):
                    self.times.append(now)
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            self.error = str(error) or type(error).__name__

    def leave(self):
        """The client goes away in the middle."""
        try:
            self.connection.sock.shutdown(2)
        except (OSError, AttributeError):
            pass

    def first_s(self):
        return self.times[0] - self.begin if self.times else float("nan")


def gaps(streams, begin, end):
    """Between two tokens of a stream, both within the time."""
    found = []
    for stream in streams:
        times = [t for t in stream.times if begin <= t <= end]
        found += [b - a for a, b in zip(times, times[1:])]
    return found


def tokens_in(streams, begin, end):
    return sum(begin <= t <= end for stream in streams for t in stream.times)


def prompt_rate(stream, begin, end):
    seen = [(t, n) for t, n in stream.progress if begin <= t <= end]
    if len(seen) < 2:
        return float("nan")
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


def decode(server, seed, seconds):
    """Four decoding sessions, from their first tokens on."""
    streams = [Stream(server, words(seed + i, 20), 100000) for i in range(DECODERS)]
    while not all(stream.times or stream.error for stream in streams):
        time.sleep(0.01)
    begin = time.monotonic()
    time.sleep(seconds)
    return streams, begin


def stop(streams):
    for stream in streams:
        stream.leave()
    for stream in streams:
        stream.join()


def await_only(server, n):
    """Until no more than n slots are at work; the seconds that it took."""
    begin = time.monotonic()
    while sum(slot["is_processing"] for slot in json.loads(server.get("/slots")[1])) > n:
        time.sleep(0.005)
    return time.monotonic() - begin


def measure(server, run, options):
    out = {}
    sample = 500
    n_words = round(options.prompt * sample / len(server.tokens_of(words(0, sample))))
    seed = 1000 * run

    streams, begin = decode(server, seed, options.seconds)
    end = time.monotonic()
    stop(streams)
    alone_gap = statistics.median(gaps(streams, begin, end))
    alone_rate = tokens_in(streams, begin, end) / (end - begin)
    out["gap alone, median ms"] = 1000 * alone_gap
    await_only(server, 0)

    # The same depths are compared: the prompt alone is followed for as long as it will be later.
    phase = 3 * options.seconds
    alone = Stream(server, words(seed + 10, n_words), 1)
    time.sleep(phase)
    rates = [prompt_rate(alone, alone.begin + i * options.seconds,
                         alone.begin + (i + 1) * options.seconds) for i in range(3)]
    alone.leave()
    alone.join()
    await_only(server, 0)

    prompt = Stream(server, words(seed + 11, n_words), 1)
    time.sleep(options.seconds)
    waits, until = [], time.monotonic() + options.seconds / 2
    while time.monotonic() < until:
        for route in ROUTES:
            begin = time.monotonic()
            server.get(route)
            waits.append(time.monotonic() - begin)
        time.sleep(0.02)
    out["routes, p99 ms"] = 1000 * percentile(waits, 0.99)
    out["routes, max ms"] = 1000 * max(waits)
    for name, headers in (("question", {}), ("named question", {"x-session-id": f"waits-{run}"})):
        firsts, until = [], time.monotonic() + options.seconds / 4
        while not firsts or time.monotonic() < until:
            ask = Stream(server, words(seed + 20 + len(firsts), 4), 4, headers)
            ask.join()
            firsts.append(ask.first_s())
        out[f"{name}, first token, median ms"] = 1000 * statistics.median(firsts)
        out[f"{name}, first token, max ms"] = 1000 * max(firsts)
    if prompt.times:
        sys.exit("waits: the prompt was computed before everything was asked; give a larger --prompt")

    streams, begin = decode(server, seed + 30, options.seconds)
    end = time.monotonic()
    beside_rate = tokens_in(streams, begin, end) / (end - begin)
    found = gaps(streams, begin, end)
    out["gap beside, p99 ms"] = 1000 * percentile(found, 0.99)
    out["gap beside, max ms"] = 1000 * max(found, default=float("nan"))
    decode_share = beside_rate / alone_rate
    prompt_share = prompt_rate(prompt, begin, end) / rates[-1]
    out["share of the decoding rate"] = decode_share
    out["share of the prompt's rate"] = prompt_share
    out["their sum"] = decode_share + prompt_share
    stop(streams)
    await_only(server, 1)
    if prompt.times:
        sys.exit("waits: the prompt was computed before it was cancelled; give a larger --prompt")
    prompt.leave()
    out["cancel, ms"] = 1000 * await_only(server, 0)
    prompt.join()
    return out


def main():
    parser = arguments(__doc__)
    parser.add_argument("--prompt", type=int, default=16000, metavar="TOKENS")
    parser.add_argument("--seconds", type=float, default=10, help="of each part (%(default)s)")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = in_turns("waits", options, lambda server, run: measure(server, run, options))
    print(f"| beside a prompt of {options.prompt} tokens, median of {options.runs} | "
          + " | ".join(runs) + " |")
    print("|---" * (1 + len(runs)) + "|")
    for key in next(iter(runs.values()))[0]:
        middles = [statistics.median(result[key] for result in results) for results in runs.values()]
        digits = 2 if "share" in key or "sum" in key else 1
        print(f"| {key} | " + " | ".join(f"{middle:.{digits}f}" for middle in middles) + " |")


if __name__ == "__main__":
    main()
