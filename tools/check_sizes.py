#!/usr/bin/env python3
"""Checks that no source file and no class has grown beyond what one reads at a sitting.

  tools/check_sizes.py [ROOT]

A file has at most 500 lines, a class at most 200 lines and 25 public functions. Larger classes stand
in LARGE, with the reason. Tests may be longer. Prints one line per violation and exits with 1 if
there is any.
"""

import pathlib
import re
import sys

MAX_FILE, MAX_CLASS, MAX_PUBLIC = 500, 200, 25
READER = "reads one format behind one function; its parts share the place in the text"
LARGE = {
    "include/weft/engine.h": {"Engine": "a function per thing that a program may ask of the engine"},
    "include/weft/model.h": {"Model": "a function per fact about a model"},
    "lib/constraint/grammar/gbnf.cc": {"GbnfReader": READER},
    "lib/constraint/grammar/grammar.h": {"Grammar": "a constructor per kind of expression"},
    "lib/constraint/grammar/lark_text.cc": {"LarkReader": READER},
    "lib/constraint/regex/regex_life.cc": {"LifeSearch": "one search, whose stack all its steps share"},
    "lib/constraint/schema/json_value.cc": {"JsonReader": READER},
    "lib/jinja/lexer.cc": {"Lexer": READER},
    "lib/jinja/parser.cc": {"Parser": READER},
    "lib/jinja/value.h": {"Value": "a value of a dynamic language: a constructor, test and getter per type"},
    "src/cli/commands/chat.cc": {"ChatLoop": "a short function per command of a chat"},
    "src/compute/checks.cc": {"StepValidator": "a short function per rule that a step obeys"},
    "src/compute/kernels/quants/quants_codes.h": {"CodeFitter": "one search, whose arrays all its steps share"},
    "src/compute/kernels_gpu/attend_device.h": {"Attender": "one kernel, whose parts share a block's registers"},
    "src/doors/api/responses/routes.cc": {"ResponseWriter": "a short function per event of one stream"},
    "src/doors/grpc/tokenizer_bundle.cc": {"TokenizerWriter": "writes one format, a function per part"},
    "src/doors/http/server.cc": {"Server": "the life of one server; connections have a class of their own"},
    "src/engine/engine.cc": {"EngineThread": "answers each function of Engine on the engine's thread"},
    "src/engine/sessions/state_memory.h": {"StateMemory": "the only owner of pages, slots and their budget"},
    "src/engine/state/prefix_index.h": {"PrefixIndex": "one tree, whose invariants its comments explain"},
    "src/engine/storage/session_files.h": {"SessionFiles": "a function per step in the life of a session's file"},
    "src/model/formats/hf/folder.cc": {"FolderReader": READER},
    "src/model/formats/hf/tokenizer.cc": {"TokenizerReader": READER},
    "src/model/formats/model_file.h": {"ModelFile": "a getter per type of a file's values"},
    "src/model/spec_builder.h": {"SpecBuilder": "the words in which all architectures are written"},
    "src/model/spec_file.cc": {"SpecReader": READER},
    "src/model/tokenizer/pretokenizer.cc": {"WordScanner": "a function per alternative of the patterns"},
}

BEGIN = re.compile(
    r"^( *)(class|struct) (?:\[\[[^]]*\]\] |[A-Z][A-Z_]+(?:\([^)]*\))? |alignas\(\d+\) )*"
    r"((?:\w+::)*\w+)(?:<[^{]*>)?(?: final)?(?: : [^;]*)?(?: \{.*)?$")
TEST = re.compile(r"_test\.cc$|_test_util\.h$|_fuzz\.cc$|/testdata/")


def is_function(line, indent, name):
    """Whether a declaration of a function begins here; `name` is the class's."""
    if not re.match(rf"^ {{{indent}}}[A-Za-z]", line):
        return False
    if re.match(r"\s*(using|friend|struct|class|enum|template|public|private|protected)\b", line):
        return False
    called = re.search(r"([~\w]+)\(", line)
    return bool(called) and called[1].lstrip("~") != name and "operator" not in line


def classes(lines):
    """(name, first line, lines, public functions) of each class."""
    for first, line in enumerate(lines):
        begin = BEGIN.match(line)
        if not begin or line.endswith(";"):
            continue
        indent = len(begin[1])
        name = begin[3].split("::")[-1]
        is_public = begin[2] == "struct"
        n_public = 0
        for last in range(first + 1, len(lines)):
            body = lines[last]
            if re.match(rf"^ {{{indent}}}\}}", body):
                yield name, first + 1, last - first + 1, n_public
                break
            if access := re.match(rf"^ {{{indent + 1}}}(public|private|protected):", body):
                is_public = access[1] == "public"
            elif is_public and is_function(body, indent + 2, name):
                n_public += 1


def check(root):
    problems, seen = [], set()
    files = [path for room in ("include", "lib", "src") for path in (root / room).rglob("*")
             if path.suffix in (".cc", ".h", ".inc", ".cu")]
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        if TEST.search(name):
            continue
        lines = path.read_text(errors="replace").split("\n")
        if len(lines) - 1 > MAX_FILE:
            problems.append(f"{name}:1: {len(lines) - 1} lines; divide it (max {MAX_FILE})")
        for owner, at, n_lines, n_public in classes(lines):
            if n_lines <= MAX_CLASS and n_public <= MAX_PUBLIC:
                continue
            seen.add((name, owner))
            if owner not in LARGE.get(name, {}):
                problems.append(f"{name}:{at}: {owner} has {n_lines} lines and {n_public} public functions; divide "
                                f"it (max {MAX_CLASS} and {MAX_PUBLIC}), or give the reason in {__file__}")
    for name, owners in LARGE.items():
        for owner in owners:
            if (name, owner) not in seen:
                problems.append(f"{name}:1: {owner} is not large any more; take it off the list")
    return problems


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
    problems = check(root)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
