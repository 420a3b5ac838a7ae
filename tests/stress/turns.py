#!/usr/bin/env python3
"""How two tenants share the turns of one server.

  tests/stress/turns.py [--weft PROGRAM] [--case NAME,...] [--seconds S] [--again N] MODEL

A server with two API keys is started for each case. Key B asks for two tokens, N times alone, then
N times while key A keeps these requests open:

  forty        40 chat requests of 64 tokens
  hundreds     300 of them
  choices      one request of 256 prompts with n=16
  embeddings   30 requests for the vectors of 2,048 texts
  texts        30 completions requests of 256 texts, the most that one may have
  loop         12 clients that send short prompts for S seconds; A itself also sends long ones, each
               of which must get at least its fair share, a thirteenth of the time

Or each key keeps a kind of work open for S seconds (60 by default): decode, prefill or lists, such
as `decode+prefill`. The tokens of requests that ended are counted, and a key's share is what part
it has of the tokens that the same clients get alone. On Linux, a second of this is one of the
server's processor time, so that a busy machine does not matter much.

One line of JSON is printed for each case. Its "holds" says whether no request of B took more than a
second or was refused; for two kinds of work, whether the shares are within 10 % of each other. The
exit status is 1 if a case does not hold. Best on a quiet machine.
"""
import argparse
import http.client
import itertools
import json
import os
import pathlib
import sys
import threading
import time

import tenants
from tenants import words as text

MOST_APART = 0.10
KINDS = ("decode", "prefill", "lists")
LOOPS = 12  # clients


