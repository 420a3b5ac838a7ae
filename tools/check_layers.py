#!/usr/bin/env python3
"""Checks that folders use only what they may: includes, libraries, header guards.

  tools/check_layers.py [ROOT]

Prints one line per violation, "file:line: what is wrong", and exits with 1 if there
is any. Tests (*_test.cc, *_test_util.h, tests/, bench/) and tools/ may use everything
but headers by a relative path.
"""

import pathlib
import re
import sys

# What each folder of src/ and lib/ may include, itself aside; a folder within one has a row of its own
# or counts as part of it. "weft" is include/weft, the public headers: what lies below the engine
# does not know them.
ALLOWED = {
    "base": set(),
    "base/files": {"base"},
    "zip": {"base"},
    "async": {"base"},
    "picture": {"base"},
    "json": {"base"},
    "model/sampling": {"base", "weft"},
    "model/formats": {"base", "base/files", "json", "model/sampling"},
    "model/hub/names": {"base", "model/sampling", "model/formats"},
    "model/hub/net": {"base", "base/files", "model/hub/names", "zip"},
    "model/hub": {"base", "base/files", "model/sampling", "model/formats", "model/hub/names", "model/hub/net", "zip"},
    "model/tokenizer": {"base", "model/formats"},
    "constraint/regex": {"base"},
    "constraint/grammar": {"base", "constraint/regex"},
    "constraint/schema": {"base", "constraint/regex", "constraint/grammar"},
    "constraint": {"base", "constraint/regex", "constraint/grammar", "constraint/schema"},
    "model": {"base", "model/formats", "json"},
    "engine/state": {"base", "base/files", "weft"},
    "compute/kernels": {"base"},
    "compute/kernels/quants": {"base"},
    "compute/kernels/matmul": {"base", "compute/kernels", "compute/kernels/quants"},
    "compute/device": {"base"},
    "compute/kernels_gpu": {"base", "compute/device"},
    "compute": {"base", "base/files", "model/formats", "model", "compute/kernels", "compute/kernels/matmul", "compute/kernels/quants", "compute/device",
                "compute/kernels_gpu"},
    "engine/vision": {"base", "model/formats", "model", "compute", "picture", "weft"},
    "engine/sampling": {"base", "model/tokenizer", "weft"},
    "engine/sessions": {"base", "model", "engine/state", "compute", "engine/sampling", "weft"},
    "engine/speculation": {"base", "weft"},
    "engine/storage": {"base", "base/files", "engine/state", "compute", "engine/sessions", "weft"},
    "engine/loading": {"base", "model/formats", "model/tokenizer", "constraint", "model", "compute", "weft"},
    "engine/drafting": {"base", "model/tokenizer", "model", "compute", "engine/loading",
                        "engine/sessions", "weft"},
    "engine/turns": {"base", "model/tokenizer", "compute", "engine/drafting", "engine/loading",
                     "engine/sampling",
                     "engine/sessions", "engine/speculation", "engine/storage", "weft"},
    "engine": {"base", "model/tokenizer", "constraint", "compute", "engine/drafting", "engine/sampling",
               "engine/sessions",
               "engine/speculation", "engine/storage", "engine/loading", "engine/turns", "weft"},
    "jinja": {"base", "json"},
    "answer/reply": {"base", "json"},
    "answer/chat": {"base", "json", "jinja", "answer/reply", "model/tokenizer", "constraint"},
    "answer/masks": {"base", "model/tokenizer", "constraint", "engine/loading", "weft"},
    "answer": {"base", "base/files", "async", "json", "model/sampling", "model/tokenizer", "constraint", "answer/reply",
               "answer/chat", "zip", "answer/masks", "engine/vision", "model", "picture", "weft"},
    "doors/http": {"base", "async", "json"},
    "doors/stores": {"base", "model/hub/names", "model/hub/net", "weft"},
    "doors/host": {"base", "base/files", "async", "json", "model/sampling", "model/formats", "model/tokenizer", "constraint", "engine",
             "answer/reply", "answer/chat", "answer", "answer/masks", "doors/http", "weft"},
    "weft": set(),
}
FRONT_END = ALLOWED["doors/host"] | {"model", "doors/host"}
API = FRONT_END | {"doors/api", "doors/api/fields"}
ALLOWED |= {
    "doors/api/fields": FRONT_END,
    "doors/api": FRONT_END | {"doors/api/fields"},
    "doors/api/anthropic": API,
    "doors/api/ollama": API,
    "doors/api/openai": API,
    "doors/api/sessions": API,
    "doors/api/llama": API | {"doors/api/openai"},
    "doors/api/responses": API | {"doors/api/openai"},
    "doors/api/page": API | {"doors/api/ollama", "doors/api/openai"},
    "doors/api/server": API | {"doors/api/llama"},
    "doors/grpc": FRONT_END | {"zip"},
    "doors/kv_events": FRONT_END,
    "doors/worker": FRONT_END,
}
EVERYTHING = set(ALLOWED)
ALLOWED |= {
    "cli/help": {"base"},
    "cli/terminal": {"base", "model/hub", "model/hub/net"},
    "cli/flags": EVERYTHING | {"cli/terminal"},
    "cli/bench": EVERYTHING | {"cli/terminal", "cli/flags"},
    "cli/chat": EVERYTHING | {"cli/terminal", "cli/flags"},
    "cli/serve": EVERYTHING | {"cli/terminal", "cli/flags", "cli/bench"},
    "cli/top": EVERYTHING | {"cli/terminal", "cli/flags", "cli/bench", "cli/serve"},
    "cli/launch": EVERYTHING | {"cli/terminal", "cli/flags", "cli/bench", "cli/serve"},
}
ALLOWED["cli/commands"] = set(ALLOWED)
ALLOWED["cli"] = set(ALLOWED)

