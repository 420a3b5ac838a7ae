#!/usr/bin/env python3
"""The program as a person types it: in windows of 60, 80 and 120 columns of a real terminal (tmux),
and in a pipe.

In each window no line is wider than it, and the words are those of the pipe, so none is torn. What is
piped has no colours. Exit code 77, a skip, where there is no tmux.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from fake_hub import FakeHub
from parrot import make_parrot
from weft_process import TIMEOUT_S, WEFT, make_model

SKIP = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTHS = (60, 80, 120)
LINES = 50
GREEDY = "-n 40 --temp 0"
NO_COLOURS = re.compile(r"\x1b")
SOUP = """# Soup

Cut **three red onions** and a leek into thin rings, salt them, and then call `stir(pot)` until all is soft.

- **Oil:** one spoon, from olives that grew where you live, or whatever you have
- Salt

```
if hot:
    stir(pot)  # once
```"""


def words(text):
    return text.split()


class Window:
    """A shell in a window of a tmux of its own."""

    def __init__(self, columns, folder, env):
        self.columns, self.count = columns, 0
        self.socket = str(folder / f"tmux{columns}-{time.monotonic_ns()}")
        settings = folder / "tmux.conf"
        settings.write_text("set -g history-limit 20000\nset -g status off\nset -g escape-time 0\n")
        subprocess.run(["tmux", "-S", self.socket, "-f", str(settings), "new-session", "-d",
                        "-x", str(columns), "-y", str(LINES), "-c", str(folder), "sh"],
                       check=True, env=env, timeout=TIMEOUT_S)
        self.expect(r"[$#]$")

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], check=True, capture_output=True,
                              text=True, timeout=TIMEOUT_S).stdout

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True,
                       timeout=TIMEOUT_S)

    def type(self, text, enter=True):
        self.tmux("send-keys", "-l", text)
        if enter:
            self.tmux("send-keys", "Enter")

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def record(self, path):
        """From now on, writes there what the terminal receives: also what is drawn over."""
        self.tmux("pipe-pane", "-o", f"cat > {shlex.quote(str(path))}")

    def styled(self):
        """The window with the escapes of its styles."""
        return self.tmux("capture-pane", "-p", "-e")

    def lines(self, history=True):
        """What is shown, with what has left the window. A line that the terminal broke is one."""
        shown = self.tmux("capture-pane", "-p", "-J", *(["-S", "-"] if history else []))
        return [line.rstrip() for line in shown.split("\n")]

    def expect(self, pattern, history=True):
        """Waits until it is shown; returns the match."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            shown = "\n".join(self.lines(history))
            if found := re.search(pattern, shown, re.M):
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} is not shown at {self.columns}:\n{shown[-3000:]}")
            time.sleep(0.05)

    def begin(self, command, fills_window=False):
        """Starts a command whose output `shown` returns."""
        self.count += 1
        self.type(f"echo begin{self.count}; {command}; echo end{self.count} $?")
        if not fills_window:
            self.expect(rf"^begin{self.count}$")

    def shown(self, is_over=True):
        """The lines of the last command so far, and its exit code."""
        code = None
        if is_over:
            code = int(self.expect(rf"^end{self.count} (\d+)$")[1])
        lines = self.lines()
        lines = lines[lines.index(f"begin{self.count}") + 1:]
        if is_over:
            lines = lines[:lines.index(f"end{self.count} {code}")]
        return lines, code

    def run(self, command):
        self.begin(command)
        return self.shown()


