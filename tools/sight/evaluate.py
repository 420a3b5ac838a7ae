#!/usr/bin/env python3
"""Asks a model of Weft's about pictures that nobody drew before, and counts the right answers.

  tools/sight/evaluate.py [--pictures N] [--least SHARE] MODEL PROJECTOR

Each picture gets one question of each kind. An answer is right if it ends with the expected words,
in any case, after at most one other word."""

import argparse
import base64
import io
import pathlib
import random
import sys
from collections import defaultdict

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "examples")]

import scenes  # noqa: E402
from isolation import Server  # noqa: E402

FIRST = 1_000_001  # odd: no training has drawn it


def data_url(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def ask(server, picture, text):
    body = {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": text}]}],
        "temperature": 0, "max_tokens": 8}
    status, answer = server.ask("POST", "/v1/chat/completions", body)
    if status != 200:
        raise SystemExit(f"status {status}: {answer}")
    return answer["choices"][0]["message"]["content"]


def is_right(answer, accepted):
    words = "".join(c if c.isalnum() else " " for c in answer.lower()).split()
    return words[-len(accepted):] == list(accepted) and len(words) <= len(accepted) + 1


def evaluate(server, n_pictures, first=FIRST, show=None):
    """The number of right answers, and of questions, by kind."""
    artist, rng = scenes.Artist(), random.Random(first)
    counts = defaultdict(lambda: [0, 0])
    for number in range(first, first + 2 * n_pictures, 2):
        scene, picture = artist.draw(number)
        asked = scenes.questions(scene)
        shown = data_url(picture)
        for kind in sorted({question.kind for question in asked}):
            question = rng.choice([q for q in asked if q.kind == kind])
            answer = ask(server, shown, question.text)
            right = is_right(answer, question.accepted)
            counts[kind][0] += right
            counts[kind][1] += 1
            if show and not right:
                show(f"{scene}: {question.text} {answer!r}")
    return dict(counts)


def measure(weft, model, projector, n_pictures, show=None):
    with Server(weft, ["-m", model, "--mmproj", projector]) as server:
        return evaluate(server, n_pictures, show=show)


def table(counts):
    lines = ["| question | right | of |", "|---|---|---|"]
    rows = [*sorted(counts.items()), ("all", [sum(column) for column in zip(*counts.values())])]
    return "\n".join(lines + [f"| {kind} | {right / n:.1%} | {n} |" for kind, (right, n) in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"))
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--least", type=float, default=0.0, help="of every kind, or exit 1")
    parser.add_argument("--show", action="store_true", help="print what is wrong")
    parser.add_argument("model")
    parser.add_argument("projector")
    args = parser.parse_args()
    counts = measure(args.weft, args.model, args.projector, args.pictures,
                     print if args.show else None)
    print(table(counts))
    sys.exit(any(right < args.least * n for right, n in counts.values()))


if __name__ == "__main__":
    main()
