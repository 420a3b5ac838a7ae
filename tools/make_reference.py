#!/usr/bin/env python3
"""Writes docs/reference from the program and the sources.

  tools/make_reference.py [--weft FILE] [--check] [--measure GOLDENS_TEST]

commands.txt       'weft COMMAND --help' of every command
metrics.txt        the names, types and meanings in /metrics
architectures.txt  the architectures of src/model/arch/architectures.inc, and what each was tried with
sampling.txt       the sampling parameters of include/weft/sampling_parameters.inc
folders.txt        which folder of src/ and lib/ may use which (tools/check_layers.py)

fields.txt is written by hand; --check compares its names with those that the sources of the HTTP
APIs read. With --check nothing is written: exit status 1 names what differs. With --measure the
table of architectures is measured anew by goldens_test; otherwise what it says stays.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
# Field readers of lib/json/json_fields.h and src/doors/api/fields/support.h, and patterns of the field
# names passed to them.
READERS = r"(?:Number|Integer|Bool|String|Strings|Value|Refuse|Unsupported|Knows|CannotMatter)"
NAME = r'"([a-z][a-z0-9_.]*)"'


def help_of(weft, *command):
    """What --help prints, without defaults that depend on the machine or the build."""
    shown = subprocess.run([weft, *command, "--help"], capture_output=True, text=True, check=True,
                           env={**os.environ, "COLUMNS": "100"}).stdout
    return re.sub(r"cpu,emu,reference(,\w[\w-]*)*|cpu\|emu\|reference(\|\w[\w-]*)*", "cpu ...",
                  shown).rstrip()


def commands(weft):
    listed = help_of(weft)
    names = re.findall(r"^  ([a-z-]+)  +[A-Z]", listed.split("Subcommands:")[1], re.M)
    parts = [listed] + [f"weft {name}\n\n{help_of(weft, name)}" for name in names]
    return ("\n\n" + "-" * 100 + "\n").join(parts) + "\n"


def metrics(weft):
    """Those of a server with the built-in model that has just started, and those that only several models have."""
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder, "models.toml")
        models.write_text('[a]\nmodel = "box"\npinned = true\n')
        one = _metrics_of(weft, "-m", "box", "--state-dir", f"{folder}/state")
        several = _metrics_of(weft, "--models", models)
    shown = {**{name: text for name, text in several.items() if name.startswith("weft_model_")}, **one}
    return "\n".join(shown[name] for name in sorted(shown)) + "\n"


def _metrics_of(weft, *args):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([weft, "serve", "--port", str(port), "--threads", "1", *args],
                          stderr=subprocess.DEVNULL) as server:
        try:
            text = _fetch(f"http://127.0.0.1:{port}/metrics", server)
        finally:
            server.terminate()
    meanings = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    lines = {}
    for name in types:
        labels = sorted({key for given in re.findall(rf"^{re.escape(name)}\{{([^}}]*)\}}", text, re.M)
                         for key in re.findall(r"(\w+)=", given)} - {"le"})
        shown = name + ("{" + ",".join(labels) + "}" if labels else "")
        lines[name] = f"{shown} ({types[name]})\n    {meanings.get(name, '')}"
    return lines


def _fetch(url, server):
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit("make_reference: the server ended")
        try:
            with urllib.request.urlopen(url.replace("/metrics", "/health"), timeout=5):
                pass
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
            # A request is counted after it is answered, and shows its labels only then.
            if "weft_http_requests_total{" in text:
                return text
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("make_reference: the server did not become ready")


# The form of calls in most files of an architecture. The program recognises it from a file's template.
REPLIES = {
    "vectors": "bert jina-bert-v2 modern-bert nomic-bert gemma-embedding",
    "harmony": "gpt-oss", "gemma4": "gemma4", "lfm2": "lfm2 lfm2moe", "seed-xml": "seed_oss",
    "minimax-xml": "minimax-m2", "kimi": "kimi-linear", "mistral": "mistral3 mistral4",
    "deepseek": "deepseek2", "deepseek-xml": "deepseek32 deepseek4", "llama3": "llama deci",
    "command-r": "command-r", "command-r7b": "cohere2 cohere2moe", "hunyuan-xml": "hy_v3",
    "glimmer": "muse-glimmer", "minimax-nested": "minimax-m3",
    "glm": "glm4moe glm-dsa laguna spark2_5",
    "qwen-xml": "qwen35 qwen35moe qwen3next step35 nemotron_h_moe",
    "hermes": "qwen2 qwen3 qwen3moe qwen3vl qwen3vlmoe mimo2 smollm3 granite granitemoe "
              "granitehybrid nemotron_h",
}


def measure(test):
    """What goldens_test finds: for each architecture its models, the largest difference from the
    logits of another implementation, and the backends that have it."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results.json"
        subprocess.run([test, "--gtest_filter=*FloatModelTest.ShortRun/*:*FloatModelTest.LongRun/*-*LongRun/emu*",
                        f"--gtest_output=json:{out}", "--gtest_brief=1"],
                       env={**os.environ, "WEFT_EMULATE": "all"}, check=True)
        suites = json.loads(out.read_text())["testsuites"]
    found = {}
    for case in (case for suite in suites for case in suite["testsuite"]):
        if "max_difference" not in case:
            continue
        backend, model = case["name"].split("/")[-1].split("_", 1)
        models, worst, backends = found.setdefault(case["architecture"], (set(), [0.0], set()))
        models.add(model)
        backends.add(backend)
        worst[0] = max(worst[0], float(case["max_difference"]))
    return {name: (str(len(models)), f"{worst[0]:.0e}", " ".join(sorted(backends)))
            for name, (models, worst, backends) in found.items()}


