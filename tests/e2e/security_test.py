#!/usr/bin/env python3
"""What weft serve refuses: pages of others, who has no key, requests that take too much."""

import concurrent.futures
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import serve_test
from weft_process import TIMEOUT_S, WEFT, add_metadata, command_line, peak_kib

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
            for origin in ("http://127.0.0.1:5173", "https://localhost", "http://[::1]:8000"):
                answer = server.ask("GET", "/props", Origin=origin)
                self.assertEqual((answer.status, answer.headers["Access-Control-Allow-Origin"]),
                                 (200, origin))
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
        with self.serve("--api-key-file", keys, "--max-body", "32M") as server:
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

    def test_keys_are_reloaded(self):
        keys = self.keys("old\n")
        with self.serve("--api-key-file", keys) as server:
            server.ready()
            self.assertNotIn("can read the keys", server.log)
            keys.write_text("new\n")
            server.signal(signal.SIGHUP)
            server.until(lambda: "reloaded 1 API keys" in server.log, "not reloaded")
            self.assertEqual(server.ask("GET", "/props", x_api_key="old").status, 401)
            self.assertEqual(server.ask("GET", "/props", x_api_key="new").status, 200)
            keys.write_text("# gone\n")
            server.signal(signal.SIGHUP)
            server.until(lambda: "the API keys are unchanged" in server.log, "not told")
            self.assertEqual(server.ask("GET", "/props", x_api_key="new").status, 200)
            self.assertEqual(server.ask("GET", "/props").status, 401)
            self.assertEqual(server.end(), 0, server.log)

    def test_keys_that_others_can_read_are_warned_about(self):
        keys = self.keys("one\n")
        keys.chmod(0o666)
        with self.serve("--api-key-file", keys) as server:
            server.until(lambda: "other users can change the keys" in server.log,
                         "no warning")


    def test_a_key_sees_and_takes_its_own(self):
        keys = self.keys("one\ntwo\n")
        operator = self.dir / "operator.keys"
        operator.write_text("boss prometheus\n")
        operator.chmod(0o600)
        with self.serve("--api-key-file", keys, "--metrics-key-file", operator,
                        "--max-sessions", 6) as server:
            server.ready()
            one, two, boss = ({"x_api_key": key} for key in ("one", "two", "boss"))
            self.assertEqual(server.ask("POST", "/completion", {"prompt": "x", "n_predict": 5,
                                        "ignore_eos": True}, **one).status, 200)
            name = "weft_generated_tokens_total"
            self.assertEqual(server.metric(name, **one), 5)
            self.assertEqual(server.metric(name, **two), 0)
            self.assertEqual(server.metric(name, **boss), 5)
            text = server.ask("GET", "/metrics", **two).body
            self.assertNotIn(b"weft_http", text)
            self.assertIn(b"weft_http", server.ask("GET", "/metrics", **boss).body)
            self.assertEqual(server.ask("GET", "/metrics").status, 401)
            self.assertEqual(server.ask("GET", "/v1/sessions", **boss).status, 401)
            for i in range(3):
                made = server.ask("POST", "/v1/sessions", {"id": f"s{i}"}, **one)
                self.assertEqual(made.status, 200, made)
            full = server.ask("POST", "/v1/sessions", {"id": "s3"}, **one)
            self.assertEqual(full.status, 429, full)
            self.assertIn(b"already 3 sessions", full.body)
            for i in range(3):
                made = server.ask("POST", "/v1/sessions", {"id": f"s{i}"}, **two)
                self.assertEqual(made.status, 200, made)

    def test_the_only_key_sees_everything(self):
        with self.serve("--api-key-file", self.keys("mine\n")) as server:
            server.ready()
            self.assertIn(b"weft_http", server.ask("GET", "/metrics", x_api_key="mine").body)


