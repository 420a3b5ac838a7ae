#!/usr/bin/env python3
"""What guessing gives where answers repeat: a model rewrites source files with a small change.

  bench/rewrites.py --server 'NAME=COMMAND' --server 'NAME=COMMAND' [...] [--tasks N] [--together N]
                    [--requests FILE [--agent NAME]...] [--predict N] MODEL

COMMAND starts a server that has llama-server's API; {model} and {port} in it are replaced, as in
  'off=build/release/weft serve -m {model} --port {port} --threads 2 --speculate off'
  'lookup=build/release/weft serve -m {model} --port {port} --threads 2'
The servers answer each task in turn, at temperature 0. The files are this project's sources of 300
to 2,000 tokens, chosen by a seed. For each server: the median over tasks of its rate beside the
first server's, the share of guesses that were right, and how many of its texts differ from the
first server's. --together N asks N tasks at once and compares the rates of all.

--requests answers recorded chat requests instead, with FILE as for bench/agents.py: all those of
OpenAI's /v1/chat/completions, or of the agents that --agent names.

--predict N tells the other servers what the first one answered, as OpenAI's `prediction`, with one
word in N replaced.
"""
import concurrent.futures
import contextlib
import json
import pathlib
import random
import re
import statistics
import sys
import time

from serving import Server, arguments

ROOT = pathlib.Path(__file__).resolve().parent.parent
IDENTIFIER = re.compile(r"\b[a-z]+_[a-z_]+\b|\b[A-Z][a-z]+[A-Z]\w+\b")


def recorded(path, agents):
    """(agent, request) of the recorded chats."""
    with open(path, encoding="utf-8") as file:
        requests = [json.loads(line) for line in file]
    chats = [request for request in requests if request["path"] == "/v1/chat/completions"
             and (not agents or request["agent"] in agents)]
    for chat in chats:
        for name in ("stream", "stream_options", "max_completion_tokens"):
            chat["body"].pop(name, None)
    return [(chat["agent"], chat["body"]) for chat in chats]


def tasks(server, count):
    """(file name, request) of `count` files, each with a name in it to be changed everywhere."""
    files = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".cc", ".h"))
    random.Random(7).shuffle(files)
    chosen = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        names = IDENTIFIER.findall(text)
        if not names or not 1000 < len(text) < 8000:
            continue
        if not 300 <= len(server.tokens_of(text)) <= 2000:
            continue
        name = max(sorted(set(names)), key=names.count)
        wish = f"Rename `{name}` to `{name}_2` everywhere in this file. Answer with the whole file."
        message = {"role": "user", "content": f"{wish}\n\n```cpp\n{text}```"}
        chosen.append((path.name, {"messages": [message]}))
        if len(chosen) == count:
            return chosen
    sys.exit(f"rewrites: only {len(chosen)} files fit")


def ask(server, request, tokens):
    body = dict(request, max_tokens=tokens, temperature=0)
    reply = json.loads(server.post("/v1/chat/completions", body).read())
    if "choices" not in reply:
        sys.exit(f"rewrites: {reply}")
    message = reply["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return (message["content"], calls), reply["timings"]


class Tally:
    def __init__(self, name):
        self.name, self.ratios, self.rates = name, [], []
        self.guessed, self.right, self.other_texts = 0, 0, 0

    def add(self, rate, plain_rate, timings, differs):
        self.rates.append(rate)
        self.ratios.append(rate / plain_rate)
        self.guessed += timings.get("draft_n", 0)
        self.right += timings.get("draft_n_accepted", 0)
        self.other_texts += differs

    def row(self):
        right = f"{self.right / self.guessed:.0%} of {self.guessed:,}" if self.guessed else "none"
        return (f"| {self.name} | {statistics.median(self.rates):.1f} | {statistics.median(self.ratios):.2f}x "
                f"| {min(self.ratios):.2f} to {max(self.ratios):.2f} | {right} | {self.other_texts} |")


def predicted(text, every):
    """`text` as a prediction that has one word in `every` wrong."""
    words = text.split(" ")
    for i in random.Random(len(words)).sample(range(len(words)), len(words) // every):
        words[i] = "loom"
    return {"type": "content", "content": " ".join(words)}


def one_by_one(servers, work, tokens, predict):
    tallies = [Tally(name) for name, _ in servers]
    for file, request in work:
        first_text, first_rate = None, None
        for tally, (_, server) in zip(tallies, servers):
            text, timings = ask(server, request, tokens)
            rate = timings["predicted_per_second"]
            if first_text is None:
                first_text, first_rate = text, rate
                if predict:
                    request = dict(request, prediction=predicted(text[0], predict))
            tally.add(rate, first_rate, timings, text != first_text)
        shown = ", ".join(f"{tally.name} {tally.rates[-1]:.1f} tok/s" for tally in tallies)
        print(f"{file}: {shown}", file=sys.stderr)
    return tallies


def side_by_side(servers, work, tokens, count):
    tallies = [Tally(name) for name, _ in servers]
    for begin in range(0, len(work) - count + 1, count):
        group, first_texts, first_rate = work[begin:begin + count], None, None
        for tally, (_, server) in zip(tallies, servers):
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                # The prompts are computed, and kept, before the clock starts.
                list(pool.map(lambda task: ask(server, task[1], 1), group))
                start = time.monotonic()
                answers = list(pool.map(lambda task: ask(server, task[1], tokens), group))
                seconds = time.monotonic() - start
            texts = [text for text, _ in answers]
            rate = sum(timings["predicted_n"] for _, timings in answers) / seconds
            if first_texts is None:
                first_texts, first_rate = texts, rate
            both = {key: sum(timings.get(key, 0) for _, timings in answers)
                    for key in ("draft_n", "draft_n_accepted")}
            tally.add(rate, first_rate, both, sum(a != b for a, b in zip(texts, first_texts)))
    return tallies


def main():
    parser = arguments(__doc__)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=2000, help="most tokens of an answer")
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--predict", type=int, metavar="N")
    parser.add_argument("--requests", metavar="FILE")
    parser.add_argument("--agent", action="append", help="only this one; again for more")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        running = [(name, stack.enter_context(Server(command, model=options.model)))
                   for name, command in options.servers]
        if options.requests:
            work = recorded(options.requests, options.agent)
        else:
            work = tasks(running[0][1], options.tasks)
        if options.together > 1:
            tallies = side_by_side(running, work, options.tokens, options.together)
        else:
            tallies = one_by_one(running, work, options.tokens, options.predict)
    print("| server | tok/s | beside the first | from, to | guesses that were right | other texts |\n"
          "|---|---|---|---|---|---|")
    for tally in tallies:
        print(tally.row())


if __name__ == "__main__":
    main()
