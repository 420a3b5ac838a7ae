#!/usr/bin/env python3
"""LoRA adapters: chosen by flags, by a request's model, by llama-server's field and defaults."""

import concurrent.futures
import pathlib
import subprocess
import tempfile
import unittest

from models_test import Server, cached, words
from weft_process import BACKEND, MAKE_MODEL, TIMEOUT_S, make_model, weft

PROMPT = "The old man and the sea, the ship and the shore"


def make_adapter(base, path, seed, kind="F16", *more):
    subprocess.run([MAKE_MODEL, "--lora-of", str(base), "--rank", "4", "--seed", str(seed),
                    "--type", kind, "--out", str(path), *more],
                   check=True, capture_output=True, timeout=TIMEOUT_S)
    return path


@unittest.skipIf(BACKEND != "cpu", "only the cpu backend computes adapters")
class AdaptersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft_adapters_")
        folder = pathlib.Path(cls.folder.name)
        cls.base = make_model(folder / "base.gguf", "tiny-llama", "Q8_0", "--context", "1024")
        cls.law = make_adapter(cls.base, folder / "law.gguf", 1)
        cls.rhyme = make_adapter(cls.base, folder / "rhyme.gguf", 2, "F32")
        cls.flags = ["-m", cls.base, "--alias", "base", "--lora", f"law={cls.law}"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_weft(self, *flags):
        done = weft("run", "-m", self.base, "--raw", "--temp", "0", "-n", "12", "--json", *flags,
                    "-p", PROMPT)
        self.assertEqual(done.code, 0, done)
        return done.json["tokens"]

    def test_run_uses_all_that_it_is_given(self):
        plain = self.run_weft()
        law = self.run_weft("--lora", f"law={self.law}")
        both = self.run_weft("--lora", f"law={self.law}:1", "--lora", f"rhyme={self.rhyme}:-0.5")
        self.assertEqual(len({tuple(said) for said in (plain, law, both)}), 3)
        self.assertEqual(self.run_weft("--lora", f"law={self.law}:0"), plain)

    def test_wrong_flags_and_files_are_refused_by_name(self):
        other = make_model(pathlib.Path(self.folder.name) / "other.gguf", "tiny-qwen3")
        for flag, part in (("law", "NAME=FILE"), ("=x", "NAME=FILE"), ("law=nowhere", "nowhere"),
                           (f"law={self.base}", "general.type")):
            done = weft("run", "-m", self.base, "--lora", flag, "hello")
            self.assertNotEqual(done.code, 0)
            self.assertIn(part, done.err)
        done = weft("run", "-m", other, "--lora", f"law={self.law}", "hello")
        self.assertEqual(done.code, 1)
        self.assertIn("general.architecture", done.err)
        done = weft("run", "-m", self.base, "--backend", "reference", "--raw", "-n", "1",
                    "--lora", f"law={self.law}", "hello")
        self.assertEqual(done.code, 0, done)
        done = weft("serve", "-m", self.base, "-m", other, "--port", "0",
                    "--lora", f"law={self.law}")
        self.assertEqual(done.code, 1)
        self.assertIn("--models", done.err)

    def test_requests_choose_and_run_together_as_alone(self):
        ways = {
            "base": {"model": "base"},
            "law by name": {"model": "base:law"},
            "law alone": {"model": "law"},
            "half of law": {"model": "base", "lora": [{"id": 0, "scale": 0.5}]},
            "both": {"model": "base",
                     "lora": [{"id": 1, "scale": 1}, {"id": 0, "scale": -0.5}]},
            "none": {"model": "base", "lora": []},
        }
        flags = [*self.flags, "--lora", f"rhyme={self.rhyme}"]
        alone = {}
        for way, fields in ways.items():
            with Server(*flags) as server:
                alone[way] = words(server.complete(prompt=PROMPT, **fields))
        self.assertEqual(alone["base"], alone["none"])
        self.assertEqual(alone["law by name"], alone["law alone"])
        self.assertEqual(len({repr(said) for said in alone.values()}), 4)
        with Server(*flags) as server, concurrent.futures.ThreadPoolExecutor(6) as pool:
            asked = [(way, pool.submit(server.complete, prompt=PROMPT, **fields))
                     for _ in range(3) for way, fields in ways.items()]
            for way, answer in asked:
                self.assertEqual(words(answer.result()), alone[way], way)
            # Every prompt is cached by now, for its own adapters.
            for way, fields in ways.items():
                answer = server.complete(prompt=PROMPT, **fields)
                self.assertEqual(cached(answer), answer["usage"]["prompt_tokens"] - 1, way)

    def test_every_api_takes_the_name(self):
        with Server(*self.flags) as server:
            def said(model):
                answers = []
                for path, fields in (
                        ("/v1/chat/completions", {"temperature": 0, "max_tokens": 12}),
                        ("/v1/messages", {"temperature": 0, "max_tokens": 12}),
                        ("/api/chat", {"stream": False, "options": {"temperature": 0,
                                                                    "num_predict": 12}})):
                    status, answer = server.post(
                        path, model=model, messages=[{"role": "user", "content": PROMPT}], **fields)
                    self.assertEqual(status, 200, answer)
                    message = answer.get("message") or answer.get("content")
                    answers.append(repr(message or answer["choices"][0]["message"]))
                return answers
            for with_law, plain in zip(said("base:law"), said("base")):
                self.assertNotEqual(with_law, plain)

    def test_lists_and_defaults(self):
        with Server(*self.flags, "--lora", f"rhyme={self.rhyme}:0.5") as server:
            listed = server.get("/lora-adapters")
            self.assertEqual(listed, (200, [
                {"id": 0, "path": "law.gguf", "scale": 0.0, "name": "law"},
                {"id": 1, "path": "rhyme.gguf", "scale": 0.5, "name": "rhyme"}]))
            models = server.get("/v1/models")[1]["data"]
            self.assertEqual([model["id"] for model in models], ["base", "base:law", "base:rhyme"])
            self.assertEqual(models[1]["parent"], "base")
            self.assertEqual(server.get("/v1/models/base:law")[1]["root"], "law.gguf")

            def complete(**fields):
                status, answer = server.post("/completion", prompt=PROMPT, temperature=0,
                                             n_predict=12, n_probs=2, **fields)
                self.assertEqual(status, 200, answer)
                return answer["content"], answer["completion_probabilities"]
            half = complete()
            self.assertEqual(half, complete(lora=[{"id": 1, "scale": 0.5}]))
            plain = complete(lora=[])
            self.assertNotEqual(half, plain)
            self.assertEqual(server.ask("POST", "/lora-adapters", [{"id": 0, "scale": 1}]),
                             (200, {"success": True}))
            self.assertEqual([adapter["scale"] for adapter in server.get("/lora-adapters")[1]],
                             [1.0, 0.0])
            self.assertEqual(complete(), complete(lora=[{"id": 0, "scale": 1}]))
            server.ask("POST", "/lora-adapters", [])
            self.assertEqual(complete(), plain)

    def test_an_activated_one_acts_from_its_invocation_on(self):
        invocation = "the judge said"
        tokens = weft("tokenize", "-m", self.base, "--json", invocation).json["tokens"]
        path = make_adapter(self.base, pathlib.Path(self.folder.name) / "judge.gguf", 3, "F16",
                            "--invocation", ",".join(map(str, tokens)))
        before = PROMPT + " " + "and the weft goes on " * 20
        with Server("-m", self.base, "--alias", "base", "--lora", f"judge={path}") as server:
            [listed] = server.get("/lora-adapters")[1]
            self.assertEqual(listed["alora_invocation_tokens"], tokens)
            self.assertEqual(listed["alora_invocation_string"], invocation)
            # Token ids, so that the text before cannot run into the invocation.
            before = weft("tokenize", "-m", self.base, "--add-bos", "--json", before).json["tokens"]
            prompt = before + tokens + before[1:9]
            plain, plain_before = server.complete("base", prompt), server.complete("base", before)
            judged = server.complete("base:judge", prompt)
            self.assertNotEqual(words(judged), words(plain))
            self.assertEqual(cached(judged), len(before))
            again = server.complete("base:judge", prompt)
            self.assertEqual((words(again), cached(again)), (words(judged), len(prompt) - 1))
            # Without it, the base answers.
            self.assertEqual(words(server.complete("base:judge", before)), words(plain_before))

    def test_wrong_requests_are_refused(self):
        with Server(*self.flags) as server:
            for lora in ({"id": 0}, [{"id": 7, "scale": 1}], [{"id": 0}], [{"id": 0, "scale": "x"}],
                         [{"id": 0, "scale": 1}, {"id": 0, "scale": 1}], [{"id": 0, "scale": 1e9}]):
                status, answer = server.post("/v1/completions", prompt=PROMPT, lora=lora)
                self.assertEqual(status, 400, answer)
                self.assertIn("lora", answer["error"]["message"])
                self.assertEqual(server.ask("POST", "/lora-adapters", lora)[0], 400)
            status, answer = server.post("/v1/completions", prompt=PROMPT, model="base:law",
                                         lora=[{"id": 0, "scale": 1}])
            self.assertEqual(status, 400, answer)
            # Nobody who asks for an adapter is answered without it.
            status, answer = server.post("/v1/completions", prompt=PROMPT, model="base:poem")
            self.assertEqual(status, 404, answer)
        with Server("-m", self.base) as server:
            self.assertEqual(server.get("/lora-adapters"), (200, []))
            status, answer = server.post("/v1/completions", prompt=PROMPT,
                                         lora=[{"id": 0, "scale": 1}])
            self.assertEqual((status, answer["error"]["code"]), (400, "unsupported_parameter"))
            self.assertIn("--lora", answer["error"]["message"])
            status, answer = server.post("/v1/completions", prompt=PROMPT, max_tokens=1, lora=[])
            self.assertEqual(status, 200, answer)
            self.assertNotIn("X-Weft-Ignored", server.headers)

    def test_only_the_operator_changes_defaults(self):
        keys = pathlib.Path(self.folder.name) / "keys.txt"
        keys.write_text("key-one one\nkey-two two\n")
        with Server(*self.flags, "--api-key-file", keys) as server:
            status, answer = server.ask("POST", "/lora-adapters", [{"id": 0, "scale": 1}],
                                        {"Authorization": "Bearer key-one"})
            self.assertEqual(status, 403, answer)

    def test_a_session_keeps_its_adapters_through_a_restart(self):
        state = pathlib.Path(self.folder.name) / "state"
        first = {"session_id": "s", "prompt": PROMPT}
        flags = ["--state-dir", state]
        with Server(*self.flags, *flags) as server:
            said = server.complete("base:law", **first)
            text = PROMPT + said["choices"][0]["text"]
            status, answer = server.post("/v1/completions", model="base", lora=[], **first)
            self.assertEqual(status, 409, answer)
            self.assertIn("law at 1", answer["error"]["message"])
            self.assertEqual(server.get("/v1/sessions/s")[1]["adapters"], {"law": 1})
            alone = words(server.complete("base:law", text + " and more"))
        with Server("-m", self.base, "--alias", "base", *flags) as server:
            status, answer = server.post("/v1/completions", session_id="s", prompt=PROMPT)
            self.assertEqual(status, 409, answer)
            self.assertIn("--lora law=FILE", answer["error"]["message"])
        with Server(*self.flags, *flags) as server:
            again = server.complete("base", text + " and more", session_id="s")
            self.assertEqual(words(again), alone)
            self.assertGreater(cached(again), 10)

    def test_scales_outlive_an_unload(self):
        toml = pathlib.Path(self.folder.name) / "scales.toml"
        toml.write_text(f'[base]\nmodel = "{self.base}"\nlora = ["law={self.law}"]\n'
                        f'[plain]\nmodel = "{self.base}"\n')
        with Server("--models", toml, "--memory", "400M") as server:
            server.complete("base", PROMPT)
            status, _ = server.ask("POST", "/lora-adapters?model=base", [{"id": 0, "scale": 0.5}])
            self.assertEqual(status, 200)
            half = words(server.complete("base", PROMPT))
            server.post("/models/unload", model="base")
            server.wait_for(base="unloaded")
            self.assertEqual(words(server.complete("base", PROMPT)), half)
            [adapter] = server.get("/lora-adapters?model=base")[1]
            self.assertEqual(adapter["scale"], 0.5)
            self.assertNotEqual(words(server.complete("plain", PROMPT)), half)

    def test_models_of_a_file_have_their_own(self):
        toml = pathlib.Path(self.folder.name) / "models.toml"
        toml.write_text(f'[base]\nmodel = "{self.base}"\nlora = ["law={self.law}"]\n'
                        f'aliases = ["small"]\n[plain]\nmodel = "{self.base}"\n')
        with Server("--models", toml, "--memory", "400M") as server:
            plain = words(server.complete("plain", PROMPT))
            law = words(server.complete("base:law", PROMPT))
            self.assertNotEqual(law, plain)
            self.assertEqual(words(server.complete("small:law", PROMPT)), law)
            self.assertEqual(words(server.complete("base", PROMPT)), plain)
            self.assertIn("base:law", [model["id"] for model in server.get("/v1/models")[1]["data"]])
            self.assertEqual(server.post("/v1/completions", model="plain:law", prompt=PROMPT)[0],
                             404)


if __name__ == "__main__":
    unittest.main()
