#!/usr/bin/env python3
"""Whether a model carries the conversations that the page proposes for it.

    tools/measure_prompts.py --weft build/release/weft [-m MODEL] [--set NAME] [FLAG of weft serve ...]

Starts `weft serve`, asks everything that web/src/prompts.json proposes for the model (as the page
asks it: no system prompt, no sampling but the server's own) with 20 seeds each, and prints a table.
An answer is good when it came to its end by itself, says no sentence three times, and matches the
pattern that prompt_criteria.json has for it. Exit code 1 when anything has fewer than 19 of 20.

    tools/measure_prompts.py --check      checks that every suggested prompt has a pattern
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_TOKENS = 600
START_S = 300
ANSWER_S = 3600  # of a slow machine


def load():
    sets = json.loads((ROOT / "web/src/prompts.json").read_text())
    criteria = json.loads((ROOT / "tools/prompt_criteria.json").read_text())
    return sets, criteria


def check(sets, criteria):
    missing = []
    for one in sets:
        known = criteria.get(one["name"], {})
        missing += [(one["name"], "prompts", p["text"]) for p in one["prompts"]
                    if p["text"] not in known.get("prompts", {})]
        for part in ("several", "then"):
            missing += [(one["name"], part, line) for line in one["several"]
                        if line not in known.get(part, {})]
    return missing


class Server:
    def __init__(self, weft, flags):
        self.process = subprocess.Popen([weft, "serve", "--port", "0", *flags], text=True,
                                        stderr=subprocess.PIPE)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            found = re.match(r"listening on (http:\S+)", line)
            if found:
                self.url = found.group(1)
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(lines))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.get("/health")
                return
            except urllib.error.HTTPError:  # it loads
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)

    def end(self):
        self.process.terminate()
        self.process.wait()


def chosen(sets, meta):
    """As choose() in web/src/prompts.tsx."""
    for one in sets:
        fits = "title" not in one or re.search(one["title"], meta.get("title", ""), re.IGNORECASE)
        if fits and meta["n_params"] <= one.get("mostParameters", float("inf")):
            return one
    return sets[-1]


def repeats(text):
    sentences = [s.strip().lower() for s in re.split(r"[.!?\n]+", text) if len(s.strip()) > 12]
    return any(sentences.count(s) >= 3 for s in set(sentences))


def is_good(choice, pattern):
    text = choice["message"]["content"] or ""
    return (choice["finish_reason"] == "stop" and not repeats(text)
            and re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--weft")
    parser.add_argument("-m", "--model")
    parser.add_argument("--set", help="the set of that name, whatever the model")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--at-least", type=float, default=0.95, help="of the seeds (0.95)")
    parser.add_argument("--show", action="store_true", help="the answers that are not good")
    args, flags = parser.parse_known_args()
    sets, criteria = load()
    missing = check(sets, criteria)
    for name, part, text in missing:
        print(f"no pattern for {part} of {name}: {text}")
    if args.check or missing:
        return 1 if missing else 0

    server = Server(args.weft, ["-m", args.model or "box", *flags])
    failed = 0
    try:
        meta = server.get("/v1/models")["data"][0]["meta"]
        one = next(s for s in sets if s["name"] == args.set) if args.set else chosen(sets, meta)
        patterns = criteria[one["name"]]

        def ask(messages, seed):
            body = {"messages": messages, "seed": seed, "max_tokens": MOST_TOKENS}
            return server.get("/v1/chat/completions", body)["choices"][0]

        def report(label, goods):
            nonlocal failed
            good = sum(goods)
            enough = good >= args.at_least * len(goods)
            failed += not enough
            print(f"| {label} | {good} of {len(goods)} |{'' if enough else ' too few'}", flush=True)

        def measure(label, seeds, run):
            outcomes = list(pool.map(run, seeds))
            report(label, [good for good, _ in outcomes])
            if args.show:
                for good, text in outcomes:
                    if not good:
                        print("    ", repr(text[:300]))

        seeds = range(1, args.seeds + 1)
        print(f"{meta.get('title') or args.model or 'the box'}: set {one['name']}, seeds 1 to {args.seeds}", flush=True)
        with concurrent.futures.ThreadPoolExecutor(args.seeds) as pool:
            for prompt in one["prompts"]:
                pattern = patterns["prompts"][prompt["text"]]

                def run(seed, text=prompt["text"], pattern=pattern):
                    choice = ask([{"role": "user", "content": text}], seed)
                    return is_good(choice, pattern), choice["message"]["content"]

                measure(prompt["text"], seeds, run)
            for line in one["several"]:

                def run(seed, line=line):
                    messages = [{"role": "user", "content": line}]
                    first = ask(messages, seed)
                    messages += [{"role": "assistant", "content": first["message"]["content"]},
                                 {"role": "user", "content": one["then"]}]
                    then = ask(messages, seed)
                    good = is_good(first, patterns["several"][line]) and is_good(then, patterns["then"][line])
                    return good, f"{first['message']['content']} / {then['message']['content']}"

                measure(f"{line} / {one['then']}", seeds, run)
    finally:
        server.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
