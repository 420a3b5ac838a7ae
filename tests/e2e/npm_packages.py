#!/usr/bin/env python3
"""Packages from npm for tests, installed once into a folder of the build.

As a program: exit code 0 when the registry answers, else 1 and on stdout why not. It asks
with a short patience and needs no npm, so that nobody installs one in vain."""

import os
import pathlib
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

SKIP = 77  # the exit code of a test that cannot be run here
PATIENCE_S = 15
# npm's own are minutes, three times.
SHORT = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000"]


def why_unreachable():
    """None when the registry that npm would ask answers; else a sentence."""
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or os.environ.get("npm_config_registry")
    if not registry and shutil.which("npm"):
        asked = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True)
        registry = asked.stdout.strip()
    url = (registry or "https://registry.npmjs.org").rstrip("/") + "/playwright-core/latest"
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S):
            return None
    except urllib.error.HTTPError as error:
        return f"{url} answers {error.code}"
    except (OSError, ValueError) as error:
        return f"{url} does not answer: {getattr(error, 'reason', error)}"


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
        done = subprocess.run([npm, "ci", "--no-audit", "--no-fund", *SHORT], cwd=folder,
                              capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        print("SKIPPED: npm did not get the packages in five minutes")
        return False
    if done.returncode != 0:
        print("SKIPPED: npm cannot get the packages:", done.stderr[-1000:])
        return False
    stamp.write_text(wanted)
    return True


if __name__ == "__main__":
    reason = why_unreachable()
    if reason:
        print(reason)
    sys.exit(1 if reason else 0)
