#!/usr/bin/env python3
"""`weft pull` from hubs that lie, each with one wrong answer.

Each pull must end by itself: with the right file, or with one sentence. Either way it has written
nothing else and nowhere else, sent its token to nobody but the hub, and used little memory."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from hub_lies import LIES, LyingHub
from weft_process import WEFT, make_model, peak_kib

MAX_MIB = 96  # of memory; an honest pull takes 20
PATIENCE_S = 120
WORKERS = 16


class Pull:
    """One pull from a hub with one lie, and what was wrong with it."""

    def __init__(self, weights, at, what, function, may_be_right, model):
        self.name = f"{at}: {what}"
        self.weights, self.may_be_right = weights, may_be_right
        self.problems = []
        self.hub = LyingHub(weights, at, function)
        with tempfile.TemporaryDirectory() as folder:
            self.root = pathlib.Path(folder)
            self.home = self.root / "home"
            self.home.mkdir()
            (self.root / "outside").write_text("before")
            try:
                self.run(model)
                self.check_answer()
                self.check_files()
            finally:
                self.hub.close()

    def run(self, model):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("HF_", "HUGGING", "OLLAMA", "LLAMA", "XDG_", "WEFT_"))
                 and not name.lower().endswith("_proxy")}
        err = self.root / "err"
        with open(err, "wb") as file, open(self.root / "out", "wb") as out:
            process = subprocess.Popen(
                [WEFT, "pull", model], stdout=out, stderr=file, stdin=subprocess.DEVNULL,
                env={**clean, "HOME": str(self.home), "HF_ENDPOINT": self.hub.url,
                     "WEFT_OLLAMA_REGISTRY": self.hub.url, "HF_TOKEN": "hf_secret"})
            end = time.monotonic() + PATIENCE_S
            self.mib = 0
            while process.poll() is None:
                if time.monotonic() > end:
                    process.kill()
                # The system's own count of the peak, wait4's, begins with this program's memory.
                with contextlib.suppress(OSError, KeyError):
                    self.mib = max(self.mib, peak_kib(process) / 1024)
                time.sleep(0.005)
        self.code = process.returncode
        self.err = err.read_bytes()
        for name in ("err", "out"):
            (self.root / name).unlink()

    def expect(self, holds, problem):
        if not holds:
            self.problems.append(f"{self.name}: {problem} (exit {self.code}, {self.err[:400]!r})")

    def check_answer(self):
        lines = [line for line in self.err.decode("utf-8", "replace").splitlines()
                 if not re.search(r"\d %,", line)]  # progress
        self.expect(self.code != -9, "does not end")
        self.expect(self.hub.n_lies > 0, "the lie was not told")
        self.expect(self.code == 1 or self.may_be_right and self.code == 0, "is not refused")
        if self.code == 1:
            self.expect(len(lines) == 1 and 20 < len(lines[0]) < 700, "is not told in a sentence")
            self.expect(all(c.isprintable() for line in lines for c in line), "controls a terminal")
        self.expect(b"hf_secret" not in self.err, "tells the token")
        self.expect(self.mib < MAX_MIB, f"takes {self.mib:.0f} MiB")
        for server, path, _, token in self.hub.requests:
            self.expect(server == "hub" or token is None, f"sends {server} the token")

    def check_files(self):
        named = 0
        for path in self.root.rglob("*"):
            inner = path.relative_to(self.root).as_posix()
            if inner in ("home", "outside"):
                continue
            self.expect(inner.startswith("home/.cache") and (
                path.is_dir() or inner.startswith(("home/.cache/huggingface/hub/",
                                                   "home/.cache/weft/ollama/"))),
                        f"writes {inner!r}")
            if path.is_symlink():
                inside = path.resolve().is_relative_to(self.home.resolve())
                self.expect(inside, f"links {inner!r} to {path.resolve()}")
            if not path.is_file():
                continue
            if path.name.endswith(".incomplete"):
                self.expect(path.stat().st_size <= len(self.weights), f"fills {inner!r}")
            elif path.suffix != ".lock" and not {"refs", "manifests"} & set(path.parts):
                named += 1
                self.expect(path.read_bytes() == self.weights, f"names {inner!r}")
        self.expect((self.root / "outside").read_text() == "before", "changes another file")
        self.expect(named > 0 or self.code != 0, "says that it has pulled nothing")


class LyingHubTest(unittest.TestCase):
    def test_no_lie_is_believed(self):
        names = [(at, what) for at, what, *_ in LIES]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 60)
        with tempfile.TemporaryDirectory() as folder:
            weights = make_model(pathlib.Path(folder) / "q4.gguf", kind="Q4_0").read_bytes()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            pulls = list(pool.map(lambda told: Pull(weights, *told), LIES))
        most = max(pulls, key=lambda pull: pull.mib)
        right = sum(pull.code == 0 for pull in pulls)
        print(f"{len(pulls)} lies: {right} pulled right, {len(pulls) - right} refused; "
              f"at most {most.mib:.0f} MiB ({most.name})")
        problems = [problem for pull in pulls for problem in pull.problems]
        self.assertEqual(problems, [], "\n" + "\n".join(problems))


if __name__ == "__main__":
    unittest.main()