def ask(address, **body):
    request = urllib.request.Request(
        address + "/v1/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4,
                    **body}).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TmuxTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "bin").mkdir()
        (cls.folder / "bin" / "weft").symlink_to(pathlib.Path(WEFT).resolve())
        (cls.folder / "home").mkdir()
        shutil.copy(ROOT / "models" / "box.gguf", cls.folder / "toy.gguf")
        cls.parrot = make_parrot(cls.folder / "parrot.gguf", SOUP)
        for name in ("clip", "rwkv9"):
            text = name.encode()
            key = b"general.architecture"
            (cls.folder / f"{name}.gguf").write_bytes(
                b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key +
                struct.pack("<I", 8) + struct.pack("<Q", len(text)) + text)
        # A make within `make test` would take its variables, and say "make[1]:" for "make:".
        left = ("HF_", "OLLAMA", "LLAMA", "XDG_", "WEFT", "TMUX", "COLUMNS", "MAKE", "MFLAGS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
        cls.env = {**kept, "PATH": f"{cls.folder / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8",
                   "HOME": str(cls.folder / "home"), "HF_HUB_OFFLINE": "1",
                   "XDG_STATE_HOME": str(cls.folder / "state"), "XDG_RUNTIME_DIR": str(cls.folder)}

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def setUp(self):
        shutil.rmtree(self.folder / "state", ignore_errors=True)

    def window(self, columns):
        window = Window(columns, self.folder, self.env)
        self.addCleanup(window.close)
        return window

    def each_window(self):
        for columns in WIDTHS:
            yield self.window(columns)

    def pipe(self, command, code=0):
        """Standard output and error of a shell command without a terminal, as one text."""
        done = subprocess.run(["sh", "-c", command], cwd=self.folder, env=self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, code, f"{command}\n{done.stdout[-2000:]}")
        self.assertNotRegex(done.stdout, NO_COLOURS, command)
        return done.stdout

    def assert_fits(self, window, lines):
        for line in lines:
            self.assertLessEqual(len(line), window.columns, f"at {window.columns}: {line}")

    def same_as_piped(self, window, command, code=0):
        piped = self.pipe(command, code)
        lines, ended = window.run(command)
        self.assertEqual(ended, code, lines)
        self.assert_fits(window, lines)
        self.assertEqual(words(" ".join(lines)), words(piped), f"{command} at {window.columns}")
        return piped


class HelpTest(TmuxTest):
    def test_help_wraps_between_words(self):
        overview = self.pipe("weft --help")
        commands = re.findall(r"^  ([a-z]+)  ", overview.partition("Subcommands:\n")[2], re.M)
        self.assertGreater(len(commands), 20)
        for window in self.each_window():
            self.same_as_piped(window, "weft --help")
            for begin in range(0, len(commands), 7):
                some = " ".join(commands[begin:begin + 7])
                self.same_as_piped(window, f"for c in {some}; do weft $c --help; done")

    def test_lists_fit(self):
        for window in self.each_window():
            for command in ("ls", "models", "show toy.gguf", "devices", "inspect toy.gguf", "version",
                            "inspect --architectures", "ps", "launch"):
                lines, code = window.run(f"weft {command}")
                self.assertEqual(code, 0, lines)
                self.assert_fits(window, lines)
            lines, _ = window.run("weft show toy.gguf")
            self.assertRegex(" ".join(words(" ".join(lines))), r"\d of them fit")


class NameTest(TmuxTest):
    def test_models_are_named_as_people_type_them(self):
        said = self.pipe(f"weft run {GREEDY} -m box 'My name is Tom. What is my name?' 2>/dev/null")
        self.assertIn("Tom", said)
        for window in self.each_window():
            for command in (f"weft run {GREEDY} box My name is Tom. 'What is my name?'",
                            f"weft run {GREEDY} -t 1 toy.gguf My name is Tom. 'What is my name?'",
                            f"echo My name is Tom. 'What is my name?' | weft run {GREEDY} box"):
                lines, code = window.run(command)
                self.assertEqual(code, 0, lines)
                self.assert_fits(window, lines)
                self.assertEqual(words(" ".join(lines)), words(said), command)

    def test_errors_are_one_sentence(self):
        for window in self.each_window():
            for command, code, says in (
                    ("weft run smolm2", 1, "did you mean -m smollm2?"),
                    ("weft run -n many box Hello", 2, "many is not a number"),
                    ("weft serve box --port many", 2, "many is not a number"),
                    ("weft serve box --memory 12Q", 2, "12Q is not a number of bytes"),
                    ("weft serve box --api-key-file /nope", 1, "--api-key-file: cannot open /nope"),
                    ("weft serve --no-built-in", 2, "name a model"),
                    ("weft run clip.gguf Hello", 1, "mmproj"),
                    ("weft serve --port 0 clip.gguf", 1, "mmproj"),
                    ("weft run rwkv9.gguf Hello", 1, "architecture 'rwkv9'"),
                    ("weft serve --port 0 rwkv9.gguf", 1, "architecture 'rwkv9'"),
                    ("weft sessions list", 1, "is weft serve running there?"),
                    ("weft weave", 2, "weave")):
                self.assertIn(says, " ".join(words(self.same_as_piped(window, command, code))))

    def test_without_a_model_one_is_offered(self):
        self.assertEqual(len(self.pipe("weft run Hello", code=1).splitlines()), 1)
        for window in self.each_window():
            window.begin("weft run Hello")
            window.expect(r"\[Y/n\]")
            window.type("n")
            lines, code = window.shown()
            self.assertEqual(code, 1)
            self.assert_fits(window, lines)
            self.assertRegex(" ".join(lines), r"Download smollm2 \(.*MiB\).*\[Y/n\].*-m box")


class ServeTest(TmuxTest):
    def serve(self, window):
        window.begin("weft serve box --port 0")
        address = window.expect(r"(http://127\.0\.0\.1:\d+)")[1]
        window.expect(r"^idle \|")
        return address

    def test_a_server_has_a_face(self):
        for window in self.each_window():
            address = self.serve(window)
            lines, _ = window.shown(is_over=False)
            self.assert_fits(window, lines)
            shown = "\n".join(lines)
            for name in ("model", "memory", "context", "kept in", "keys", "page"):
                self.assertRegex(shown, rf"(?m)^  {name} +\S")
            self.assertIn("toy", shown)
            self.assertNotIn("id=", shown)
            ask(address, session_id="kitchen")
            told = window.expect(r"^\d\d:\d\d:\d\d /v1/chat/completions: [^\n]*(\n[^\n]+)?wrote 4 in ")[0]
            self.assertNotIn("id=", told)
            self.look_at(window.columns, address)
            window.press("C-c")
            lines, code = window.shown()
            self.assertEqual(code, 0, lines)
            self.assert_fits(window, lines)

    def look_at(self, columns, address):
        """From a second window."""
        window = self.window(columns)
        for command in ("ps", f"sessions list --server {address}", f"why --server {address}"):
            lines, code = window.run(f"weft {command}")
            self.assertEqual(code, 0, lines)
            self.assert_fits(window, lines)
        lines, code = window.run(f"weft sessions delete nobody --server {address}")
        self.assertEqual(code, 1, lines)
        self.assert_fits(window, lines)
        self.assertIn("nobody", " ".join(lines))
        self.assert_same_memory(address)
        for command in (f"weft top --server {address}", "weft ps --watch"):
            window.begin(command, fills_window=True)
            window.expect(r"q ends", history=False)
            self.assert_fits(window, window.lines(history=False))
            if "top" in command:
                shown = "\n".join(window.lines(history=False))
                for text in ("kitchen", "memory: weights", "written/s", "5 minutes"):
                    self.assertIn(text, shown)
            window.type("q", enter=False)
            self.assertEqual(window.shown()[1], 0)
        self.assertIn("kitchen", self.pipe(f"weft top --server {address}"))

    def assert_same_memory(self, address):
        """weft ps and the page, which adds up /metrics, tell the same."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:  # a server tells its figures once a second
            with urllib.request.urlopen(address + "/metrics", timeout=TIMEOUT_S) as answer:
                metrics = answer.read().decode()
            total = sum(float(value)
                        for value in re.findall(r"^weft_bytes\{[^}]*\} (\S+)$", metrics, re.M))
            servers = [json.loads(line) for line in self.pipe("weft ps --json").splitlines()]
            mine = next(server for server in servers if server["address"] == address)
            if mine["memory_bytes"] == total:
                return
            self.assertLess(time.monotonic(), deadline, f"{mine} and {total}")
            time.sleep(0.2)

    def test_make_run_looks_at_the_port_first(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            command = f"{shlex.quote(str(ROOT / 'tools' / 'free_port.sh'))} {port}"
            self.assertIn("make run PORT=", self.pipe(command, code=1))
            for window in self.each_window():
                for answer, says, code in (("n", "make run PORT=", 1), ("", r"^\d+$", 0)):
                    window.begin(f"bash {command}")
                    window.expect(rf"Use port \d+\? \[Y/n\](?![\s\S]*begin{window.count})")
                    window.type(answer)
                    lines, ended = window.shown()
                    self.assertEqual(ended, code)
                    self.assert_fits(window, lines)
                    self.assertRegex("\n".join(lines), rf"(?m){says}")


class ChatTest(TmuxTest):
    def test_chat_wraps_saves_and_finds_its_conversations(self):
        question = "What is the capital of France?"
        piped = self.pipe(f"echo '{question}' | weft chat box {GREEDY} 2>/dev/null")
        self.assertGreater(len(piped.strip()), 61)
        for window in self.each_window():
            shutil.rmtree(self.folder / "state", ignore_errors=True)
            window.begin(f"weft chat box {GREEDY}")
            window.expect(r"^chat> ?$")
            window.type(question)
            last = words(piped)[-1]
            window.expect(rf"{re.escape(last)}\n[\s\S]*^chat> ?$")
            window.type("/save")
            window.expect(r"saved")
            window.type("/quit")
            lines, code = window.shown()
            self.assertEqual(code, 0, lines)
            self.assert_fits(window, lines)
            self.assertIn(" ".join(words(piped)), " ".join(words(" ".join(lines))))
            # The next chat names the saved one, which /load continues.
            window.begin(f"weft chat box {GREEDY}")
            window.expect(r"saved: chat")
            window.type("/load chat")
            window.expect(r"in chat, 2 messages")
            window.type("/history")
            window.expect(rf"1 you: {re.escape(question)}")
            window.type("/quit")
            lines, code = window.shown()
            self.assertEqual(code, 0, lines)
            self.assert_fits(window, lines)

    def test_answers_are_shown_as_markdown(self):
        self.assertEqual(self.pipe("echo soup | weft chat parrot.gguf --temp 0 2>/dev/null"),
                         SOUP + "\n")
        for window in self.each_window():
            shutil.rmtree(self.folder / "state", ignore_errors=True)
            window.begin("weft chat parrot.gguf --temp 0")
            window.expect(r"^chat> ?$")
            window.type("soup")
            window.expect(r"once\n[\s\S]*^chat> ?$")
            styled = window.styled()
            for text in ("\033[1m# Soup", "\033[1mthree", "\033[36mstir(pot)", "\033[1mOil:"):
                self.assertIn(text, re.sub(r"\033\[0?m|\033\[39m|\033\[0;", "\033[", styled), styled)
            window.type("/quit")
            lines, code = window.shown()
            self.assertEqual(code, 0, lines)
            self.assert_fits(window, lines)
            answer = lines[lines.index("# Soup"):]
            for mark in ("**", "`stir"):
                self.assertNotIn(mark, "\n".join(answer))
            self.assertIn("    stir(pot)  # once", answer)  # code keeps its blanks
            plain = SOUP.replace("**", "").replace("`stir(pot)`", "stir(pot)")
            self.assertIn(" ".join(words(plain)), " ".join(words(" ".join(answer))))
            item = next(n for n, line in enumerate(answer) if line.startswith("- Oil:"))
            self.assertEqual(answer[item + 1].startswith("  "), window.columns < 80, answer)


class ProgressTest(TmuxTest):
    def drawn(self, path):
        """The lines that were drawn over each other, without their escapes."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", path.read_text(errors="replace"))
        return [line for line in re.split(r"[\r\n]+", text) if line]

    def test_downloads_and_loading_show_percent(self):
        # Large enough that something is drawn before it is loaded.
        make_model(self.folder / "slow.gguf", "tinyllama-1.1b", "Q4_0", "--layers", 2)
        whole = self.parrot.read_bytes()
        name = "a-model-with-a-name-as-long-as-theirs-Q4_K_M.gguf"
        hub = FakeHub({"weaver/parrot-GGUF": {name: whole}})
        self.addCleanup(hub.close)
        hub.send_file = lambda handler, body: hub.send_whole(handler, body,
                                                             pause=lambda: time.sleep(0.08))
        command = (f"HF_HUB_OFFLINE= HF_ENDPOINT={hub.url} "
                   "weft run --temp 0 weaver/parrot-GGUF Hello")
        for window in self.each_window():
            shutil.rmtree(self.folder / "home" / ".cache", ignore_errors=True)
            record = self.folder / f"record{window.columns}"
            window.record(record)
            lines, code = window.run(command)
            self.assertEqual(code, 0, lines)
            self.assert_fits(window, lines)
            self.assertNotIn("%", "\n".join(lines))  # what is over is gone
            lines, code = window.run("weft run -m slow.gguf -n 1 Hello")
            self.assertEqual(code, 0, lines)
            self.assertNotIn("loading", "\n".join(lines))
            drawn = self.drawn(record)
            for says in (r"^a-model\S*: \d+ %", r"^loading \d+ %"):
                found = [line for line in drawn if re.search(says, line)]
                self.assertTrue(found, f"{says} at {window.columns}: {drawn}")
                self.assertLess(max(map(len, found)), window.columns)
        shutil.rmtree(self.folder / "home" / ".cache", ignore_errors=True)
        piped = self.pipe(command)
        self.assertRegex(piped, r"(?m)^weft: a-model\S*: \d+ %, ")
        self.assertNotIn("loading", piped)


