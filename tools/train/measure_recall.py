"""Measures a model through `weft serve`: conversations of trials.py, spoken turn by turn over
/v1/chat/completions, so that the replies of the context are the model's own.

A reply counts when it contains the value that was asked for and no other that the conversation
told; or is the sentence for what was not told, or the one for what is none of the model's business;
or calls the tool that was named. One that was cut, because it did not end, never counts.
--together conversations run side by side.
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
import held_out
import strangers
import trials

NAMES = "names"  # every one of held_out.NAMES, or as many as --trials says


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

    def reply(self, messages, tools):
        """The message, and whether it ended."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"messages": messages, "temperature": 0, "max_tokens": 300}
        if tools:
            body["tools"] = [described(tool) for tool in tools]
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        if "choices" not in answer:
            if answer.get("error", {}).get("code") != "context_length_exceeded":
                raise SystemExit(f"weft serve answered {answer}")
            return {}, False  # replies that never ended have filled it
        choice = answer["choices"][0]
        return choice["message"], choice["finish_reason"] in ("stop", "tool_calls")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def described(tool):
    properties = {name: {"type": "string"} for name in tool.parameters}
    return {"type": "function", "function": {"name": tool.name, "description": "A tool.",
                                             "parameters": {"type": "object", "properties": properties}}}


def has_word(text, word):
    return re.search(r"(?<!\w)" + re.escape(word) + r"(?!\w)", text) is not None


def is_right(check, message):
    kind, wanted = check
    text = message.get("content") or ""
    if kind == "value":
        value, rivals = wanted
        return has_word(text, value) and not any(has_word(text, r) for r in rivals if not has_word(value, r))
    if kind == "call":
        return wanted in [call["function"]["name"] for call in message.get("tool_calls") or []]
    return text == {"unknown": dialogues.UNKNOWN, "other": strangers.OTHER}[kind]


def converse(server, trial):
    """What was said, and of each check whether it was passed."""
    messages, results = [], []
    for turn in trial.turns:
        messages.append({"role": "user", "content": turn.text})
        message, ended = server.reply(messages, trial.tools)
        messages.append({"role": "assistant", "content": message.get("content") or ""})
        if message.get("tool_calls"):
            messages[-1]["tool_calls"] = message["tool_calls"]
        if turn.check:
            results.append(ended and is_right(turn.check, message))
    return messages, results


def draw(kind, seed, count):
    rng = random.Random(f"{seed} {kind}")
    if kind == NAMES:
        names = held_out.NAMES if count >= len(held_out.NAMES) else rng.sample(held_out.NAMES, count)
        return [trials.a_name(rng, name) for name in names]
    return [trials.KINDS[kind](rng) for _ in range(count)]


def main():
    kinds = [NAMES, *trials.KINDS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--trials", type=int, default=100, help="of each kind")
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--show-misses", action="store_true")
    parser.add_argument("--only", action="append", default=[], choices=kinds)
    parser.add_argument("--at-least", type=float, metavar="PERCENT", help="fails where a kind is below that")
    parser.add_argument("--but", action="append", default=[], metavar="KIND=PERCENT",
                        help="another bound for this kind")
    parser.add_argument("flags", nargs="*", help="for weft serve, after --: -m FILE ... (default: -m box)")
    args = parser.parse_args()
    kinds = args.only or kinds
    bounds = {kind: float(percent) for kind, percent in (bound.split("=") for bound in args.but)}
    if not bounds.keys() <= set(kinds):
        parser.error(f"--but: the kinds are {', '.join(kinds)}")
    failed = False
    server = Server(args.weft, args.flags if "-m" in args.flags else ["-m", "box", *args.flags])
    try:
        with concurrent.futures.ThreadPoolExecutor(args.together) as pool:
            for kind in kinds:
                spoken = list(pool.map(lambda trial: converse(server, trial),
                                       draw(kind, args.seed, args.trials)))
                results = [r for _, part in spoken for r in part]
                percent = 100 * sum(results) / len(results)
                failed = failed or percent < bounds.get(kind, args.at_least or 0)
                print(f"{kind}: {sum(results)} of {len(results)} = {percent:.1f} %", flush=True)
                if args.show_misses:
                    for messages, part in spoken:
                        if not all(part):
                            print(json.dumps(messages, ensure_ascii=False), part)
    finally:
        server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
