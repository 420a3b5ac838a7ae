#!/usr/bin/env python3
"""Predicts a card's rates from the kernels' machine code, and what each part of a step costs.

  tools/cuda_kernels.py && tools/gpu_prediction.py [--card h100|h200|rtx4090]

A model, not a measurement: its numbers are good to a factor of 1.5, its order of causes is firmer.
A kernel takes as long as the slowest of four: its bytes from memory, its instructions, the lines
that its warps' requests touch in the multiprocessor's cache, and, where it loads its inputs without
asynchronous copies, the round trips to memory that its loop waits for, divided by the number of
resident warps. Registers, shared memory and the loop are the compiler's
(build/cuda/kernels/figures.json); lines are those that memory_traffic_test counts, and a layer's
launches those of gpu_backend_test.
"""

import argparse
import dataclasses
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Card:
    name: str
    bytes_per_s: float     # that copies reach
    processors: int        # multiprocessors
    clock: float           # per second
    shared_bytes: int      # of a multiprocessor
    schedulers: int = 4    # of a multiprocessor; each issues an instruction per cycle
    registers: int = 65536
    most_warps: int = 64


CARDS = {"h100": Card("H100 SXM", 3.0e12, 132, 1.755e9, 227 << 10),
         "h200": Card("H200", 4.2e12, 132, 1.9e9, 227 << 10),
         "rtx4090": Card("RTX 4090", 0.92e12, 128, 2.5e9, 99 << 10, most_warps=48)}

ISSUE = 0.7             # of the cycles in which a scheduler could issue, it does
BANDWIDTH = 0.85        # of the bytes that copies reach, a kernel with enough in flight does
GAP = 0.6e-6            # from a kernel's end to the next one's begin, in a graph
SMALL = 6.0e-6          # a kernel that has only rows to work on, and waits for them
FLOOR = 2.0e-6          # what the other kernels take at least: until the first bytes are there
GRAPH = 3.0e-6          # from a graph to the next
PER_STEP = 6            # launches before and after the layers
SPLIT = 128             # positions that one block attends to
# Lines of 128 bytes that the requests of warps touch, for each multiply-add; the cache has one a
# cycle.
LINES = {"MultiplyOne": 0.0073, "MultiplyFew": 0.0012, "MultiplyTiles": 0.0006,
         "MultiplyMany": 0.0006, "Attend": 0.005}
# All instructions of a kernel, for one of its hot loop: a block of few inputs turns it few times.
AROUND = {"MultiplyOne": 1.3, "MultiplyFew": 1.25, "MultiplyTiles": 1.2, "MultiplyMany": 1.15,
          "Attend": 1.35}


@dataclasses.dataclass
class Shape:
    name: str
    layers: int
    embd: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


SHAPES = [Shape("8B", 32, 4096, 14336, 32, 8, 128, 128256),
          Shape("1.5B", 28, 1536, 8960, 12, 2, 128, 151936)]
BITS = {"Q4_K": 4.625, "Q6_K": 6.625}     # of a weight, as the kernels have them

# How a kernel's work is cut, by how its name begins: threads of a block, outputs and rows of it;
# and the bytes of shared memory that its launch gives it.
CUTS = {"MultiplyOne": (128, 16, 1, 0), "MultiplyFew": (128, 16, 8, 15872),
        "MultiplyTiles": (128, 16, 32, 63488), "MultiplyMany": (128, 64, 32, 43008)}
MANY_ROWS = 128         # from here on a block has several bands


@dataclasses.dataclass
class Step:
    rows: int
    context: int           # positions that each row sees
    together: bool = False  # the rows follow each other in one text

    def seen(self):
        """Positions that all rows see, and that are read from memory."""
        return (self.rows * (self.context - self.rows / 2) if self.together
                else self.rows * self.context)


def of_kind(values, kernel):
    return next(value for name, value in values.items() if kernel.startswith(name))