# Libraries whose headers belong to some folders only: an engine that knows no JSON
# cannot grow a habit of it.
CONFINED = {
    "nlohmann": {"json", "jinja", "model/formats", "model", "answer/reply", "answer/chat", "answer", "model/hub", "doors/http", "doors/host", "doors/api", "doors/grpc",
                 "doors/worker", "cli"},
    "curl": {"model/hub", "doors/stores"},
    "zlib.h": {"zip"},
    "png.h": {"picture"},
    "jpeglib.h": {"picture"},
    "webp": {"picture"},
    "CLI": {"cli"},
    "boost": {"doors/http", "doors/kv_events"},
    "prometheus": {"doors/host"},
    "openssl": {"model/hub", "doors/host", "doors/api/ollama", "doors/grpc"},
    "grpcpp": {"doors/grpc"},
    "mlx": {"compute"},
    "pcre2.h": set(),
    "utf8proc.h": {"base", "jinja"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
TEST_FILE = re.compile(r"_test(_util)?\.(cc|h)$")
CMAKE_CALL = re.compile(r"(weft_library|target_link_libraries)\s*\(\s*(\S+)([^)]*)\)")


def room_of(parts):
    """The longest beginning of a path below src/ or lib/ that has a row, else its first folder."""
    for length in range(len(parts) - 1, 0, -1):
        if "/".join(parts[:length]) in ALLOWED:
            return "/".join(parts[:length])
    return parts[0]


def rooms_around(folder):
    """The folder, and those that it lies in."""
    parts = folder.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]


def folder_of(path):
    """The folder of `path` (relative to the root) that the rules speak of, or None."""
    parts = path.parts
    if parts[0] in ("src", "lib") and len(parts) > 2:
        return room_of(parts[1:])
    if parts[:2] == ("include", "weft"):
        return "weft"
    return None


def library_of(folder):
    return "weft_" + folder.replace("/", "_")


def expected_guard(path):
    parts = path.parts[1:] if path.parts[0] in ("src", "lib", "include") else path.parts
    if parts[0] == "weft":
        parts = parts[1:]
    return "WEFT_" + re.sub(r"[^A-Z0-9]", "_", "/".join(parts).upper()) + "_"


def check_include(path, folder, target):
    """What is wrong with including `target`, or None."""
    if target.startswith("../") or "/../" in target or target.startswith("./"):
        return f"#include \"{target}\" is relative; name the header from src/, lib/ or include/"
    if folder is None:
        return None
    if folder not in ALLOWED:
        return f"src/{folder} is unknown to tools/check_layers.py; say there what it may use"
    head = target.split("/")[0]
    if head in CONFINED and not set(rooms_around(folder)) & CONFINED[head]:
        where = ", ".join(sorted(CONFINED[head])) or "tests"
        return f"{folder} may not include {target}; that library belongs to {where}"
    head = room_of(target.split("/"))
    if "/" not in target or head not in ALLOWED or head == folder:
        return check_backends(path, target)
    if head not in ALLOWED[folder]:
        allowed = ", ".join(sorted(ALLOWED[folder] - {"weft"})) or "nothing"
        return f"{folder} may not include {target}; it may use {allowed}"
    return None


# Folders of src/compute that are no backends.
SHARED = {"kernels", "kernels_gpu", "device"}


def check_backends(path, target):
    """Backends, the folders in src/compute, know what stands beside these but not one another."""
    parts, target_parts = path.parts, target.split("/")
    if parts[:2] != ("src", "compute") or target_parts[0] != "compute" or len(parts) < 4:
        return None
    if len(target_parts) > 2 and not {target_parts[1], parts[2]} & SHARED and target_parts[1] != parts[2]:
        return f"the {parts[2]} backend may not include {target}, a part of another backend"
    return None


def check_source(root, path, problems):
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    folder = None if TEST_FILE.search(path.name) else folder_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            problem = check_include(path, folder, match.group(2))
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    check_awaits(path, text, problems)
    if path.suffix == ".h":
        check_guard(path, lines, problems)


STRINGS_AND_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def check_awaits(path, text, problems):
    """GCC 12 destroys some temporaries twice, or too early, where a coroutine waits within a
    condition, a conditional expression or the arguments of a call; so waiting is a statement, or
    what one assigns."""
    if "co_await" not in text:
        return
    text = STRINGS_AND_COMMENTS.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for match in re.finditer(r"\bco_await\b", text):
        begin = match.start()
        statement = re.split(r"[;{}]", text[:begin])[-1]
        # A condition that has ended, or the name of a loop's variable, is no part of it.
        statement = re.sub(r"^\s*(?:else\s+)?(?:if|while|for)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "",
                           statement)
        is_open = statement.count("(") > statement.count(")")
        is_choice = "?" in statement or "&&" in statement or "||" in statement
        if is_open or is_choice:
            number = text.count("\n", 0, begin) + 1
            problems.append(f"{path}:{number}: co_await within a condition, a choice or the "
                            "arguments of a call, which GCC 12 may compile wrongly; give its result "
                            "a name first")


def check_guard(path, lines, problems):
    guard = expected_guard(path)
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            following = lines[number] if number < len(lines) else ""
            if line.strip() != f"#ifndef {guard}" or following.strip() != f"#define {guard}":
                problems.append(f"{path}:{number}: the header's guard must be {guard}")
            return
    problems.append(f"{path}:1: the header has no guard; it must be {guard}")


def check_libraries(root, path, problems):
    """weft_X may link only the weft_Y that folder X may use; weft_a_b is of folder a/b."""
    folders = {library_of(folder): folder for folder in ALLOWED}
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"#[^\n]*", lambda m: " " * len(m.group()), text)
    for call in CMAKE_CALL.finditer(text):
        folder = folders.get(call.group(2))
        if folder is None:
            continue
        for name in re.finditer(r"\bweft_\w+\b", call.group(3)):
            used = folders.get(name.group())
            if used is None or used == folder or used in ALLOWED[folder]:
                continue
            line = text.count("\n", 0, call.start(3) + name.start()) + 1
            problems.append(f"{path}:{line}: {call.group(2)} may not link {name.group()}")


def check_tree(root):
    problems = []
    for top in ("src", "lib", "include", "tools", "tests", "bench"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root)
            if file.suffix in (".cc", ".h", ".inc") and file.is_file():
                check_source(root, path, problems)
            elif file.name == "CMakeLists.txt":
                check_libraries(root, path, problems)
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    if not (root / "src").is_dir():
        sys.exit(f"check_layers: {root} has no folder src")
    problems = check_tree(root)
    for problem in problems:
        print(problem)
    if problems:
        print(f"check_layers: {len(problems)} violations; docs/reference/folders.txt has the rules")
        sys.exit(1)


if __name__ == "__main__":
    main()
