#!/usr/bin/env python3
"""Answers with and without a draft model, over HTTP, on the same file.

  bench/drafts.py --server 'off=COMMAND' --server 'NAME=COMMAND' ... [--tokens N] [--together N]
      [--text FILE] [--runs N] MODEL

COMMAND starts a server that has llama-server's /completion; {model} and {port} in it are replaced, as in
  'off=build/release/weft serve -m {model} --port {port} --threads 2 --speculate off'
  'draft=build/release/weft serve -m {model} --port {port} --threads 2 -md DRAFT'
Each server is started afresh for each run, and they take turns. Works: two prompts of a sentence,
and two of about 1,000 tokens out of FILE, one request after the other, or --together N of the short
ones at once. Answers are greedy and have exactly N tokens. Prints the medians of the whole requests'
times, prompts included, as Markdown table rows: the ratio of the first server's to each, the share
of its drafts that were accepted, and how many texts differ from the first server's.
"""
import json
import pathlib
import statistics
import sys
import threading
import time

from serving import arguments, in_turns

SHORT = ["Write a story about a weaver who finds an old loom in the attic.",
         "Explain how a bicycle stays upright, step by step."]
TEXT = pathlib.Path(__file__).parent.parent / "docs" / "design.md"


def works(options):
    """Lists of prompts that are sent at once, by name."""
    if options.together > 1:
        return {f"{options.together} together":
                [f"{SHORT[i % 2]} ({i})" for i in range(options.together)]}
    text = pathlib.Path(options.text).read_text(encoding="utf-8")
    return {"short 1": SHORT[:1], "short 2": SHORT[1:],
            "long 1": [text[:4500] + "\n\nSummarize the text above in detail."],
            "long 2": [text[6000:10500] + "\n\nExplain the text above."]}


def measure(server, options):
    """By work: seconds, and the answers."""
    results = {}
    for name, prompts in works(options).items():
        answers = [None] * len(prompts)

        def ask(i, prompts=prompts, answers=answers):
            reply = server.post("/completion", {
                "prompt": prompts[i], "n_predict": options.tokens, "temperature": 0,
                "ignore_eos": True, "cache_prompt": False})
            answers[i] = json.loads(reply.read())

        begin = time.monotonic()
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answer in answers:
            if answer is None or answer.get("tokens_predicted") != options.tokens:
                sys.exit(f"drafts: {name}: asked for {options.tokens} tokens, got {answer}")
        results[name] = (time.monotonic() - begin, answers)
    return results


def main():
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = in_turns("drafts", options, lambda server, run: measure(server, options))
    first = next(iter(runs))
    print(f"| {options.tokens} tokens, median of {options.runs} | server | s | ratio | drafts that "
          "were right | other texts |")
    print("|---|---|---|---|---|---|")
    for work in works(options):
        seconds = {name: statistics.median(run[work][0] for run in runs[name]) for name in runs}
        texts = [answer["content"] for answer in runs[first][0][work][1]]
        for name in runs:
            answers = [answer for run in runs[name] for answer in run[work][1]]
            made = sum(answer["timings"].get("draft_n", 0) for answer in answers)
            right = sum(answer["timings"].get("draft_n_accepted", 0) for answer in answers)
            others = sum(answer["content"] != texts[i % len(texts)] for i, answer in enumerate(answers))
            share = f"{100 * right / made:.0f} % of {made}" if made else ""
            print(f"| {work} | {name} | {seconds[name]:.2f} | {seconds[first] / seconds[name]:.2f}x "
                  f"| {share} | {others} |", flush=True)


if __name__ == "__main__":
    main()
