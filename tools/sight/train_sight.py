#!/usr/bin/env python3
"""Trains a small encoder with which SmolLM2-135M sees drawn shapes, digits and short words.

  python3 -m venv sight && sight/bin/pip install jax numpy Pillow gguf
  sight/bin/python tools/sight/train_sight.py --out FOLDER MODEL

MODEL is SmolLM2-135M-Instruct as a GGUF file, whose weights stay as they are. FOLDER gets the
projector sight-mmproj.gguf, in llama.cpp's form, and checkpoints: run again, the command goes on
where it was.

  weft run -m MODEL --mmproj FOLDER/sight-mmproj.gguf --image PICTURE "What is it?"

--minutes counts the work of one core. Then tools/sight/evaluate.py counts right answers.

It sees nothing but what scenes.py draws: one to six equal shapes in plain colors, one digit, or one
of a few words, on light paper. It answers the questions of scenes.py and words close to them, does
not know when a question does not fit the picture, and holds no conversation about it. It is for
tests: for photographs take a model from docs/models.md."""

import argparse
import os
import pathlib
import time

import codes
import encoder
import eye
import speech
from language import Language

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The three steps' shares of the time.
EYE, CODES, SPEECH = 0.3, 0.45, 0.25


def log(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=120, help="of one core, all together")
    parser.add_argument("--weft", default=str(ROOT / "build/release/weft"),
                        help="the binary that cuts texts into tokens")
    parser.add_argument("model")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    def checkpoint(name):
        return os.path.join(args.out, name + ".pickle")

    sees = eye.train(checkpoint("eye"), EYE * args.minutes, log)
    language = Language(args.model, args.weft)
    means = codes.train(checkpoint("codes"), CODES * args.minutes, language, log)
    path = os.path.join(args.out, "sight-mmproj.gguf")
    weights = speech.join(sees, means)
    encoder.write(path, weights)
    weights = speech.train(checkpoint("speech"), SPEECH * args.minutes, weights, language, log)
    encoder.write(path, weights)
    log(f"wrote {path}, {encoder.n_parameters(weights)} parameters")


if __name__ == "__main__":
    main()
