#!/usr/bin/env python3
"""Runs what README and docs show: every `sh` block, against the built binary.

A block of the kind `sh` is run here, in a folder with model.gguf (the built-in model) and a server
on a free port instead of 8080. A block of the kind `console` needs a network, root, another
program or a GPU, and is not run. `json` blocks must be JSON.
"""

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

from weft_process import TIMEOUT_S, WEFT

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHOWN = "http://127.0.0.1:8080"


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(kind):
    for path in documents():
        text = path.read_text()
        for match in re.finditer(rf"^```{kind}\n(.*?)^```", text, re.S | re.M):
            line = text[:match.start()].count("\n") + 2
            yield f"{path.relative_to(ROOT)}:{line}", match.group(1)


def commands(block):
    """Lines, joined where a quotation or a backslash goes on."""
    command = ""
    for line in block.splitlines():
        command += line + "\n"
        try:
            shlex.split(command, comments=True)
        except ValueError:
            continue
        if not command.endswith("\\\n"):
            if shlex.split(command, comments=True):
                yield command.strip()
            command = ""
    assert not command, f"unfinished: {command}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class DocsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        home = pathlib.Path(cls.folder.name)
        (home / "bin").mkdir()
        (home / "bin" / "weft").symlink_to(pathlib.Path(WEFT).resolve())
        (home / "examples").symlink_to(ROOT / "examples")
        (home / "build" / "release").mkdir(parents=True)
        (home / "build" / "release" / "weft").symlink_to(pathlib.Path(WEFT).resolve())
        shutil.copy(ROOT / "models" / "box.gguf", home / "model.gguf")
        cls.env = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"),
                   "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "WEFT": str(home / "bin/weft"),
                   "HF_HUB_OFFLINE": "1"}
        port = free_port()
        cls.url = f"http://127.0.0.1:{port}"
        cls.server = subprocess.Popen(
            ["weft", "serve", "-m", "model.gguf", "--alias", "weft", "--port", str(port),
             "--state-dir", str(home / "state")],
            cwd=home, env=cls.env, stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.stop)
        for line in cls.server.stderr:
            if " ready after " in line:
                break
        else:
            raise AssertionError("the server did not become ready")
        # What nobody reads would stop the server.
        cls.drain = subprocess.Popen(["cat"], stdin=cls.server.stderr, stdout=subprocess.DEVNULL)

    @classmethod
    def stop(cls):
        cls.server.terminate()
        cls.server.wait(TIMEOUT_S)
        cls.server.stderr.close()
        cls.drain.wait(TIMEOUT_S)
        cls.folder.cleanup()

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
                              capture_output=True, text=True, timeout=TIMEOUT_S,
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
                url = word
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
        """Becomes ready, and stops when it is asked to."""
        words = [word.replace("~", self.folder.name) for word in words]
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


if __name__ == "__main__":
    unittest.main()
