#!/usr/bin/env python3
"""Checks the documents: their length, their links, and how plainly they are written.

  tools/check_docs.py [--show]

Limits are in words without code. Prints one line per problem and exits with 1 if there is any;
--show prints the figures of every document.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {
    "README.md": 700,
    "docs/install.md": 500,
    "docs/models.md": 600,
    "docs/agents.md": 700,
    "docs/operations.md": 2000,
    "docs/api.md": 2500,
    "docs/structured-output.md": 700,
    "docs/design.md": 2200,
    "docs/same-bits.md": 700,
    "docs/file-formats.md": 900,
    "docs/extending.md": 1200,
    "docs/gpu.md": 500,
    "docs/benchmarks.md": 1000,
}
# CONTRIBUTING, SECURITY and CHANGELOG together, and all documents together.
PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PROJECT_LIMIT = 900
LIMIT = 15_000
# Per 1,000 words, of all documents; and sentences of over 35 words, of all documents.
MAX_SEMICOLONS = 3
MAX_LONG_SENTENCES = 10


def prose(text):
    """Without code, addresses and markup."""
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    text = re.sub(r"`[^`]*`", "x", text)
    return re.sub(r"\(https?://[^)]*\)|[|#>*]", " ", text)


def long_sentences(text):
    parts = re.split(r"(?<=[.!?])\s+|\n\s*\n", prose(text))
    return [" ".join(part.split()) for part in parts if len(part.split()) > 35]


def anchors(path):
    """The names by which GitHub links to a document's headings."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists():
            yield f"links to {link}, which is not there"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"links to {link}, a heading that is not there"


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                             "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    problems, words, semicolons, long = [], {}, 0, []
    for name in sorted(set(listed.stdout.split())):
        path = ROOT / name
        if not path.exists():
            continue
        text = path.read_text()
        words[name] = len(prose(text).split())
        semicolons += prose(text).count(";")
        long += [f"{name}: {sentence[:120]}" for sentence in long_sentences(text)]
        problems += [f"{name} {problem}" for problem in broken_links(path)]
        if words[name] > LIMITS.get(name, LIMIT):
            problems.append(f"{name} has {words[name]} words, its limit is {LIMITS[name]}")
    project, total = sum(words.get(name, 0) for name in PROJECT), sum(words.values())
    if project > PROJECT_LIMIT:
        problems.append(f"{', '.join(PROJECT)} have {project} words, their limit is {PROJECT_LIMIT}")
    if total > LIMIT:
        problems.append(f"all documents have {total} words, their limit is {LIMIT}")
    if semicolons * 1000 > total * MAX_SEMICOLONS:
        problems.append(f"{semicolons} semicolons in {total} words: write two sentences")
    if len(long) > MAX_LONG_SENTENCES:
        problems += [f"long sentence in {sentence}" for sentence in long]
    if "--show" in sys.argv[1:]:
        for name, n in words.items():
            print(f"{n:7} {name}")
        print(f"{total:7} together, {semicolons} semicolons, {len(long)} long sentences")
    for problem in problems:
        print(f"check_docs: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
