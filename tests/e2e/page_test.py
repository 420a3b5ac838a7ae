#!/usr/bin/env python3
"""The page at / in headless Chromium: page/*.test.mjs against the real servers, $WEFT and
$WEFT_SCRIPTED_SERVER; of the files that are named, if any are. Exit code 77, a skip, where there
is no Chromium, no node, or npm cannot get Playwright. $WEFT_CHROMIUM names a browser that is not on
the path."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from npm_packages import SKIP, install
from seeing_model import make_seeing
from weft_process import make_model

HERE = pathlib.Path(__file__).resolve().parent / "page"
BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
LIMIT_S = 1200


def find_browser():
    found = [os.environ.get("WEFT_CHROMIUM")] + [shutil.which(name) for name in BROWSERS]
    return next((path for path in found if path), None)


def main():
    browser = find_browser()
    if browser is None:
        print("SKIPPED: there is no Chromium; apt-get install chromium, or name it in $WEFT_CHROMIUM")
        return SKIP
    folder = pathlib.Path(os.environ["WEFT_NODE_DIR"])
    if not install(HERE, folder):
        return SKIP
    with tempfile.TemporaryDirectory() as scratch:
        model = make_model(pathlib.Path(scratch) / "tiny.gguf", "tiny-llama", "Q8_0")
        seeing, projector = make_seeing(scratch)
        env = {**os.environ, "WEFT_CHROMIUM": browser, "WEFT_SCRATCH": scratch, "TMPDIR": scratch,
               "WEFT_MODEL": str(model), "WEFT_SEEING_MODEL": str(seeing),
               "WEFT_PROJECTOR": str(projector)}
        tests = sys.argv[1:] or sorted(path.name for path in HERE.glob("*.test.mjs"))
        process = subprocess.Popen(["node", "--test", "--test-concurrency=1", *tests], cwd=folder,
                                   env=env, start_new_session=True)
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"the tests did not end in {LIMIT_S} s")
            return 1
        finally:
            # Browsers and servers too, whatever became of the tests.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
