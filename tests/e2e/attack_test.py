#!/usr/bin/env python3
"""Hostile requests, many of them: nothing stays behind, and memory keeps to its budget."""

import concurrent.futures
import contextlib
import errno
import http.client
import json
import random
import shlex
import socket
import time
import unittest
from unittest import mock

import serve_test
import weft_process
from weft_process import TIMEOUT_S, descriptor_count, peak_kib, resident_kib

POSTS = ("/completion", "/completions", "/infill", "/tokenize", "/detokenize", "/apply-template",
         "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens",
         "/v1/responses", "/v1/sessions")
# Of no use to any of them.
BODIES = (b"", b"{", b"}", b"[]", b"null", b"[1,2", b'{"a":}', b'{"prompt":"\xff\xfe"}', b"\x00" * 9,
          b'{"prompt":1e999,"input":1e999,"messages":1e999,"content":1e999,"tokens":1e999,'
          b'"input_prefix":1e999,"session_id":1e999}',
          b'{"prompt":{"a":1},"input":7,"messages":"x","content":{"a":1},"tokens":"x",'
          b'"input_prefix":[[]],"session_id":[]}', b"[" * 5000, b'{"a":' * 5000)
TARGETS = ("/", "/v1", "//", "/%", "/%zz", "/%00", "/v1/sessions/%2", "/..%2f..%2fetc/passwd",
           "/../../etc/passwd", "/?%zz", "/v1/models/%ff%fe", "/v1/sessions/none/fork",
           "/v1/channels/none/chats/none", "/" + "a/" * 2000, "/" + "x" * 9000)
METHODS = ("PUT", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "G\x00T", "A" * 500)


def no_http(dice):
    """Bytes on a connection of their own that no server should take for a request."""
    head = b"POST /completion HTTP/1.1\r\nHost: localhost\r\n"
    length = dice.choice((b"-1", b"1e3", b"0x10", b"9" * 30, b"3\r\nContent-Length: 4", b"3, 3", b""))
    return dice.choice((
        dice.randbytes(dice.randrange(1, 600)) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(200) + b"\r\n\r\n",
        b"GET / HTTP/%d.%d\r\n\r\n" % (dice.randrange(2, 10), dice.randrange(10)),
        b"GET /health HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        head + b"Content-Length: " + length + b"\r\n\r\n{}",
        head + b"Transfer-Encoding: chunked\r\n\r\n" + dice.choice((b"zz", b"-1", b"f" * 20)) + b"\r\n",
        head + b"Transfer-Encoding: " + dice.choice((b"gzip", b"chunked, gzip", b",")) + b"\r\n\r\n",
        head + b"X: " + b"y" * 70_000))


