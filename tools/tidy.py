#!/usr/bin/env python3
"""Runs clang-tidy over the sources that changed.

  tools/tidy.py --build DIR [--base COMMIT] [--seconds N] [FILE...]

Changed are the files that differ from --base: the working tree is compared, new files
included. Without --base that is where this branch left origin/main, or, on that very
commit, the commit before; with no history to look at, every file counts as changed. A
changed header counts for the .cc file of its name.

Findings are errors. When --seconds are over, the files not reached are named and do not
count as failures: the limit keeps a large change from blocking everything.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy"


def git(*args):
    done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True)
    return done.stdout.split("\n") if done.returncode == 0 else None


def default_base():
    head = git("rev-parse", "HEAD")
    for ref in ("origin/main", "origin/HEAD"):
        base = git("merge-base", "HEAD", ref)
        if base and head and base[0] != head[0]:
            return base[0]
    before = git("rev-parse", "--verify", "-q", "HEAD~1")
    return before[0] if before else None


def changed_files(base):
    """Paths relative to the root, or None for "all"."""
    if base is None:
        return None
    # A file that has moved, with no more than its includes rewritten, is not a change.
    changed = git("diff", "--name-status", "--diff-filter=dr", "-M90%", "-l0", base)
    new = git("ls-files", "--others", "--exclude-standard")
    return None if changed is None else {line.split("\t")[-1] for line in changed} | set(new or [])


def compiled_files(build):
    with open(build / "compile_commands.json", encoding="utf-8") as file:
        entries = json.load(file)
    return sorted({str(pathlib.Path(entry["file"]).resolve().relative_to(ROOT))
                   for entry in entries if pathlib.Path(entry["file"]).resolve().is_relative_to(ROOT)})


def select(compiled, changed):
    if changed is None:
        return compiled
    stems = {path.rsplit(".", 1)[0] for path in changed if path.endswith((".h", ".inc"))}
    return [path for path in compiled if path in changed or path.rsplit(".", 1)[0] in stems]


def run_one(build, path, deadline):
    """(path, None for "not reached" or the exit code, output)"""
    left = deadline - time.monotonic()
    if left <= 0:
        return path, None, ""
    try:
        done = subprocess.run([TIDY, "-p", str(build), "--quiet", path], cwd=ROOT, text=True,
                              capture_output=True, timeout=left)
    except subprocess.TimeoutExpired:
        return path, None, ""
    return path, done.returncode, done.stdout + (done.stderr if done.returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--base")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("files", nargs="*")
    flags = parser.parse_args()

    build = flags.build.resolve()
    base = flags.base or default_base()
    if flags.files:
        files = flags.files
    else:
        files = select(compiled_files(build), changed_files(base))
        print(f"tidy: {len(files)} files changed since {base[:12] if base else 'the beginning'}",
              flush=True)
    deadline = time.monotonic() + flags.seconds
    failed, left_out = [], []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for path, code, output in pool.map(lambda path: run_one(build, path, deadline), files):
            if code is None:
                left_out.append(path)
            elif code != 0:
                failed.append(path)
                print(output, flush=True)
    if left_out:
        print(f"tidy: {len(left_out)} of {len(files)} files left out after {flags.seconds:.0f} s:",
              " ".join(left_out))
    if failed:
        sys.exit(f"tidy: findings in {' '.join(failed)}")
    print(f"tidy: nothing found in {len(files) - len(left_out)} files")


if __name__ == "__main__":
    main()
