#!/usr/bin/env python3
"""weft serve as its clients and its operator meet it."""

import concurrent.futures
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from weft_process import (BACKEND, TIMEOUT_S, add_metadata, command_line, make_model, thread_count,
                          weft)

F_SETPIPE_SZ = 1031  # Linux's; the module has no name for it everywhere


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    def __str__(self):
        return f"{self.status} {self.body[:500]!r}"


class Server:
    """A weft serve of its own, on a free port, ended when the with block ends."""

    def __init__(self, model, *flags, reads_log=True, env=None, port=0):
        """Without a model, the flags name those to serve."""
        self.process = subprocess.Popen(
            command_line("serve", *(["-m", model] if model else []), "--port", port, *flags),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})})
        self.lines = []
        self.reads_log = reads_log
        self.port = None
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()

    def read_log(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.match(r"listening on http://127\.0\.0\.1:(\d+)$", line):
                self.port = int(match[1])
                self.listening.set()
                if not self.reads_log:
                    return
        self.listening.set()

    def __enter__(self):
        assert self.listening.wait(TIMEOUT_S) and self.port, self.log
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    @property
    def log(self):
        return "".join(self.lines)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def open(self, method, path, body=None, **headers):
        """The response before its body is read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            connection.request(method, path, body,
                               {name.replace("_", "-"): value for name, value in headers.items()})
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, method, path, body=None, **headers):
        with self.open(method, path, body, **headers) as response:
            return Answer(response)

    def complete(self, prompt, n=8, **fields):
        return self.ask("POST", "/completion",
                        {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True,
                         **fields})

    def send(self, path, body, **headers):
        """A connection of which nothing is read yet, and that has hardly any room for what comes."""
        body = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(TIMEOUT_S)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(head.encode() + b"\r\n" + body)
        return connection

    def ready(self):
        self.until(lambda: self.ask("GET", "/health").status == 200, "the server is not ready")
        return self

    def until(self, condition, what):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process.poll() is None, f"the server ended: {self.log}"
            assert time.monotonic() < deadline, f"{what}: {self.log[-2000:]}"
            time.sleep(0.02)

    def metric(self, name, **headers):
        for line in self.ask("GET", "/metrics", **headers).body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"there is no metric {name}")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self):
        """The exit code, after SIGTERM."""
        self.signal()
        return self.process.wait(TIMEOUT_S)


class ServeTest(unittest.TestCase):
    # An answer that comes to no end while somebody waits, and the context that it needs.
    ENDLESS = {"prompt": "x", "n_predict": -1, "ignore_eos": True, "stream": True}
    ROOM = ("--ctx", 200000)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.model = make_model(cls.dir / "llama.gguf", "tiny-llama", "Q8_0")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *flags, env=None):
        return Server(self.model, *flags, env=env)

    def assertIdle(self, server):
        """Nothing runs, and every page in use is one that the prefix index keeps."""
        server.until(lambda: server.metric("weft_turns_running") == 0, "turns still run")
        self.assertEqual(server.metric('weft_pages{kind="used"}'),
                         server.metric('weft_pages{kind="in_index"}'))


class LifeTest(ServeTest):
    def test_a_failed_load_ends_the_server(self):
        broken = self.dir / "broken.gguf"
        broken.write_bytes(self.model.read_bytes()[:100_000])
        result = weft("serve", "-m", broken, "--port", 0)
        self.assertEqual(result.code, 1, result)
        self.assertIn("broken.gguf", result.err.splitlines()[-1])
        self.assertNotIn("ready", result.err)

    def test_a_file_that_cannot_be_read_is_told_before_anybody_may_ask(self):
        for flags, reason in ((("-m", self.dir / "missing.gguf"), "No such file"),
                              (("-m", self.dir), "folder without config.json"),
                              (("--template", self.dir), "Is a directory"),
                              (("--api-key-file", self.dir / "none"), "No such file")):
            result = weft("serve", "--port", 0, *flags)
            self.assertEqual(result.code, 1, result)
            self.assertIn(str(flags[1]), result.err)
            self.assertIn(reason, result.err)
            self.assertNotIn("listening", result.err)

    def test_a_model_file_that_is_cut_short_ends_requests_and_not_the_server(self):
        model = self.dir / "cut.gguf"
        model.write_bytes(self.model.read_bytes())
        with Server(model, *self.ROOM, "--backend", "reference") as server:
            server.ready()
            self.assertEqual(server.complete("The loom").status, 200)
            with server.open("POST", "/completion", self.ENDLESS) as stream:
                self.assertIn(b"data:", stream.readline())
                os.truncate(model, 100_000)
                rest = stream.read().decode()
            self.assertIn("became shorter while it was in use", rest)
            for answer in (server.complete("The loom"), server.ask("GET", "/health"),
                           server.ask("POST", "/v1/completions", {"prompt": "The loom"})):
                self.assertEqual(answer.status, 503, answer)
                self.assertIn("cut.gguf", str(answer))
            self.assertEqual(server.ask("GET", "/metrics").status, 200)
            server.until(lambda: "the server cannot answer any more" in server.log, "it is not logged")
            self.assertEqual(server.end(), 0, server.log)

    def test_wrong_flags_are_told_before_anything_is_loaded(self):
        keys = self.dir / "no_keys.txt"
        keys.write_text("# nothing\n")
        for flags, word in ((("--template", "/none"), "/none"), (("--api-key-file", keys), "no key"),
                            (("--host", "no host"), "--host"),
                            (("--builtin", "none"), "none")):
            result = weft("serve", "-m", self.model, "--port", 0, *flags)
            self.assertEqual(result.code, 1, result)
            self.assertIn(word, result.err)

    def test_what_cannot_be_is_refused_with_its_reason(self):
        result = weft("serve", "-m", self.model, "--port", 0, "--context-shift")
        self.assertEqual(result.code, 2, result)
        self.assertIn("shifting the context is not supported", result.err)
        result = weft("serve", "-m", self.model, "--port", 0, "--reasoning", "maybe")
        self.assertEqual(result.code, 2, result)

    def test_thinking_and_slots_are_what_the_flags_say(self):
        source = self.dir / "thinks.jinja"
        source.write_text("{% for m in messages %}{{ m.content }}{% endfor %}"
                          "{% if enable_thinking %} thinks{% endif %}")
        ask = {"messages": [{"role": "user", "content": "Hi"}]}
        for flags, prompt in (((), "Hi thinks"), (("--reasoning", "off"), "Hi"),
                              (("--reasoning-budget", 0), "Hi"),
                              (("--reasoning", "on", "--no-context-shift"), "Hi thinks")):
            with tempfile.TemporaryDirectory(dir=self.dir) as slots:
                with self.serve("--chat-template-file", source, "--slot-save-path", slots,
                                *flags) as server:
                    server.ready()
                    answer = server.ask("POST", "/apply-template", ask)
                    self.assertEqual(answer.json["prompt"], prompt, flags)
                    server.ask("POST", "/completion",
                                   {"prompt": "Hi", "n_predict": 3, "id_slot": 2})
                    saved = server.ask("POST", "/slots/2?action=save", {"filename": "a.bin"})
                    self.assertEqual(saved.status, 200, saved)
                    self.assertEqual(os.listdir(slots), ["a.bin"])

    def test_the_templates_variables_are_what_the_flag_says(self):
        source = self.dir / "style.jinja"
        source.write_text("{% for m in messages %}{{ m.content }}{% endfor %} {{ style }} {{ tone }}")
        with self.serve("--chat-template-file", source, "--chat-template-kwargs",
                        '{"style": "terse", "tone": {"of": ["a", 1]}}') as server:
            server.ready()
            ask = {"messages": [{"role": "user", "content": "Hi"}]}
            answer = server.ask("POST", "/apply-template", ask)
            self.assertEqual(answer.json["prompt"], "Hi terse {'of': ['a', 1]}")
            ask["chat_template_kwargs"] = {"style": "long"}
            answer = server.ask("POST", "/apply-template", ask)
            self.assertEqual(answer.json["prompt"], "Hi long {'of': ['a', 1]}")
        for command, wrong, says in (("serve", "[]", "must be a JSON object of variables"),
                                     ("serve", '{"a":', "JSON"), ("run", "1", "must be a JSON"),
                                     ("chat", '{"messages": []}', "cannot set messages")):
            result = weft(command, "-m", self.model, "--chat-template-kwargs", wrong)
            self.assertEqual(result.code, 2, result)
            self.assertIn(says, result.err)
            self.assertIn("--chat-template-kwargs", result.err)
        # The worker is given prompts, not conversations.
        self.assertEqual(weft("worker", "-m", self.model, "--chat-template-kwargs", "{}").code, 2)

    def test_thoughts_of_a_loop_of_tools_are_computed_once(self):
        source = self.dir / "keeps.jinja"
        source.write_text(
            "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
            "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
            "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
            "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content and "
            "(keep_all_reasoning or loop.index0 > ns.last) %}<think>{{ m.reasoning_content }}"
            "</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
            "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
        messages = [{"role": "user", "content": "Look."}]
        for i in range(5):
            messages += [{"role": "assistant", "content": "", "reasoning_content": f"Step {i}. " * 9,
                          "tool_calls": [{"id": f"c{i}", "type": "function", "function": {
                              "name": "look", "arguments": json.dumps({"at": i})}}]},
                         {"role": "tool", "tool_call_id": f"c{i}", "content": f"There is {i}."}]
        done = [*messages, {"role": "assistant", "content": "All seen.",
                            "reasoning_content": "Now tell."}]
        ask_on = [*done, {"role": "user", "content": "And?"}]
        tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]

        def usage(server, messages):
            answer = server.ask("POST", "/v1/chat/completions", {
                "messages": messages, "tools": tools, "max_tokens": 1, "temperature": 0})
            self.assertEqual(answer.status, 200, answer)
            used = answer.json["usage"]
            return used["prompt_tokens"], used["prompt_tokens_details"]["cached_tokens"]

        for flags, keeps in (((), True), (("--no-reasoning-preserve",), False),
                             (("--no-reasoning-preserve", "--chat-template-kwargs",
                               '{"keep_all_reasoning": true}'), True)):
            with self.serve("--chat-template-file", source, *flags) as server:
                server.ready()
                self.assertEqual(server.ask("GET", "/props").json["past_thoughts"], {
                    "kept": keeps, "variable": "keep_all_reasoning", "keep": True, "clear": False})
                before, _ = usage(server, messages)
                total, cached = usage(server, ask_on)
                if keeps:
                    self.assertGreaterEqual(cached, before - 16)  # but for a page that was not full
                else:
                    self.assertLess(cached, before / 2)
                    self.assertLess(total, before)

    def test_ollamas_port_is_opened_too(self):
        with Server(self.model, "--ollama", "--ollama-port", 0) as server:
            server.ready()
            server.until(lambda: "for clients of Ollama" in server.log, "the port is not told")
            port = int(re.search(r"127\.0\.0\.1:(\d+) for clients of Ollama", server.log)[1])
            taken = weft("serve", "-m", self.model, "--port", 0, "--ollama", "--ollama-port", port)
            self.assertEqual(taken.code, 1, taken)
            self.assertIn("omit --ollama", taken.err)
            self.assertEqual(len(taken.err.splitlines()), 1, taken)
            own, server.port = server.port, port
            self.assertEqual(server.ask("GET", "/", Accept="*/*").body, b"Ollama is running")
            self.assertEqual(server.ask("HEAD", "/").status, 200)
            self.assertIn(b"<title>", server.ask("GET", "/", Accept="text/html").body)
            self.assertEqual(server.ask("GET", "/api/version").status, 200)
            self.assertEqual(server.ask("GET", "/v1/models").status, 200)
            server.port = own
            self.assertIn(b"<title>", server.ask("GET", "/", Accept="*/*").body)
            self.assertEqual(server.end(), 0, server.log)

    def test_it_listens_only_when_nothing_can_fail_any_more(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            result = weft("serve", "-m", self.model, "--port", 0,
                          "--grpc-port", other.getsockname()[1])
        self.assertEqual(result.code, 1, result)
        self.assertNotIn("listening", result.err)
        with Server(self.model) as server:
            self.assertEqual(server.ask("GET", "/health").status, 200)  # at once

    @staticmethod
    def dated_chat(day, n_words=400):
        rules = " ".join(f"rule {i}" for i in range(n_words))
        system = f"{rules}\nToday is 2026-11-{day}.\nBe brief."
        return {"messages": [{"role": "system", "content": system},
                             {"role": "user", "content": rules}],
                "max_tokens": 4, "session_id": "kitchen", "cache_report": True}

    def test_why_a_prompt_was_computed_again(self):
        def why(*args):
            result = weft("why", *args, "--server", server.url)
            self.assertEqual(result.code, 0, result)
            return result

        with Server(self.model, "--ctx", 20000) as server:
            server.ready()
            self.assertEqual(weft("why", "--server", server.url).code, 1)
            for day in (27, 28):
                answer = server.ask("POST", "/v1/chat/completions", self.dated_chat(day))
                self.assertEqual(answer.status, 200, answer)
            report = answer.json["usage"]["cache_report"]
            self.assertEqual(report["reason"], "system_changed")
            self.assertEqual(report["difference"]["now"], "Today is 2026-11-28.")
            self.assertIn("reason=system_changed", answer.headers["X-Weft-Cache"])
            self.assertEqual(json.loads(why("--json").text), report)
            self.assertEqual(json.loads(why("kitchen", "--json").text), report)
            text = why("kitchen").text
            self.assertIn("a date in the system prompt changed", text)
            self.assertIn("- Today is 2026-11-27.", text)
            self.assertIn("+ Today is 2026-11-28.", text)
            self.assertIn("no session", weft("why", "garden", "--server", server.url).err)
            server.until(lambda: "a date in the system prompt changed" in server.log, "its line")
            self.assertNotIn("Today", server.log)

    def test_why_state_of_another_kv_type_is_not_used(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as folder:
            for kv, reason in (("f16", "first_prompt"), ("q8_0", "other_model")):
                flags = ("--ctx", 20000, "--state-dir", folder, "--kv", kv)
                with Server(self.model, *flags) as server:
                    server.ready()
                    answer = server.ask("POST", "/v1/chat/completions", self.dated_chat(27))
                    self.assertEqual(answer.json["usage"]["cache_report"]["reason"], reason)
                    self.assertEqual(server.end(), 0, server.log)

    def test_ps_shows_the_servers_that_run(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as runtime:
            env = {"XDG_RUNTIME_DIR": runtime}

            def listed():
                result = weft("ps", "--json", env=env)
                self.assertEqual(result.code, 0, result)
                return result.json_lines

            self.assertEqual(listed(), [])
            self.assertIn("no server is running", weft("ps", env=env).text)
            with Server(self.model, "--alias", "one", env=env) as one, \
                    Server(self.model, "--alias", "two", env=env) as two:
                one.ready()
                two.ready()
                one.complete([5] * 50, session_id="kitchen")
                one.until(lambda: [s["sessions"] for s in listed()] == [1, 0], "its session")
                servers = listed()
                self.assertEqual([(s["address"], s["model"]) for s in servers],
                                 [(one.url, "one"), (two.url, "two")])
                self.assertTrue(all(s["memory_bytes"] > 1 << 20 for s in servers))
                table = weft("ps", env=env).text.splitlines()
                self.assertEqual(len(table), 3)
                self.assertRegex(table[1], rf"^{one.url}  one    1         0        [\d.]+ .iB ")
                self.assertEqual(two.end(), 0)
                self.assertEqual([s["model"] for s in listed()], ["one"])
                one.process.kill()
                one.process.wait()
                self.assertEqual(listed(), [])
                self.assertEqual(os.listdir(os.path.join(runtime, "weft")), [])

    def test_what_agents_say_first_is_computed_before_they_come_back(self):
        def chat(server, question):
            body = {**self.dated_chat(27), "session_id": question}
            body["messages"][1]["content"] = question
            return server.ask("POST", "/v1/chat/completions", body).json["usage"]

        with tempfile.TemporaryDirectory(dir=self.dir) as folder:
            env = {"XDG_RUNTIME_DIR": folder}

            def listed():
                model = weft("ps", "--json", env=env).json_lines[0]["models"][0]
                return model["agents"], model["ready_agents"]

            flags = ("--ctx", 20000, "--state-dir", f"{folder}/state")
            with Server(self.model, *flags, "--kv", "f16") as server:
                server.ready()
                for question in ("one", "two"):
                    n_tokens = chat(server, question)["prompt_tokens"]
                self.assertEqual(server.end(), 0, server.log)
            # Too few for the prompt.
            flags = (*flags, "--kv", "q8_0")
            with Server(self.model, *flags, "--warm-prompts", 100, env=env) as server:
                server.ready()
                server.until(lambda: listed() == (1, 0), "an agent is known")
                self.assertIn("0 of 1 agent prompts prefilled", weft("ps", env=env).text)
                self.assertEqual(server.end(), 0, server.log)
            with Server(self.model, *flags, env=env) as server:
                server.ready()
                server.until(lambda: listed() == (1, 1), "its prompt is computed")
                self.assertIn("prefilled the prompt of an agent", server.log)
                cached = chat(server, "three")["prompt_tokens_details"]["cached_tokens"]
                self.assertGreater(cached, n_tokens - 100)

    def test_a_port_in_use_is_an_error(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            result = weft("serve", "-m", self.model, "--port", other.getsockname()[1])
        self.assertEqual(result.code, 1, result)
        self.assertIn("cannot listen", result.err)
        self.assertIn("choose another --port", result.err)

    def test_drains_and_comes_back_warm(self):
        prompt = [5 + i % 300 for i in range(200)]
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            flags = (*self.ROOM, "--state-dir", state)
            with self.serve(*flags, "--drain-seconds", 600) as server:
                server.ready()
                first = server.complete(prompt, session_id="kitchen")
                self.assertEqual(first.status, 200, first)
                # More than fits between it and its reader: it ends when it is read, and not before.
                story = {**self.ENDLESS, "n_predict": 2500, "n_probs": 20}
                with server.send("/completion", story) as connection:
                    stream = http.client.HTTPResponse(connection)
                    stream.begin()
                    self.assertEqual(stream.status, 200)
                    server.signal()
                    server.until(lambda: "shutting down" in server.log, "no drain")
                    health = server.ask("GET", "/health")
                    self.assertEqual(health.status, 503, health)
                    refused = server.complete("x")
                    self.assertEqual(refused.status, 503, refused)
                    self.assertIn("Retry-After", refused.headers)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                    events = stream.read()
                self.assertIn(b'"stop":true', events.splitlines()[-2], "the stream was cut")
                self.assertEqual(server.process.wait(TIMEOUT_S), 0, server.log)
            self.assertTrue(list(pathlib.Path(state).rglob("*.session")))
            with self.serve(*flags) as server:
                server.ready()
                listed = server.ask("GET", "/v1/sessions").json["data"]
                self.assertEqual([(s["id"], s["state"]) for s in listed], [("kitchen", "parked")])
                again = server.complete(prompt + [7], session_id="kitchen").json
                self.assertGreaterEqual(again["timings"]["cache_n"], len(prompt))
                self.assertEqual(server.end(), 0, server.log)

    def test_who_waits_is_told_that_it_is_alive_and_who_looks_does_not_wait(self):
        flags = (*self.ROOM, "--max-running", 1, "--sse-ping-interval", 1)
        with self.serve(*flags) as server, contextlib.ExitStack() as fillers:
            server.ready()
            for _ in range(6):
                fillers.enter_context(server.open("POST", "/completion", self.ENDLESS))
            body = {"max_tokens": 5, "stream": True,
                    "messages": [{"role": "user", "content": "Are you there?"}]}
            with server.open("POST", "/v1/messages", body, x_session_id="kitchen") as response:
                self.assertEqual(response.status, 200)
                names = []
                while names.count("ping") < 2:  # one comes with the beginning
                    line = response.readline().decode()
                    self.assertTrue(line, f"it ended: {names} {server.log}")
                    if line.startswith("event: "):
                        names.append(line[7:].strip())
                self.assertEqual(names, ["message_start", "ping", "ping"])
                session = server.ask("GET", "/v1/sessions/kitchen").json
                self.assertEqual(session["state"], "running")
                slot, = server.ask("GET", "/slots").json
                self.assertTrue(slot["is_processing"])
                self.assertIn(slot["state"], ("reading", "writing"))
                self.assertEqual(slot["prompt_progress"].keys(), {
                    "total", "cache", "processed", "time_ms", "tokens_per_second", "seconds_left",
                    "waits_behind_tokens"})
                self.assertGreater(server.metric("weft_turns_queued"), 0)
                fillers.close()
                self.assertIn("event: message_stop", response.read().decode())
            self.assertIdleButFor(server, "kitchen")

    def assertIdleButFor(self, server, session):
        server.until(lambda: server.metric("weft_turns_running") == 0, "turns still run")
        self.assertEqual(server.ask("GET", f"/v1/sessions/{session}").json["state"], "ready")

    def test_a_kill_loses_neither_sessions_nor_prompts(self):
        prompt = [5 + i % 300 for i in range(200)]
        chat = {"messages": [{"role": "user", "content": "Once upon a time. " * 12}],
                "max_tokens": 4}
        message = {**chat, "messages": [{"role": "user", "content": "Twice upon a time. " * 12}]}
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            flags = ("--state-dir", state, "--state-disk", "50M")
            with self.serve(*flags) as server:
                server.ready()
                self.assertEqual(server.complete(prompt, session_id="kitchen").status, 200)
                self.assertEqual(server.complete(prompt, session_id="hall").status, 200)
                for _ in range(2):
                    for path, body in (("/v1/chat/completions", chat), ("/v1/messages", message)):
                        answer = server.ask("POST", path, body)
                        self.assertEqual(answer.status, 200, answer)
                self.assertEqual(server.ask("POST", "/v1/sessions/hall/reset").status, 200)
                server.until(lambda: b"weft_state_disk_pending 0" in
                             server.ask("GET", "/metrics").body, "it is never written")
                server.process.kill()
                server.process.wait(TIMEOUT_S)
            with self.serve(*flags) as server:
                server.ready()
                listed = {s["id"]: s["tokens"] for s in
                          server.ask("GET", "/v1/sessions").json["data"]}
                self.assertGreaterEqual(listed["kitchen"], len(prompt))
                self.assertEqual(listed["hall"], 0, "what was reset stays so")
                usage = server.ask("POST", "/v1/chat/completions", chat).json["usage"]
                details = usage["prompt_tokens_details"]
                self.assertGreaterEqual(details["cached_tokens"], usage["prompt_tokens"] - 40)
                self.assertEqual(details["disk_tokens"], details["cached_tokens"], details)
                usage = server.ask("POST", "/v1/messages", message).json["usage"]
                self.assertGreater(usage["disk_tokens"], 0, usage)
                self.assertLessEqual(usage["disk_tokens"], usage["cache_read_input_tokens"])
                again = server.complete(prompt + [7], session_id="kitchen").json
                self.assertGreaterEqual(again["timings"]["cache_disk_n"], len(prompt))
                metrics = server.ask("GET", "/metrics").body.decode()
                self.assertRegex(metrics, r"weft_disk_tokens_total [1-9]")
                self.assertIn('weft_state_disk_bytes{kind="budget"} 52428800', metrics)
                self.assertIn(" disk=", server.log)
                self.assertEqual(server.end(), 0, server.log)

    def test_a_durable_turn_survives_a_kill_right_after_its_last_event(self):
        body = {"messages": [{"role": "user", "content": "Once upon a time."}], "max_tokens": 4,
                "stream": True, "session_id": "kitchen"}
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            flags = ("--state-dir", state, "--durable")
            known = 0
            for words in range(1, 9):
                body["messages"][0]["content"] += " And then." * words
                with self.serve(*flags) as server:
                    server.ready()
                    if known:
                        self.assertEqual(self.tokens_of(server, "kitchen"), known)
                    with server.open("POST", "/v1/chat/completions", body) as stream:
                        self.assertEqual(stream.status, 200)
                        for line in stream:
                            if b'"finish_reason":"' in line:
                                server.process.kill()
                                break
                    server.process.wait(TIMEOUT_S)
                with self.serve(*flags) as server:
                    server.ready()
                    now = self.tokens_of(server, "kitchen")
                    self.assertGreater(now, known, f"turn {words} is lost")
                    known = now
        done = weft("serve", "-m", self.model, "--port", "0", "--durable")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("--state-dir", done.err)

    @staticmethod
    def tokens_of(server, session):
        listed = server.ask("GET", "/v1/sessions").json["data"]
        return {s["id"]: s["tokens"] for s in listed}.get(session, 0)

    def test_a_service_manager_is_told_how_long_the_end_takes(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            path = self.dir / "notify"
            manager.bind(str(path))
            manager.settimeout(TIMEOUT_S)
            with self.serve("--drain-seconds", 100, env={"NOTIFY_SOCKET": str(path)}) as server:
                server.ready()
                self.assertEqual(server.end(), 0, server.log)
            self.assertIn(b"EXTEND_TIMEOUT_USEC=210000000", manager.recv(4096))

    def test_a_log_that_nobody_reads_stops_nobody(self):
        with Server(self.model, reads_log=False) as server:
            fcntl.fcntl(server.process.stderr, F_SETPIPE_SZ, 4096)
            server.ready()
            for _ in range(400):
                self.assertEqual(server.ask("GET", "/health").status, 200)
            self.assertEqual(server.complete("and on").status, 200)
            self.assertEqual(server.end(), 0)

    def test_a_second_signal_ends_at_once(self):
        with self.serve(*self.ROOM) as server:
            server.ready()
            with server.open("POST", "/completion", self.ENDLESS) as stream:
                stream.readline()
                server.signal()
                server.until(lambda: "shutting down" in server.log, "no drain")
                server.signal(signal.SIGINT)
                self.assertEqual(server.process.wait(TIMEOUT_S), 0, server.log)

    def test_the_deadline_cuts_what_runs(self):
        with self.serve(*self.ROOM, "--drain-seconds", 0) as server:
            server.ready()
            with server.open("POST", "/completion", self.ENDLESS) as stream:
                stream.readline()
                server.signal()
                events = stream.read()
                self.assertIn(b'"error"', events.splitlines()[-2], "the end says why")
            self.assertEqual(server.process.wait(TIMEOUT_S), 0, server.log)

    def test_an_open_channel_ends_with_the_server(self):
        with self.serve() as server:
            server.ready()
            with server.open("GET", "/v1/channels/page") as stream:
                self.assertEqual(stream.readline(), b": open\n")
                server.signal()
                stream.read()  # raises if it is cut off
            self.assertEqual(server.process.wait(TIMEOUT_S), 0, server.log)


class LeavingTest(ServeTest):
    def test_a_client_that_leaves_cancels_its_turn(self):
        with self.serve(*self.ROOM) as server:
            server.ready()
            for stream in (True, False):
                with server.send("/completion", {**self.ENDLESS, "stream": stream}):
                    server.until(lambda: server.metric("weft_turns_running") == 1,
                                 "it does not run")
                server.until(lambda: server.metric("weft_turns_running") == 0, "it still runs")
            self.assertEqual(server.metric("weft_turns_cancelled_total"), 2)
            line = re.compile(r"POST /completion \d+ [\d.]+ms in=\d+ cached=\d+ "
                              r"(?:computed=\d+ )?out=\d+ gone ")
            server.until(lambda: len(line.findall(server.log)) == 2, "not logged")

    def test_a_client_may_close_after_the_last_event(self):
        with self.serve() as server:
            server.ready()
            for _ in range(8):
                with server.send("/v1/completions", {"prompt": "a", "max_tokens": 4,
                                                     "stream": True}) as stream:
                    answer = b""
                    while b"[DONE]" not in answer:
                        piece = stream.recv(4096)
                        self.assertTrue(piece, f"it ended after {answer}: {server.log}")
                        answer += piece
            server.until(lambda: server.log.count("POST /v1/completions 200") == 8, "not logged")
            self.assertNotIn(" gone ", server.log)


class HttpTest(ServeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server(cls.model, "--alias", "tiny", "--cors-origin", "https://page.example",
                            "--max-body", "32M")
        cls.server.__enter__().ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        super().tearDownClass()

    def test_paths_and_methods(self):
        missing = self.server.ask("GET", "/nothing")
        self.assertEqual((missing.status, missing.json["error"]["type"]),
                         (404, "not_found_error"))
        wrong = self.server.ask("PUT", "/v1/models")
        self.assertEqual((wrong.status, wrong.headers["Allow"]), (405, "GET, HEAD"))
        anthropic = self.server.ask("GET", "/v1/messages")
        self.assertEqual((anthropic.status, anthropic.json["type"]), (405, "error"))
        head = self.server.ask("HEAD", "/v1/models")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(self.server.ask("GET", "/v1/%zz").status, 400)

    def test_the_page_is_for_browsers(self):
        for accept, text in (("text/html", "<!doctype html>"), ("*/*", "<!doctype html>"),
                             ("application/json", "Ollama is running")):
            answer = self.server.ask("GET", "/", Accept=accept)
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.body.decode().lower().startswith(text.lower()), answer)

    def test_ollama_knows_the_alias(self):
        names = [model["name"] for model in self.server.ask("GET", "/api/tags").json["models"]]
        self.assertEqual(names, ["tiny:latest"])
        body = {"model": "tiny", "prompt": "The", "raw": True, "stream": False,
                "options": {"num_predict": 4, "temperature": 0}}
        answer = self.server.ask("POST", "/api/generate", body)
        self.assertEqual((answer.status, answer.json["eval_count"]), (200, 4))
        missing = self.server.ask("POST", "/api/generate", {**body, "model": "other"})
        self.assertEqual((missing.status, missing.json),
                         (404, {"error": "model 'other' not found"}))
        unknown = self.server.ask("GET", "/api/unknown")
        self.assertEqual((unknown.status, list(unknown.json)), (404, ["error"]))

    def test_request_ids_are_answered_and_logged(self):
        answer = self.server.ask("GET", "/v1/models", X_Request_Id="mine-1")
        self.assertEqual(answer.headers["X-Request-Id"], "mine-1")
        self.server.until(lambda: "id=mine-1\n" in self.server.log, "not logged")
        other = self.server.ask("GET", "/v1/models", X_Request_Id="with space")
        self.assertNotEqual(other.headers["X-Request-Id"], "with space")

    def test_the_log_holds_no_text(self):
        self.server.complete("my secret words", n=4)
        line = re.compile(r"POST /completion 200 [\d.]+ms in=\d+ cached=\d+ out=4 ")
        self.server.until(lambda: line.search(self.server.log), "not logged")
        self.assertNotIn("secret", self.server.log)

    def test_pages_of_allowed_origins_may_ask(self):
        preflight = self.server.ask("OPTIONS", "/v1/chat/completions",
                                    Origin="https://page.example",
                                    Access_Control_Request_Headers="authorization")
        self.assertEqual((preflight.status, preflight.body), (200, b""))
        self.assertEqual(preflight.headers["Access-Control-Allow-Origin"], "https://page.example")
        self.assertEqual(preflight.headers["Access-Control-Allow-Headers"], "authorization")
        other = self.server.ask("GET", "/health", Origin="https://other.example")
        self.assertEqual(other.status, 403)
        self.assertNotIn("Access-Control-Allow-Origin", other.headers)

    def test_hostile_json_is_refused(self):
        for body in (b"", b"{", b"[1]", b"[" * 5_000_000, b'{"a":' * 100_000,
                     b"[" + b"1," * 3_000_000 + b"1]", b'{"prompt":"\xff"}', b'{"prompt":1e999}',
                     b"{" + b",".join(b'"k%d":0' % i for i in range(200_000)) + b"}"):
            answer = self.server.ask("POST", "/completion", body)
            self.assertEqual(answer.status, 400, answer)
            self.assertEqual(answer.json["error"]["code"], 400)
        large = self.server.ask("POST", "/completion", b" " * (33 << 20))
        self.assertEqual(large.status, 413, large)

    def test_models_props_and_slots(self):
        model = self.server.ask("GET", "/v1/models").json["data"][0]
        self.assertEqual((model["id"], model["meta"]["n_ctx_train"]), ("tiny", 4096))
        for path in ("/v1/models", "/models"):
            self.assertEqual(self.server.ask("GET", f"{path}/tiny").json["context_length"], 4096)
            other = self.server.ask("GET", f"{path}/other")
            self.assertEqual(other.status, 404)
            self.assertIn("other is not served here; use tiny", other.json["error"]["message"])
        props = self.server.ask("GET", "/props").json
        self.assertEqual(props["total_slots"], len(self.server.ask("GET", "/slots").json))
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 4096)
        self.assertEqual(props["tool_calls"], "lenient")
        self.assertEqual((props["backend"], props["same_bits"]), (BACKEND, BACKEND != "mlx"))
        self.assertEqual(self.server.ask("POST", "/props", {}).status, 501)

    def test_tokens_and_templates(self):
        tokens = self.server.ask("POST", "/tokenize", {"content": "Hello é"}).json["tokens"]
        back = self.server.ask("POST", "/detokenize", {"tokens": tokens}).json["content"]
        self.assertEqual(back.strip(), "Hello é")
        pieces = self.server.ask("POST", "/tokenize",
                                 {"content": "é", "with_pieces": True}).json["tokens"]
        self.assertEqual([p["id"] for p in pieces],
                         self.server.ask("POST", "/tokenize", {"content": "é"}).json["tokens"])
        self.assertEqual(self.server.ask("POST", "/detokenize", {"tokens": [99999]}).status, 400)
        prompt = self.server.ask("POST", "/apply-template", {
            "messages": [{"role": "user", "content": "Hi"}]}).json["prompt"]
        self.assertIn("Hi", prompt)

    def test_a_completion_streamed_is_the_one_given_whole(self):
        whole = self.server.complete("Once upon a time", n=20, return_tokens=True).json
        self.assertEqual((whole["stop_type"], whole["tokens_predicted"], len(whole["tokens"])),
                         ("limit", 20, 20))
        timings = whole["timings"]
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], whole["tokens_evaluated"])
        with self.server.open("POST", "/completion", {
                "prompt": "Once upon a time", "n_predict": 20, "temperature": 0,
                "ignore_eos": True, "stream": True}) as response:
            events = [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]
        self.assertEqual("".join(e["content"] for e in events), whole["content"])
        self.assertEqual([t for e in events for t in e["tokens"]], whole["tokens"])
        self.assertEqual([e["stop"] for e in events], [False] * 20 + [True])

    def test_several_prompts_and_chosen_fields(self):
        answers = self.server.complete(["one", [5, 6, "two"]], n=3,
                                       response_fields=["content", "generation_settings/n_predict"])
        self.assertEqual([list(a) for a in answers.json], [["content", "generation_settings/n_predict"]] * 2)

    def test_a_prompt_that_does_not_fit_says_by_how_much(self):
        answer = self.server.complete([5] * 5000)
        error = answer.json["error"]
        self.assertEqual((answer.status, error["type"], error["n_prompt_tokens"], error["n_ctx"]),
                         (400, "exceed_context_size_error", 5000, 4096))


class KeysTest(ServeTest):
    def test_keys_and_their_namespaces(self):
        keys = self.dir / "keys.txt"
        keys.write_text("# who may ask\nkey-one first\nkey-two\n")
        one, two = {"Authorization": "Bearer key-one"}, {"x_api_key": "key-two"}
        with self.serve("--api-key-file", keys) as server:
            server.ready()
            for path in ("/v1/models/tiny", "/metrics", "/nothing"):
                self.assertEqual(server.ask("GET", path).status, 401, path)
            for path in ("/v1/models", "/models", "/health"):
                self.assertEqual(server.ask("GET", path).status, 200, path)
            for wrong in ("key-on", "key-one ", "key-onee", ""):
                self.assertEqual(server.ask("GET", "/props", x_api_key=wrong).status,
                                 200 if wrong == "key-one " else 401, wrong)
            refused = server.ask("POST", "/v1/messages", {})
            self.assertEqual((refused.status, refused.json["error"]["type"]),
                             (401, "authentication_error"))
            self.assertEqual(refused.json["type"], "error", "in the shape of its API")
            for owner in (one, two):
                made = server.ask("POST", "/v1/sessions", {"id": "mine"}, **owner)
                self.assertEqual(made.status, 200, made)
            self.assertEqual(server.ask("POST", "/v1/sessions", {"id": "mine"}, **one).status, 409)
            server.ask("POST", "/v1/sessions", {"id": "other"}, **one)
            listed = server.ask("GET", "/v1/sessions", **two).json["data"]
            self.assertEqual([s["id"] for s in listed], ["mine"])
            self.assertEqual(server.ask("GET", "/v1/sessions/other", **two).status, 404)
            server.until(lambda: "key=first" in server.log, "the key's name is not logged")
            self.assertNotIn("key-one", server.log)
            self.assertNotIn("key-two", server.log)


class SessionsTest(ServeTest):
    def test_the_life_of_a_session(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as state, \
                self.serve("--state-dir", state) as server:
            server.ready()
            path = "/v1/sessions/kitchen"
            answer = server.ask("POST", f"{path}/reset")
            self.assertEqual((answer.status, answer.json),
                             (200, {"reset": True, "session_id": "kitchen"}))
            self.assertEqual(server.ask("DELETE", path).json,
                             {"closed": True, "session_id": "kitchen"})
            self.assertEqual(server.ask("POST", f"{path}/park").status, 404)
            self.assertEqual(server.ask("GET", "/v1/sessions/a%20b").status, 400)
            server.complete([5] * 50, session_id="kitchen")
            fork = server.ask("POST", f"{path}/fork", {"session_id": "garden", "position": 40})
            self.assertEqual((fork.json["id"], fork.json["tokens"]), ("garden", 40))
            self.assertEqual(server.ask("POST", f"{path}/park").json["parked"], True)
            self.assertEqual(server.ask("GET", path).json["state"], "parked")
            self.assertEqual(server.ask("POST", f"{path}/restore").json["restored"], True)
            self.assertEqual(server.ask("POST", f"{path}/reset").status, 200)
            self.assertEqual(server.ask("GET", path).json["tokens"], 0)
            server.ask("DELETE", path)
            self.assertEqual(server.ask("GET", path).status, 404)

    def test_what_could_not_be_saved_is_told(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as state, \
                self.serve("--state-dir", state) as server:
            server.ready()
            self.assertEqual(server.ask("GET", "/health").json, {"status": "ok"})
            in_the_way = pathlib.Path(state) / "@"
            in_the_way.write_text("a file where a folder belongs: not even root can write there")

            def warning(session):
                answer = server.complete([5] * 50, session_id=session)
                self.assertEqual(answer.status, 200)
                return answer.headers.get("X-Weft-Warning", "")

            def health():
                return server.ask("GET", "/health").json

            warning("kitchen")
            server.until(lambda: health()["status"] == "degraded", "all is well")
            self.assertIn("Not a directory", health()["reason"])
            self.assertNotIn("kitchen", health()["reason"])
            self.assertIn("this turn", warning("garden"))
            self.assertIn("last turn could not be saved", warning("kitchen"))
            self.assertIn("weft_sessions_unsaved 2", server.ask("GET", "/metrics").body.decode())
            self.assertNotIn("X-Weft-Warning", server.complete([5] * 50).headers)
            self.assertEqual(server.log.count('"kitchen" could not be saved'), 1, server.log)
            in_the_way.unlink()
            warning("attic")
            server.until(lambda: health() == {"status": "ok"}, "it is not tried again")
            self.assertEqual(warning("kitchen"), "")
            self.assertEqual(len(list(pathlib.Path(state).rglob("*.session"))), 3)

    def test_what_is_not_used_for_long_is_forgotten(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as state, \
                self.serve("--state-dir", state, "--session-ttl", "1s") as server:
            server.ready()
            server.complete([5] * 50, session_id="kitchen")
            server.ask("POST", "/v1/sessions/kitchen/park")
            server.until(lambda: "closed 1 sessions" in server.log, "it is kept")
            self.assertEqual(server.ask("GET", "/v1/sessions").json["data"], [])
            self.assertEqual(server.end(), 0, server.log)
            self.assertEqual(list(pathlib.Path(state).rglob("*.session")), [])

    def test_the_model_says_what_the_operator_leaves_open(self):
        advised = add_metadata(self.model, {
            "general.sampling.temp": 0.0, "general.sampling.top_k": 7,
            "general.sampling.xtc_probability": 0.5}, self.dir / "advised.gguf")
        with Server(advised, "--top-k", 9) as server:
            server.ready()
            params = server.ask("GET", "/props").json["default_generation_settings"]["params"]
            self.assertEqual((params["temperature"], params["top_k"]), (0, 9))
            server.until(lambda: "xtc_probability 0.5, which is not supported" in server.log, "advice")
            self.assertIn("default sampling: top_k 9 (flags); "
                          "temperature 0 (file); top_p 0.95, min_p 0.05 (Weft's own)", server.log)

    def test_the_operator_says_what_requests_leave_open(self):
        with self.serve("--temp", 0, "--top-k", 3, "--seed", 7, "--alias", "mine",
                        "--strict-model-name", "--tool-calls", "strict") as server:
            server.ready()
            props = server.ask("GET", "/props").json
            self.assertEqual(props["tool_calls"], "strict")
            params = props["default_generation_settings"]["params"]
            self.assertEqual((params["temperature"], params["top_k"], params["seed"]), (0, 3, 7))
            settings = server.ask("POST", "/completion", {"prompt": "x", "n_predict": 1}).json[
                "generation_settings"]
            self.assertEqual(settings["seed"], 7)
            chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
            for model, status in (("gpt-9", 404), ("mine", 200)):
                answer = server.ask("POST", "/v1/chat/completions", {"model": model, **chat})
                self.assertEqual(answer.status, status, answer)

    def test_the_command(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as state, \
                self.serve("--state-dir", state) as server:
            server.ready()
            server.complete([5] * 50, session_id="kitchen")

            def command(*args, code=0):
                result = weft("sessions", *args, "--server", server.url)
                self.assertEqual(result.code, code, result)
                return result

            self.assertIn("garden", command("fork", "kitchen", "garden").text)
            command("park", "kitchen")
            states = {s["id"]: s["state"] for s in command("list", "--json").json_lines}
            self.assertEqual(states, {"kitchen": "parked", "garden": "ready"})
            command("restore", "kitchen")
            self.assertEqual(command("show", "kitchen", "--json").json["state"], "ready")
            command("delete", "garden")
            self.assertIn("garden", command("drop", "garden", code=1).err)
            self.assertIn("garden", command("show", "garden", code=1).err)
            self.assertIn("0 sessions deleted", command("clean", "--idle", "7d").text)
            self.assertEqual(weft("sessions", "clean").code, 2)
            self.assertEqual(server.ask("DELETE", "/v1/sessions").status, 400)
            self.assertEqual(
                server.ask("DELETE", "/v1/sessions?idle_seconds=0").json, {"closed": 1})
            self.assertEqual(command("list", "--json").json_lines, [])
        result = weft("sessions", "list", "--server", server.url)
        self.assertEqual(result.code, 1, result)
        self.assertIn("is weft serve running", result.err)
        self.assertEqual(weft("sessions").code, 2)


class OverloadTest(ServeTest):
    def test_200_connections_against_4_places_and_16_in_the_queue(self):
        with self.serve("--max-running", 4, "--max-queue", 16) as server:
            server.ready()

            def one(i):
                path, body = (("/completion", {"prompt": [5 + i % 9] * 40, "n_predict": 30,
                                               "ignore_eos": True, "stream": i % 2 == 0})
                              if i % 3 else
                              ("/v1/chat/completions",
                               {"messages": [{"role": "user", "content": f"question {i % 9}"}],
                                "max_tokens": 30, "stream": i % 2 == 0}))
                answer = server.ask("POST", path, body)
                if answer.status != 200:
                    self.assertIn("Retry-After", answer.headers)
                elif i % 2 == 0:
                    self.assertTrue(answer.body.startswith(b"data: "), answer)
                    self.assertNotIn(b'"error"', answer.body)
                else:
                    self.assertIsInstance(answer.json, dict)
                return answer.status

            with concurrent.futures.ThreadPoolExecutor(200) as pool:
                statuses = list(pool.map(one, range(200)))
            self.assertLessEqual(set(statuses), {200, 429, 503})
            self.assertGreaterEqual(statuses.count(200), 20)
            self.assertIdle(server)
            self.assertEqual(server.complete("and on").status, 200)
            self.assertEqual(server.end(), 0, server.log[-2000:])

    def test_400_streams_are_held_by_a_few_threads(self):
        streams = 400
        with self.serve("--max-running", 8, "--max-queue", streams) as server:
            server.ready()
            body = json.dumps({"prompt": [5] * 20, "n_predict": 100000, "ignore_eos": True,
                               "stream": True})
            request = (f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                       f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                       f"{body}").encode()
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S))
                    for _ in range(streams)]
                for client in clients:
                    client.sendall(request)
                # None of them reads on after its beginning: the running ones become slow.
                for client in clients:
                    self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 200 "))
                self.assertLessEqual(thread_count(server.process), os.cpu_count() + 9)
                # Whoever comes now is answered.
                self.assertEqual(server.ask("GET", "/health").status, 200)
                self.assertEqual(
                    server.ask("POST", "/tokenize", {"content": "The loom"}).status, 200)
            self.assertIdle(server)
            self.assertEqual(server.end(), 0, server.log[-2000:])


if __name__ == "__main__":
    unittest.main()
