#!/usr/bin/env python3
"""What hostile requests take from a conversation beside them: tokens per second, as ratios.

  bench/hostile.py --server 'NAME=COMMAND' [--server ...] [--seconds S] [--runs N] MODEL

COMMAND starts a server that has llama-server's API; {model} and {port} in it are replaced. The
attackers keep to the last core, so give the server one less than there are, as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 1'
For each attack one session decodes, first alone, then beside the attack, then alone again; a token
takes longer the deeper it is, so the rate alone is read off the line between the two quiet times,
at the attack's depth. The attacks:

  nonsense   bodies that are no JSON or of the wrong shape, and bytes that are no HTTP
  deep       JSON nested beyond any limit
  large      chats of 20 MB that no context can hold
  listed     the longest lists that a request may have: biases, stop tokens, stop strings
  unlisted   the same requests with the lists under unknown names: only the cost of their tokens
             remains
  slow       bodies that never come, 64 at a time
  routes     /metrics, /slots, /v1/sessions and the like, without a pause
  sessions   a new session name with every request, one token each

The medians over the runs are printed as a Markdown table.
"""
import http.client
import itertools
import json
import multiprocessing
import os
import random
import socket
import statistics
import sys
import time

from serving import Server, arguments, words
from waits import Stream

ATTACKERS = 4


def post(port, path, body, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
        connection.getresponse().read()
    finally:
        connection.close()


def raw(port, data):
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(data)
        connection.recv(4096)


def nonsense(port, dice, _):
    if dice.random() < 0.3:
        return raw(port, dice.randbytes(200) + b"\r\n\r\n")
    body = dice.choice((b"{", b"[]", b"null", b'{"prompt":1e999}', b'{"messages":"x"}', b"\xff" * 50))
    path = dice.choice(("/completion", "/v1/chat/completions", "/v1/messages", "/tokenize"))
    return post(port, path, body)


def deep(port, _dice, _):
    post(port, "/v1/chat/completions", b'{"a":' * 100_000)


def large(port, _dice, _):
    content = words(1, 1000) * 3000
    post(port, "/v1/chat/completions",
         json.dumps({"messages": [{"role": "user", "content": content}]}))


def listed(port, dice, _, prefix=""):
    post(port, "/completion", json.dumps({
        "prompt": "a", "n_predict": 4, prefix + "logit_bias": [[i, -1] for i in range(4000)],
        prefix + "stop_token_ids": list(range(20_000, 24_000)),
        prefix + "stop": ["".join(dice.choices("abcdef", k=1000)) for _ in range(60)]}))


def unlisted(port, dice, held):
    listed(port, dice, held, "no_")


def slow(port, _dice, held):
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")
    held.append(connection)
    if len(held) > 64 // ATTACKERS:
        held.pop(0).close()
    time.sleep(0.02)


def routes(port, dice, _):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(20):
        connection.request("GET", dice.choice(("/metrics", "/slots", "/v1/sessions", "/props", "/health")))
        connection.getresponse().read()
    connection.close()


def sessions(port, dice, _):
    post(port, "/completion", json.dumps({"prompt": "a", "n_predict": 1,
                                          "session_id": f"s{dice.randrange(1 << 60)}"}))


ATTACKS = (nonsense, deep, large, listed, unlisted, slow, routes, sessions)


def attack(port, kind, seed, until, count):
    # What attackers compute themselves is not the server's: they have what nobody else wants of
    # the last core.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    dice, held, done = random.Random(seed), [], 0
    while time.monotonic() < until:
        try:
            kind(port, dice, held)
        except (OSError, http.client.HTTPException):
            pass
        done += 1
    count.put(done)


def watched(stream, seconds):
    """Seconds per token, and the depth at which they were measured, from now on."""
    first = len(stream.times)
    time.sleep(seconds)
    last = len(stream.times)
    if stream.error or not stream.is_alive() or first == last:
        sys.exit(f"hostile: the conversation ended: {stream.error}")
    return seconds / (last - first), (first + last) / 2


def at_depth(depth, before, after):
    """Seconds per token at `depth`: a line through two measurements, as attention costs."""
    (a, x), (b, y) = before, after
    return a + (b - a) * (depth - x) / (y - x)


def measure(server, seconds, seed):
    """For each attack its share of the quiet rate, and how many requests it made."""
    results = {}
    for number, kind in enumerate(ATTACKS):
        # A conversation of its own: small models reach the end of their context soon.
        stream = Stream(server, words(seed + number, 20), 1_000_000, options={"end_loops": False})
        while not stream.times and not stream.error:
            time.sleep(0.01)
        quiet = watched(stream, seconds)
        count = multiprocessing.Queue()
        until = time.monotonic() + seconds + 1
        attackers = [multiprocessing.Process(target=attack,
                                             args=(server.port, kind, seed + i, until, count))
                     for i in range(ATTACKERS)]
        for attacker in attackers:
            attacker.start()
        time.sleep(1)
        beside, depth = watched(stream, seconds)
        done = sum(count.get() for _ in attackers)
        for attacker in attackers:
            attacker.join()
        time.sleep(0.5)
        after = watched(stream, seconds)
        stream.leave()
        alone = at_depth(depth, quiet, after)
        results[kind.__name__] = (alone / beside, done / (seconds + 1))
        print(f"hostile: {kind.__name__}: {1 / alone:.1f} tokens/s alone, {1 / beside:.1f} beside",
              file=sys.stderr)
    return results


def main():
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each time (%(default)s)")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        sys.exit("hostile: the attackers need a core of their own")
    runs = {name: [] for name, _ in options.servers}
    for seed, (name, command) in itertools.product(range(options.runs), options.servers):
        with Server(command, model=options.model) as server:
            runs[name].append(measure(server, options.seconds, 100 * seed))
    print("| attack | server | requests/s | decoding beside it, of its rate alone |\n|---|---|---|---|")
    for kind in ATTACKS:
        for name, results in runs.items():
            ratio, requests = (statistics.median(r[kind.__name__][i] for r in results) for i in (0, 1))
            print(f"| {kind.__name__} | {name} | {requests:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
