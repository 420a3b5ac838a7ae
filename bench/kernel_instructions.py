#!/usr/bin/env python3
"""Counts the instructions of the matrix kernels in an emulator, where time means nothing.

  bench/kernel_instructions.py [--x86 PROGRAM] [--arm PROGRAM]

PROGRAM is kernel_instructions, built with -DWEFT_BENCH=ON for x86-64 and by the preset aarch64.
Prints, for each type of weights and 1, 4 and 12 rows, the instructions for one output of one row
over a block of 32 inputs (a product of 16 outputs and 2,048 inputs, less what a process needs
besides).
"""

import argparse
import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
         "IQ4_XS", "MXFP4", "NVFP4", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M", "IQ2_XXS",
         "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "F32", "F16", "BF16"]
ROWS = [1, 4, 12]
OUTPUTS, BLOCKS = 16, 2048 // 32


def count(emulator, plugin, program, isa, kind, rows):
    def run(times):
        done = subprocess.run([*emulator, "-plugin", plugin, program, isa, kind, str(rows),
                               str(times)], capture_output=True, text=True, check=True)
        return int(re.search(r"instructions: (\d+)", done.stderr)[1])
    return (run(3) - run(1)) / 2 / (rows * OUTPUTS * BLOCKS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--x86", help="the program for x86-64")
    parser.add_argument("--arm", help="the program for AArch64")
    parser.add_argument("--sysroot", default="build/sysroot-aarch64")
    args = parser.parse_args()
    machines = []
    if args.x86:
        machines.append((["qemu-x86_64", "-cpu", "max"], args.x86, ["avx2"]))
    if args.arm:
        arm = ["qemu-aarch64", "-cpu", "max", "-L", args.sysroot]
        machines.append((arm, args.arm, ["neon", "i8mm"]))
    with tempfile.TemporaryDirectory() as folder:
        plugin = f"{folder}/count.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", plugin,
                        HERE / "count_instructions.c"], check=True)
        names = [f"{isa}, {rows} row{'s' * (rows > 1)}"
                 for _, _, isas in machines for isa in isas for rows in ROWS]
        print("| type | " + " | ".join(names) + " |")
        print("|---" * (len(names) + 1) + "|")
        for kind in TYPES:
            counts = [count(emulator, plugin, program, isa, kind, rows)
                      for emulator, program, isas in machines for isa in isas for rows in ROWS]
            print(f"| {kind} | " + " | ".join(f"{c:.1f}" for c in counts) + " |", flush=True)


if __name__ == "__main__":
    main()
