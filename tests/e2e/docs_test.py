#!/usr/bin/env python3
"""Runs what README and docs show: every `sh` block, against the built binary.

A block of the kind `sh` is run here, in a folder with model.gguf (the built-in model), a few small
models and texts under the names that the documents use, and a server on a free port instead of
8080. A block of the kind `console` needs a network, root, another program or a GPU: its programs,
flags and targets are looked up instead, as are the commands within sentences. `json` blocks must
be JSON.
"""

import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from weft_process import MAKE_MODEL, TIMEOUT_S, WEFT

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OWN = {"weft": WEFT, "weft-make-model": MAKE_MODEL,
       "weft-quantize": os.environ.get("WEFT_QUANTIZE", "build/release/weft-quantize")}
SHOWN = "http://127.0.0.1:8080"
COMMAND_S = 400  # the longest runs 48 conversations twice, perhaps beside other tests
# What the documents take for granted, as weft-make-model makes it: name, shape and type.
MODELS = [("model-f16.gguf", "tiny-llama", "F16"), ("minilm.gguf", "tiny-bert", "F16"),
          ("reranker.gguf", "tiny-reranker", "F16")]
# Routes that the model of the other examples does not answer.
OTHER_SERVERS = {"/v1/embeddings": "minilm.gguf", "/v1/rerank": "reranker.gguf"}
# Programs of others, which only `console` blocks call.
FOREIGN = {"aider", "apt-get", "cmake", "ctest", "curl", "editor", "export", "journalctl", "mkdir",
           "ninja", "npm", "pipx", "podman", "smg", "systemctl", "tar", "versitygw"}


def documents():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(kind):
    for path in documents():
        text = path.read_text()
        for match in re.finditer(rf"^```{kind}\n(.*?)^```", text, re.S | re.M):
            line = text[:match.start()].count("\n") + 2
            yield f"{path.relative_to(ROOT)}:{line}", match.group(1)


def commands(block):
    """Lines, joined where a quotation, a backslash or a text after << goes on."""
    command = ""
    for line in block.splitlines():
        command += line + "\n"
        if heredoc := re.search(r"<<'(\w+)'", command):
            if line == heredoc.group(1):
                yield command
                command = ""
            continue
        try:
            shlex.split(command, comments=True)
        except ValueError:
            continue
        if not command.endswith("\\\n"):
            if shlex.split(command, comments=True):
                yield command.strip()
            command = ""
    assert not command, f"unfinished: {command}"


def flags_of(text):
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(model, home, env):
    """The address of a server that is ready, and the function that stops it."""
    port = free_port()
    server = subprocess.Popen(
        ["weft", "serve", "-m", model, "--alias", "weft", "--port", str(port), "--state-dir",
         str(home / f"state-{model}")], cwd=home, env=env, stderr=subprocess.PIPE, text=True)
    if not any(" ready after " in line for line in server.stderr):
        raise AssertionError(f"the server of {model} did not become ready")
    # What nobody reads would stop the server.
    drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)

    def stop():
        server.terminate()
        server.wait(TIMEOUT_S)
        server.stderr.close()
        drain.wait(TIMEOUT_S)

    return f"http://127.0.0.1:{port}", stop


class DocsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        home = pathlib.Path(cls.folder.name)
        cls.addClassCleanup(cls.folder.cleanup)
        for folder in (home / "bin", home / "build" / "release"):
            folder.mkdir(parents=True)
            for name, path in OWN.items():
                (folder / name).symlink_to(pathlib.Path(path).resolve())
        (home / "examples").symlink_to(ROOT / "examples")
        shutil.copy(ROOT / "models" / "box.gguf", home / "model.gguf")
        (home / "texts.txt").write_text("The loom\nThe boat\n")
        (home / "notes.txt").write_text("The weaver sits at the loom all day. " * 40)
        for name, shape, kind in MODELS:
            subprocess.run([home / "bin" / "weft-make-model", "--shape", shape, "--type", kind,
                            "--out", home / name], check=True, capture_output=True)
        cls.env = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"),
                   "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "WEFT": str(home / "bin/weft"),
                   "HF_HUB_OFFLINE": "1"}
        cls.url = cls.serve_model("model.gguf")
        cls.other_urls = {route: cls.serve_model(model) for route, model in OTHER_SERVERS.items()}

    @classmethod
    def serve_model(cls, model):
        url, stop = start_server(model, pathlib.Path(cls.folder.name), cls.env)
        cls.addClassCleanup(stop)
        return url

    def run_command(self, command):
        words = shlex.split(command.replace(SHOWN, self.url), comments=True)
        if words[0] == "curl":
            return self.curl(words[1:])
        if words[:2] == ["weft", "serve"]:
            return self.serve(words)
        if words[:2] == ["weft", "launch"]:
            end = words.index("--") if "--" in words else len(words)
            words[end:end] = ["--print", "--server", self.url]
        elif words[:2] == ["weft", "why"]:
            words += ["--server", self.url]
        else:
            words = None  # the shell's own syntax counts
        done = subprocess.run(words or ["bash", "-c", command], cwd=self.folder.name, env=self.env,
                              capture_output=True, text=True, timeout=COMMAND_S,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return None

    def curl(self, words):
        method, body, headers, url = None, None, {}, None
        given = iter(words)
        for word in given:
            if word == "-d":
                body = next(given)
                json.loads(body)
            elif word == "-X":
                method = next(given)
            elif word == "-H":
                name, value = next(given).split(": ", 1)
                headers[name] = value
            else:
                self.assertTrue(word.startswith("http"), f"curl option {word}")
                route = word.removeprefix(self.url)
                url = self.other_urls.get(route, self.url) + route
        request = urllib.request.Request(url, data=body.encode() if body else None,
                                         method=method, headers=headers)
        # As curl sends it.
        request.add_header("Content-Type", "application/x-www-form-urlencoded")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            self.fail(f"{url}: {error.code} {error.read().decode()}")
        if not url.endswith("/metrics") and text:
            json.loads(text)

    def serve(self, words):
        """Becomes ready, and stops when it is asked to. Only this computer may see it."""
        words = [word.replace("~", self.folder.name).replace("0.0.0.0", "127.0.0.1")
                 for word in words]
        with subprocess.Popen([*words, "--port", "0"], cwd=self.folder.name, env=self.env,
                              stderr=subprocess.PIPE, text=True) as server:
            lines = []
            for line in server.stderr:
                lines.append(line)
                if " ready after " in line:
                    break
            server.terminate()
            server.stderr.read()
            self.assertEqual(server.wait(TIMEOUT_S), 0, "".join(lines))
            self.assertIn(" ready after ", lines[-1])

    def test_every_command_works(self):
        found = list(blocks("sh"))
        self.assertGreater(len(found), 10)
        # The session that agents.md asks about.
        self.run_command(f"curl {SHOWN}/v1/chat/completions -d "
                         """'{"session_id": "kitchen", "max_tokens": 4,
                              "messages": [{"role": "user", "content": "Hello"}]}'""")
        for place, block in found:
            for command in commands(block):
                with self.subTest(f"{place}: {command}"):
                    self.run_command(command)

    def test_settings_by_hand_are_those_of_launch(self):
        """The variables that agents.md exports for Claude Code, but for the model's sizes."""
        done = subprocess.run(["weft", "launch", "claude", "--print", "--server", self.url],
                              cwd=self.folder.name, env=self.env, capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        printed = dict(re.findall(r"^export (\w+)='(.*)'$", done.stdout, re.M))
        block = next(block for _, block in blocks("sh") if "ANTHROPIC_BASE_URL" in block)
        shown = dict(re.findall(r"(\w+)=(\S+)", block.replace(SHOWN, self.url)))
        self.assertGreater(len(shown), 3)
        for name, value in shown.items():
            with self.subTest(name):
                self.assertIn(name, printed)
                if "TOKENS" not in name:
                    self.assertEqual(value, printed[name])

    def test_json_is_json(self):
        for place, block in blocks("json"):
            with self.subTest(place):
                rest = block.strip()
                while rest:
                    _, end = json.JSONDecoder().raw_decode(rest)
                    rest = rest[end:].strip()

    def test_references_are_current(self):
        done = subprocess.run(["python3", ROOT / "tools" / "make_reference.py", "--check", "--weft",
                               pathlib.Path(WEFT).resolve()], capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_style_and_links(self):
        done = subprocess.run(["python3", ROOT / "tools" / "check_docs.py"], capture_output=True,
                              text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)


class LookupTest(unittest.TestCase):
    """What cannot be run: its programs, commands, flags and targets exist."""

    @functools.cache
    def help_of(self, *command):
        done = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def help_of_weft(self, words):
        """Of its command; a word after that may be a model."""
        command = [WEFT]
        for word in itertools.takewhile(lambda word: re.fullmatch(r"[a-z]+", word), words):
            if len(command) == 1 or f"\n  {word} " in self.help_of(*command):
                command.append(word)
        return self.help_of(*command)

    def text_about(self, words):
        """Help or source of our own program."""
        name = pathlib.Path(words[0]).name
        if name == "weft":
            return self.help_of_weft(words[1:])
        if name in OWN:
            return self.help_of(OWN[name])
        path = ROOT / words[0]
        self.assertTrue(path.is_file(), f"there is no {words[0]}")
        return path.read_text()

    def look_up(self, words):
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words = words[1:]
        if words[0] == "make":
            self.look_up_targets(words[1:])
        elif words[0] not in FOREIGN and not re.match(r"weft-\d|build/[^ ]*_test$", words[0]):
            known = flags_of(self.text_about(words))
            given = [word.split("=")[0] for word in words[1:] if re.match("--?[a-zA-Z]", word)]
            self.assertEqual([flag for flag in given if flag not in known], [])
        # A server that a bench starts.
        for word in words[1:]:
            if match := re.search(r"(?:^|=)(weft .*)", word):
                self.look_up(shlex.split(match.group(1)))

    def look_up_targets(self, words):
        phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1)
        for target in (word for word in words if "=" not in word):
            self.assertIn(target, phony.split())

    def test_console_commands_exist(self):
        for place, block in blocks("console"):
            for command in commands(block):
                for part in re.split(r"&&|\|", command):
                    with self.subTest(f"{place}: {part}"):
                        # Several programs in one line, as a list of what there is.
                        words = shlex.split(part, comments=True)
                        if words[0].endswith(","):
                            for word in words:
                                self.look_up([word.rstrip(",")])
                        else:
                            self.look_up(words)

    def test_inline_commands_exist(self):
        found = 0
        for path in documents():
            text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
            for code in re.findall(r"`([^`\n]+)`", text):
                if not re.match(r"(weft|weft-quantize|weft-make-model|make|(bench|tools)/\S+\.(py|sh))( |$)", code):
                    continue
                found += 1
                with self.subTest(f"{path.name}: {code}"):
                    self.look_up(shlex.split(code.split("|")[0].replace("COMMAND", "serve")))
        self.assertGreater(found, 30)

    def test_inline_flags_exist(self):
        texts = [self.help_of(OWN["weft-make-model"]), self.help_of(OWN["weft-quantize"]),
                 (ROOT / "docs" / "reference" / "commands.txt").read_text(),
                 *(path.read_text() for folder in ("bench", "tools")
                   for path in (ROOT / folder).glob("*.py"))]
        known = set().union(*map(flags_of, texts))
        for path in documents():
            text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
            for flag in re.findall(r"`(--[a-z][a-z0-9-]*)", text):
                with self.subTest(f"{path.name}: {flag}"):
                    self.assertTrue(flag in known, "no program knows it")


if __name__ == "__main__":
    unittest.main()
