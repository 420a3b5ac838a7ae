#!/usr/bin/env python3
"""What a picture costs before an answer's first token: Weft beside other servers, on the same files.

  bench/pictures.py --server 'NAME=COMMAND' [--server ...] [--size WIDTHxHEIGHT] [--runs N] MODEL

COMMAND starts a server that has OpenAI's /v1/chat/completions; {model} and {port} in it are replaced, as in
  'weft=build/release/weft serve -m {model} --mmproj FILE --port {port} --threads 2'
  'llama.cpp=DIR/llama-server -m {model} --mmproj FILE --port {port} -t 2 -np 4'
A fresh server, alone on the machine, is asked with streams of a few tokens each:

  alone      one request with a new picture: its first token
  text       one request with as many tokens of text; the difference to `alone` is the encoding
  again      the picture of `alone` with another question
  four       four requests at once that share a new picture: the first and the last of their first
             tokens, and when all have ended
  beside     another session decodes meanwhile: the gaps between its tokens while a picture is
             encoded, and while a text is computed that takes about as long

The medians over the runs are printed as a Markdown table; --out appends it to a file, with the
machine, the commit and the command.
"""
import argparse
import base64
import random
import statistics
import struct
import sys
import threading
import time
import zlib

from serving import Report, arguments, events, in_turns, words
from waits import Stream, gaps, percentile

SHARERS = 4
MAX_WORDS = 2500  # of a text that takes as long as a picture
TILE = 16  # pixels of one color, each way


def size(text):
    width, is_one, height = text.partition("x")
    if not (is_one and width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r} is not WIDTHxHEIGHT")
    return int(width), int(height)


def mosaic(seed, width, height):
    """A PNG of tiles in random colors, as a data URL."""
    generator = random.Random(seed)

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    rows = []
    for _ in range(0, height, TILE):
        colors = (generator.randbytes(3) * TILE for _ in range(0, width, TILE))
        rows += [b"\0" + b"".join(colors)[:3 * width]] * TILE
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    file = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(b"".join(rows[:height]), 1)) + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(file).decode()


class Ask(threading.Thread):
    """A streamed answer: when its first token came, when it ended, and the prompt's length."""

    def __init__(self, server, text, picture=None, n_predict=8):
        super().__init__(daemon=True)
        parts = [{"type": "image_url", "image_url": {"url": picture}}] if picture else []
        self.body = {"messages": [{"role": "user",
                                   "content": [*parts, {"type": "text", "text": text}]}],
                     "max_tokens": n_predict, "temperature": 0, "ignore_eos": True, "stream": True,
                     "stream_options": {"include_usage": True}}
        self.server, self.first, self.end, self.prompt_tokens = server, None, None, None
        self.error = None
        self.begin = time.monotonic()
        self.start()

    def run(self):
        try:
            reply = self.server.post("/v1/chat/completions", self.body)
            if reply.status != 200:
                self.error = f"HTTP {reply.status}: {reply.read(300)!r}"
                return
            for event in events(reply):
                self.take(event, time.monotonic())
            self.end = time.monotonic()
        except (OSError, ValueError) as error:
            self.error = str(error) or type(error).__name__

    def take(self, event, now):
        if "error" in event:
            self.error = str(event["error"])
        if event.get("usage"):
            self.prompt_tokens = event["usage"]["prompt_tokens"]
        said = [choice.get("delta", {}) for choice in event.get("choices", [])]
        if self.first is None and any(d.get("content") or d.get("reasoning_content") for d in said):
            self.first = now

    def ended(self):
        self.join()
        if self.error or self.first is None:
            sys.exit(f"pictures: a request failed: {self.error or 'it has no token'}")
        return self

    def first_ms(self):
        return 1000 * (self.first - self.begin)


def gaps_beside(server, run, ask):
    """The gaps of a session that decodes while `ask` begins a request, until that has a token."""
    stream = Stream(server, words(run, 12), 4000)
    while not stream.times and not stream.error:
        time.sleep(0.01)
    asked = ask()
    asked.ended()
    found = gaps([stream], asked.begin, asked.first)
    stream.leave()
    if stream.error and not found:
        sys.exit(f"pictures: a session does not decode: {stream.error}")
    return found


def measure(server, run, options):
    def picture(n):
        return mosaic(10 * run + n, *options.size)

    Ask(server, words(run, 8)).ended()  # what a server does only once
    shown = picture(0)
    alone = Ask(server, words(run + 1, 12), shown).ended()
    again = Ask(server, words(run + 2, 12), shown).ended()
    sample = 200
    n_words = round(alone.prompt_tokens * sample / len(server.tokens_of(words(0, sample))))
    text = Ask(server, words(run + 3, n_words)).ended()
    shared = picture(1)
    four = [Ask(server, words(run + 10 + i, 12), shared) for i in range(SHARERS)]
    for ask in four:
        ask.ended()
    begin = min(ask.begin for ask in four)
    n_as_long = min(round(n_words * alone.first_ms() / text.first_ms()), MAX_WORDS)
    by_picture = gaps_beside(server, run + 20,
                             lambda: Ask(server, words(run + 21, 12), picture(2)))
    by_text = gaps_beside(server, run + 22, lambda: Ask(server, words(run + 23, n_as_long)))
    return {"prompt, tokens": alone.prompt_tokens,
            "alone, first token, ms": alone.first_ms(),
            "text, first token, ms": text.first_ms(),
            "encoding, ms": alone.first_ms() - text.first_ms(),
            "again, first token, ms": again.first_ms(),
            "four, first of the first tokens, ms": min(ask.first_ms() for ask in four),
            "four, last of the first tokens, ms": max(ask.first_ms() for ask in four),
            "four, all ended, ms": 1000 * (max(ask.end for ask in four) - begin),
            "beside a picture, gap p50, ms": 1000 * statistics.median(by_picture),
            "beside a picture, gap p99, ms": 1000 * percentile(by_picture, 0.99),
            "beside a text, gap p50, ms": 1000 * statistics.median(by_text),
            "beside a text, gap p99, ms": 1000 * percentile(by_text, 0.99)}


def main():
    parser = arguments(__doc__, reports=True)
    parser.add_argument("--size", type=size, default=(1024, 768), metavar="WIDTHxHEIGHT")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = in_turns("pictures", options, lambda server, run: measure(server, run, options))
    width, height = options.size
    rows = []
    for key in next(iter(runs.values()))[0]:
        middles = [statistics.median(result[key] for result in results) for results in runs.values()]
        rows.append((key, [f"{middle:.1f}" for middle in middles]))
    Report(options.out).table(f"pictures of {width} x {height}, median of {options.runs}", list(runs),
                              rows)


if __name__ == "__main__":
    main()
