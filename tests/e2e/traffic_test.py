#!/usr/bin/env python3
"""Mixed random traffic against weft serve: every API, sessions, clients that leave, nonsense.

  traffic_test.py [--minutes N] [--clients N] [--seed N]

Afterwards nothing runs, pages are held by the prefix index alone, the process has not grown
over the second half (judged from five minutes on), and it ends with 0.
"""

import argparse
import collections
import http.client
import json
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

from serve_test import Server
from weft_process import TIMEOUT_S, make_model, resident_kib

LARGE = b'{"prompt": "' + b"x" * (33 << 20) + b'"}'
KEYS = ("key-one", "key-two", "key-three")
SESSIONS = tuple(f"s{i}" for i in range(8))
WORDS = "the kitchen is where we cook and the garden is where it grows".split()

# What a well-formed request may be answered with: done, a session that is not there or
# busy, everything full.
FINE = {200, 404, 409, 429, 503}


class Traffic:
    def __init__(self, server, seed):
        self.server = server
        self.seed = seed
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.faults = []

    def fault(self, what):
        with self.lock:
            self.faults.append(what)
        self.stop.set()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def client(self, number):
        rng = random.Random(f"{self.seed} {number}")
        actions = ((self.chat, 6), (self.messages, 3), (self.responses, 3), (self.completions, 3),
                   (self.llama, 3), (self.leaver, 6), (self.session_call, 6), (self.look, 2),
                   (self.nonsense, 3))
        while not self.stop.is_set():
            action = rng.choices([a for a, _ in actions], [w for _, w in actions])[0]
            try:
                action(rng)
            except Exception as error:  # pylint: disable=broad-except
                self.fault(f"{action.__name__}: {type(error).__name__}: {error}")

    # --- requests ---------------------------------------------------------------------

    @staticmethod
    def text(rng, most=30):
        return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))

    @staticmethod
    def headers(rng):
        headers = {"Authorization": f"Bearer {rng.choice(KEYS)}"}
        if rng.random() < 0.3:
            headers["x-session-affinity"] = rng.choice(SESSIONS)
        return headers

    def turns(self, rng):
        messages = []
        for _ in range(rng.randint(0, 3)):
            messages += [{"role": "user", "content": self.text(rng)},
                         {"role": "assistant", "content": self.text(rng)}]
        return messages + [{"role": "user", "content": self.text(rng)}]

    def with_session(self, rng, body):
        if rng.random() < 0.4:
            body["session_id"] = rng.choice(SESSIONS)
        return body

    def chat_body(self, rng):
        return self.with_session(rng, {
            "messages": self.turns(rng), "max_tokens": rng.randint(1, 40), "n": rng.choice([1, 1, 2]),
            "temperature": rng.choice([0, 1]), "stream": rng.random() < 0.6,
            "logprobs": rng.random() < 0.2})

    def ask(self, rng, path, body, end=b""):
        """A request whose answer is read; `end` is what ends a stream of it."""
        answer = self.server.ask("POST", path, body, **self.headers(rng))
        self.count(f"POST {path} {answer.status}")
        if answer.status not in FINE:
            return self.fault(f"{path}: {answer}")
        if answer.status == 200 and body.get("stream") and not answer.body.rstrip().endswith(end):
            # Its session was closed by another client.
            if b"cancelled" not in answer.body:
                return self.fault(f"{path}: the stream ends with {answer.body[-300:]!r}")
        return None

    def chat(self, rng):
        self.ask(rng, "/v1/chat/completions", self.chat_body(rng), b"data: [DONE]")

    def messages(self, rng):
        self.ask(rng, "/v1/messages", self.with_session(rng, {
            "messages": self.turns(rng), "max_tokens": rng.randint(1, 40),
            "system": self.text(rng), "stream": rng.random() < 0.6}),
            b'data: {"type":"message_stop"}')

    def responses(self, rng):
        body = self.with_session(rng, {"input": self.text(rng), "max_output_tokens": 20,
                                       "stream": rng.random() < 0.6})
        self.ask(rng, "/v1/responses", body, b"}")

    def completions(self, rng):
        self.ask(rng, "/v1/completions", {
            "prompt": [self.text(rng) for _ in range(rng.randint(1, 4))],
            "max_tokens": rng.randint(0, 30), "echo": rng.random() < 0.3,
            "stream": rng.random() < 0.5, "logprobs": rng.choice([None, 2])}, b"data: [DONE]")

    def llama(self, rng):
        self.ask(rng, "/completion", {
            "prompt": [self.text(rng) for _ in range(rng.randint(1, 4))],
            "n_predict": rng.randint(1, 40), "stream": rng.random() < 0.5,
            "n_probs": rng.choice([0, 3])}, b"}")

    def leaver(self, rng):
        """Asks for much and goes away at some moment."""
        path, body = rng.choice((
            ("/v1/chat/completions", {**self.chat_body(rng), "max_tokens": 2000}),
            ("/v1/messages", {"messages": self.turns(rng), "max_tokens": 2000,
                              "stream": rng.random() < 0.6}),
            ("/completion", self.with_session(rng, {
                "prompt": [rng.randint(5, 400) for _ in range(rng.randint(1, 2000))],
                "n_predict": 2000, "ignore_eos": True, "stream": rng.random() < 0.6}))))
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in self.headers(rng).items()) + "\r\n"
        sent = head.encode() + data
        if rng.random() < 0.2:
            sent = sent[:rng.randrange(len(sent))]
        with socket.create_connection(("127.0.0.1", self.server.port), TIMEOUT_S) as connection:
            connection.sendall(sent)
            if rng.random() < 0.5:
                connection.settimeout(rng.random())
                try:
                    connection.recv(rng.randint(1, 4096))
                except TimeoutError:
                    pass
            else:
                time.sleep(rng.random() * 0.3)
            if rng.random() < 0.3:
                connection.shutdown(socket.SHUT_WR)
        self.count("left")

    def session_call(self, rng):
        name = rng.choice(SESSIONS)
        method, path, body = rng.choice((
            ("GET", "/v1/sessions", None), ("GET", f"/v1/sessions/{name}", None),
            ("POST", "/v1/sessions", {"id": name}),
            ("POST", f"/v1/sessions/{name}/fork",
             {"session_id": rng.choice(SESSIONS), "position": rng.choice([-1, 0, 5, 50])}),
            ("POST", f"/v1/sessions/{name}/reset", None),
            ("POST", f"/v1/sessions/{name}/park", None),
            ("POST", f"/v1/sessions/{name}/restore", None),
            ("DELETE", f"/v1/sessions/{name}", None),
            ("DELETE", "/v1/sessions?idle_seconds=2", None)))
        answer = self.server.ask(method, path, body, **self.headers(rng))
        self.count(f"{method} {path.split('/')[-1].split('?')[0]} {answer.status}")
        # 400: there is no such position in it.
        if answer.status not in FINE | {400}:
            self.fault(f"{method} {path}: {answer}")

    def look(self, rng):
        path = rng.choice(("/health", "/metrics", "/slots", "/props", "/v1/models"))
        answer = self.server.ask("GET", path, **self.headers(rng))
        if answer.status != 200:
            self.fault(f"{path}: {answer}")

    def nonsense(self, rng):
        method, path, body, status = rng.choice((
            ("POST", "/completion", b"{", 400), ("POST", "/v1/messages", b"[" * 100_000, 400),
            ("POST", "/v1/chat/completions", {"messages": []}, 400),
            ("POST", "/v1/chat/completions", {"messages": self.turns(rng), "temperature": 9}, 400),
            ("POST", "/completion", {"prompt": [5] * 5000}, 400),
            ("POST", "/completion", LARGE, 413), ("GET", "/nothing", None, 404),
            ("DELETE", "/v1/models", None, 405), ("GET", "/props", None, 401)))
        headers = self.headers(rng)
        if status == 401:
            headers["Authorization"] = "Bearer nobody"
        try:
            answer = self.server.ask(method, path, body, **headers)
        except (ConnectionError, http.client.HTTPException) as error:
            # It was refused before all of it was sent.
            if status == 413:
                return
            self.fault(f"{method} {path} that gives {status}: {type(error).__name__}: {error}")
            return
        self.count(f"nonsense {answer.status}")
        # A server that is full says so first.
        if answer.status not in (status, 429, 503):
            self.fault(f"{method} {path}: {answer} instead of {status}")


