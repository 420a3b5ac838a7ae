"""Machine code of NVIDIA's devices, as nvdisasm prints it: its loops, and what they consist of.

A kernel's time is that of one loop: the innermost one that has most of the instructions that
the kernel is there for (dots of bytes, tiles of them, multiply-adds). Figures are of that loop.
"""

import dataclasses
import re
import subprocess

SECTION = re.compile(r"^\.text\.(\w+):")
LABEL = re.compile(r"^(\.L_\w+):")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?);?\s*$")
# Cycles from an instruction to the use of what it brings: from global memory (700 from the memory
# itself, 270 from its cache), from shared memory, from the tile unit; and from one instruction of
# a warp to its next.
LATENCIES = {"LDG": 500, "LD": 500, "LDS": 30, "LDSM": 30, "IMMA": 30}
SPACING = 2.0
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
    """What a loop consists of, once through."""
    multiplies: int     # multiply-adds of a lane
    instructions: int
    wide_loads: int     # of 16 bytes, from global memory
    copies: int         # asynchronous ones, to shared memory
    narrow_loads: int   # from global memory, of less
    cycles: float       # of a warp that is alone, waits for loads included
    shared_accesses: int
    barriers: int
    branches: int

    @property
    def per_32(self):
        """Instructions for 32 multiply-adds of a lane."""
        return 32 * self.instructions / self.multiplies

    def __str__(self):
        return (f"{self.per_32:6.1f} instructions for 32 multiply-adds of a lane; in "
                f"{self.instructions} of them ({self.cycles:.0f} cycles) {self.wide_loads} loads of 16 bytes, {self.copies} "
                f"copies, {self.narrow_loads} smaller loads, {self.shared_accesses} of shared memory, "
                f"{self.barriers} barriers, {self.branches} branches")


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


def loops(code, labels):
    """Where loops begin and end: branches back."""
    found = set()
    for instruction in code:
        if not instruction.is_("BRA"):
            continue
        target = TARGET.search(instruction.arguments)
        begin = labels.get(target.group(1)) if target else None
        # A branch to itself is what stands behind a kernel's end.
        if begin is not None and begin < instruction.at:
            found.add((begin, instruction.at))
    return found


def hot_loop(code, labels, work):
    """The instructions of the innermost loop that has most of those called `work`."""
    innermost = {}
    bounds = sorted(loops(code, labels), key=lambda loop: loop[1] - loop[0])
    for instruction in code:
        if not instruction.is_(work):
            continue
        around = next((b for b in bounds if b[0] <= instruction.at <= b[1]), None)
        if around:
            innermost[around] = innermost.get(around, 0) + 1
    if not innermost:
        return []
    # One around another has what is done between its turns, however much.
    leaves = [a for a in innermost
              if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in innermost)]
    begin, end = max(leaves, key=lambda loop: (innermost[loop], loop))
    return [i for i in code if begin <= i.at <= end]


def multiply_adds(instruction):
    """Of a lane: a tile's, of 16 rows, 8 columns and so many bytes, are those of 32 lanes."""
    if instruction.is_("IDP"):
        return 4
    if instruction.is_("IMMA"):
        rows, columns, depth = {"16832": (16, 8, 32), "16816": (16, 8, 16),
                                "8816": (8, 8, 16)}[instruction.op.split(".")[1]]
        return rows * columns * depth // 32
    return 1


def cycles_of(loop):
    """Of one warp and one turn, where nothing else runs: an instruction waits for what it uses."""
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


def figures(loop, work):
    """Figures of a loop."""
    def count(*names):
        return sum(1 for i in loop if any(i.is_(name) for name in names))
    loads = [i for i in loop if i.is_("LDG") or i.is_("LD")]
    wide = sum(1 for i in loads if ".128" in i.op)
    multiplies = sum(multiply_adds(i) for i in loop if i.is_(work))
    return Figures(multiplies=multiplies, instructions=len(loop), wide_loads=wide,
                   copies=count("LDGSTS", "UBLKCP"), narrow_loads=len(loads) - wide,
                   cycles=cycles_of(loop), shared_accesses=count("LDS", "STS", "LDSM"), barriers=count("BAR"),
                   branches=count("BRA"))
