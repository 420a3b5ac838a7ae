"""Compares the logits of a checkpoint with those of `weft logits` on its F32 export,
and the vocabulary with `weft tokenize`."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch

import dialogues
import gguf
import train
from encode import encode_dialogue
from export import metadata_of, read_template, tensors_of
from tokenizer import Tokenizer

_TOLERANCE = 1e-3


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weft", default="build/release/weft")
    parser.add_argument("--backend", default="reference")
    parser.add_argument("checkpoint")
    args = parser.parse_args()
    tokenizer = Tokenizer.load(os.path.join(os.path.dirname(args.checkpoint), "vocab.json"))
    model, _ = train.load_model(args.checkpoint)
    messages = dialogues.make_recall_test(random.Random(5), 4, 6).messages
    text = "".join(f"<|{m.role}|>{dialogues.plain(m.text)}<|end|>" for m in messages)
    ids, _ = encode_dialogue(tokenizer, messages)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "box.gguf")
        gguf.write(path, metadata_of(model.shape, tokenizer, read_template(), gguf.F32),
                   tensors_of(model, gguf.F32))
        theirs = json.loads(run(args.weft, "tokenize", "-m", path, "--json", text))
        theirs = theirs["tokens"] if isinstance(theirs, dict) else theirs
        if theirs != ids:
            sys.exit(f"the tokens differ:\n{theirs}\n{ids}")
        with open(os.path.join(folder, "tokens.json"), "w") as file:
            json.dump(ids, file)
        run(args.weft, "logits", "-m", path, "--backend", args.backend,
            "--tokens", file.name, "--out", os.path.join(folder, "logits"))
        theirs = np.fromfile(os.path.join(folder, "logits"), "<f4").reshape(len(ids), -1)
    with torch.no_grad():
        ours = model(torch.tensor([ids]))[0].numpy()
    worst = np.abs(ours - theirs).max()
    print(f"{len(ids)} tokens, largest logit {np.abs(ours).max():.2f}, largest difference {worst:.2e}")
    if not worst <= _TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    main()
