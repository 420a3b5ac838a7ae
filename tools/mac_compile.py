#!/usr/bin/env python3
"""Compiles every source for macOS on Apple silicon, on any machine.

  tools/mac_compile.py --commands build/release/compile_commands.json --zig PYTHON --out DIR \
      [--library build/zig/mlx_metal/mlx/lib/libmlx.dylib]

PYTHON is one that has the package `ziglang`: a clang with macOS's headers and C++ library.
Libraries come from /usr/include, of which DIR/include names the few that are wanted: the C
library's own headers must not be found. Then links the program with the macOS libraries that are
named. Builds of the others for macOS are not here, so that their symbols stay undefined; any other
undefined symbol is an error.

Prints the compiler's messages for each source that fails and exits with 1 if there is any.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

TARGET = ["-target", "aarch64-macos.14.0"]
# As CMake tells every clang.
DEFINED = ["-D_LIBCPP_ENABLE_EXPERIMENTAL"]
# Folders and headers of /usr/include, or of the machine's folder within it.
HEADERS = ["absl", "boost", "CLI", "curl", "gmock", "google", "grpc", "grpc++", "grpcpp", "gtest",
           "histedit.h", "jconfig.h", "jmorecfg.h", "jpeglib.h", "libpng16", "nlohmann", "openssl",
           "pcre2.h", "png.h", "pngconf.h", "pnglibconf.h", "prometheus", "utf8proc.h", "webp", "xxhash.h",
           "zconf.h", "zdict.h", "zlib.h", "zstd.h", "zstd_errors.h"]
# Sources of other systems and processors, and those that take their places.
OTHERS = {
    "system_linux.cc": ["system_macos.cc"],
    "matmul_avx2.cc": ["matmul_neon.cc"], "matmul_avx512.cc": ["matmul_i8mm.cc"],
    "matmul_avxvnni.cc": [], "peak_avxvnni.cc": [], "vector_ops_avxvnni.cc": [],
    "peak_avx2.cc": ["peak_neon.cc"], "peak_avx512.cc": ["peak_i8mm.cc"],
    "vector_ops_avx2.cc": ["vector_ops_neon.cc"], "vector_ops_avx512.cc": [],
}
KEPT = re.compile(r"-(D|I|std=|ffp-contract|fno-math-errno)")
# What the symbols of the libraries look like, mangled.
LIBRARY = re.compile(
    r"_(_ZN?[A-Za-z]*4absl|_Z.*(4absl|4grpc|6google8protobuf|10prometheus)|grpc_|gpr_|curl_|EVP_|"
    r"CRYPTO_|OpenSSL_|OPENSSL_|SHA256|HMAC|RAND_|ZSTD_|XXH|utf8proc_|el_|history|"
    r"deflate|inflate|crc32|compress|jpeg_|png_|WebP)")


def make_headers(out: pathlib.Path) -> pathlib.Path:
    include = out / "include"
    include.mkdir(parents=True, exist_ok=True)
    places = [pathlib.Path("/usr/include"), *pathlib.Path("/usr/include").glob("*-linux-gnu")]
    for name in HEADERS:
        # openssl's and others' headers lie in both places.
        found = [place / name for place in places if (place / name).exists()]
        if not found:
            sys.exit(f"mac: {name} is not in /usr/include; run tools/setup.sh build")
        target = include / name
        if found[0].is_dir():
            target.mkdir(exist_ok=True)
            for folder in found:
                for entry in folder.iterdir():
                    link(target / entry.name, entry)
        else:
            link(target, found[0])
    return include


def link(path: pathlib.Path, to: pathlib.Path) -> None:
    if path.is_symlink():
        path.unlink()
    path.symlink_to(to)


def units(commands: pathlib.Path) -> list[tuple[pathlib.Path, list[str], str]]:
    """(source, flags, the name of its object) for everything that the other system compiles."""
    found = []
    for entry in json.loads(commands.read_text()):
        source = pathlib.Path(entry["file"])
        words = shlex.split(entry["command"])
        flags, wants_value = [], False
        for word in words[1:]:
            if wants_value or word == "-isystem":
                # In-tree folders of generated headers; never the system's.
                if wants_value and not word.startswith("/usr"):
                    flags += ["-isystem", word]
                wants_value = word == "-isystem"
            elif KEPT.match(word):
                flags.append(word)
        output = words[words.index("-o") + 1]
        for name in OTHERS.get(source.name, [source.name]):
            found.append((source.with_name(name), flags, output.replace(source.name, name)))
    return found


def compile_all(zig: list[str], include: pathlib.Path, out: pathlib.Path, todo) -> dict[str, str]:
    """What went wrong, by source."""
    def compile_one(unit):
        source, flags, name = unit
        target = out / "objects" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Both kinds of products; the first Apple silicon has one of them alone.
        cpu = ["-mcpu=apple_m2"] if source.stem.endswith(("_neon", "_i8mm")) else []
        command = [*zig, "c++", *TARGET, *DEFINED, *cpu, *flags, "-O1", "-w", "-isystem", str(include), "-c",
                   str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return str(source), done.stderr if done.returncode != 0 else ""

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {source: error for source, error in pool.map(compile_one, todo) if error}


def undefined_symbols(zig: list[str], out: pathlib.Path, libraries, todo) -> set[str]:
    """What a link of the program does not find."""
    ours = [out / "objects" / name for source, _, name in todo
            if name.startswith(("src/", "lib/")) and "_test.dir" not in name and
            ".pb.cc" not in source.name]
    generated = [out / "objects" / name for source, _, name in todo if ".pb.cc" in source.name]
    command = [*zig, "c++", *TARGET, *map(str, ours + generated + libraries), "-o",
               str(out / "weft")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    symbols = set(re.findall(r"undefined symbol: (\S+)", done.stderr))
    if done.returncode != 0 and not symbols:
        sys.exit(f"mac: the program cannot be linked:\n{done.stderr[:4000]}")
    return symbols


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=pathlib.Path, required=True)
    parser.add_argument("--zig", required=True, help="a Python that has the package ziglang")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, action="append", default=[],
                        help="a library of macOS's to link with")
    parser.add_argument("--only", default="", help="sources whose path matches this expression")
    args = parser.parse_args()
    out = args.out.absolute()
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(out / "cache"))
    os.environ.setdefault("ZIG_LOCAL_CACHE_DIR", str(out / "cache"))
    begin = time.monotonic()
    todo = [unit for unit in units(args.commands) if re.search(args.only, str(unit[0]))]
    zig = [args.zig, "-m", "ziglang"]
    failed = compile_all(zig, make_headers(out), out, todo)
    for source, error in failed.items():
        print(f"{source}:\n{error[:4000]}")
    print(f"mac: {len(todo) - len(failed)} of {len(todo)} sources compiled "
          f"in {time.monotonic() - begin:.0f} s")
    if failed:
        sys.exit(1)
    if args.only:
        return
    symbols = undefined_symbols(zig, out, args.library, todo)
    ours = sorted(symbol for symbol in symbols if not LIBRARY.search(symbol))
    print(f"mac: linked, but for {len(symbols) - len(ours)} symbols of the libraries")
    if ours:
        sys.exit("mac: nobody defines " + " ".join(ours[:40]))


if __name__ == "__main__":
    main()
