#!/usr/bin/env python3
"""What weft serve refuses: pages of others, who has no key, requests that take too much."""

import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import serve_test
from weft_process import TIMEOUT_S, WEFT

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


class CrossSiteTest(serve_test.ServeTest):
    def assertRefuses(self, server, key):
        """With a key or without: nothing that a foreign page sends has an effect."""
        made = server.complete("the diary", session_id="diary", n=4)
        self.assertEqual(made.status, 200, made)
        foreign = {"Origin": "https://page.example", "Sec_Fetch_Site": "cross-site"}
        for method, path, body, headers in (
                ("POST", "/v1/sessions/diary/reset", None, foreign),
                ("POST", "/v1/sessions/diary/reset", None, {"Origin": "null"}),
                ("DELETE", "/v1/sessions/diary", None, foreign),
                ("OPTIONS", "/v1/sessions/diary", None, foreign),
                ("POST", "/v1/chat/completions", CHAT, {**foreign, "Content_Type": "text/plain"}),
                ("GET", "/v1/channels/c1", None, {"Sec_Fetch_Site": "cross-site"}),
                ("GET", "/v1/channels/c1", None, {"Sec_Fetch_Site": "same-site"}),
                ("GET", "/health", None, foreign),
                ("GET", "/v1/sessions", None, {"Host": "evil.example:8080"}),
                ("DELETE", "/v1/sessions/diary", None, {"Host": f"evil.example:{server.port}"}),
                ("GET", "/v1/sessions", None, {"Connection": "Upgrade", "Upgrade": "websocket",
                                               "Sec_WebSocket_Version": "13",
                                               "Origin": "http://localhost:1"})):
            answer = server.ask(method, path, body, **headers, **key)
            self.assertEqual(answer.status, 403, (method, path, headers, str(answer)))
            self.assertNotIn("Access-Control-Allow-Origin", answer.headers)
        text = server.ask("POST", "/v1/chat/completions", CHAT, Content_Type="text/plain", **key)
        self.assertEqual(text.status, 415, text)
        kept = server.ask("GET", "/v1/sessions/diary", **key)
        self.assertGreater(kept.json["tokens"], 4, "the session is as it was")

    def test_pages_of_others_reach_nothing(self):
        with self.serve() as server:
            server.ready()
            self.assertRefuses(server, {})
            own = {"Origin": server.url, "Sec_Fetch_Site": "same-origin",
                   "Content_Type": "application/json"}
            for headers in (own, {}, {"Content_Type": "application/x-www-form-urlencoded"},
                            {"Host": "localhost"}):
                answer = server.ask("POST", "/v1/chat/completions", CHAT, **headers)
                self.assertEqual(answer.status, 200, (headers, str(answer)))
            link = server.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate",
                              Sec_Fetch_Dest="document")
            self.assertEqual(link.status, 200, link)

    def test_the_operator_allows_hosts_and_the_pages_of_this_machine(self):
        with self.serve("--cors-origin", "localhost", "--allowed-host", "gpu.example") as server:
            server.ready()
            page = server.ask("POST", "/v1/chat/completions", CHAT, Content_Type="application/json",
                              Origin="http://localhost:3000", Host=f"GPU.example:{server.port}")
            self.assertEqual(page.status, 200, page)
            self.assertEqual(page.headers["Access-Control-Allow-Origin"], "http://localhost:3000")
            for headers in ({"Origin": "http://localhost.evil.example"}, {"Host": "evil.example"}):
                self.assertEqual(server.ask("GET", "/props", **headers).status, 403, headers)
        result = serve_test.weft("serve", "-m", self.model, "--cors-origin", "page.example")
        self.assertEqual(result.code, 1, result)
        self.assertIn("write it as https://", result.err)


class KeysTest(serve_test.ServeTest):
    def keys(self, text):
        path = self.dir / f"{self.id()}.keys"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def test_who_has_no_key_holds_nothing(self):
        """Seventeen bodies that do not end were enough to keep everybody out."""
        keys = self.keys("mine\n")
        with self.serve("--api-key-file", keys) as server:
            server.ready()
            head = "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33000000\r\n\r\n"
            connections = []
            for _ in range(17):
                connection = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
                connection.sendall(head.encode())
                self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 401 "))
                connections.append(connection)
            answer = server.ask("POST", "/completion", {"prompt": "x", "n_predict": 1},
                                x_api_key="mine")
            self.assertEqual(answer.status, 200, answer)
            for connection in connections:
                connection.close()

    def test_keys_are_read_anew(self):
        keys = self.keys("old\n")
        with self.serve("--api-key-file", keys) as server:
            server.ready()
            self.assertNotIn("can read the keys", server.log)
            keys.write_text("new\n")
            server.signal(signal.SIGHUP)
            server.until(lambda: "read 1 API keys anew" in server.log, "not read")
            self.assertEqual(server.ask("GET", "/props", x_api_key="old").status, 401)
            self.assertEqual(server.ask("GET", "/props", x_api_key="new").status, 200)
            keys.write_text("# gone\n")
            server.signal(signal.SIGHUP)
            server.until(lambda: "the API keys stay as they are" in server.log, "not told")
            self.assertEqual(server.ask("GET", "/props", x_api_key="new").status, 200)
            self.assertEqual(server.ask("GET", "/props").status, 401)
            self.assertEqual(server.end(), 0, server.log)

    def test_keys_that_others_can_read_are_warned_about(self):
        keys = self.keys("one\n")
        keys.chmod(0o666)
        with self.serve("--api-key-file", keys) as server:
            server.until(lambda: "others than its owner can change the keys" in server.log,
                         "no warning")


class TerminalTest(serve_test.ServeTest):
    def test_a_terminal_that_goes_ends_the_server_as_sigterm_does(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            pid, terminal = pty.fork()
            if pid == 0:
                log = os.open(self.dir / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(log, 2)
                os.execv(WEFT, [WEFT, "serve", "-m", str(self.model), "--port", "0",
                                "--state-dir", state])
            try:
                log = self.dir / "log"
                self.until(lambda: log.exists() and "ready after" in log.read_text())
                port = int(log.read_text().split("127.0.0.1:")[1].split("\n")[0])
                server = serve_test.Server.__new__(serve_test.Server)
                server.port = port
                self.assertEqual(server.complete("x", session_id="kitchen").status, 200)
                os.kill(pid, signal.SIGHUP)
                self.until(lambda: "no --api-key-file" in log.read_text())
                self.assertEqual(server.ask("GET", "/health").status, 200, "the terminal is there")
            finally:
                os.close(terminal)
                _, status = os.waitpid(pid, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 0, log.read_text())
            self.assertTrue(list(pathlib.Path(state).rglob("*.session")), log.read_text())

    def until(self, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
