#!/usr/bin/env python3
"""Embeddings over HTTP: how many texts a second, and what a conversation beside them waits for.

  bench/embeddings.py --server 'NAME=COMMAND' [--server ...] [--works rate,beside] [--runs N] MODEL

COMMAND starts a server that has OpenAI's /v1/embeddings; {model} and {port} in it are replaced, as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 2'
  'llama.cpp=DIR/llama-server -m {model} --port {port} -t 2 --embeddings -np 8 -c 4096 -b 4096 -ub 4096'
The servers take turns, each afresh and alone on the machine. Two works:

  rate     1,000 texts of 20 to 400 tokens, 32 to a request, from 2 clients: seconds until all have
           their vectors, how often faster the first server is, and the smallest cosine of a vector
           of its and of another server's. For an encoder; one that gives few tokens a context needs
           a smaller --longest
  beside   a conversation decodes, alone, then beside the two clients, then alone again: the gaps
           between its tokens. For a model of text on a server that gives vectors beside
           conversations, as weft with --pooling mean

Texts are words, enough to give about that many tokens with the model's vocabulary. Prints medians
over the runs as Markdown tables.
"""
import itertools
import json
import math
import random
import statistics
import sys
import threading
import time

from serving import VOCABULARY, arguments, chosen, in_turns
from waits import Stream, gaps, percentile

SHORTEST_TOKENS = 20
SAMPLE_WORDS = 500


def texts_for(server, count, longest, seed):
    """Texts of words; each has about as many tokens as is drawn for it, and at most `longest`."""
    dice = random.Random(seed)
    counts = [len(server.tokens_of(" " + word)) for word in VOCABULARY]
    marks = len(server.tokens_of(""))  # what the model wants around a text, if that is told
    tokens_of = {word: max(1, count - marks) for word, count in zip(VOCABULARY, counts)}
    texts = []
    for _ in range(count):
        left, text = dice.randint(SHORTEST_TOKENS, longest) - 2, []
        while True:
            word = dice.choice(VOCABULARY)
            left -= tokens_of[word]
            if left < 0:
                break
            text.append(word)
        texts.append(" ".join(text))
    return texts


def embed(server, batch):
    """The vectors of the texts, and their tokens."""
    reply = server.post("/v1/embeddings", {"model": "m", "input": batch})
    answer = json.loads(reply.read())
    if reply.status != 200:
        raise RuntimeError(f"HTTP {reply.status}: {str(answer)[:300]}")
    vectors = [None] * len(batch)
    for entry in answer["data"]:
        vectors[entry["index"]] = entry["embedding"]
    return vectors, answer["usage"]["prompt_tokens"]


class Clients:
    """Threads that send batches until there are none, or until they are stopped."""

    def __init__(self, server, batches, n_clients):
        self.server, self.batches = server, iter(batches)
        self.lock, self.vectors, self.n_texts, self.n_tokens = threading.Lock(), {}, 0, 0
        self.stopped, self.failure = False, None
        self.threads = [threading.Thread(target=self.send) for _ in range(n_clients)]
        for thread in self.threads:
            thread.start()

    def send(self):
        while not self.stopped and self.failure is None:
            with self.lock:
                number, batch = next(self.batches, (None, None))
            if batch is None:
                return
            try:
                vectors, n_tokens = embed(self.server, batch)
            except (OSError, RuntimeError, ValueError, KeyError) as error:
                self.failure = f"{type(error).__name__}: {error}"
                return
            with self.lock:
                self.vectors[number] = vectors
                self.n_texts += len(batch)
                self.n_tokens += n_tokens

    def join(self):
        for thread in self.threads:
            thread.join()
        if self.failure:
            sys.exit(f"embeddings: a request failed: {self.failure}")

    def stop(self):
        self.stopped = True
        self.join()


def in_batches(texts, size):
    return [texts[i:i + size] for i in range(0, len(texts), size)]


def cosine(a, b):
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


