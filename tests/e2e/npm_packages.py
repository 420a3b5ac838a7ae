"""Packages from npm for tests, installed once into a folder of the build."""

import pathlib
import shutil
import subprocess

SKIP = 77  # the exit code of a test that cannot be run here


def install(source, folder):
    """Copies the scripts of `source` into `folder` and installs what its package-lock.json
    says there. False, with a line that says why, where that is not possible."""
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed.json"
    wanted = (source / "package-lock.json").read_text()
    for script in [*source.glob("*.mjs"), *source.glob("package*.json")]:
        shutil.copy(script, folder)
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print("SKIPPED: node and npm are not installed")
        return False
    try:
        done = subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=folder,
                              capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        print("SKIPPED: npm did not get the packages in five minutes")
        return False
    if done.returncode != 0:
        print("SKIPPED: npm cannot get the packages:", done.stderr[-1000:])
        return False
    stamp.write_text(wanted)
    return True
