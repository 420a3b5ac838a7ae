#!/usr/bin/env python3
"""What a schema costs while answers are made: tokens per second of several sessions whose answers are
held to one, of those of the same sessions without.

  bench/constrained.py --server 'NAME=COMMAND' [--server ...] [--sessions N] [--tokens N] [--runs N] MODEL

COMMAND starts a server that has llama-server's API; {model} and {port} in it are replaced, as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 2'
Free and constrained runs alternate. Log-probabilities are asked for in both, so that each token is
drawn and none is taken without asking the model; a third column is without them.
"""
import concurrent.futures
import itertools
import json
import statistics
import time

from serving import Server, arguments, words

# Long enough for any run: names that may be any, choices, numbers within bounds, lists of them.
SCHEMA = {"type": "array", "minItems": 400, "items": {
    "type": "object", "additionalProperties": False,
    "required": ["title", "kind", "size", "tags"],
    "properties": {"title": {"type": "string", "maxLength": 60},
                   "kind": {"enum": ["file", "folder", "link"]},
                   "size": {"type": "integer", "minimum": 0, "maximum": 65535},
                   "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,12}$"},
                            "maxItems": 4}}}}


def answer(server, seed, tokens, options):
    body = {"prompt": words(seed, 30), "n_predict": tokens, "temperature": 0.8, "seed": seed,
            "end_loops": False, **options}
    reply = json.loads(server.post("/completion", body).read())
    if "tokens_predicted" not in reply:
        raise SystemExit(f"constrained: {reply}")
    return reply["tokens_predicted"]


def rate(server, seed, count, tokens, options):
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        made = pool.map(lambda i: answer(server, seed + i, tokens, options), range(count))
        return sum(made) / (time.monotonic() - begin)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print("| server | free, tok/s | constrained | of free | with what is forced taken together |\n"
          "|---|---|---|---|---|")
    for name, command in options.servers:
        free, held, quick = [], [], []
        kinds = ((free, {"ignore_eos": True, "n_probs": 1}),
                 (held, {"json_schema": SCHEMA, "n_probs": 1}), (quick, {"json_schema": SCHEMA}))
        with Server(command, model=options.model) as server:
            rate(server, 1, options.sessions, 8, kinds[1][1])  # compiled, and the pages are in memory
            for run, (i, (rates, more)) in itertools.product(range(1, options.runs + 1), enumerate(kinds)):
                seed = 1000 * run + 100 * i  # no prompt comes twice: a later one would be cached
                rates.append(rate(server, seed, options.sessions, options.tokens, more))
        free, held, quick = (statistics.median(rates) for rates in (free, held, quick))
        print(f"| {name} | {free:.1f} | {held:.1f} | {held / free:.3f} | {quick / free:.2f} |")


if __name__ == "__main__":
    main()
