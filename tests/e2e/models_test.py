#!/usr/bin/env python3
"""weft serve with several models: who answers, what is in memory, and what a swap keeps."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import serve_test
from weft_process import TIMEOUT_S, make_model, peak_kib, weft

# Room for one of the tiny models, which need about 100 MB to be loaded, and for two.
ONE, TWO = "160M", "240M"
# Tokens of an answer that does not fit between the server and a client that reads nothing.
LONG = 2500


def lines_of(stream, server):
    """The lines of a stream that has not ended, for as long as a test may wait for one of them."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        line = stream.readline()
        assert line, f"the stream ended: {server.log}"
        assert time.monotonic() < deadline, f"the wanted line does not come: {server.log}"
        yield line.decode()


class Server(serve_test.Server):
    """A weft serve with these arguments, which saves its sessions when the with block ends."""

    def __init__(self, *args, **more):
        super().__init__(None, *args, **more)

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TIMEOUT_S)
        super().__exit__(*error)

    def ask(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        self.headers = response.headers
        connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text.decode()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, **body):
        return self.ask("POST", path, body)

    def states(self):
        return {model["id"]: model["status"]["value"] for model in self.get("/models")[1]["data"]}

    def wait_for(self, **states):
        deadline = time.monotonic() + TIMEOUT_S
        while any(self.states()[name] != state for name, state in states.items()):
            assert time.monotonic() < deadline, (states, self.states(), self.log)
            time.sleep(0.01)

    def wait_for_waiting(self, model, n):
        wanted = f'weft_model_waiting_requests{{model="{model}"}} {n}'
        self.until(lambda: wanted in self.get("/metrics")[1], f"{wanted} does not come")

    @contextlib.contextmanager
    def busy(self, model):
        """While the model writes an answer, which must then come in full: its client has begun to
        read it, and reads on only at the end."""
        body = {"model": model, "prompt": "x", "n_predict": LONG, "n_probs": 20,
                "ignore_eos": True, "stream": True}
        with self.send("/completion", body) as connection:
            stream = http.client.HTTPResponse(connection)
            stream.begin()
            assert stream.status == 200, (stream.status, stream.read(), self.log)
            next(line for line in lines_of(stream, self) if line.startswith("data: "))
            yield
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            last = stream.read().splitlines()[-2]
            assert json.loads(last[6:])["tokens_predicted"] == LONG, (last, self.log)

    def complete(self, model, prompt, **more):
        status, answer = self.post("/v1/completions", model=model, prompt=prompt, temperature=0,
                                   max_tokens=12, logprobs=3, **more)
        assert status == 200, (status, answer, self.log)
        return answer


def words(answer):
    """What the model said, with the exact logits of it."""
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def say(server, api, model):
    """The same short question through one of the APIs."""
    question = [{"role": "user", "content": "Tell me a story of the sea."}]
    if api == "openai":
        status, answer = server.post("/v1/chat/completions", model=model, messages=question,
                                     temperature=0, max_tokens=12)
        return status == 200 and (answer["model"], answer["choices"][0]["message"]["content"])
    if api == "anthropic":
        status, answer = server.post("/v1/messages", model=model, messages=question,
                                     temperature=0, max_tokens=12)
        return status == 200 and (answer["model"],
                                  "".join(part["text"] for part in answer["content"]))
    if api == "ollama":
        status, answer = server.post("/api/chat", model=model, messages=question, stream=False,
                                     options={"temperature": 0, "num_predict": 12})
        return status == 200 and (answer["model"], answer["message"]["content"])
    status, answer = server.post("/completion", model=model, prompt="Tell me a story of the sea.",
                                 temperature=0, n_predict=12)
    return status == 200 and (answer["model"], answer["content"])


class ModelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft_models_")
        cls.path = pathlib.Path(cls.folder.name)
        cls.a = make_model(cls.path / "a.gguf", "tiny-llama", "F32", "--seed", 1)
        cls.b = make_model(cls.path / "b.gguf", "tiny-llama", "Q8_0", "--seed", 2)
        cls.c = make_model(cls.path / "c.gguf", "tiny-llama", "F16", "--seed", 3)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def models_file(self, text):
        path = self.path / f"{self.id()}.toml"
        path.write_text(text)
        return path

    def test_each_api_chooses_by_name_and_every_answer_is_as_alone(self):
        apis = ["openai", "anthropic", "ollama", "llama"]
        alone = {}
        for name, path in (("a", self.a), ("b", self.b), ("c", self.c)):
            with Server("-m", path, "--alias", name) as server:
                alone[name] = {api: say(server, api, name)[1] for api in apis}
                alone[name]["words"] = words(server.complete(name, "The old man and the sea"))
        self.assertEqual(len({alone[name]["openai"] for name in alone}), 3)
        with Server("-m", self.a, "-m", self.b, "-m", self.c, "--memory", TWO) as server:
            for _ in range(3):
                for api in apis:
                    for name in alone:
                        self.assertEqual(say(server, api, name), (name, alone[name][api]))
            n_before = server.log.count("loaded ")
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                asked = [(name, pool.submit(server.complete, name, "The old man and the sea"))
                         for name in ["a", "b", "c"] * 6]
                for name, answer in asked:
                    self.assertEqual(words(answer.result()), alone[name]["words"])
            # Models that are wanted do not displace each other before they have answered.
            self.assertLessEqual(server.log.count("loaded ") - n_before, len(asked))

    def test_lists_tell_which_are_loaded(self):
        with Server("-m", self.a, "-m", self.b, "-m", self.c, "--memory", TWO) as server:
            self.assertEqual(server.states(), {"a": "loaded", "b": "loaded", "c": "unloaded"})
            self.assertEqual(server.get("/health"), (200, {"status": "ok"}))
            tags = [model["name"] for model in server.get("/api/tags")[1]["models"]]
            self.assertEqual(tags, ["a:latest", "b:latest", "c:latest"])
            running = [model["name"] for model in server.get("/api/ps")[1]["models"]]
            self.assertEqual(running, ["a:latest", "b:latest"])
            # Without a name it is the first; with one, its own.
            self.assertEqual(server.get("/props")[1]["model_alias"], "a")
            self.assertEqual(server.get("/props?model=b")[1]["model_alias"], "b")
            self.assertEqual(server.get("/v1/models/c")[1]["root"], "c.gguf")
            self.assertEqual(server.get("/v1/models/d")[0], 404)
            status, answer = server.post("/v1/chat/completions", model="gpt-5",
                                         messages=[{"role": "user", "content": "Hi"}])
            self.assertEqual(status, 404)
            self.assertEqual(answer["error"]["code"], "model_not_found")
            self.assertIn("there are a, b, c", answer["error"]["message"])
            # Looking at what runs does not load anything.
            self.assertEqual(server.get("/slots?model=c")[0], 503)
            self.assertEqual(server.states()["c"], "unloaded")
            metrics = server.get("/metrics")[1]
            self.assertIn('weft_model_loaded{model="c"} 0', metrics)
            self.assertIn('weft_turns_running{model="b"} 0', metrics)

    def test_a_file_names_models_and_gives_them_flags(self):
        path = self.models_file(f"""
[haiku]                      # for titles
model = "{self.a}"
aliases = ["claude-haiku-4-5", "small"]
ctx = 96
pinned = true
[large]
model = "{self.b}"
""")
        with Server("--models", path, "--memory", ONE) as server:
            self.assertEqual(server.states(), {"haiku": "loaded", "large": "unloaded"})
            self.assertEqual(say(server, "anthropic", "claude-haiku-4-5")[0], "haiku")
            self.assertEqual(server.get("/props?model=small")[1]
                             ["default_generation_settings"]["n_ctx"], 96)
            # The pinned one stays, so there is no room; it says so and hurts nobody.
            status, answer = server.post("/v1/completions", model="large", prompt="x")
            self.assertEqual(status, 503)
            self.assertIn("next to the models that stay", answer["error"]["message"])
            self.assertEqual(server.headers["Retry-After"], "5")
            self.assertEqual(say(server, "openai", "haiku")[0], "haiku")
        wrong = {"ctx = 0.5": "ctx", "colour = 3": "colour", "pinned": 'is not followed by ='}
        for line, said in wrong.items():
            path = self.models_file(f'[x]\nmodel = "{self.a}"\n{line}\n')
            result = weft("serve", "--models", path, "--port", 0)
            self.assertNotEqual(result.code, 0)
            self.assertIn(said, result.err)

    def test_a_folder_with_a_broken_file(self):
        folder = self.path / "folder"
        folder.mkdir()
        for name, path in (("one", self.a), ("two", self.b)):
            os.link(path, folder / f"{name}.gguf")
        (folder / "torn.gguf").write_bytes(self.a.read_bytes()[:5000])
        with Server("--models-dir", folder, "--memory", TWO) as server:
            self.assertEqual(set(server.states()), {"one", "two", "torn"})
            status, answer = server.post("/v1/completions", model="torn", prompt="x")
            self.assertEqual(status, 503)
            self.assertIn("torn cannot be loaded", answer["error"]["message"])
            self.assertEqual(say(server, "openai", "two")[0], "two")

    def test_nothing_is_computed_again_after_a_swap(self):
        # Over 1,000 tokens: shorter prompts are not kept.
        story = "Once upon a time there was a fisherman who lived by the sea. " * 36
        for flags in ([], ["--state-dir", self.path / "state"]):
            with Server("-m", self.a, "-m", self.b, "--memory", ONE, *flags) as server:
                first = server.complete("a", story)
                server.complete("b", story)
                self.assertEqual(server.states(), {"a": "unloaded", "b": "loaded"})
                again = server.complete("a", story)
                self.assertEqual(words(again), words(first))
                n_prompt = again["usage"]["prompt_tokens"]
                # The last token is computed for its logits.
                self.assertGreaterEqual(cached(again), n_prompt - 1, server.log)

    def test_a_session_goes_and_comes_back(self):
        with Server("-m", self.a, "-m", self.b, "--memory", ONE) as server:
            chat = dict(temperature=0, max_tokens=8, session_id="kitchen")
            messages = [{"role": "user", "content": "Remember the number seven. " * 20}]
            _, answer = server.post("/v1/chat/completions", model="a", messages=messages, **chat)
            messages += [answer["choices"][0]["message"], {"role": "user", "content": "Which?"}]
            server.complete("b", "x")
            _, after = server.post("/v1/chat/completions", model="a", messages=messages, **chat)
            computed = after["usage"]["prompt_tokens"] - cached(after)
            self.assertLess(computed, 40)
            listed = server.get("/v1/sessions?model=a")[1]
            self.assertIn("kitchen", json.dumps(listed))

    def test_memory_stays_within_the_budget(self):
        with Server("-m", self.a, "--memory", ONE, "-m", self.b, "-m", self.c) as server:
            prompt = "the quick brown fox jumps over the lazy dog " * 30
            for round_ in range(4):
                for name in "abc":
                    for i in range(3):
                        server.complete(name, f"{round_} {i} {prompt}")
                    loaded = [n for n, state in server.states().items() if state == "loaded"]
                    self.assertEqual(loaded, [name])
            self.assertLess(peak_kib(server.process), 160 << 10)

    def test_four_models_alternate_where_two_fit(self):
        """Writers and an encoder, short prompts and ones that are worth keeping, two at a time."""
        encoder = make_model(self.path / "d.gguf", "tiny-bert")
        # The last is over 1,000 tokens long: shorter prompts are not kept.
        prompts = ["The old man and the sea", "Bread and salt",
                   "Once upon a time there was a fisherman who lived by the sea. " * 36]

        def ask(server, name, number):
            if name != "d":
                return server.complete(name, prompts[number])
            status, answer = server.post("/v1/embeddings", model=name, input=prompts[number % 2])
            self.assertEqual(status, 200, (answer, server.log))
            return answer

        done = set()

        def ask_again(server, which):
            is_again = which in done
            answer = ask(server, *which)
            done.add(which)
            return which, is_again, answer

        def said(answer):
            return answer["data"] if "data" in answer else words(answer)

        alone = {}
        for name, path in (("a", self.a), ("b", self.b), ("c", self.c), ("d", encoder)):
            with Server("-m", path, "--alias", name) as server:
                alone.update({(name, i): said(ask(server, name, i)) for i in range(len(prompts))})
        order = list(alone) * 3
        random.Random(1).shuffle(order)
        flags = [flag for path in (self.a, self.b, self.c, encoder) for flag in ("-m", path)]
        with Server(*flags, "--memory", TWO) as server:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                answers = list(pool.map(lambda which: ask_again(server, which), order))
            for which, is_again, answer in answers:
                self.assertEqual(said(answer), alone[which], which)
                if is_again and which[0] != "d" and which[1] == 2:
                    self.assertEqual(cached(answer), answer["usage"]["prompt_tokens"] - 1, which)
            self.assertLess(peak_kib(server.process), 240 << 10)
            self.assertGreater(server.log.count("loaded "), 8, server.log)

    def test_aliases_name_one_model_each(self):
        flags = ["-m", self.a, "-m", self.b, "--memory", TWO]
        with Server(*flags, "--alias", f"small=a,haiku=a,large={self.b}") as server:
            for alias, name in (("small", "a"), ("haiku", "a"), ("large", "b")):
                self.assertEqual(say(server, "openai", alias)[1], say(server, "openai", name)[1])
            listed = {model["id"]: model["aliases"] for model in server.get("/v1/models")[1]["data"]}
            self.assertEqual(set(listed), {"a", "b"})
            self.assertLess({"small", "haiku"}, set(listed["a"]))
        for alias in ("x", "x=c", "=a"):
            result = weft("serve", *flags, "--port", 0, "--alias", alias)
            self.assertEqual(result.code, 1, result)
            self.assertIn(f"--alias NAME=MODEL, such as --alias haiku=a, not {alias}", result.err)
        # Another model's alias does not make up for a wrong model.
        toml = self.path / "aliased.toml"
        toml.write_text(f'[a]\nmodel = "{self.a}"\naliases = ["haiku"]\n[b]\nmodel = "{self.b}"\n')
        result = weft("serve", "--models", toml, "--port", 0, "--alias", "haiku=c")
        self.assertEqual(result.code, 1, result)
        self.assertIn("not haiku=c; there are a, b", result.err)

    def test_idleness_and_keep_alive_unload(self):
        with Server("-m", self.a, "-m", self.b, "--memory", TWO, "--idle-unload", "1") as server:
            server.wait_for(a="unloaded", b="unloaded")
            self.assertEqual(server.post("/api/generate", model="a", keep_alive="5m")[0], 200)
            time.sleep(1.5)
            self.assertEqual(server.states()["a"], "loaded")
            status, answer = server.post("/api/generate", model="a", keep_alive=0, stream=False)
            self.assertEqual((status, answer["done_reason"]), (200, "unload"))
            server.wait_for(a="unloaded")

    def test_a_request_in_flight_is_not_cut_by_an_unload(self):
        with Server("-m", self.a, "-m", self.b, "--memory", ONE) as server:
            with server.busy("a"):
                self.assertEqual(server.post("/models/unload", model="a"),
                                 (200, {"success": True}))
            server.wait_for(a="unloaded")

    def test_llama_servers_routes_load_and_unload(self):
        with Server("-m", self.a, "-m", self.b, "--memory", TWO) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
            connection.request("GET", "/models/sse")
            stream = connection.getresponse()
            self.assertEqual(stream.readline(), b": open\n")
            self.assertEqual(server.post("/models/unload", model="b")[0], 200)
            server.wait_for(b="unloaded")
            self.assertEqual(server.post("/models/unload", model="b")[0], 400)
            self.assertEqual(server.post("/models/load", model="b"), (200, {"success": True}))
            server.wait_for(b="loaded")
            self.assertEqual(server.post("/models/load", model="b")[0], 400)
            self.assertEqual(server.post("/models/load", model="x")[0], 404)
            seen = []
            for line in lines_of(stream, server):
                if not line.startswith("data: "):
                    continue
                event = json.loads(line[6:])
                self.assertEqual((event["model"], event["event"]), ("b", "model_status"))
                if seen[-1:] != [event["data"]["status"]]:
                    seen.append(event["data"]["status"])
                if seen[-1] == "loaded":
                    break
            self.assertEqual(seen, ["unloading", "unloaded", "loading", "loaded"])
            connection.close()

    def test_a_crash_in_a_swap_loses_nothing_that_was_answered(self):
        state = self.path / "crash"
        args = ["-m", self.a, "-m", self.b, "--memory", ONE, "--state-dir", state, "--durable"]
        messages = [{"role": "user", "content": "Remember the number seven. " * 20}]
        chat = dict(temperature=0, max_tokens=8, session_id="kitchen")
        for delay in (0, 0.01, 0.03, 0.1):
            with Server(*args) as server:
                _, answer = server.post("/v1/chat/completions", model="a", messages=messages,
                                        **chat)
                messages += [{"role": "assistant",
                              "content": answer["choices"][0]["message"]["content"]},
                             {"role": "user", "content": "And then?"}]
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    swap = pool.submit(server.post, "/v1/completions", model="b", prompt="x")
                    time.sleep(delay)
                    server.process.send_signal(signal.SIGKILL)
                    with self.assertRaises(Exception):
                        swap.result()
                        raise RuntimeError("the swap was over")
            with Server(*args) as server:
                listed = server.get("/v1/sessions/kitchen?model=a")
                self.assertEqual(listed[0], 200, listed)
                n_before = answer["usage"]["total_tokens"] - 1
                self.assertGreaterEqual(listed[1]["tokens"], n_before, listed)

    def test_what_fits_one_model_alone_is_refused(self):
        result = weft("serve", "-m", self.a, "-m", self.b, "--port", 0, "--mmproj", self.c)
        self.assertNotEqual(result.code, 0)
        self.assertIn("--mmproj", result.err)
        with Server("-m", "box", "-m", self.a) as server:
            self.assertEqual(server.states(), {"box": "loaded", "a": "loaded"})
        result = weft("serve", "-m", self.a, "-m", self.a, "--port", 0)
        self.assertIn("two models are called a", result.err)


if __name__ == "__main__":
    unittest.main()
