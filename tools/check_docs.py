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
    "README.md": 620,
    "docs/install.md": 420,
    "docs/models.md": 520,
    "docs/agents.md": 520,
    "docs/operations.md": 1600,
    "docs/api.md": 1450,
    "docs/structured-output.md": 520,
    "docs/design.md": 1400,
    "docs/same-bits.md": 580,
    "docs/file-formats.md": 780,
    "docs/extending.md": 920,
    "docs/fleet.md": 500,
    "docs/store.md": 440,
    "docs/gpu.md": 500,
    "docs/benchmarks.md": 620,
}
# CONTRIBUTING, SECURITY and CHANGELOG together, and all documents together.
PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PROJECT_LIMIT = 820
LIMIT = 12_500
# Per 1,000 words of all documents, at most or at least so many of these.
WHAT = (r"\b(?:of|to|from|with|for|by|in|on|and|is|are|than|as|says?|knows?|keeps?|holds?|tells?) what\b"
        r"|(?:^|[.;:] )What [a-z]+ [^?]{8,80}[.;,]")
HABITS = [
    (r";", 0, 3, "semicolons", "write two sentences"),
    (WHAT, 0, 0.6, "clauses with \"what\" as a noun", "name the thing"),
    (r"\b(?:beside|behind|in place of)\b", 0, 0.4, "times \"beside\", \"behind\", \"in place of\"",
     "write next to, after, instead of"),
    (r"\byou(?:r|rs)?\b", 5, 1000, "times \"you\" and \"your\"", "write to your reader"),
    (r"\bfor example\b|\bsuch as\b", 1, 1000, "examples", "say for example what you mean"),
]
MAX_LONG_SENTENCES = 10  # over 35 words, in all documents


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


def broken_habits(text, total):
    for pattern, least, most, name, instead in HABITS:
        found = len(re.findall(pattern, text, re.I))
        if not least * total <= 1000 * found <= most * total:
            yield f"{found} {name} in {total} words: {instead}"


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                             "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    problems, words, long, all_prose = [], {}, [], ""
    for name in sorted(set(listed.stdout.split())):
        path = ROOT / name
        if not path.exists():
            continue
        text = path.read_text()
        words[name] = len(prose(text).split())
        all_prose += prose(text) + "\n\n"
        long += [f"{name}: {sentence[:120]}" for sentence in long_sentences(text)]
        problems += [f"{name} {problem}" for problem in broken_links(path)]
        if words[name] > LIMITS.get(name, LIMIT):
            problems.append(f"{name} has {words[name]} words, its limit is {LIMITS[name]}")
    project, total = sum(words.get(name, 0) for name in PROJECT), sum(words.values())
    if project > PROJECT_LIMIT:
        problems.append(f"{', '.join(PROJECT)} have {project} words, their limit is {PROJECT_LIMIT}")
    if total > LIMIT:
        problems.append(f"all documents have {total} words, their limit is {LIMIT}")
    problems += broken_habits(all_prose, total)
    if len(long) > MAX_LONG_SENTENCES:
        problems += [f"long sentence in {sentence}" for sentence in long]
    if "--show" in sys.argv[1:]:
        for name, n in words.items():
            print(f"{n:7} {name}")
        figures = [f"{len(re.findall(pattern, all_prose, re.I))} {name}" for pattern, _, _, name, _ in HABITS]
        print(f"{total:7} together, {len(long)} long sentences, {', '.join(figures)}")
    for problem in problems:
        print(f"check_docs: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
