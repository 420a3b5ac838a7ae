#!/usr/bin/env python3
"""The npm packages that speak to the server's APIs, against the real server with a
scripted model: $WEFT_SCRIPTED_SERVER. The packages are installed once into
$WEFT_NODE_DIR; exit code 77, a skip, when npm cannot get them.

Once as they are, and once with a model that is slow and a server that shows between two
tokens that the stream is alive: no client may mind that."""

import os
import pathlib
import subprocess
import sys

from npm_packages import SKIP, install

HERE = pathlib.Path(__file__).resolve().parent / "node"


def main():
    folder = pathlib.Path(os.environ["WEFT_NODE_DIR"])
    if not install(HERE, folder):
        return SKIP
    return run(folder, [], "") or run(folder, ["32", "256", "8192", "2"], "<<slow>>")


def run(folder, arguments, before_script):
    server = subprocess.Popen([os.environ["WEFT_SCRIPTED_SERVER"], *arguments],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        assert line.startswith("listening on "), line
        env = {**os.environ, "WEFT_URL": line.split()[-1], "WEFT_SCRIPT": before_script}
        tests = sorted(str(path.name) for path in HERE.glob("*.test.mjs"))
        done = subprocess.run(["node", "--test", "--test-concurrency=1", *tests], cwd=folder,
                              env=env, timeout=300)
    finally:
        server.stdin.close()
        code = server.wait(timeout=30)
    assert code == 0, f"the server ended with {code}"
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
