#!/usr/bin/env python3
"""The npm packages that speak to the server's APIs, against the real server with a
scripted model: $WEFT_SCRIPTED_SERVER. The packages are installed once into
$WEFT_NODE_DIR; exit code 77, a skip, when npm cannot get them."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "node"
SKIP = 77


def install(folder):
    """True when the packages of package.json lie in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed.json"
    wanted = (HERE / "package.json").read_text()
    for script in [*HERE.glob("*.mjs"), HERE / "package.json"]:
        shutil.copy(script, folder)
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print("SKIPPED: node and npm are not installed")
        return False
    done = subprocess.run([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"],
                          cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        print("SKIPPED: npm cannot get the packages:", done.stderr[-1000:])
        return False
    stamp.write_text(wanted)
    return True


def main():
    folder = pathlib.Path(os.environ["WEFT_NODE_DIR"])
    if not install(folder):
        return SKIP
    server = subprocess.Popen([os.environ["WEFT_SCRIPTED_SERVER"]], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        assert line.startswith("listening on "), line
        env = {**os.environ, "WEFT_URL": line.split()[-1]}
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