def watch(server, traffic, seconds):
    """The process's size, in MiB, at forty moments."""
    sizes = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and not traffic.stop.wait(seconds / 40):
        sizes.append(resident_kib(server.process) / 1024)
    return sizes


def check_growth(sizes, minutes):
    third, last = sizes[len(sizes) // 2:len(sizes) * 3 // 4], sizes[len(sizes) * 3 // 4:]
    before, after = sum(third) / len(third), sum(last) / len(last)
    print(f"resident: {sizes[0]:.0f} MiB at the start, {before:.1f} in the third quarter, "
          f"{after:.1f} in the last")
    if minutes >= 5:
        assert after < before * 1.05 + 8, "the process grows"


def check_idle(server):
    server.until(lambda: server.metric("weft_turns_running", **OWNER) == 0, "turns still run")
    server.until(lambda: server.metric("weft_turns_queued", **OWNER) == 0, "turns still wait")
    for key in KEYS:
        # A turn that has just been cancelled may still hold its session.
        server.until(lambda k=key: drop_all(server, k) == 0, "sessions cannot be dropped")
    used, indexed = (server.metric(f'weft_pages{{kind="{kind}"}}', **OWNER)
                     for kind in ("used", "in_index"))
    assert used == indexed, f"{used} pages are used, {indexed} are in the index"
    assert server.metric("weft_turns_failed_total", **OWNER) == 0, "turns failed"


OWNER = {"Authorization": f"Bearer {KEYS[0]}"}


def drop_all(server, key):
    headers = {"Authorization": f"Bearer {key}"}
    server.ask("DELETE", "/v1/sessions?idle_seconds=0", **headers)
    return len(server.ask("GET", "/v1/sessions", **headers).json["data"])


def run(server, args):
    traffic = Traffic(server, args.seed)
    clients = [threading.Thread(target=traffic.client, args=(i,)) for i in range(args.clients)]
    for client in clients:
        client.start()
    sizes = watch(server, traffic, args.minutes * 60)
    traffic.stop.set()
    for client in clients:
        client.join(TIMEOUT_S)
    print(f"{sum(traffic.counts.values())} requests:",
          ", ".join(f"{what} {n}" for what, n in sorted(traffic.counts.items())))
    assert not traffic.faults, traffic.faults[:5]
    check_idle(server)
    check_growth(sizes, args.minutes)
    bad = [line for line in server.lines if " 500 " in line or line.startswith("weft:")]
    assert not bad, bad[:5]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=1 / 3)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = make_model(folder / "model.gguf", "tiny-llama", "Q8_0")
        keys = folder / "keys.txt"
        keys.write_text("\n".join(KEYS), encoding="ascii")
        owner = folder / "owner.txt"
        owner.write_text(KEYS[0], encoding="ascii")
        flags = ("--state-dir", folder / "state", "--api-key-file", keys,
                 "--metrics-key-file", owner, "--memory", "24M",
                 "--max-running", 4, "--max-queue", 8, "--max-sessions", 16, "--threads", 1)
        with Server(model, *flags) as server:
            run(server.ready(), args)
            assert server.end() == 0, server.log[-2000:]
        with Server(model, *flags) as server:
            server.ready()
            assert server.end() == 0, server.log[-2000:]
    print("all is idle, nothing grew, exit 0")


if __name__ == "__main__":
    sys.exit(main())