def measure_rate(server, run, options):
    texts = texts_for(server, options.texts, options.longest, run)
    batches = list(enumerate(in_batches(texts, options.batch)))
    embed(server, texts[:2])
    begin = time.monotonic()
    clients = Clients(server, batches, options.clients)
    clients.join()
    seconds = time.monotonic() - begin
    return {"seconds": seconds, "texts/s": options.texts / seconds,
            "tokens/s": clients.n_tokens / seconds, "tokens": clients.n_tokens,
            "memory": server.own_memory(),
            "vectors": [vector for i in range(len(batches)) for vector in clients.vectors[i]]}


def print_rates(runs):
    print("| server | texts/s | tokens/s | tokens | seconds | the first one's rate to this | smallest "
          "cosine to the first one's | own memory, MB |\n|---|---|---|---|---|---|---|---|")
    first = next(iter(runs.values()))
    for name, results in runs.items():
        middle = {key: statistics.median(result[key] for result in results)
                  for key in results[0] if key != "vectors"}
        # Run by run: a machine that slows down does so for both.
        ratio = statistics.median(mine["texts/s"] / other["texts/s"]
                                  for mine, other in zip(first, results))
        least = min(cosine(a, b) for a, b in zip(first[0]["vectors"], results[0]["vectors"]))
        print(f"| {name} | {middle['texts/s']:.1f} | {middle['tokens/s']:.0f} | {middle['tokens']:.0f} "
              f"| {middle['seconds']:.1f} | {ratio:.2f} | {least:.6f} | {middle['memory']:.0f} |")


def watched(stream, seconds):
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    found = gaps([stream], begin, end)
    if stream.error or len(found) < 2:
        sys.exit(f"embeddings: the conversation ended: {stream.error or 'its tokens are through'}")
    return found


def measure_beside(server, run, options):
    texts = texts_for(server, options.texts, options.longest, run)
    batches = in_batches(texts, options.batch)
    embed(server, texts[:2])
    stream = Stream(server, texts[0], 1_000_000, options={"end_loops": False})
    while not stream.times and not stream.error and stream.is_alive():
        time.sleep(0.01)
    before = watched(stream, options.seconds)
    clients = Clients(server, itertools.cycle((0, batch) for batch in batches), options.clients)
    begin = time.monotonic()
    time.sleep(1)
    beside = watched(stream, options.seconds)
    clients.stop()  # with the requests that are under way
    rate = clients.n_texts / (time.monotonic() - begin)
    time.sleep(0.5)
    alone = before + watched(stream, options.seconds)
    stream.leave()
    stream.join()
    out = {"texts/s": rate}
    for key, of in (("median", statistics.median), ("p99", lambda all_: percentile(all_, 0.99)),
                    ("max", max)):
        out[f"alone, {key}"], out[f"beside, {key}"] = 1000 * of(alone), 1000 * of(beside)
    return out


def print_gaps(runs):
    print("| server | texts/s beside it | gap alone, ms: median | p99 | max | gap beside, ms: median "
          "| p99 | max | of the gap alone: median | p99 | max |")
    print("|---" * 11 + "|")
    for name, results in runs.items():
        cells = [statistics.median(result["texts/s"] for result in results)]
        for when, key in itertools.product(("alone", "beside"), ("median", "p99", "max")):
            cells.append(statistics.median(result[f"{when}, {key}"] for result in results))
        for key in ("median", "p99", "max"):
            cells.append(statistics.median(result[f"beside, {key}"] / result[f"alone, {key}"]
                                           for result in results))
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


WORKS = {"rate": (measure_rate, print_rates), "beside": (measure_beside, print_gaps)}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--works", default="rate", help=f"some of {','.join(WORKS)} (%(default)s)")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--longest", type=int, default=400, metavar="TOKENS")
    parser.add_argument("--batch", type=int, default=32, metavar="TEXTS", help="of one request")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10, help="of each time that is watched")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for work in chosen(parser, options.works, WORKS, "work"):
        measure, tell = WORKS[work]
        tell(in_turns(f"embeddings: {work}", options,
                      lambda server, run, measure=measure: measure(server, run, options)))


if __name__ == "__main__":
    main()
