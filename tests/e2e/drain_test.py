#!/usr/bin/env python3
"""POST /drain takes a server out of service under load, and POST /undrain takes it back."""

import concurrent.futures
import json
import threading
import unittest

from serve_test import ServeTest, Server
from weft_process import TIMEOUT_S

N_STREAMS = 32
REFUSED = "takes no new requests"


class DrainTest(ServeTest):
    def keys(self, *names):
        path = self.dir / ("keys-" + "-".join(names))
        path.write_text("".join(f"{name}\n" for name in names))
        return path

    def state(self):
        return "--state-dir", self.dir / self.id()

    def stream(self, server, name, began, go_on):
        """The text of a stream that is read on only once it may end."""
        body = {"prompt": f"The weft of {name} travels", "max_tokens": 60, "temperature": 0,
                "stream": True, "ignore_eos": True, "session_id": name}
        with server.open("POST", "/v1/completions", body) as answer:
            assert answer.status == 200, answer.read()
            first = answer.readline()
            began()
            assert go_on.wait(TIMEOUT_S)
            rest = answer.read().decode()
        events = [line[6:] for line in (first.decode() + rest).splitlines() if line]
        assert events[-1] == "[DONE]", rest
        chunks = [json.loads(event) for event in events[:-1]]
        assert not any("error" in chunk for chunk in chunks), rest
        assert chunks[-1]["choices"][0]["finish_reason"] == "length", rest
        return "".join(chunk["choices"][0]["text"] for chunk in chunks)

    def streams(self, server, prefix, meanwhile):
        """The texts of streams at once; `meanwhile` is called when all have begun."""
        left = threading.Semaphore(0)
        go_on = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(N_STREAMS) as pool:
            texts = [pool.submit(self.stream, server, f"{prefix}{i}", left.release, go_on)
                     for i in range(N_STREAMS)]
            try:
                for _ in range(N_STREAMS):
                    assert left.acquire(timeout=TIMEOUT_S), server.log
                meanwhile()
            finally:
                go_on.set()
            return [text.result() for text in texts]

    def sessions(self, server):
        return server.ask("GET", "/v1/sessions").json["data"]

    @staticmethod
    def rests(server):
        state = server.ask("POST", "/drain").json
        return (state["turns"], state["sessions_in_memory"]) == (0, 0)

    def test_no_stream_fails_and_sessions_go_to_disk(self):
        with self.serve("--max-running", N_STREAMS + 1, *self.ROOM, *self.state()) as server:
            server.ready()

            def drain():
                with server.open("POST", "/completion", self.ENDLESS) as endless:
                    self.assertIn(b"data:", endless.readline())
                    answer = server.ask("POST", "/drain")
                    self.assertEqual(answer.status, 200, answer)
                    self.assertTrue(answer.json["drained"])
                    self.assertGreater(answer.json["turns"], 0)
                    for _ in range(200):
                        self.assertNotIn(b'"error"', endless.readline())
                health = server.ask("GET", "/health")
                self.assertEqual(health.status, 503, health)
                self.assertIn(REFUSED, health.json["error"]["message"])
                refused = server.complete("A new one")
                self.assertEqual(refused.status, 503, refused)
                self.assertIn("POST /undrain", refused.json["error"]["message"])

            drained = self.streams(server, "a", drain)
            self.assertEqual(len(drained), N_STREAMS)
            # What ends later is parked, too, without anybody asking.
            server.until(lambda: all(one["state"] == "parked" for one in self.sessions(server)),
                         "a session stays in memory")
            self.assertEqual(len(self.sessions(server)), N_STREAMS)
            server.until(lambda: self.rests(server), "a turn or a session stays")

            back = server.ask("POST", "/undrain")
            self.assertEqual((back.status, back.json["drained"]), (200, False), back)
            self.assertEqual(server.ask("GET", "/health").json, {"status": "ok"})
            texts = self.streams(server, "a", lambda: None)
            self.assertEqual(len(texts), N_STREAMS)
            self.assertEqual(server.end(), 0, server.log)
        with self.serve("--max-running", N_STREAMS) as server:
            server.ready()
            self.assertEqual(self.streams(server, "a", lambda: None), drained)

    def test_a_request_of_several_turns_goes_on(self):
        """Prompts of one request are submitted a few at a time; the last ones after the drain."""
        with self.serve("--max-running", 1) as server:
            server.ready()
            body = {"prompt": [f"Prompt {i}" for i in range(24)], "max_tokens": 40, "stream": True,
                    "temperature": 0, "ignore_eos": True}
            with server.open("POST", "/v1/completions", body) as answer:
                self.assertIn(b"data:", answer.readline())
                self.assertEqual(server.ask("POST", "/drain").status, 200)
                rest = answer.read().decode()
            self.assertNotIn('"error"', rest)
            self.assertTrue(rest.rstrip().endswith("[DONE]"), rest[-300:])
            self.assertEqual(rest.count('"finish_reason":"length"'), 24)

    def test_only_the_operator_drains(self):
        flags = ("--api-key-file", self.keys("one", "two"), "--metrics-key-file", self.keys("op"))
        with self.serve(*flags) as server:
            server.ready()
            for path in ("/drain", "/undrain"):
                self.assertEqual(server.ask("POST", path).status, 401)
                self.assertEqual(server.ask("POST", path, x_api_key="one").status, 403)
            self.assertEqual(server.ask("GET", "/health").status, 200)
            self.assertEqual(server.ask("POST", "/drain", x_api_key="op").status, 200)
            self.assertEqual(server.ask("GET", "/health").status, 503)
            self.assertEqual(server.ask("POST", "/undrain", x_api_key="op").status, 200)
            self.assertEqual(server.ask("GET", "/health").status, 200)

    def test_several_models(self):
        other = self.dir / "other.gguf"
        other.write_bytes(self.model.read_bytes())
        with Server(None, "-m", self.model, "-m", other, *self.state()) as server:
            server.ready()
            names = [model["id"] for model in server.ask("GET", "/v1/models").json["data"]]
            ask = {"model": names[0], "session_id": "kept", "prompt": "The loom", "max_tokens": 4}
            self.assertEqual(server.ask("POST", "/v1/completions", ask).status, 200)
            server.until(lambda: self.rests(server), "a turn or a session stays")
            self.assertEqual(server.ask("GET", "/health").status, 503)
            for name in names:
                refused = server.ask("POST", "/v1/completions", {**ask, "model": name})
                self.assertEqual(refused.status, 503, refused)
                self.assertIn(REFUSED, refused.json["error"]["message"])
            self.assertEqual(server.ask("POST", "/undrain").status, 200)
            self.assertEqual(server.ask("POST", "/v1/completions", ask).status, 200)


if __name__ == "__main__":
    unittest.main()