class AttackTest(serve_test.ServeTest):
    def send_raw(self, server, dice):
        """The status of the answer; None where there is none but the end."""
        with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
            try:
                connection.sendall(no_http(dice))
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(4096)
            except OSError as error:
                # The server may have closed it before all was sent, or before the shutdown.
                if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                    raise
                return None
        return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else None

    def send_many(self, server, seed, n):
        """`n` malformed requests; the statuses of their answers."""
        dice = random.Random(seed)
        statuses = set()
        connection = None
        for _ in range(n):
            kind = dice.randrange(4)
            if kind == 0:
                statuses.add(self.send_raw(server, dice))
                continue
            method, target, body = "POST", dice.choice(POSTS), dice.choice(BODIES)
            if kind == 1:
                method, target, body = "GET", dice.choice(TARGETS), b""
            elif kind == 2:
                method, target = dice.choice(METHODS), dice.choice(POSTS + ("/v1/models", "/x"))
            connection = connection or socket.create_connection(("127.0.0.1", server.port),
                                                                TIMEOUT_S)
            try:
                connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n"
                                   f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                response = http.client.HTTPResponse(connection, method=method)
                response.begin()
                response.read()
            except (http.client.HTTPException, ConnectionError):
                connection.close()
                connection = None
                continue
            statuses.add(response.status)
            self.assertIn(response.status, (400, 401, 403, 404, 405, 413, 415, 431, 501)
                          if target not in ("/", "/v1/sessions") else (200, 400, 405),
                          (method, target, body[:100]))
            if response.will_close:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()
        return statuses

    def test_13000_malformed_requests_leave_nothing_behind(self):
        with self.serve() as server:
            server.ready()
            before = server.complete("The loom", n=12)
            self.assertEqual(before.status, 200, before)
            self.send_many(server, 0, 500)  # what is made once is made now
            n_descriptors = descriptor_count(server.process)
            resident_kb = resident_kib(server.process)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                statuses = set.union(*pool.map(lambda seed: self.send_many(server, seed, 1625),
                                               range(1, 9)))
            self.assertLessEqual({400, 404, 405, 431}, statuses)
            server.until(lambda: descriptor_count(server.process) <= n_descriptors + 8,
                         "connections stay open")
            self.assertLess(resident_kib(server.process) - resident_kb, 64 << 10)
            after = server.complete("The loom", n=12)
            self.assertEqual(after.json["content"], before.json["content"])
            self.assertEqual(server.end(), 0, server.log[-2000:])

    def test_silent_connections_leave_room_for_requests_and_files(self):
        """More of them than connections may be open, and those are capped by the descriptors."""
        limited = self.dir / "limited"
        limited.write_text(f'#!/bin/sh\nulimit -n 100\nexec {shlex.quote(weft_process.WEFT)} "$@"\n')
        limited.chmod(0o700)
        with mock.patch("weft_process.WEFT", str(limited)), contextlib.ExitStack() as silent, \
                self.serve("--state-dir", self.dir / "few") as server:
            server.ready()
            self.assertRegex(server.log, "at most 64 of 1024 connections are served")
            for _ in range(200):
                silent.enter_context(socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S))
            for name in ("one", "two", "three"):
                answer = server.ask("POST", "/completion", {"prompt": "The loom", "n_predict": 4},
                                    x_session_id=name)
                self.assertEqual(answer.status, 200, answer)
                self.assertIsNone(answer.headers["X-Weft-Warning"])
                answer = server.ask("POST", f"/v1/sessions/{name}/park")
                self.assertEqual(answer.status, 200, answer)
            self.assertLessEqual(descriptor_count(server.process), 100)
            self.assertEqual(server.ask("GET", "/health").json, {"status": "ok"})
            self.assertEqual(server.end(), 0, server.log[-2000:])

    def test_what_large_requests_took_is_given_back(self):
        """One after the other, on threads of which each could keep what it freed."""
        with self.serve("--max-body", "8M") as server:
            server.ready()
            self.assertEqual(server.complete("The loom", n=2).status, 200)
            resident_kb = resident_kib(server.process)
            body = json.dumps({"prompt": "x", "stop": [[]] * 600_000})
            for _ in range(8):
                self.assertEqual(server.ask("POST", "/completion", body).status, 400)
            self.assertLess(resident_kib(server.process) - resident_kb, 32 << 10)

    def test_a_form_that_takes_too_much_is_the_requests_fault(self):
        """When it is compiled or while it is followed: clients try 409 and 429 again."""
        options = [{"properties": {f"k{j}": {"type": "integer"}}, "required": [f"k{j}"]}
                   for j in range(8)]
        pattern = ("^(?:(?:a|b|aa|bb|ab|ba|[a-z]{1,40}|[a-f]{2,60}|.{0,70})*x?.{0,300}[a-z])"
                   "{1,40}$")
        forms = ({"allOf": [{"anyOf": options}] * 12}, {"type": "string", "pattern": pattern})
        user = [{"role": "user", "content": "Weave"}]
        with self.serve() as server:
            model = server.ready().ask("GET", "/v1/models").json["data"][0]["id"]
            for form in forms:
                named = {"name": "form", "schema": form}
                tool = {"name": "t", "input_schema": {"type": "object", "properties": {"v": form},
                                                      "required": ["v"]}}
                asked = {"type": "json_schema", "json_schema": named}
                statuses = []
                for path, body in (
                        ("/completion", {"prompt": "x", "n_predict": 60, "json_schema": form}),
                        ("/v1/completions", {"prompt": "x", "response_format": asked}),
                        ("/v1/chat/completions", {"messages": user, "response_format": asked}),
                        ("/v1/responses", {"input": "x", "text": {"format": {
                            "type": "json_schema", **named}}}),
                        ("/v1/messages", {"messages": user, "max_tokens": 60, "tools": [tool],
                                          "tool_choice": {"type": "any"}}),
                        ("/api/chat", {"model": model, "messages": user, "stream": False,
                                       "format": form})):
                    answer = server.ask("POST", path, {"temperature": 0, "max_tokens": 60, **body})
                    statuses.append(answer.status)
                    if answer.status != 200:
                        self.assertEqual(answer.status, 400, f"{path}: {answer}")
                        self.assertIn(b"make it simpler", answer.body, path)
                self.assertIn(400, statuses)
            self.assertEqual(server.end(), 0, server.log[-2000:])

    def test_hostile_bodies_and_readers_take_at_most_twice_their_budget(self):
        budget = 96 << 20
        keys = self.dir / "attack.keys"
        keys.write_text("evil\nwicked\ngood\n")
        keys.chmod(0o600)
        with self.serve("--api-key-file", keys, "--request-memory", budget,
                        "--max-body", "8M") as server:
            server.ready()
            good = {"x_api_key": "good"}
            ask = ("/completion", {"prompt": "x", "n_predict": 2})
            self.assertEqual(server.ask("POST", *ask, **good).status, 200)
            base_kb = resident_kib(server.process)
            many = json.dumps({"prompt": "x", "stop": [[]] * 600_000}).encode()
            deep = b'{"prompt":' + b"[" * 60 + b"{}," * 600_000 + b"{}" + b"]" * 60 + b"}"
            long = json.dumps({"messages": [{"role": "user", "content": "x" * 6_000_000}]}).encode()
            bytewise = json.dumps({"content": "\x01" * 160_000, "with_pieces": True}).encode()
            texts = json.dumps({"prompt": "\x01" * 160_000, "return_token_strs": True}).encode()
            tokens = json.dumps({"tokens": [300] * 500_000}).encode()
            attacks = [("/completion", many), ("/completion", deep), ("/tokenize", bytewise),
                       ("/v1/chat/completions", long), ("/tokenize", texts),
                       ("/detokenize", tokens)]

            def attack(i, key):
                path, body = attacks[i % len(attacks)]
                with socket.socket() as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    client.settimeout(TIMEOUT_S)
                    client.connect(("127.0.0.1", server.port))
                    try:
                        client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}"
                                       f"\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                        status = int(client.recv(64).split()[1])
                    except (ConnectionResetError, BrokenPipeError):
                        return None
                    # And does not read on.
                    time.sleep(1 if status == 200 else 0)
                    return status

            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                alone = [pool.submit(attack, i, "evil") for i in range(64)]
                for _ in range(10):
                    answer = server.ask("POST", *ask, **good)
                    self.assertEqual(answer.status, 200, "one key leaves others their share")
                both = [pool.submit(attack, i, ("evil", "wicked")[i % 2]) for i in range(128)]
                for _ in range(10):
                    self.assertIn(server.ask("POST", *ask, **good).status, (200, 503))
                    self.assertEqual(server.ask("GET", "/health").status, 200)
                statuses = [attacked.result() for attacked in alone + both]
            self.assertLessEqual(set(statuses) - {None}, {200, 400, 413, 429, 503})
            self.assertTrue({429, 503} & set(statuses), set(statuses))
            peak_kb = peak_kib(server.process)
            print(f"resident {base_kb} KiB, at most {peak_kb} KiB: "
                  f"{(peak_kb - base_kb) * 1024 / budget:.2f} of the budget; "
                  f"{ {s: statuses.count(s) for s in set(statuses)} }")
            self.assertLess((peak_kb - base_kb) << 10, 2 * budget)
            server.until(lambda: server.ask("POST", *ask, **good).status == 200, "not free again")


if __name__ == "__main__":
    unittest.main()