class Model:
    def __init__(self, figures, card, launches, large, graphs):
        self.figures, self.card = figures, card
        self.launches, self.large, self.graphs = launches, large, graphs

    def resident_warps(self, kernel, threads, blocks, given):
        """Warps that a multiprocessor has at a time, on average."""
        figures = self.figures[kernel]
        warps = threads // 32
        fitting = min(self.card.most_warps // warps,
                      self.card.registers // (math.ceil(figures["registers"] / 8) * 8 * threads),
                      self.card.shared_bytes // (figures["shared"] + given + 1024))
        return warps * max(1.0 / 8, min(fitting, blocks / self.card.processors))

    def seconds(self, kernel, multiplies, n_bytes, threads, blocks, given=0):
        """The time of a kernel with these lane multiply-adds and bytes from memory."""
        loop = self.figures[kernel]
        turns = multiplies / 32 / loop["multiplies"]
        card = self.card
        around = of_kind(AROUND, kernel)
        instructions = turns * loop["instructions"] * around
        used = min(1.0, blocks / card.processors)
        issue = instructions / (card.processors * used * card.schedulers * card.clock * ISSUE)
        waits = 0.0
        if loop["copies"] == 0:
            warps = self.resident_warps(kernel, threads, blocks, given)
            of_each = turns / (card.processors * warps)
            waits = of_each * loop["cycles"] * around / card.clock
        cached = multiplies * of_kind(LINES, kernel) / (card.processors * used * card.clock)
        return FLOOR + max(n_bytes / (card.bytes_per_s * BANDWIDTH), issue, waits, cached)

    def product(self, kind, n_in, n_out, rows):
        name = ("MultiplyOne" if rows == 1 else "MultiplyFew" if rows <= 8 else
                "MultiplyTiles" if rows < MANY_ROWS else "MultiplyMany")
        threads, outputs, most_rows, given = CUTS[name]
        blocks = math.ceil(n_out / outputs) * math.ceil(rows / most_rows)
        # Tiles of eight rows, of which a loop skips those that are not there.
        padded = rows if rows == 1 else math.ceil(rows / 8) * 8
        n_bytes = n_in * n_out * BITS[kind] / 8 + rows * (1.25 * n_in + 4 * n_out)
        return self.seconds(name + kind, n_in * n_out * padded, n_bytes, threads, blocks, given)

    def products_of_layer(self, shape, rows):
        kv = shape.kv_heads * shape.head_dim
        q = shape.heads * shape.head_dim
        # Matrices of one input are one launch; in half of the layers those of values and the last
        # one have more bits.
        same = (self.product("Q4_K", q, shape.embd, rows) +
                self.product("Q4_K", shape.embd, 2 * shape.ffn, rows))
        joined = self.product("Q4_K", shape.embd, q + 2 * kv, rows)
        apart = (self.product("Q4_K", shape.embd, q + kv, rows) +
                 self.product("Q6_K", shape.embd, kv, rows))
        last = (self.product("Q4_K", shape.ffn, shape.embd, rows) +
                self.product("Q6_K", shape.ffn, shape.embd, rows))
        return same + (joined + apart + last) / 2

    def attention(self, shape, step):
        many = step.rows > 64
        multiplies = step.seen() * shape.heads * shape.head_dim * 2
        n_bytes = step.seen() * shape.kv_heads * shape.head_dim * 2 * 2
        if step.together:
            n_bytes /= 16
        # Queries of a block, of which a warp has 8, 4 or 2.
        queries = 32 if many else shape.heads // shape.kv_heads
        blocks = step.rows * shape.heads / queries * math.ceil(step.context / SPLIT)
        kind, each = (("Many", 8) if many else
                      ("Some", 4) if blocks >= 1024 and queries > 2 else ("Few", 2))
        return self.seconds(f"Attend{kind}F16_{shape.head_dim // 32}", multiplies, n_bytes,
                            32 * max(1, queries // each), blocks)

    def step(self, shape, step):
        """Seconds of a layer's products, its attention and its other launches; of the step."""
        products = self.products_of_layer(shape, step.rows)
        attention = self.attention(shape, step)
        others = self.launches * GAP + (self.launches - self.large) * SMALL
        rest = (PER_STEP * (GAP + SMALL) + self.graphs * GRAPH +
                self.product("Q6_K", shape.embd, shape.vocab, min(step.rows, 32)))
        return products, attention, others, shape.layers * (products + attention + others) + rest


def bytes_of(shape, step):
    weights = shape.layers * (shape.embd * (2 * shape.heads + 2 * shape.kv_heads) *
                              shape.head_dim + 3 * shape.embd * shape.ffn) * 4.9 / 8
    output = shape.embd * shape.vocab * BITS["Q6_K"] / 8
    seen = step.context if step.together else step.rows * step.context
    return weights + output + seen * shape.layers * shape.kv_heads * shape.head_dim * 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=pathlib.Path,
                        default=ROOT / "build/cuda/kernels/figures.json")
    parser.add_argument("--card", choices=CARDS, default="h100")
    parser.add_argument("--launches", type=float, default=9.5,
                        help="of a layer: 9, and one more where values have more bits")
    parser.add_argument("--large", type=float, default=5.5,
                        help="of those, products and attention")
    parser.add_argument("--graphs", type=int, default=1, help="of a step")
    args = parser.parse_args()
    card = CARDS[args.card]
    figures = json.loads(args.figures.read_text())
    model = Model(figures, card, args.launches, args.large, args.graphs)
    print(f"Predicted, {card.name}, Q4_K_M, KV cache f16, {args.launches} launches a layer\n")
    print("| | bytes of a step | by bytes | of a layer: products / attention / others "
          "| step | tokens/s |\n|---|---|---|---|---|---|")
    for shape in SHAPES:
        for rows, context in [(1, 512), (1, 4096), (8, 512), (8, 4096), (32, 512), (32, 4096)]:
            step = Step(rows, context)
            report(f"{shape.name}, {rows} sessions at {context}", shape, [step], model, card)
        for prompt in (512, 8192):
            steps = [Step(512, first + 512, together=True) for first in range(0, prompt, 512)]
            prompts = Model(figures, card, args.launches, args.large, shape.layers * 2 + 1)
            report(f"{shape.name}, prompt of {prompt}", shape, steps, prompts, card)


def report(name, shape, steps, model, card):
    parts = [model.step(shape, step) for step in steps]
    n = len(parts)
    us = [sum(part[i] for part in parts) / n * 1e6 for i in range(3)]
    seconds = sum(part[3] for part in parts)
    n_bytes = sum(bytes_of(shape, step) for step in steps)
    rate = sum(step.rows for step in steps) / seconds
    print(f"| {name} | {n_bytes / 1e9:.1f} GB | {n_bytes / card.bytes_per_s * 1e3:.1f} ms "
          f"| {us[0]:.0f} / {us[1]:.0f} / {us[2]:.0f} us | {seconds * 1e3:.1f} ms "
          f"| {rate:,.0f} |")


if __name__ == "__main__":
    main()
