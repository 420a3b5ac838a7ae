#!/usr/bin/env python3
"""tools/fleet_workers.py: measures a worker, and runs three simulated ones behind SMG.

Needs the command `smg` (or its path in $WEFT_SMG) and, in this Python or in that of SMG, the
packages grpcio and smg-grpc-proto; exit code 77, a skip, where they are not:

    python3 -m venv /tmp/smg && /tmp/smg/bin/pip install smg
    export WEFT=build/release/weft WEFT_SMG=/tmp/smg/bin/smg
    python3 tests/e2e/fleet_workers_test.py
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from weft_process import WEFT

SKIP = 77
TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "fleet_workers.py"
CONVERSATIONS = 20
TRACE = ["--conversations", CONVERSATIONS, "--kinds", 2, "--system-tokens", 200,
         "--result-tokens", 20, "--answer-tokens", 6, "--turns", 3, "--every", 0.05,
         "--think", 0.05]


def python_with_packages(smg):
    """A Python that has them: this one, or the one of SMG's environment."""
    for python in (sys.executable, pathlib.Path(smg).resolve().parent / "python"):
        if pathlib.Path(python).exists() and subprocess.run(
                [python, "-c", "import grpc, smg_grpc_proto"], capture_output=True).returncode == 0:
            return python
    return None


def call(python, *words):
    done = subprocess.run([str(word) for word in (python, TOOL, *words)], capture_output=True,
                          text=True, timeout=250)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def main():
    smg = os.environ.get("WEFT_SMG") or shutil.which("smg")
    if not smg:
        print("skipped: there is no smg; pip install smg, or say where it is in WEFT_SMG")
        return SKIP
    python = python_with_packages(smg)
    if python is None:
        print("skipped: no Python with grpcio and smg-grpc-proto; pip install smg has both")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / "worker.json"
        call(python, "measure", "--weft", WEFT, "-m", TOOL.parents[1] / "models" / "box.gguf",
             "--memory", "30M", "--repeats", 1, "--longest", 256, "--out", profile)
        # The gateway and the tokenizer are real.
        text = call(python, "register", 3, "--profile", profile, "--smg", smg, *TRACE)
    print(text)
    rows = dict(re.findall(r"^\| (.*?) \| (.*?) \|$", text, re.M))
    assert rows["failures"] == "0", rows
    assert int(rows["requests"]) >= CONVERSATIONS, rows
    served = [int(n) for n in rows["requests by worker"].split()]
    assert sum(served) == int(rows["requests"]) and len(served) <= 3, rows
    # Most conversations go on where their prefix is, however the machine is loaded.
    assert int(rows["cached tokens"]) > int(rows["ceiling of cached tokens"]) / 2, rows
    return 0


if __name__ == "__main__":
    sys.exit(main())
