#!/usr/bin/env python3
"""Compiles every kernel of src/compute/kernels_gpu for devices, and shows what each takes of them.

  tools/cuda_kernels.py [--arch 75,80,90,120] [--sass 90] [--out build/cuda/kernels]

Prints a line per kernel and architecture: registers, bytes of shared memory, spills; and for the
kernels in which a step spends its time what the loop consists of in which they spend theirs
(HOT below). It is an error where a kernel spills registers to memory or does not compile, where
a hot loop does not load 16 bytes at a time or takes more instructions than it may, and where
src/compute/device/cuda_driver.h declares a function of the driver in another way than NVIDIA. No device
and no driver is needed. `tools/setup.sh cuda` installs a compiler into build/cuda. The figures
are left in figures.json too, for tools/gpu_prediction.py.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import cuda_sass

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Only what the code fuses is fused, and nothing is approximated: the same bits as the emulator.
FLAGS = ["-x", "cu", "-std=c++20", "-fmad=false", "-ftz=false", "-prec-div=true",
         "-prec-sqrt=true", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-cubin"]
COMPILING = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")


@dataclasses.dataclass
class Hot:
    """Requirements on the hot loop of the kernels whose full names match."""
    names: str
    work: str             # the instruction that the kernels are there for
    most: float           # instructions for 32 multiply-adds of a lane
    wide: bool = True     # it loads 16 bytes at a time, or copies them to shared memory


QUANTIZED = r"(Q|IQ|MX|NV|Ternary).*"
HOT = [
    Hot(r"MultiplyOne(Q|Ternary).*", "IDP", 120),
    Hot(r"MultiplyOne(IQ|MX|NV).*", "IDP", 150),  # levels that are looked up
    Hot(r"MultiplyMany" + QUANTIZED, "IMMA", 20),
    Hot(r"MultiplyTiles" + QUANTIZED, "IMMA", 22),
    Hot(r"MultiplyFew" + QUANTIZED, "IMMA", 32),
    Hot(r"AttendMany(F|BF).*", "FFMA", 62),
    Hot(r"Attend(Few|Some)(F|BF).*", "FFMA", 68),
    Hot(r"AttendManyQ8_0_[248]", "FFMA", 78),
    Hot(r"Attend(Few|Some)Q8_0_[248]", "FFMA", 120),
]


def find_tool(name):
    """One of the installed tools, of the newest version; or what PATH has."""
    found = sorted((ROOT / "build/cuda").glob(f"lib/python3*/site-packages/nvidia/cu*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def cubin_of(out, source, arch):
    return out / f"{source.stem}.sm_{arch}.cubin"


def compile_one(nvcc, source, arch, out):
    command = [nvcc, *FLAGS, *host_flags(), f"-arch=sm_{arch}", str(source),
               "-o", str(cubin_of(out, source, arch))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return source, arch, done.returncode, done.stdout + done.stderr


def host_flags():
    host = "g++-12"
    found = any(os.access(os.path.join(folder, host), os.X_OK) for folder in os.get_exec_path())
    return ["-I", str(ROOT / "src"), *(["-ccbin", host] if found else [])]


def driver_differs(nvcc, out):
    """What the compiler says where our declarations of the driver are not NVIDIA's."""
    source = ROOT / "src/compute/device/cuda_driver_check.cu"
    command = [nvcc, "-std=c++20", *host_flags(), "-c", str(source), "-o", str(out / "check.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode != 0 else ""


def kernels_of(log):
    """What ptxas says: name, registers, shared bytes, stack bytes, spilled bytes."""
    name, stack, spilled = None, 0, 0
    for line in log.splitlines():
        if match := COMPILING.search(line):
            name = match.group(1)
        elif match := STACK.search(line):
            stack, spilled = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        elif (match := USED.search(line)) and name:
            yield name, int(match.group(1)), int(match.group(2) or 0), stack, spilled
            name = None


def check_hot_loops(nvdisasm, cubin, found):
    """Prints the instruction mix of hot loops and adds it to `found`. Returns their violations."""
    for name, (code, labels) in cuda_sass.disassemble(nvdisasm, cubin).items():
        hot = next((hot for hot in HOT if re.fullmatch(hot.names, name)), None)
        if hot is None:
            continue
        figures = cuda_sass.figures(code, labels, hot.work)
        if figures is None:
            yield f"{name} has no loop with {hot.work}"
            continue
        found.setdefault(name, {}).update(dataclasses.asdict(figures))
        print(f"loop of {name:24} {figures}")
        if hot.wide and figures.wide_loads + figures.copies == 0:
            yield f"{name} loads nothing 16 bytes at a time, and copies nothing to shared memory"
        if figures.per_32 > hot.most:
            yield (f"{name} takes {figures.per_32:.1f} instructions for 32 multiply-adds of a "
                   f"lane, more than {hot.most}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="75,80,90,120")
    parser.add_argument("--sass", default="90", help="architectures whose loops are looked at")
    parser.add_argument("--nvcc", default=find_tool("nvcc"))
    parser.add_argument("--nvdisasm", default=find_tool("nvdisasm"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/cuda/kernels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if not args.nvcc or not args.nvdisasm:
        sys.exit("cuda_kernels: nvcc or nvdisasm is not here; install them: tools/setup.sh cuda")
    args.out.mkdir(parents=True, exist_ok=True)
    sources = sorted((ROOT / "src/compute/kernels_gpu").glob("*.cc"))
    sources = [source for source in sources if not source.stem.endswith("_test")]
    jobs = [(source, arch) for arch in args.arch.split(",") for source in sources]
    failures, n_kernels, loops = [], 0, {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda job: compile_one(args.nvcc, *job, args.out), jobs)
        for source, arch, code, log in results:
            kernels = list(kernels_of(log))
            n_kernels += len(kernels)
            for name, registers, shared, stack, spilled in kernels:
                print(f"sm_{arch:4} {name:28} {registers:4} registers {shared:6} B shared "
                      f"{stack:4} B stack {spilled:4} B spilled")
                if arch in args.sass.split(","):
                    loops.setdefault(name, {}).update(registers=registers, shared=shared)
                if spilled:
                    failures.append(f"{name} spills {spilled} bytes on sm_{arch}")
            if code != 0 or not kernels:
                print(log, file=sys.stderr)
                failures.append(f"{source.name} does not compile for sm_{arch}")
            elif arch in args.sass.split(","):
                failures += check_hot_loops(args.nvdisasm, cubin_of(args.out, source, arch), loops)
    (args.out / "figures.json").write_text(json.dumps(loops, indent=1))
    if difference := driver_differs(args.nvcc, args.out):
        print(difference, file=sys.stderr)
        failures.append("src/compute/device/cuda_driver.h is not what NVIDIA's header declares")
    for failure in failures:
        print(f"cuda_kernels: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    print(f"cuda_kernels: {n_kernels} kernels, no spills")


if __name__ == "__main__":
    main()
