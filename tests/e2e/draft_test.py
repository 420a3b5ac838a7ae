#!/usr/bin/env python3
"""weft serve with a draft model: the same answers, and what is told of the guesses."""

import json
import time
import unittest

import serve_test
from weft_process import TIMEOUT_S, make_model, silence_layers, weft

PROMPT = "the weft travels through the warp"


class DraftTest(serve_test.ServeTest):
    """The model has what its draft has, and layers that cost much and add nothing: the draft pays,
    and is always right where no chance is in play."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.draft = make_model(cls.dir / "draft.gguf", "tiny-llama", "F32", "--layers", 1)
        deep = make_model(cls.dir / "deep.gguf", "tiny-llama", "F32", "--layers", 24)
        cls.model = silence_layers(deep, 1, cls.dir / "model.gguf")
        # Another one's words with the same vocabulary: hardly ever right.
        cls.stranger = make_model(cls.dir / "stranger.gguf", "tiny-llama", "F32", "--layers", 1,
                                  "--seed", 9)

    def answers(self, server, until_guessed=True):
        """What matters of the answers to some requests, and the sums of their guesses. How much is
        guessed follows from the times of steps, so on a busy machine it may take more of them."""
        said, guessed, accepted = [], 0, 0
        deadline = time.monotonic() + TIMEOUT_S

        def ask(**fields):
            nonlocal guessed, accepted
            answer = server.complete(PROMPT, 120, n_probs=2, return_tokens=True, **fields).json
            guessed += answer["timings"].get("draft_n", 0)
            accepted += answer["timings"].get("draft_n_accepted", 0)
            return [answer[key] for key in ("content", "tokens", "completion_probabilities")]

        for temperature, seed in ((0, 1), (1, 1), (1, 2)):
            said.append(ask(temperature=temperature, seed=seed))
        while until_guessed and guessed == 0 and time.monotonic() < deadline:
            self.assertEqual(ask(seed=1), said[0])
        return said, guessed, accepted

    def test_answers_are_the_same_and_guesses_are_told(self):
        with self.serve("--speculate", "off") as server:
            server.ready()
            plain, guessed, _ = self.answers(server, until_guessed=False)
            self.assertEqual(guessed, 0)
            self.assertIsNone(server.ask("GET", "/props").json["draft_model"])
            self.assertEqual(server.metric("llamacpp:spec_decode_num_drafts_total"), 0)
        for draft in (self.draft, self.stranger):
            with self.serve("-md", draft, "--speculate", "draft") as server:
                server.ready()
                said, guessed, accepted = self.answers(server)
                self.assertEqual(said, plain)
                self.assertGreater(guessed, 0)
                self.assertLessEqual(accepted, guessed)
                if draft == self.draft:
                    self.assertGreater(accepted, 0)
                self.assertTold(server, draft, guessed, accepted)
                self.assertEqual(server.end(), 0, server.log)

    def assertTold(self, server, draft, guessed, accepted):
        self.assertEqual(server.ask("GET", "/props").json["draft_model"], draft.name)
        for prefix in ("weft_", "llamacpp:"):
            names = {"weft_": ("guessed_tokens_total", "accepted_guesses_total"),
                     "llamacpp:": ("spec_decode_num_draft_tokens_total",
                                   "spec_decode_num_accepted_tokens_total")}[prefix]
            self.assertEqual([server.metric(prefix + name) for name in names], [guessed, accepted])
        drafts = server.metric("llamacpp:spec_decode_num_drafts_total")
        self.assertTrue(0 < drafts <= guessed, drafts)
        text = server.ask("GET", "/metrics").body.decode()
        places = [line for line in text.splitlines() if "accepted_tokens_per_pos_total{" in line]
        self.assertEqual(sum(float(line.split()[-1]) for line in places), accepted)
        for kind in ("draft_weights", "draft_state", "draft_scratch"):
            self.assertGreater(server.metric(f'weft_bytes{{kind="{kind}"}}'), 0, kind)
        self.assertGreater(server.metric("weft_draft_step_seconds_count"), 0)

    def test_chats_and_streams_and_sessions_are_the_same(self):
        chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 60,
                "temperature": 0, "ignore_eos": True, "session_id": "s"}

        def said(server):
            first = server.ask("POST", "/v1/chat/completions", chat).json["choices"][0]["message"]
            more = chat["messages"] + [first, {"role": "user", "content": "and on"}]
            second = server.ask("POST", "/v1/chat/completions", {**chat, "messages": more}).json
            stream = server.ask("POST", "/v1/chat/completions", {**chat, "stream": True}).body
            chunks = [json.loads(line[6:]) for line in stream.decode().splitlines()
                      if line.startswith("data: {")]
            text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
            return first["content"], second["choices"][0]["message"]["content"], text

        with self.serve("--builtin", "chatml", "--speculate", "off") as server:
            plain = said(server.ready())
        with self.serve("--builtin", "chatml", "-md", self.draft) as server:
            self.assertEqual(said(server.ready()), plain)
        self.assertEqual(plain[0], plain[2])

    def test_a_request_can_do_without(self):
        with self.serve("-md", self.draft, "--speculate", "draft") as server:
            server.ready()
            answer = server.complete(PROMPT, 60, **{"speculative.n_max": 0}).json
            self.assertNotIn("draft_n", answer["timings"])
            _, guessed, _ = self.answers(server)
            self.assertGreater(guessed, 0)

    def test_a_draft_that_does_not_fit_is_refused(self):
        other = make_model(self.dir / "other.gguf", "tiny-qwen3")
        larger = make_model(self.dir / "larger.gguf", "tiny-llama", "F32", "--seed", 3)
        data = larger.read_bytes().replace(b"<unk>", b"<nil>", 1)
        larger.write_bytes(data)
        for draft, words in ((other, ("another kind of vocabulary", "llama", "gpt2")),
                             (larger, ("another vocabulary", "<nil>", "<unk>")),
                             (self.dir / "none.gguf", ("draft model", "none.gguf"))):
            result = weft("serve", "-m", self.model, "--port", 0, "-md", draft)
            self.assertEqual(result.code, 1, result)
            self.assertNotIn("ready", result.err)
            for word in words:
                self.assertIn(word, result.err.splitlines()[-1])


class HeadTest(serve_test.ServeTest):
    """A model with a prediction head, which has random weights and so is hardly ever right."""

    answers = DraftTest.answers

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = make_model(cls.dir / "head.gguf", "tiny-qwen35-mtp", "F32", "--layers", 24)
        cls.headless = make_model(cls.dir / "headless.gguf", "tiny-llama")

    def test_answers_are_the_same_and_guesses_are_told(self):
        with self.serve("--speculate", "off") as server:
            server.ready()
            plain, _, _ = self.answers(server, until_guessed=False)
            self.assertFalse(server.ask("GET", "/props").json["prediction_head"])
        for how in ("mtp", "auto"):
            with self.serve("--speculate", how) as server:
                server.ready()
                said, guessed, _ = self.answers(server)
                self.assertEqual(said, plain)
                self.assertGreater(guessed, 0)
                props = server.ask("GET", "/props").json
                self.assertTrue(props["prediction_head"])
                self.assertIsNone(props["draft_model"])
                for kind in ("draft_weights", "draft_state", "draft_scratch"):
                    self.assertGreater(server.metric(f'weft_bytes{{kind="{kind}"}}'), 0, kind)
                # What it shares with the model is there once.
                self.assertLess(server.metric('weft_bytes{kind="draft_weights"}'),
                                server.metric('weft_bytes{kind="weights"}') / 4)
                self.assertGreater(server.metric("weft_draft_step_seconds_count"), 0)
                self.assertEqual(server.end(), 0, server.log)

    def test_devices_compute_heads(self):
        plain, guessed = (weft("run", "-m", self.model, "--backend", "emu", "-n", 6, "--temp", 0,
                               "--speculate", how, PROMPT) for how in ("off", "mtp"))
        self.assertEqual(guessed.code, 0, guessed)
        self.assertEqual(guessed.out, plain.out)

    def test_who_has_one_is_told(self):
        self.assertIn("--speculate mtp", weft("inspect", self.model).out.decode())
        self.assertTrue(json.loads(weft("inspect", self.model, "--json").out)["prediction_head"])
        self.assertFalse(json.loads(weft("inspect", self.headless, "--json").out)["prediction_head"])
        for more, words in (((), "has no prediction head"),
                            (("-md", self.headless), "own head, not --draft-model")):
            result = weft("run", "-m", self.headless, "--speculate", "mtp", *more, PROMPT)
            self.assertEqual(result.code, 1, result)
            self.assertIn(words, result.err.splitlines()[-1])
        self.assertEqual(weft("run", "-m", self.headless, "-n", 2, "--speculate", "auto",
                              PROMPT).code, 0)


if __name__ == "__main__":
    unittest.main()
