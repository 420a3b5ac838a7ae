#!/usr/bin/env python3
"""What clients of llama-server's router rely on: who waits for whom when models do not all fit,
and the routes that add, read again and delete models."""

import concurrent.futures
import http.client
import json
import pathlib
import tempfile
import time
import unittest

from fake_hub import FakeHub
from models_test import ONE, TWO, Server, lines_of
from weft_process import TIMEOUT_S, make_model

REPO = "weaver/tiny-GGUF"


class Events:
    """Those of /models/sse from now on."""

    def __init__(self, server):
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        self.connection.request("GET", "/models/sse")
        self.stream = self.connection.getresponse()
        assert self.stream.readline() == b": open\n"

    def until(self, wanted):
        """All events up to the wanted kind."""
        events = []
        for line in lines_of(self.stream, self.server):
            if not line.startswith("data: "):
                continue
            events.append(json.loads(line[6:]))
            if events[-1]["event"] == wanted:
                self.connection.close()
                return events


class RouterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft_router_")
        cls.path = pathlib.Path(cls.folder.name)
        cls.models = []
        for seed, name in enumerate("abc"):
            path = make_model(cls.path / f"{name}.gguf", "tiny-llama", "F32", "--seed", seed)
            cls.models += ["-m", path]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def tokenize(self, server, model):
        return server.post("/tokenize", model=model, content="hello world")

    def test_a_stream_comes_from_the_model_that_is_named(self):
        with Server(*self.models, "--memory", ONE) as server:
            for model, wanted in (("b", 200), ("nobody/nothing", 404)):
                status, text = server.post("/v1/chat/completions", model=model, stream=True,
                                           max_tokens=16,
                                           messages=[{"role": "user", "content": "hello"}])
                self.assertEqual(status, wanted)
                if wanted != 200:
                    self.assertIn("error", text)
                    continue
                events = [json.loads(line[6:]) for line in text.splitlines()
                          if line.startswith("data: {")]
                said = [event["choices"][0] for event in events if event["choices"]]
                self.assertGreater(len("".join(c["delta"].get("content") or "" for c in said)), 0)
                self.assertIn(said[-1]["finish_reason"], ("stop", "length"))

    def test_the_one_used_least_recently_makes_room(self):
        with Server(*self.models, "--memory", TWO) as server:
            server.wait_for(a="loaded", b="loaded")
            self.assertEqual(server.post("/tokenize", model="a", content="x")[0], 200)
            self.assertEqual(server.post("/models/load", model="c")[0], 200)
            server.wait_for(a="loaded", b="unloaded", c="loaded")

    def test_a_busy_model_ends_its_answer_before_another_takes_its_place(self):
        with Server(*self.models, "--memory", ONE) as server:
            with server.busy("a"):
                waiting = self.pool.submit(self.tokenize, server, "b")
                server.wait_for_waiting("b", 1)
            self.assertEqual(waiting.result()[0], 200)
            server.wait_for(a="unloaded", b="loaded")

    def test_several_requests_for_one_model_cost_one_other_its_place(self):
        with Server(*self.models, "--memory", TWO) as server:
            with server.busy("a"):
                waiting = [self.pool.submit(self.tokenize, server, "c") for _ in range(3)]
                for one in waiting:
                    self.assertEqual(one.result()[0], 200)
            server.wait_for(a="loaded", b="unloaded", c="loaded")

    def test_a_client_that_leaves_costs_nobody_its_place(self):
        with Server(*self.models, "--memory", ONE) as server:
            with server.busy("a"):
                leaving = http.client.HTTPConnection("127.0.0.1", server.port)
                leaving.request("POST", "/tokenize", json.dumps({"model": "b", "content": "x"}))
                server.wait_for_waiting("b", 1)
                leaving.close()
                server.wait_for_waiting("b", 0)
            server.wait_for(a="loaded", b="unloaded")
            self.assertEqual(server.post("/tokenize", model="a", content="x")[0], 200)
            self.assertNotIn("loaded b", server.log)

    def test_who_comes_first_is_served_first(self):
        with Server(*self.models, "--memory", ONE) as server:
            with server.busy("a"):
                first = self.pool.submit(self.tokenize, server, "b")
                server.wait_for_waiting("b", 1)
                second = self.pool.submit(self.tokenize, server, "c")
                server.wait_for_waiting("c", 1)
            self.assertEqual((first.result()[0], second.result()[0]), (200, 200))
            server.until(lambda: "loaded c" in server.log, "c is not loaded")
            self.assertLess(server.log.index("loaded b"), server.log.index("loaded c"))

    def test_two_that_want_the_same_place_are_both_served(self):
        with Server(*self.models, "--memory", ONE) as server:
            for _ in range(5):
                waiting = [self.pool.submit(self.tokenize, server, model) for model in "abcbca"]
                self.assertEqual([one.result()[0] for one in waiting], [200] * 6)

    def test_a_model_that_is_going_comes_back_for_a_request(self):
        with Server(*self.models, "--memory", ONE) as server:
            for _ in range(5):
                self.assertEqual(server.post("/models/unload", model="a")[0], 200)
                self.assertEqual(self.tokenize(server, "a")[0], 200)

    def test_who_may_not_load_a_model_is_told(self):
        ask = dict(messages=[{"role": "user", "content": "hello"}], max_tokens=4)
        with Server(*self.models, "--memory", ONE, "--no-models-autoload") as server:
            status, answer = server.post("/v1/chat/completions", model="b", **ask)
            self.assertEqual((status, answer["error"]["code"]), (400, "model_not_loaded"))
            self.assertEqual(server.states()["b"], "unloaded")
            self.assertEqual(server.post("/models/load", model="b")[0], 200)
            server.wait_for(b="loaded")
            self.assertEqual(server.post("/v1/chat/completions", model="b", **ask)[0], 200)
            self.assertEqual(server.post("/v1/chat/completions?autoload=true", model="c",
                                         **ask)[0], 200)
        with Server(*self.models, "--memory", ONE) as server:
            self.assertEqual(server.post("/tokenize?autoload=false", model="b", content="x")[0],
                             400)
            self.assertEqual(server.states()["a"], "loaded")

    def test_what_operators_ask_names_a_model_exactly(self):
        with Server(*self.models, "--memory", ONE) as server:
            for query, wanted in (("", 400), ("?model=", 400), ("?model=a:latest", 404)):
                self.assertEqual(server.ask("DELETE", f"/models{query}")[0], wanted, query)
            for path in ("/models/load", "/models/unload"):
                self.assertEqual(server.post(path, model="")[0], 400, path)
                self.assertEqual(server.post(path, model="a:latest")[0], 404, path)
            self.assertEqual(set(server.states()), {"a", "b", "c"})
            # Requests may add the tag.
            self.assertEqual(server.post("/tokenize", model="a:latest", content="x")[0], 200)

    def test_a_key_is_needed(self):
        keys = self.path / "keys"
        keys.write_text("sk-one one\nsk-two two\n")
        with Server(*self.models, "--memory", ONE, "--api-key-file", keys) as server:
            status, answer = server.post("/v1/chat/completions", model="a", messages=[])
            self.assertEqual((status, answer["error"]["type"]), (401, "authentication_error"))
            one = {"Authorization": "Bearer sk-one"}
            self.assertEqual(server.ask("POST", "/models/load", {"model": "b"}, one)[0], 200)
            # Of several keys, none may change what all of them use.
            for method, path in (("POST", "/models/unload"), ("POST", "/models"),
                                 ("DELETE", "/models?model=a"), ("GET", "/models?reload=1")):
                status, answer = server.ask(method, path, {"model": "b"}, one)
                self.assertEqual(status, 403, (method, path, answer))

    def test_the_file_is_read_again(self):
        file = self.path / "models.toml"
        a, b, c = (self.path / f"{name}.gguf" for name in "abc")
        file.write_text(f'[one]\nmodel = "{a}"\n[two]\nmodel = "{b}"\nctx = 128\n')
        with Server("--models", file, "--memory", TWO) as server:
            for model in ("one", "two"):
                self.assertEqual(server.post("/tokenize", model=model, content="x")[0], 200)
            file.write_text(f'[two]\nmodel = "{b}"\nctx = 96\n[three]\nmodel = "{c}"\n')
            self.assertEqual(set(server.states()), {"one", "two"})
            listed = {model["id"] for model in server.get("/models?reload=1")[1]["data"]}
            self.assertEqual(listed, {"two", "three"})
            self.assertEqual(server.post("/tokenize", model="one", content="x")[0], 404)
            self.assertEqual(server.get("/props?model=two")[1]
                             ["default_generation_settings"]["n_ctx"], 96)
            self.assertEqual(server.post("/tokenize", model="three", content="x")[0], 200)
            file.write_text("[two]\ncolour = 3\n")
            status, answer = server.get("/models?reload=1")
            self.assertEqual(status, 400)
            self.assertIn("colour", answer["error"]["message"])
            self.assertEqual(set(server.states()), {"two", "three"})


class DownloadTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft_router_")
        self.addCleanup(self.folder.cleanup)
        home = pathlib.Path(self.folder.name)
        self.a = make_model(home / "a.gguf", "tiny-llama", "F32")
        weights = make_model(home / "q4.gguf", "tiny-llama", "Q4_0").read_bytes()
        self.hub = FakeHub({REPO: {"README.md": b"#", "tiny-Q4_0.gguf": weights}})
        self.addCleanup(self.hub.close)
        self.cache = home / "cache"
        self.env = {"HOME": str(home), "HF_ENDPOINT": self.hub.url,
                    "HF_HUB_CACHE": str(self.cache), "HF_HUB_OFFLINE": ""}

    def files(self):
        return [path for path in self.cache.rglob("*.gguf")]

    def test_a_model_is_downloaded_served_and_deleted(self):
        name = f"{REPO}:Q4_0"
        with Server("-m", self.a, "-m", "box", "--memory", ONE, env=self.env) as server:
            before = server.states()
            events = Events(server)
            self.assertEqual(server.post("/models", model=name), (200, {"success": True}))
            seen = [event["event"] for event in events.until("download_finished")]
            self.assertIn("download_progress", seen, server.log)
            # The download has cost no model its place.
            self.assertEqual({**before, name: "unloaded"}, server.states())
            self.assertEqual(server.post("/tokenize", model=name, content="x")[0], 200)
            self.assertEqual(server.post("/models", model=name)[0], 400)
            self.assertEqual(len(self.files()), 1)

            self.assertEqual(server.ask("DELETE", f"/models?model={name}"),
                             (200, {"success": True}))
            self.assertEqual(set(server.states()), set(before))
            deadline = time.monotonic() + TIMEOUT_S
            while self.files():
                self.assertLess(time.monotonic(), deadline, server.log)
                time.sleep(0.01)
            self.assertEqual(server.post("/tokenize", model=name, content="x")[0], 404)

    def test_a_file_that_nobody_downloaded_is_not_the_servers_to_delete(self):
        name = f"{REPO}:Q4_0"
        # "tiny" is also a part of the name of a model that was downloaded.
        tiny = self.a.rename(self.a.with_name("tiny.gguf"))
        with Server("-m", tiny, "-m", "box", env=self.env) as server:
            events = Events(server)
            self.assertEqual(server.post("/models", model=name)[0], 200)
            events.until("download_finished")
            self.assertEqual(server.ask("DELETE", "/models?model=tiny")[0], 400)
            self.assertTrue(tiny.exists())
            self.assertEqual(len(self.files()), 1)
            self.assertEqual(set(server.states()), {"tiny", "box", name})

    def test_a_file_that_another_name_serves_is_kept(self):
        name = f"{REPO}:Q4_0"
        file = pathlib.Path(self.folder.name, "models.toml")
        file.write_text(f'[a]\nmodel = "{self.a}"\n')
        with Server("--models", file, env=self.env) as server:
            events = Events(server)
            self.assertEqual(server.post("/models", model=name)[0], 200)
            events.until("download_finished")
            file.write_text(f'[a]\nmodel = "{self.a}"\n[same]\nmodel = "{name}"\n')
            self.assertEqual(server.get("/models?reload=1")[0], 200)
            status, answer = server.ask("DELETE", f"/models?model={name}")
            self.assertEqual(status, 400)
            self.assertIn("same", answer["error"]["message"])
            self.assertEqual(set(server.states()), {"a", "same", name})
            self.assertEqual(len(self.files()), 1)

    def test_other_servers_are_not_asked(self):
        with Server("-m", self.a, "-m", "box", env=self.env) as server:
            for name in ("http://127.0.0.1:1/a/b.gguf", "https://internal.example/b.gguf",
                         "ollama:localhost:5000/a/b:c"):
                status, answer = server.post("/models", model=name)
                self.assertEqual(status, 400, name)
                self.assertIn("hf.co, not from", answer["error"]["message"])
            for name in ("/etc/passwd", "../a.gguf", "~/a.gguf", "ollama:../a"):
                self.assertEqual(server.post("/models", model=name)[0], 400, name)
            self.assertEqual(set(server.states()), {"a", "box"})

    def test_a_download_that_fails_says_why(self):
        with Server("-m", self.a, "-m", "box", env=self.env) as server:
            events = Events(server)
            self.assertEqual(server.post("/models", model="weaver/nothing:Q4_0")[0], 200)
            end = events.until("download_failed")[-1]
            self.assertIn("weaver/nothing", end["data"]["reason"])
            self.assertNotIn("weaver/nothing:Q4_0", server.states())


if __name__ == "__main__":
    unittest.main()
