"""Finds the loops in NVIDIA machine code, as nvdisasm prints it, and their instruction mix.

A kernel's time is taken to be that of one loop: the one with most of its useful work (byte dot
products, byte tiles, multiply-adds). The code does not tell trip counts, so each loop is assumed to
run TURNS times per iteration of the loop around it.
"""

import dataclasses
import re
import subprocess

SECTION = re.compile(r"^\.text\.(\w+):")
LABEL = re.compile(r"^(\.L_\w+):")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?"
                         r"([A-Z][\w.]*)\s*(.*?);?\s*$")
# Cycles from an instruction to the use of its result: from global memory (700 from the memory
# itself, 270 from its cache), from shared memory, from the tile unit. SPACING: cycles from one
# instruction of a warp to its next.
LATENCIES = {"LDG": 500, "LD": 500, "LDS": 30, "LDSM": 30, "IMMA": 30}
SPACING = 2.0
TURNS = 8
CONDITION = re.compile(r"\s*!?U?P\d")
REGISTER = re.compile(r"\bR(\d+)\b")
TARGET = re.compile(r"`\((\.L_\w+)\)")


@dataclasses.dataclass
class Instruction:
    at: int
    predicate: str
    op: str
    arguments: str

    def is_(self, name):
        """Whether it is that one, of whatever kind: IMMA of IMMA.16832.S8.S8."""
        return self.op == name or self.op.startswith(name + ".")


@dataclasses.dataclass
class Figures:
    """What a hot loop consists of, once through."""
    multiplies: int        # multiply-adds of a lane
    instructions: int
    wide_loads: int        # of 16 bytes, from global memory, here or in the loops around
    copies: int            # asynchronous ones, to shared memory, likewise
    narrow_loads: int      # from global memory, of less
    cycles: float          # of a warp that is alone, waits for loads included
    shared_accesses: int
    barriers: int

    @property
    def per_32(self):
        """Instructions for 32 multiply-adds of a lane."""
        return 32 * self.instructions / self.multiplies

    def __str__(self):
        return (f"{self.per_32:6.1f} instructions for 32 multiply-adds of a lane, in "
                f"{self.instructions} of them ({self.cycles:.0f} cycles) {self.narrow_loads} loads of less than 16 bytes, "
                f"{self.shared_accesses} of shared memory, {self.barriers} barriers; "
                f"{self.wide_loads} loads of 16 bytes and {self.copies} copies")


def disassemble(nvdisasm, cubin):
    """The kernels of a compiled file: a list of instructions and the labels' addresses by name."""
    text = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True,
                          check=True).stdout
    return parse(text)


def parse(text):
    kernels, code, labels, waiting = {}, [], {}, []
    for line in text.splitlines():
        if match := SECTION.match(line):
            code, labels, waiting = [], {}, []
            kernels[match.group(1)] = (code, labels)
        elif match := LABEL.match(line):
            waiting.append(match.group(1))
        elif match := INSTRUCTION.match(line):
            at = int(match.group(1), 16)
            labels.update((label, at) for label in waiting)
            waiting = []
            code.append(Instruction(at, match.group(2) or "", match.group(3), match.group(4)))
    return kernels


def blocks_of(code, labels):
    """The code in pieces that run through, and which may follow each."""
    targets = set(labels.values())
    ends = ("BRA", "EXIT", "RET", "BRX", "WARPSYNC")
    begins = sorted({code[0].at} | {i.at for i in code if i.at in targets} |
                    {after.at for before, after in zip(code, code[1:])
                     if any(before.is_(op) for op in ends)})
    number = {at: n for n, at in enumerate(begins)}
    blocks = [[] for _ in begins]
    for instruction in code:
        n = number.get(instruction.at, n if blocks[0] else 0)
        blocks[n].append(instruction)
    following = []
    for n, block in enumerate(blocks):
        last, then = block[-1], []
        target = TARGET.search(last.arguments) if last.is_("BRA") else None
        if target and target.group(1) in labels:
            then.append(number[labels[target.group(1)]])
        leaves = any(last.is_(op) for op in ("BRA", "EXIT", "RET", "BRX"))
        # Some branches take their condition as an argument instead of a predicate.
        sometimes = last.predicate or (last.is_("BRA") and CONDITION.match(last.arguments))
        if n + 1 < len(blocks) and (not leaves or sometimes):
            then.append(n + 1)
        following.append(then)
    return blocks, following


