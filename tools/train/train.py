"""Trains the built-in model. Run again with the same --out, it goes on where it was.

The dialogues of step n follow from --seed and n alone, so a run that was cut and goes on
sees the same data as one that was not. Lengths and difficulty grow as recall is learned:
a stage is left when the error on held-out dialogues of its size falls below a bound.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time

import torch
from torch.nn import functional as F

import dialogues
import invented
from encode import VALUE_WEIGHT, encode_dialogue
from model import Lfm2, Shape
from tokenizer import Tokenizer

# The level of the dialogues, the longest that are taken, and the facts and turns of the
# held-out test that has to be passed to go on.
STAGES = [(0, 96, 1, 2), (1, 192, 2, 4), (2, 320, 4, 6), (3, 512, 8, 10)]
PASS = 0.8
# Of a stage's dialogues some are of those before, so that nothing is forgotten.
EARLIER = 0.3
_AT_ONCE = 4  # batches that are drawn together, so that rows of about one length meet


def draw_batch(tokenizer, rng, stage, n_tokens):
    """Rows of about equal length, one dialogue each, padded with 0 (which ends a message)."""
    drawn, total = [], 0
    while total < _AT_ONCE * n_tokens:
        chosen = rng.randrange(stage + 1) if rng.random() < EARLIER else stage
        level, longest, _, _ = STAGES[chosen]
        ids, weights = encode_dialogue(tokenizer, dialogues.make_dialogue(rng, dialogues.LEVELS[level]))
        if len(ids) <= longest and max(weights) > 0:
            drawn.append((ids, weights))
            total += len(ids)
    drawn.sort(key=lambda d: len(d[0]))
    batches = []
    while drawn:
        length = -(-len(drawn[-1][0]) // 32) * 32 + 1  # of few different ones
        n = max(1, min(len(drawn), n_tokens // length))
        batches.append(pack(drawn[-n:], length))
        del drawn[-n:]
    rng.shuffle(batches)
    return batches[:_AT_ONCE]


class Drawing:
    """Draws the batches of the next steps in a process of its own."""

    def __init__(self, args):
        self.args = args
        self.pool = multiprocessing.Pool(1, _begin_drawing, (args.out, args.seed, args.batch_tokens))
        self.ahead = None  # (what was asked for, the result to come)

    def next(self, number, stage):
        asked, result = self.ahead or (None, None)
        if asked != (number, stage):
            result = self.pool.apply_async(_draw, (number, stage))
        self.ahead = (number + 1, stage), self.pool.apply_async(_draw, (number + 1, stage))
        return [tuple(torch.from_numpy(a) for a in batch) for batch in result.get()]


def _begin_drawing(folder, seed, n_tokens):
    global _drawn_with
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(os.path.join(folder, "vocab.json"))
    invented.begin_like(tokenizer.beginnings())
    _drawn_with = tokenizer, seed, n_tokens


def _draw(number, stage):
    tokenizer, seed, n_tokens = _drawn_with
    batches = draw_batch(tokenizer, random.Random(f"{seed} {number}"), stage, n_tokens)
    return [tuple(t.numpy() for t in batch) for batch in batches]


def pack(rows, length):
    """Inputs, flat positions that are learned from, their targets and weights."""
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for i, (row, row_weights) in enumerate(rows):
        ids[i, :len(row)] = torch.tensor(row)
        weights[i, :len(row)] = torch.tensor(row_weights)
    inputs, targets, weights = ids[:, :-1], ids[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
    at = weights.nonzero().squeeze(1)
    return inputs, at, targets[at], weights[at]


def loss_of(model, batch, half=False):
    """The weighted loss, and the shares of values and other words that were right."""
    inputs, at, targets, weights = batch
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        logits = model(inputs, at)
    logits = logits.float()
    losses = F.cross_entropy(logits, targets, reduction="none")
    with torch.no_grad():
        right = (logits.argmax(-1) == targets).float()
        is_value = weights == VALUE_WEIGHT
        shares = right[is_value].mean().item(), right[~is_value].mean().item()
    return (losses * weights).sum() / weights.sum(), shares


@torch.no_grad()
def held_out_recall(model, tokenizer, n_facts, n_turns, n_dialogues, seed=1):
    """The share of questions whose value, all its tokens, is the most probable one."""
    rng, rows = random.Random(seed), []
    for _ in range(n_dialogues):
        test = dialogues.make_recall_test(rng, n_facts, n_turns)
        ids, weights = encode_dialogue(tokenizer, test.messages)
        # What is recalled stands in the replies to questions, the last ones.
        asked = encode_dialogue(tokenizer, test.messages[:min(test.checks)])[0]
        rows.append((ids, [w if i >= len(asked) else 0.0 for i, w in enumerate(weights)]))
    right = total = 0
    for first in range(0, len(rows), 32):
        part = rows[first:first + 32]
        inputs, at, targets, weights = pack(part, max(len(r[0]) for r in part))
        hit = model(inputs, at).argmax(-1) == targets
        correct, previous = True, False  # of the value that is being read
        for position, ok, weight in zip(at.tolist(), hit.tolist(), weights.tolist()):
            is_value = weight == VALUE_WEIGHT
            if is_value:
                correct = (correct and ok) if previous else ok
            elif previous:
                right, total = right + correct, total + 1
            previous = is_value
    return right / max(total, 1)


class Muon(torch.optim.Optimizer):
    """Momentum whose step, for a matrix, is made orthogonal by five rounds of a quintic
    Newton-Schulz iteration: all directions are learned at one pace."""

    def __init__(self, matrices, lr, momentum=0.95):
        super().__init__(matrices, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                mean = state["mean"].lerp_(weight.grad, 1 - group["momentum"])
                direction = orthogonal(weight.grad.lerp(mean, group["momentum"]))
                rows, columns = weight.shape
                weight.mul_(1 - 0.1 * group["lr"])
                weight.add_(direction, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)


def orthogonal(matrix):
    x = matrix / (matrix.norm() + 1e-7)
    wide = x if x.shape[0] <= x.shape[1] else x.t()
    for _ in range(5):
        gram = wide @ wide.t()
        wide = 3.4445 * wide + (-4.7750 * gram + 2.0315 * gram @ gram) @ wide
    return wide if x.shape[0] <= x.shape[1] else wide.t()


def make_optimizers(model, args):
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embedding" not in n
                and "kernel" not in n]
    known = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in known]
    return [Muon(matrices, args.lr), torch.optim.Adam(others, lr=0.15 * args.lr, betas=(0.9, 0.98))]


def rate(step, args, decay_from):
    """Full after a warm-up; once decay begins, down to 2 % in a straight line."""
    if decay_from is None:
        return min(1.0, (step + 1) / 50)
    return max(0.02, 1 - (step - decay_from) / args.decay_steps)


def save(path, model, optimizers, progress):
    state = {"model": model.state_dict(), "shape": vars(model.shape), "progress": progress,
             "optimizers": [o.state_dict() for o in optimizers]}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def load_model(path):
    state = torch.load(path, map_location="cpu")
    model = Lfm2(Shape(**state["shape"]))
    model.load_state_dict(state["model"])
    return model, state


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="directory of vocab.json and checkpoints")
    parser.add_argument("--steps", type=int, default=13500, help="at the full rate")
    parser.add_argument("--decay-steps", type=int, default=1700, help="the last ones, at a falling rate")
    parser.add_argument("--decay-now", action="store_true", help="begin the last steps now")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--check-every", type=int, default=150, help="steps between tests of held-out recall")
    parser.add_argument("--save-every-s", type=float, default=120)
    parser.add_argument("--bf16", action="store_true", help="products in bfloat16 (AVX-512 machines)")
    parser.add_argument("--compile", action="store_true", help="by torch.compile (needs a C++ compiler)")
    parser.add_argument("--d-model", type=int, default=96)
    parser.add_argument("--d-ff", type=int, default=224)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--layers", default="CCACACA", help="C: convolution, A: attention")
    return parser.parse_args()


def start(args, tokenizer):
    path = os.path.join(args.out, "last.pt")
    if os.path.exists(path):
        model, state = load_model(path)
        optimizers = make_optimizers(model, args)
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        return model, optimizers, state["progress"]
    torch.manual_seed(args.seed)
    model = Lfm2(Shape(len(tokenizer), args.d_model, args.d_ff, args.layers, args.heads, args.heads))
    return model, make_optimizers(model, args), {"step": 0, "drawn": 0, "tokens": 0, "stage": 0, "decay_from": None}


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = Tokenizer.load(os.path.join(args.out, "vocab.json"))
    model, optimizers, progress = start(args, tokenizer)
    path = os.path.join(args.out, "last.pt")
    if args.decay_now and progress["decay_from"] is None:
        progress["decay_from"] = progress["step"]

    def is_over():
        return progress["decay_from"] is not None and \
            progress["step"] >= progress["decay_from"] + args.decay_steps

    drawing = Drawing(args)
    if args.compile:
        model.run_layers = torch.compile(model.run_layers, dynamic=True)
    saved_s, recent, checked = time.monotonic(), [], progress["step"]
    log = open(os.path.join(args.out, "log.jsonl"), "a", buffering=1)

    def note(**values):
        log.write(json.dumps(dict(progress, cpu_s=round(time.process_time(), 1), **values)) + "\n")

    while not is_over():
        batches = drawing.next(progress["drawn"], progress["stage"])
        progress["drawn"] += 1
        for batch in batches:
            factor = rate(progress["step"], args, progress["decay_from"])
            for optimizer, base in zip(optimizers, (args.lr, 0.15 * args.lr)):
                for group in optimizer.param_groups:
                    group["lr"] = base * factor
            model.zero_grad(set_to_none=True)
            loss, shares = loss_of(model, batch, args.bf16)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            recent.append((loss.item(), *shares))
            progress["step"] += 1
            progress["tokens"] += batch[0].numel()
        if len(recent) >= 20:
            mean = [sum(v for v in column if v == v) / len(recent) for column in zip(*recent)]
            note(loss=round(mean[0], 4), values=round(mean[1], 3), words=round(mean[2], 3))
            recent = []
        if progress["step"] - checked >= args.check_every:
            checked = progress["step"]
            _, _, n_facts, n_turns = STAGES[progress["stage"]]
            recall = held_out_recall(model, tokenizer, n_facts, n_turns, 64)
            note(recall=round(recall, 3), facts=n_facts)
            if recall >= PASS and progress["stage"] + 1 < len(STAGES):
                progress["stage"] += 1
        if time.monotonic() - saved_s > args.save_every_s:
            save(path, model, optimizers, progress)
            saved_s = time.monotonic()
        if progress["decay_from"] is None and progress["step"] >= args.steps:
            progress["decay_from"] = progress["step"]
    save(path, model, optimizers, progress)


if __name__ == "__main__":
    main()
