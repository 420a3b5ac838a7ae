"""Packages from PyPI for tests, installed once into a folder of the build."""

import pathlib
import subprocess
import sys

SKIP = 77  # the exit code of a test that cannot be run here


def install(requirements, folder):
    """Installs what the file `requirements` names into `folder` and puts that first among the
    places that modules come from. False, with a line that says why, where that is not possible."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed.txt"
    wanted = pathlib.Path(requirements).read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                 "--retries", "1", "--timeout", "15", "--upgrade", "--target", str(folder), "-r",
                 str(requirements)], capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            print("SKIPPED: pip did not get the packages in five minutes")
            return False
        if done.returncode != 0:
            print("SKIPPED: pip cannot get the packages:", done.stderr.strip()[-1000:])
            return False
        stamp.write_text(wanted)
    sys.path.insert(0, str(folder))
    return True