def loops(code, labels):
    """The loops: each a set of numbers of blocks, which are returned too."""
    blocks, following = blocks_of(code, labels)
    # What nothing leads to is called: slow ways of division, say.
    reached, todo = set(), [0]
    while todo:
        n = todo.pop()
        if n not in reached:
            reached.add(n)
            todo += following[n]
    before = [[] for _ in blocks]
    for n in reached:
        for m in following[n]:
            before[m].append(n)
    # Bit m of dominators[n]: no way leads to n but through m.
    everything = (1 << len(blocks)) - 1
    dominators = [1] + [everything] * (len(blocks) - 1)
    changed = True
    while changed:
        changed = False
        for n in sorted(reached - {0}):
            common = everything
            for m in before[n]:
                common &= dominators[m]
            if (common | 1 << n) != dominators[n]:
                dominators[n], changed = common | 1 << n, True
    found = {}  # by the block that it begins with
    for n in reached:
        for head in following[n]:
            if not dominators[n] >> head & 1:
                continue
            body, todo = found.setdefault(head, {head}), [n]
            while todo:
                m = todo.pop()
                if m not in body:
                    body.add(m)
                    todo += before[m]
    return [body for body in found.values()], blocks


def hot_loop(code, labels, work):
    """The instructions of the loop that most of the work is done in, and of the outermost one
    around it."""
    bodies, blocks = loops(code, labels)
    # A kernel's end is a branch to itself.
    bodies = [body for body in bodies if any(len(blocks[n]) > 1 for n in body)]
    depth = [sum(n in body for body in bodies) for n in range(len(blocks))]
    weight = [TURNS ** depth[n] for n in range(len(blocks))]
    done = [sum(multiply_adds(i) for i in block if i.is_(work)) for block in blocks]
    inner = {}  # by the innermost loop's number
    for n, multiplies in enumerate(done):
        around = [b for b, body in enumerate(bodies) if n in body]
        if multiplies and around:
            smallest = min(around, key=lambda b: len(bodies[b]))
            inner[smallest] = inner.get(smallest, 0) + multiplies * weight[n]
    if not inner:
        return [], []
    hot = bodies[max(inner, key=inner.get)]
    outer = max((body for body in bodies if hot <= body), key=len)

    def instructions(body):
        return sorted((i for n in body for i in blocks[n]), key=lambda i: i.at)
    return instructions(hot), instructions(outer)


def multiply_adds(instruction):
    """Multiply-adds of one lane. A tile instruction's are shared by 32 lanes."""
    if instruction.is_("IDP"):
        return 4
    if instruction.is_("IMMA"):
        rows, columns, depth = {"16832": (16, 8, 32), "16816": (16, 8, 16),
                                "8816": (8, 8, 16)}[instruction.op.split(".")[1]]
        return rows * columns * depth // 32
    return 1


def cycles_of(loop):
    """Cycles of one iteration for a warp that runs alone: instructions wait for their inputs."""
    now, ready, ends = 0.0, {}, []  # ready: when a register is there that is not yet
    for _ in range(2):  # what one turn loads for the next is under way in the second
        for instruction in loop:
            registers = [int(r) for r in REGISTER.findall(instruction.arguments)]
            latency, n_written = LATENCIES.get(instruction.op.split(".")[0], 0), 0
            if latency:
                n_written = 4 if ".128" in instruction.op else 2 if ".64" in instruction.op else 1
            used = registers[1:] if n_written else registers
            now = max([now + SPACING] + [ready[r] for r in used if r in ready])
            for i in range(n_written if registers else 0):
                ready[registers[0] + i] = now + latency
        ends.append(now)
    return ends[1] - ends[0]


def figures(code, labels, work):
    """Figures of a kernel's hot loop; None where it has none."""
    loop, outer = hot_loop(code, labels, work)
    if not loop:
        return None

    def count(instructions, *names):
        return sum(1 for i in instructions if any(i.is_(name) for name in names))
    wide = sum(1 for i in outer if (i.is_("LDG") or i.is_("LD")) and ".128" in i.op)
    narrow = count(loop, "LDG", "LD") - sum(1 for i in loop if i.is_("LDG") and ".128" in i.op)
    return Figures(multiplies=sum(multiply_adds(i) for i in loop if i.is_(work)),
                   instructions=len(loop), wide_loads=wide,
                   copies=count(outer, "LDGSTS", "UBLKCP"), narrow_loads=narrow,
                   cycles=cycles_of(loop), shared_accesses=count(loop, "LDS", "STS", "LDSM"),
                   barriers=count(loop, "BAR"))
