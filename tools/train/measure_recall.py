"""Measures the recall of a model through `weft serve`: held-out dialogues, spoken turn by
turn over /v1/chat/completions, so that the replies of the context are the model's own.

A reply counts when it contains the value that was asked for, and no other value that the
dialogue told. --together conversations run side by side.
"""

import argparse
import concurrent.futures
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time

import dialogues

SIZES = [(1, 2), (2, 4), (4, 6), (8, 10)]  # facts, turns


class Server:
    def __init__(self, weft, flags):
        self.process = subprocess.Popen([weft, "serve", "--port", "0", *flags],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            match = re.match(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if match:
                self.port = int(match[1])
                # A log that nobody reads would stop the server once the pipe is full.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return self.wait_until_loaded()
        raise SystemExit("weft serve did not start")

    def wait_until_loaded(self):
        for _ in range(600):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
            time.sleep(0.1)
        self.stop()
        raise SystemExit("weft serve did not load the model within a minute")

    def reply(self, messages):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"messages": messages, "temperature": 0, "max_tokens": 80}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        if "choices" not in answer:
            raise SystemExit(f"weft serve answered {answer}")
        return answer["choices"][0]["message"]["content"] or ""

    def stop(self):
        self.process.terminate()
        self.process.wait()


def has_word(text, word):
    return re.search(r"\b" + re.escape(word) + r"\b", text) is not None


def converse(server, test):
    """What was said, and of each check (value, whether it was recalled)."""
    messages, results = [], []
    for i, message in enumerate(test.messages):
        if message.role == "user":
            messages.append({"role": "user", "content": dialogues.plain(message.text)})
            continue
        reply = server.reply(messages)
        messages.append({"role": "assistant", "content": reply})
        if i in test.checks:
            value, rivals = test.checks[i]
            right = has_word(reply, value) and not any(has_word(reply, r) for r in rivals)
            results.append((value, right))
    return messages, results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--dialogues", type=int, default=100, help="of each size")
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--show-misses", action="store_true")
    parser.add_argument("--at-least", action="append", default=[], metavar="FACTS=PERCENT",
                        help="fails where recall of so many facts is below that")
    parser.add_argument("flags", nargs="*", help="for weft serve, behind --: -m FILE ...")
    args = parser.parse_args()
    wanted = {int(facts): float(percent)
              for facts, percent in (bound.split("=") for bound in args.at_least)}
    if not wanted.keys() <= {n_facts for n_facts, _ in SIZES}:
        parser.error(f"--at-least: the sizes are {', '.join(str(n) for n, _ in SIZES)} facts")
    failed = False
    server = Server(args.weft, args.flags)
    try:
        with concurrent.futures.ThreadPoolExecutor(args.together) as pool:
            for n_facts, n_turns in SIZES:
                rng = random.Random(args.seed)
                tests = [dialogues.make_recall_test(rng, n_facts, n_turns)
                         for _ in range(args.dialogues)]
                spoken = list(pool.map(lambda test: converse(server, test), tests))
                results = [r for _, part in spoken for r in part]
                right = sum(ok for _, ok in results)
                failed = failed or 100 * right < wanted.get(n_facts, 0) * len(results)
                print(f"{n_facts} facts, {n_turns} turns: {right} of {len(results)} "
                      f"= {100 * right / len(results):.1f} %", flush=True)
                if args.show_misses:
                    for messages, part in spoken:
                        if not all(ok for _, ok in part):
                            print(json.dumps([m["content"] for m in messages]), part)
    finally:
        server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
