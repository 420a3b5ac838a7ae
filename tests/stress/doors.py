#!/usr/bin/env python3
"""One client's short requests while another takes all that the doors let in.

  tests/stress/doors.py [--weft PROGRAM] [--case NAME,...] [--seconds S] [--keys] MODEL

A server is started for each case. B asks for two tokens, first alone, then while A does its worst:

  count_tokens  120 connections, each of which counts the tokens of 1.4 MB again and again
  silent        2,000 connections that send nothing, and are opened again when they are closed
  half_heads    the same with the first half of a request's head
  bombs         16 requests at a time whose constraints take long to compile
  texts         30 requests at a time for the vectors of 2,048 texts each
  pings         64 connections that list models without a pause

A and B have an address each or, with --keys, an API key each and the same address. One JSON line is
printed for each case; its "holds" says whether no request of B took more than a second beside A, or
was refused. The exit status is 1 if a case does not hold. Best on a quiet machine.
"""
import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import resource
import selectors
import signal
import socket
import statistics
import sys
import threading
import time

import tenants


class Client:
    """Where one of the two comes from, and how it names itself."""

    def __init__(self, port, address, key):
        self.port, self.address = port, address
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 60, (self.address, 0))

    def post(self, path, body, connection=None):
        """The status of the answer."""
        own = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60,
                                                       source_address=(self.address, 0))
        try:
            own.request("POST" if body else "GET", path, body, self.headers)
            answer = own.getresponse()
            answer.read()
            return answer.status
        finally:
            if own is not connection:
                own.close()


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()


def again_and_again(statuses, ask):
    """Calls ask(number) without end and counts how its requests end."""
    for number in itertools.count():
        try:
            status = ask(number)
        except (OSError, http.client.HTTPException):
            status = 0
            time.sleep(0.01)
        with statuses.get_lock():
            statuses[status] += 1


def count_tokens(client, statuses):
    text = tenants.words(240_000, seed=1)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text[:1_400_000]}]})
    in_threads(120, lambda _: again_and_again(
        statuses, lambda _: client.post("/v1/messages/count_tokens", body)))


def hold_open(client, statuses, first_bytes):
    """Keeps 2,000 connections: what the server closes is opened again."""
    def keep(_):
        selector = selectors.DefaultSelector()
        n_open = 0
        while True:
            if n_open < 500:
                try:
                    connection = client.connect()
                    connection.sendall(first_bytes)
                except OSError:
                    time.sleep(0.01)
                    continue
                selector.register(connection, selectors.EVENT_READ)
                n_open += 1
                with statuses.get_lock():
                    statuses[0] += 1
            for key, _ in selector.select(0 if n_open < 500 else 0.1):
                selector.unregister(key.fileobj)
                key.fileobj.close()
                n_open -= 1
    in_threads(4, keep)


def silent(client, statuses):
    hold_open(client, statuses, b"")


def half_heads(client, statuses):
    hold_open(client, statuses, b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")


def bomb(number):
    """A schema that takes nearly all the work that compiling may, another one for each number."""
    names = [f"value {i * 7919 % 100_003} {number}" for i in range(40_000)]
    if number % 2 == 0:
        schema = {"enum": names}
    else:
        schema = {"type": "object", "required": names[:4000],
                  "properties": {name: {"type": "integer"} for name in names[:4000]}}
    return json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 8,
                       "response_format": {"type": "json_schema",
                                           "json_schema": {"name": "bomb", "schema": schema}}})


def bombs(client, statuses):
    in_threads(16, lambda i: again_and_again(
        statuses, lambda n: client.post("/v1/chat/completions", bomb(16 * n + i))))


def texts(client, statuses):
    body = json.dumps({"input": [f"river lamp {i}" for i in range(2048)]})
    in_threads(30, lambda _: again_and_again(
        statuses, lambda _: client.post("/v1/embeddings", body)))


def pings(client, statuses):
    def ping(_):
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60,
                                                source_address=(client.address, 0))
        again_and_again(statuses, lambda _: client.post("/v1/models", None, connection))
    in_threads(64, ping)


CASES = {case.__name__: case for case in (count_tokens, silent, half_heads, bombs, texts, pings)}


def attack(case, client, statuses):
    # A's client must not slow B's client: only the server's time is measured.
    os.nice(10)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    CASES[case](client, statuses)
    signal.pause()


def ask(client):
    """How long a request for two tokens takes, and its status; 0 if there is no answer."""
    body = json.dumps({"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2})
    begun = time.monotonic()
    try:
        status = client.post("/v1/chat/completions", body)
    except (OSError, http.client.HTTPException):
        status = 0
    return time.monotonic() - begun, status


def run(case, options, folder):
    addresses, keys = ("127.0.0.2", "127.0.0.3"), (None, None)
    if options.keys:
        addresses, keys = ("127.0.0.1",) * 2, tenants.KEYS.values()
    statuses = multiprocessing.Array("q", 600)
    with tenants.serve(options, folder, "--pooling", "mean", with_keys=options.keys) as server:
        server.ready()
        a, b = (Client(server.port, address, key) for address, key in zip(addresses, keys))
        alone = [ask(b)[0] for _ in range(10)]
        attacker = multiprocessing.Process(target=attack, args=(case, a, statuses))
        attacker.start()
        try:
            time.sleep(3)  # until all that A sends is there
            beside, until = [], time.monotonic() + options.seconds
            while time.monotonic() < until:
                beside.append(ask(b))
                time.sleep(0.1)
        finally:
            attacker.kill()
            attacker.join()
    waits = [wait for wait, _ in beside]
    n_answered = sum(status == 200 for _, status in beside)
    return {"tenants": "keys" if options.keys else "addresses",
            "alone_s": round(statistics.median(alone), 3),
            "beside_s": round(statistics.median(waits), 3), "beside_max_s": round(max(waits), 3),
            "requests": len(beside), "answered": n_answered,
            "refused": sum(status in (429, 503) for _, status in beside),
            "of_a": {str(status): n for status, n in enumerate(statuses) if n > 0},
            "holds": max(waits) <= tenants.MAX_SECONDS and n_answered == len(beside)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=15, help="beside A (%(default)s)")
    parser.add_argument("--keys", action="store_true")
    options = parser.parse_args()
    return tenants.run_cases(parser, options, CASES,
                             lambda name, folder: run(name, options, folder))


if __name__ == "__main__":
    sys.exit(main())