class MakeTest(TmuxTest):
    def test_make_clean_leaves_conversations(self):
        """In a folder with the repository's Makefile; what is compiled there is a link."""
        folder = self.folder / "clone"
        (folder / "tools").mkdir(parents=True)
        (folder / "fake").mkdir()
        shutil.copy(ROOT / "Makefile", folder)
        for name in ("serve.sh", "free_port.sh"):
            shutil.copy(ROOT / "tools" / name, folder / "tools")
        for name in ("tools/setup.sh", "fake/cmake", "fake/ninja"):
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        for window in self.each_window():
            conversation = f"kitchen{window.columns}"
            for is_first in (True, False):
                (folder / "build" / "release").mkdir(parents=True)
                (folder / "build" / "release" / "build.ninja").touch()
                (folder / "build" / "release" / "weft").symlink_to(pathlib.Path(WEFT).resolve())
                port = free_port()
                window.begin(f'PATH="$PWD/clone/fake:$PATH" make -C clone run MODEL=box PORT={port}')
                window.expect(r"^idle \|(?![\s\S]*begin%d)" % window.count)
                address = f"http://127.0.0.1:{port}"
                if is_first:
                    ask(address, session_id=conversation)
                else:
                    self.assertIn(conversation, self.pipe(f"weft sessions list --server {address}"))
                # Interrupts the shell's line and make, too, which say so in one way or another.
                window.press("C-c")
                window.expect(r"shut down\n((make: .*|end\d+ \d+)?\n)+[$#]$(?![\s\S]*begin%d)" % window.count)
                lines, _ = window.shown(is_over=False)
                own = next(n for n, line in enumerate(lines) if line.startswith("listening on"))
                self.assert_fits(window, [line for line in lines[own:] if not line.startswith("make")])
                _, code = window.run("make -C clone clean")
                self.assertEqual(code, 0)
                self.assertFalse((folder / "build").exists())


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("SKIPPED: there is no tmux; apt-get install tmux")
        sys.exit(SKIP)
    unittest.main(verbosity=2)