class LimitsTest(serve_test.ServeTest):
    def peak_bytes(self, server):
        return peak_kib(server.process) << 10

    def test_a_body_is_as_large_as_the_context_can_use(self):
        with self.serve() as server:
            server.ready()
            large = server.ask("POST", "/completion", b" " * (2 << 20))
            self.assertEqual(large.status, 413, large)
            self.assertIn(b"--max-body", large.body)
        with self.serve("--max-body", "3M") as server:
            server.ready()
            answer = server.ask("POST", "/completion", b" " * (2 << 20))
            self.assertEqual(answer.status, 400, answer)
        self.assertEqual(serve_test.weft("serve", "--max-body", "much").code, 2)

    def test_a_prompt_that_cannot_fit_takes_no_memory(self):
        with self.serve("--max-body", "64M") as server:
            server.ready()
            before = self.peak_bytes(server)
            text = "all work and no play " * (30_000_000 // 21)
            chat = {"messages": [{"role": "user", "content": text}]}
            for path, body in (("/v1/chat/completions", chat), ("/completion", {"prompt": text}),
                               ("/v1/completions", {"prompt": text}),
                               ("/v1/messages", {**chat, "max_tokens": 1})):
                answer = server.ask("POST", path, body)
                self.assertEqual(answer.status, 400, answer)
                self.assertIn(b"context", answer.body)
            grown = self.peak_bytes(server) - before
            self.assertLess(grown, 10 * len(text), "of a body of 30 MB")

    def test_more_than_is_held_at_once_is_refused(self):
        with self.serve(*self.ROOM, "--max-body", "64M", "--request-memory", "60M") as server:
            server.ready()
            body = json.dumps({"prompt": "x", "n_predict": 1, "stop": ["y" * 1_000_000] * 4})
            answers = []

            def ask():
                answers.append(server.ask("POST", "/completion", body))

            # One that answers slowly holds what it needs meanwhile.
            with server.open("POST", "/completion",
                             {**self.ENDLESS, "unknown": "z" * 3_000_000}) as stream:
                stream.readline()
                threads = [threading.Thread(target=ask) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            statuses = {answer.status for answer in answers}
            self.assertLessEqual(statuses, {400, 429, 503})
            self.assertTrue(statuses & {429, 503}, statuses)
            for answer in answers:
                if answer.status != 400:
                    self.assertEqual(answer.headers["Retry-After"], "1")

    def test_of_large_bodies_that_come_together_some_are_served(self):
        with self.serve("--max-body", "8M", "--request-memory", "60M") as server:
            server.ready()
            body = json.dumps({"prompt": "all work and no play " * 200_000})
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                answers = list(pool.map(lambda _: server.ask("POST", "/completion", body),
                                        range(6)))
            statuses = [answer.status for answer in answers]
            self.assertLessEqual(set(statuses), {400, 429})
            self.assertIn(400, statuses, "each took what another needed")

    def test_a_stream_that_is_not_read_gives_its_place_to_who_waits(self):
        with self.serve(*self.ROOM, "--max-running", 2, "--max-queue", 8) as server:
            server.ready()
            stalled = [server.send("/completion", {**self.ENDLESS, "n_probs": 20}, x_session_id=f"s{i}")
                       for i in range(2)]
            server.until(lambda: server.metric("weft_turns_running") == 2, "they do not run")
            self.assertEqual(server.complete("and I", n=3).status, 200)
            server.until(lambda: server.log.count(" gone ") >= 1, "none was cut")
            for client in stalled:
                client.close()

    def test_a_template_that_takes_too_much_is_not_tried_again(self):
        endless = ("{% for a in range(100000) %}{% for b in range(100000) %}"
                   "{% endfor %}{% endfor %}")
        template = self.dir / "endless.jinja"
        template.write_text(endless)
        refused = serve_test.weft("serve", "--template", template, "--port", 0)
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("--template", refused.err)
        # One that costs much for some conversations only.
        template.write_text("{% if 'boom' in messages[-1].content %}" + endless + "{% endif %}")
        chat = {"messages": [{"role": "user", "content": "boom"}]}
        with self.serve("--template", template) as server:
            server.ready()
            model = server.ask("GET", "/v1/models").json["data"][0]["id"]
            for path, body in (("/v1/chat/completions", chat), ("/apply-template", chat),
                               ("/v1/chat/completions/input_tokens", chat), ("/tokenize", chat),
                               ("/v1/messages", {**chat, "max_tokens": 1}),
                               ("/v1/messages/count_tokens", chat),
                               ("/v1/responses", {"input": "boom"}),
                               ("/api/chat", {**chat, "model": model})):
                answer = server.ask("POST", path, body)
                self.assertEqual(answer.status, 400, (path, str(answer)))
                self.assertNotIn("Retry-After", answer.headers)
                self.assertIn(b"steps", answer.body)

    def test_what_a_template_says_is_not_for_the_terminal_to_obey(self):
        template = self.dir / "rude.jinja"
        template.write_text("{{ raise_exception('\x1b]0;owned\x07\x1b[2J') }}")
        chat = self.dir / "chat.json"
        chat.write_text("[]")
        model = add_metadata(self.model, {"tokenizer.chat_template": template.read_text()},
                             self.dir / "rude.gguf")
        for args in (("template", "--template", template, "--input", chat),
                     ("template", "-m", model, "--input", chat), ("run", "-m", model, "hello")):
            result = serve_test.weft(*args)
            self.assertEqual(result.code, 1, result)
            self.assertNotIn("\x1b", result.err)
            self.assertIn("\\x1b]0;owned\\x07", result.err)

    def test_nobody_is_told_where_files_are(self):
        """Of the model's file and the state directory's, clients see no folder."""
        folder = str(self.dir).encode()
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            with self.serve("--state-dir", state) as server:
                server.ready()
                for name in ("cut", "kitchen"):
                    server.complete("x" * 100, session_id=name)
                self.assertEqual(server.end(), 0, server.log)
            for path in pathlib.Path(state).rglob("*.session"):
                path.write_bytes(path.read_bytes()[:200])
            with self.serve("--state-dir", state) as server:
                server.ready()

                def ask(method, path, body=None, status=200, says=b""):
                    answer = server.ask(method, path, body)
                    self.assertEqual(answer.status, status, answer)
                    self.assertIn(says, answer.body)
                    self.assertNotIn(folder, answer.body, path)
                    for name, value in answer.headers.items():
                        self.assertNotIn(folder.decode(), value, name)
                    return answer

                unusable = dict(status=409, says=b"cannot be used")
                chat = {**CHAT, "session_id": "kitchen"}
                ask("POST", "/completion", {"prompt": "x", "session_id": "kitchen"}, **unusable)
                ask("POST", "/v1/chat/completions", chat, **unusable)
                ask("POST", "/v1/chat/completions", {**chat, "stream": True}, **unusable)
                ask("POST", "/v1/messages", chat, **unusable)
                ask("POST", "/v1/responses", {"input": "x", "session_id": "kitchen"}, **unusable)
                streamed = server.ask("POST", "/v1/responses", {
                    "input": "x", "session_id": "kitchen", "stream": True})
                self.assertIn(b"cannot be used", streamed.body)
                self.assertNotIn(folder, streamed.body)
                self.assertChannelHides(server, chat, folder)
                ask("POST", "/v1/sessions/kitchen/restore", status=500, says=b"kitchen.session")
                notes = [session["note"] for session in
                         ask("GET", "/v1/sessions", says=b"note").json["data"]]
                self.assertEqual(sum("fails its checksum" in note or "ends" in note
                                     for note in notes), 2, notes)
                ask("GET", "/v1/sessions/kitchen", says=b"note")
                self.assertSavingHides(server, pathlib.Path(state), ask)
                for path in ("/props", "/v1/models", "/model_info", "/get_model_info",
                             "/server_info", "/get_server_info"):
                    ask("GET", path, says=self.model.name.encode())
                for path in ("/health", "/metrics", "/slots", "/tokenizer_info"):
                    ask("GET", path)

    def assertChannelHides(self, server, chat, folder):
        with server.open("GET", "/v1/channels/c") as channel:
            channel.readline()
            sent = server.ask("POST", "/v1/channels/c/chats/one", {**chat, "stream": True})
            self.assertEqual(sent.status, 202, sent)
            frames = b""
            while b'"ended"' not in frames:
                frame = channel.readline()
                self.assertTrue(frame, f"it ended after {frames}: {server.log}")
                frames += frame
            self.assertIn(b"cannot be used", frames)
            self.assertNotIn(folder, frames)

    def assertSavingHides(self, server, state, ask):
        """A file where the folder of a domain must be: nobody can save there."""
        server.complete("x" * 100, session_id="new")
        self.until(lambda: list(state.rglob("new.session")))
        [domain] = [path for path in state.glob("@*") if list(path.glob("new.session"))]
        domain.rename(state / "away")
        domain.write_text("in the way")
        ask("POST", "/v1/sessions/new/park", status=404, says=b"cannot open @")
        ask("GET", "/v1/sessions", says=b"saving failed")

    def until(self, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def test_further_names_and_what_is_turned_off(self):
        with self.serve("--alias", "first,second", "--alias", "fourth", "--strict-model-name",
                        "--n-predict", 3, "--metrics", "off", "--no-slots", "--no-ui") as server:
            server.ready()
            model = server.ask("GET", "/v1/models").json["data"][0]
            self.assertEqual(model["id"], "first")
            self.assertEqual(model["aliases"],
                             ["first", "tiny-llama with random weights", "second", "fourth"])
            chat = {"messages": CHAT["messages"], "ignore_eos": True}
            for name, status in (("first", 200), ("second", 200), ("fourth", 200),
                                 ("third", 404)):
                answer = server.ask("POST", "/v1/chat/completions", {**chat, "model": name})
                self.assertEqual(answer.status, status, answer)
            answer = server.ask("POST", "/v1/chat/completions", chat)
            self.assertEqual(answer.json["usage"]["completion_tokens"], 3)
            answer = server.ask("POST", "/completion", {"prompt": "x", "ignore_eos": True})
            self.assertEqual(answer.json["tokens_predicted"], 3)
            for path, status in (("/metrics", 501), ("/slots", 501), ("/", 404), ("/props", 200)):
                self.assertEqual(server.ask("GET", path).status, status, path)

    def test_verbose_logs_what_is_said(self):
        for flag in ("--verbose", "--log-text"):
            with self.serve(flag) as server:
                server.ready()
                self.assertEqual(server.complete("my secret words", n=2).status, 200)
                said = re.compile(r'POST /completion 200 .*request=".*my secret words.* answer="')
                server.until(lambda: said.search(server.log), "not logged")


class TerminalTest(serve_test.ServeTest):
    def test_a_terminal_that_goes_ends_the_server_as_sigterm_does(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            pid, terminal = pty.fork()
            if pid == 0:
                log = os.open(self.dir / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(log, 2)
                os.execv(WEFT, command_line("serve", "-m", self.model, "--port", "0",
                                            "--state-dir", state))
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