# Where each column of the table begins.
COLUMNS = (0, 21, 28, 40, 60, 74, 92)


def _row(*cells):
    line = ""
    for start, cell in zip(COLUMNS, cells):
        line = (line + " " if line and len(line) >= start else line.ljust(start)) + cell
    return line.rstrip()


def measured_before():
    path = REFERENCE / "architectures.txt"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    cells = [[line[a:b].strip() for a, b in zip(COLUMNS, COLUMNS[1:])] for line in lines]
    return {row[0]: tuple(row[1:4]) for row in cells}


def architectures(measured):
    """The table; `measured` as of measure()."""
    source = (ROOT / "src/model/arch/architectures.inc").read_text()
    rows = re.findall(r'^WEFT_ARCHITECTURE\(\s*"([^"]+)",\s*\w+,\s*"([^"]*)",\s*"([^"]*)"\)', source,
                      re.M)
    replies = {name: form for form, names in REPLIES.items() for name in names.split()}
    lines = [_row("general.architecture", "files", "difference", "backends", "replies", "model_type",
                  "architectures in config.json")]
    for gguf, kind, name in rows:
        files, worst, backends = measured.get(gguf, ("0", "-", "-"))
        lines.append(_row(gguf, files, worst, backends, replies.get(gguf, "-"), kind, name))
    return "\n".join(lines) + "\n"


def sampling_rows():
    """The table's rows: type, member, default, name, and the other columns by name."""
    source = (ROOT / "include/weft/sampling_parameters.inc").read_text()
    source = re.sub(r"^//.*$|//$", "", source, flags=re.M)
    rows = []
    for row in source.split("WEFT_SAMPLING_PARAMETER(")[1:]:
        kind, _, own, name = (part.strip() for part in row.split(",", 4)[:4])
        column = dict(re.findall(r'\.(\w+) = ("[^"]*"|[^,{}()]+)', row))
        rows.append((name, kind, own, {key: value.strip('"') for key, value in column.items()}))
    return rows


def sampling():
    parts = ["Sampling parameters\n\nIn the requests of all APIs that have them, in files, as flags of the "
             "commands that\ngenerate, and in 'weft chat' (/set)."]
    numbers = {"kMaxInt32": "2147483647", "1e6": "1000000", "-1e6": "-1000000"}
    for name, kind, own, column in sampling_rows():
        bounds = [column.get(key, "0") for key in ("min", "max")]
        low, high = (numbers.get(bound, bound) for bound in bounds)
        limit = column.get("openai_max")
        names = ", ".join([name] + [column[key] for key in ("other_name",) if key in column])
        lines = [names, f"    {column['help']}",
                 f"    {'a whole number' if kind == 'int' else 'a number'} from {low} to {high}"
                 + (f" (OpenAI's and Anthropic's routes: at most {limit} in magnitude)" if limit else ""),
                 f"    {column['values']}"]
        if "said" in column:
            means = {"kSmallestFloat": "only the best token"}.get(column["means"], column["means"])
            lines.append(f"    {column['said']} means {means}")
        lines.append(f"    default {own.rstrip('f')}; flag {column['flag']}; in GGUF files "
                     f"general.sampling.{column['gguf_key']}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def folders():
    lines = []
    for folder, may_use in check_layers.ALLOWED.items():
        names = sorted(may_use)
        shown = "everything" if len(names) > 30 else ", ".join(names) if names else "nothing"
        lines.append(f"{folder}\n    {shown}")
    return "\n".join(lines) + "\n"


def missing_fields():
    """Names that the HTTP APIs read and fields.txt does not have."""
    text = (REFERENCE / "fields.txt").read_text()
    listed = set(re.findall(r"[a-z][a-z0-9_]*", text)) | set(re.findall(r"[a-z][a-z0-9_.]*", text))
    read = set()
    for path in sorted((ROOT / "src/doors/api").rglob("*.cc")):
        if path.name.endswith("_test.cc"):
            continue
        for call in re.findall(rf"(?:fields?|inner)(?:->|\.){READERS}\(([^;]*?)\)", path.read_text(),
                               re.S):
            if call.lstrip().startswith("{"):
                read |= set(re.findall(NAME, call))
            else:
                read |= set(re.findall(rf"^\s*{NAME}", call))
    return sorted(read - listed)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=os.environ.get("WEFT", ROOT / "build/release/weft"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", metavar="GOLDENS_TEST")
    args = parser.parse_args()
    weft = str(args.weft)
    measured = measure(args.measure) if args.measure else measured_before()
    made = {"commands.txt": commands(weft), "metrics.txt": metrics(weft),
            "architectures.txt": architectures(measured), "sampling.txt": sampling(),
            "folders.txt": folders()}
    REFERENCE.mkdir(parents=True, exist_ok=True)
    problems = []
    for name, text in made.items():
        path = REFERENCE / name
        if args.check and (not path.exists() or path.read_text() != text):
            problems.append(f"docs/reference/{name} is out of date: run tools/make_reference.py")
        elif not args.check:
            path.write_text(text)
    problems += [f"docs/reference/fields.txt lacks {name}" for name in missing_fields()]
    for problem in problems:
        print(f"make_reference: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
