#!/usr/bin/env python3
"""What a projector of tools/sight/train_sight.py sees through SmolLM2.

  tests/real/sight_test.py [--weft build/release/weft] [--pictures N]

The projector is $WEFT_SIGHT, or sight-mmproj.gguf where tools/get_model.py keeps models; without
it, or without Pillow and numpy, the test is skipped with a line that says so."""

import argparse
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/sight")]

import get_model  # noqa: E402

SKIPPED = 77
LEAST = 0.9  # the share of right answers


def skip(why):
    print(f"SKIPPED: sight: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=os.environ.get("WEFT", str(ROOT / "build/release/weft")))
    parser.add_argument("--pictures", type=int, default=60)
    args = parser.parse_args()
    known = get_model.default_folder() / "sight-mmproj.gguf"
    projector = pathlib.Path(os.environ.get("WEFT_SIGHT") or known)
    if not projector.exists():
        skip(f"{projector} is not there: tools/sight/train_sight.py makes it")
    try:
        import evaluate
        import scenes
        scenes.fonts()
    except ImportError as error:
        skip(f"{error}: pip install numpy Pillow")
    except FileNotFoundError as error:
        skip(str(error))
    try:
        model = get_model.get("smollm2")
    except get_model.CannotFetch as error:
        skip(str(error))
    counts = evaluate.measure(args.weft, str(model), str(projector), args.pictures, print)
    print(evaluate.table(counts))
    right, n = map(sum, zip(*counts.values()))
    sys.exit(right < LEAST * n)


if __name__ == "__main__":
    main()