class Clients:
    """Both keys' requests."""

    def __init__(self, port):
        self.port = port

    def ask(self, key, path, body, timeout=120):
        """Status and JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Content-Type": "application/json",
                       "Authorization": f"Bearer {tenants.KEYS[key]}"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content.startswith(b"{") else {}
        finally:
            connection.close()

    def chat(self, key, prompt, n_tokens, timeout=120):
        return self.ask(key, "/v1/chat/completions",
                        {"model": "m", "messages": [{"role": "user", "content": prompt}],
                         "max_tokens": n_tokens, "ignore_eos": True}, timeout)


class Crowd:
    """Threads that send requests one after the other, until it ends."""

    def __init__(self):
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.statuses = {}

    def add(self, count, ask):
        for number in range(count):
            threading.Thread(target=self._loop, args=(number, ask), daemon=True).start()

    def _loop(self, number, ask):
        for i in itertools.count(number * 1_000_000):
            if self.ended.is_set():
                return
            try:
                status = ask(i)[0]
            except (OSError, http.client.HTTPException):
                status = 0
            with self.lock:
                self.statuses[status] = self.statuses.get(status, 0) + 1
            if status != 200:
                self.ended.wait(0.1)


def a_forty(clients, crowd, count=40):
    crowd.add(count, lambda i: clients.chat("a", text(30, i), 64, 600))


def a_choices(clients, crowd):
    crowd.add(1, lambda i: clients.ask("a", "/v1/completions", {
        "model": "m", "prompt": [text(20, i + k) for k in range(256)], "n": 16, "max_tokens": 32,
        "ignore_eos": True}, 3600))


def a_texts(clients, crowd, path, field, n_texts, more):
    crowd.add(30, lambda i: clients.ask("a", path, {
        "model": "m", field: [text(20, i + k) for k in range(n_texts)], **more}, 3600))


def a_loop(clients, crowd):
    crowd.add(LOOPS, lambda i: clients.chat("a", text(100, i), 1, 600))


def long_prompts(clients, seconds, first):
    """Of A, one after the other: the seconds of each, at least one."""
    took, statuses = [], []
    end = time.monotonic() + seconds
    while not took or time.monotonic() < end:
        begin = time.monotonic()
        statuses.append(clients.chat("a", text(2000, first - len(took)), 1, 600)[0])
        took.append(time.monotonic() - begin)
    return sorted(took), statuses


CROWDS = {
    "forty": a_forty,
    "hundreds": lambda clients, crowd: a_forty(clients, crowd, 300),
    "choices": a_choices,
    "embeddings": lambda s, c: a_texts(s, c, "/v1/embeddings", "input", 2048, {}),
    "texts": lambda s, c: a_texts(s, c, "/v1/completions", "prompt", 256, {"max_tokens": 4}),
    "loop": a_loop,
}


def waits(clients, again, first):
    seconds, statuses = [], []
    for i in range(again):
        begin = time.monotonic()
        statuses.append(clients.chat("b", text(5, first + i), 2)[0])
        seconds.append(time.monotonic() - begin)
        time.sleep(0.3)
    return sorted(seconds), statuses


def beside(clients, name, args):
    waits(clients, 2, -100)
    alone, _ = waits(clients, args.again, 0)
    long_alone = long_prompts(clients, 0, -100_000)[0][0] if name == "loop" else 0
    crowd = Crowd()
    CROWDS[name](clients, crowd)
    time.sleep(3)
    result = {}
    if name == "loop":
        took, long_statuses = long_prompts(clients, args.seconds, -1)
        fair = took[-1] <= (LOOPS + 1) * long_alone and set(long_statuses) == {200}
        result = {"long_alone_s": round(long_alone, 2), "long_p50_s": round(took[len(took) // 2], 2),
                  "long_max_s": round(took[-1], 2), "longs": len(took), "long_fair": fair}
    seconds, statuses = waits(clients, args.again, 1000)
    with crowd.lock:
        statuses_of_a = dict(crowd.statuses)
    crowd.ended.set()
    holds = (seconds[-1] <= tenants.MAX_SECONDS and set(statuses) == {200}
             and result.get("long_fair", True))
    return {"alone_s": round(alone[-1], 3), "p50_s": round(seconds[len(seconds) // 2], 3),
            "max_s": round(seconds[-1], 3), "refused": sum(s == 429 for s in statuses),
            "failed": sum(s not in (200, 429) for s in statuses), **result, "a": statuses_of_a,
            "holds": holds}


# Requests are short: only those that have ended are counted.
def work(clients, key, kind, crowd, count):
    def ask(i):
        seed = hash((key, i))
        if kind == "decode":
            status, answer = clients.chat(key, text(5, seed), 16, 600)
        elif kind == "prefill":
            status, answer = clients.chat(key, text(300, seed), 1, 600)
        else:
            status, answer = clients.ask(key, "/v1/completions", {
                "model": "m", "prompt": [text(30, seed + k) for k in range(8)], "max_tokens": 8,
                "ignore_eos": True}, 600)
        usage = answer.get("usage", {})
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        if status == 200 and not crowd.ended.is_set():
            count(usage["prompt_tokens"] - cached, usage["completion_tokens"])
        return status, answer

    crowd.add(2 if kind == "lists" else 8, ask)


def used_seconds(process):
    """The processor time of the server; where nobody says, the time."""
    try:
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, seconds, kinds):
    """Tokens (prefill, decode) a second of each key, while all keep their work open."""
    clients = Clients(server.port)
    crowd = Crowd()
    totals = {key: [0, 0] for key in kinds}

    def count_for(key):
        def count(n_prompt, n_decoded):
            with crowd.lock:
                totals[key][0] += n_prompt
                totals[key][1] += n_decoded
        return count

    for key, kind in kinds.items():
        work(clients, key, kind, crowd, count_for(key))
    begin = used_seconds(server.process)
    time.sleep(seconds)
    crowd.ended.set()
    used = used_seconds(server.process) - begin
    return {key: [n / used for n in total] for key, total in totals.items()}


def pair(options, name, folder):
    kinds = name.split("+")
    rates = []
    for both in ({"a": kinds[0]}, {"b": kinds[1]}, {"a": kinds[0], "b": kinds[1]}):
        with tenants.serve(options, folder) as server:
            server.ready()
            seconds = options.seconds if len(both) > 1 else options.seconds / 2
            rates.append(measure(server, seconds, both))
    alone = {key: max(1e-9, sum(rates[i][key])) for i, key in enumerate("ab")}
    if kinds[0] == kinds[1]:  # then it is the same rate, measured twice
        alone = dict.fromkeys("ab", sum(alone.values()) / 2)
    shares = {key: sum(rates[2][key]) / alone[key] for key in "ab"}
    apart = abs(shares["a"] - shares["b"]) / max(max(shares.values()), 1e-9)
    tokens = {key: [round(n) for n in rates[2][key]] for key in "ab"}
    return {"tokens_a_second": tokens, "shares": {k: round(v, 3) for k, v in shares.items()},
            "apart": round(apart, 3), "holds": apart <= MOST_APART}


def run(options, name, folder):
    if "+" in name:
        return pair(options, name, folder)
    with tenants.serve(options, folder,
                       *(["--pooling", "mean"] if name == "embeddings" else [])) as server:
        server.ready()
        return beside(Clients(server.port), name, options)


def main():
    pairs = ["+".join(kinds) for kinds in itertools.combinations_with_replacement(KINDS, 2)]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--case", default=",".join([*CROWDS, *pairs]))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--again", type=int, default=10)
    options = parser.parse_args()
    return tenants.run_cases(parser, options, [*CROWDS, *pairs],
                             lambda name, folder: run(options, name, folder))


if __name__ == "__main__":
    sys.exit(main())
