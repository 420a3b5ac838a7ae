#!/usr/bin/env python3
"""What a person at a terminal sees of a server: its face, weft top and weft ps --watch."""

import json
import os
import pathlib
import re
import signal
import tempfile
import unittest
import urllib.error
import urllib.request

from weft_process import Terminal, make_model, weft

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def post(address, body, path="/v1/chat/completions"):
    request = urllib.request.Request(address + path, json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class TerminalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = make_model(pathlib.Path(cls.folder.name) / "llama.gguf")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *flags, **options):
        """A server at a terminal, once it listens: with its address and how it introduced itself."""
        terminal = Terminal("serve", "-m", self.model, "--port", 0, *flags, **options)
        self.running.append(terminal)
        terminal.expect("listening on ")
        return terminal, terminal.expect("\n").strip()

    def setUp(self):
        self.running = []
        self.addCleanup(lambda: [self.end_now(terminal) for terminal in list(self.running)])

    def end_now(self, terminal):
        self.running.remove(terminal)
        os.kill(terminal.process, signal.SIGTERM)
        self.assertEqual(terminal.end(), 0)

    def ask(self, address, **more):
        return post(address, {"messages": [{"role": "user", "content": "Say something."}],
                              "max_tokens": 4, "temperature": 0, **more})

    def test_a_server_introduces_itself_and_tells_requests_in_words(self):
        terminal, address = self.serve()
        introduction = terminal.expect("idle | memory 0 % full")
        for name in ("model", "memory", "context", "kept in", "keys", "page"):
            self.assertRegex(introduction, rf"(?m)^  {name} +\S")
        self.assertNotIn("id=", introduction)
        self.ask(address)
        told = terminal.expect("\n")
        self.assertRegex(told, r"\d\d:\d\d:\d\d /v1/chat/completions: read \d+ tokens,.* wrote 4 in ")
        self.assertNotIn("id=", told)
        terminal.expect("idle | memory")
        with urllib.request.urlopen(address + "/v1/models", timeout=60):
            pass
        with self.assertRaises(urllib.error.HTTPError):
            post(address, {"messages": 5})
        told = terminal.expect("\n")
        self.assertNotIn("/v1/models", told)
        self.assertRegex(told, "/v1/chat/completions: failed with 400, in ")

    def test_conversations_outlive_a_server_at_a_terminal(self):
        for found in (False, True):
            terminal, address = self.serve()
            self.assertIn("/weft/serve", terminal.expect("keys"))
            # One directory belongs to one server.
            second, _ = self.serve()
            self.assertIn("memory alone", second.expect("keys"))
            self.end_now(second)
            answer = self.ask(address, session_id="outlives")
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertEqual(cached > 0, found, answer)
            self.end_now(terminal)
        terminal, _ = self.serve("--state-dir", "none")
        self.assertIn("memory alone", terminal.expect("keys"))

    def test_lines_fit_a_narrow_window(self):
        terminal, address = self.serve(columns=60)
        terminal.expect("idle")
        self.ask(address)
        shown = terminal.expect("full")
        for line in ESCAPES.sub("\r", shown).replace("\n", "\r").split("\r"):
            if " | " in line:
                self.assertLess(len(line), 60, line)

    def test_the_full_log_is_that_of_a_file(self):
        terminal, address = self.serve("-v")
        terminal.expect("ready after")
        self.ask(address)
        told = terminal.expect("\n") + terminal.expect("id=")
        self.assertIn("POST /v1/chat/completions 200", told)

    def test_top_shows_conversations_until_q(self):
        server, address = self.serve()
        self.ask(address, session_id="kitchen")
        top = Terminal("top", "--server", address)
        shown = top.expect("kitchen") + top.expect("q ends")
        for text in ("memory: weights", "5 minutes", "written/s", "CONVERSATION", "idle"):
            self.assertIn(text, shown)
        for line in ESCAPES.sub("", shown).split("\r\n"):
            self.assertLessEqual(len(line), 80, line)
        top.type("q")
        self.assertEqual(top.end(), 0)
        # A pipe gets one reading.
        once = weft("top", "--server", address)
        self.assertEqual(once.code, 0, once)
        self.assertIn("kitchen", once.text)
        self.assertNotIn("\x1b", once.text)

    def test_top_of_nothing_says_so(self):
        result = weft("top", "--server", "http://127.0.0.1:9")
        self.assertEqual(result.code, 1, result)
        self.assertEqual(len(result.err.splitlines()), 1, result)

    def test_ps_watches_until_ctrl_c(self):
        _, address = self.serve()
        ps = Terminal("ps", "--watch", columns=120)
        ps.expect(address)
        ps.expect("q ends")
        ps.type("\x03")
        self.assertEqual(ps.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
