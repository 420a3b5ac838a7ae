#!/usr/bin/env python3
"""Makes the model in the box from nothing: vocabulary, training, the GGUF file, and its score.

Run again with the same folder, it goes on where it was."""

import argparse
import os
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="run", help="folder of vocabulary, checkpoints and log")
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--trials", default="100", help="of each kind, for the score")
    parser.add_argument("out", help="the GGUF file")
    parser.add_argument("flags", nargs="*", help="for train.py, behind --: --bf16 --compile ...")
    args = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))

    def step(script, *rest):
        subprocess.run([sys.executable, os.path.join(here, script), *rest], check=True)

    os.makedirs(args.run, exist_ok=True)
    vocabulary, checkpoint = (os.path.join(args.run, name) for name in ("vocab.json", "last.pt"))
    if not os.path.exists(vocabulary):
        step("make_vocabulary.py", vocabulary)
    step("train.py", "--out", args.run, *args.flags)
    step("export.py", "--checkpoint", checkpoint, args.out)
    step("check_logits.py", "--weft", args.weft, checkpoint)
    step("measure_recall.py", "--weft", args.weft, "--trials", args.trials, "--", "-m", args.out)


if __name__ == "__main__":
    main()
