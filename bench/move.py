#!/usr/bin/env python3
"""What it costs to go on with a long conversation on another server, by way of a shared store.

  bench/move.py --server 'weft=COMMAND' [--tokens N] MODEL

COMMAND starts a server with a shared store; in it are replaced {model}, {port} and {state} (a folder
of its own), as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 2 --state-dir {state}
        --store s3://BUCKET/{fleet} --store-endpoint URL --worker-url http://127.0.0.1:{port}'
with the store's keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. One server computes a prompt of
N tokens on a session, gives the session up, and another one answers its next turn. Then that one
does the same turn on a session that nobody has, so that it computes everything. Prints how long the
first tokens took, and their ratio; --out appends that to a file, with the machine, the commit and
the command.
"""
import http.client
import json
import pathlib
import secrets
import tempfile
import time

from serving import Report, Server, arguments, events, words

TIMEOUT_SECONDS = 3600


def tokenize(server, text):
    return ask(server, "POST", "/tokenize", {"content": text})["tokens"]


def ask(server, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)
    connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        raise RuntimeError(f"{method} {path}: {response.status} {answer}")
    return answer


def first_token(server, session, tokens):
    """Seconds until the first token of a turn, its text, and how many tokens were not computed."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)
    body = {"prompt": tokens, "n_predict": 8, "temperature": 0, "ignore_eos": True, "stream": True,
            "session_id": session, "timings_per_token": True}
    began = time.monotonic()
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    seconds, text, last = None, "", {}
    for event in events(response):
        if "error" in event or response.status != 200:
            raise RuntimeError(f"{session}: {event}")
        if event.get("content") and seconds is None:
            seconds = time.monotonic() - began
        text += event.get("content", "")
        last = event
    return seconds, text, last.get("timings", {}).get("cache_n", 0)


def measure(command, options, report):
    prompt_words = words(1, options.tokens)
    fleet = "move-" + secrets.token_hex(6)
    with tempfile.TemporaryDirectory(prefix="move_") as home:
        places = [{"model": options.model, "fleet": fleet, "state": pathlib.Path(home) / name}
                  for name in ("one", "two")]
        with Server(command, **places[0]) as one:
            prompt = tokenize(one, prompt_words)[:options.tokens]
            computed, answer, _ = first_token(one, "loom", prompt)
            began = time.monotonic()
            ask(one, "POST", "/v1/sessions/loom/move")
            given_up = time.monotonic() - began
        with Server(command, **places[1]) as two:
            following = prompt + tokenize(two, answer + " And then?")
            moved, text, cached = first_token(two, "loom", following)
        # Without the blocks of the first one.
        places[1] = {**places[1], "state": pathlib.Path(home) / "three", "fleet": fleet + "-none"}
        with Server(command, **places[1]) as two:
            alone, plain, _ = first_token(two, "loom", following)
    if text != plain:
        raise RuntimeError(f"the answers differ: {text!r} and {plain!r}")
    report.table(f"{len(following)} tokens", [
        "first computed, s", "given up, s", "next turn on another server: first token, s",
        "of these tokens found", "without the store, s", "ratio"], [
            (pathlib.Path(options.model).stem, [
                f"{computed:.2f}", f"{given_up:.2f}", f"{moved:.2f}", str(cached), f"{alone:.2f}",
                f"{moved / alone:.4f}"])])


def main():
    parser = arguments(__doc__, reports=True)
    parser.add_argument("--tokens", type=int, default=16000)
    options = parser.parse_args()
    report = Report(options.out)
    for _, command in options.servers:
        measure(command, options, report)


if __name__ == "__main__":
    main()
