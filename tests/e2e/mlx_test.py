#!/usr/bin/env python3
"""The mlx backend as users meet it: what it says of itself, logits, sessions of a server."""

import concurrent.futures
import json
import pathlib
import tempfile
import unittest

from serve_test import Server
from weft_process import make_model, read_floats, weft

SHAPES = ["tiny-llama", "tiny-qwen3", "tiny-gemma3", "tiny-moe", "tiny-lfm2", "tiny-qwen35",
          "tiny-mamba2", "tiny-granitehybrid"]


class MlxTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def logits(self, model, backend, *flags):
        tokens = self.dir / "tokens.json"
        tokens.write_text(json.dumps([(7 * i * i + 300 + i) % 512 for i in range(60)]))
        out = self.dir / "logits.f32"
        done = weft("logits", "-m", model, "--tokens", tokens, "--out", out, "--backend", backend,
                    *flags)
        self.assertEqual(done.code, 0, done)
        return read_floats(out)

    def test_logits_are_the_references(self):
        for shape in SHAPES:
            model = make_model(self.dir / "model.gguf", shape, "F32")
            expected = self.logits(model, "reference")
            self.assertGreater(max(map(abs, expected)), 0.05, shape)
            for flags in [(), ("--chunk", 7)]:
                got = self.logits(model, "mlx", *flags)
                self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), 1e-3,
                                f"{shape} {flags}")

    def test_it_says_how_it_holds_weights(self):
        model = make_model(self.dir / "model.gguf", "tiny-llama", "Q4_K_M")
        text = weft("inspect", model, "--backend", "mlx")
        self.assertIn("matrices on the mlx backend", text.text, text)
        listed = weft("inspect", model, "--backend", "mlx", "--json").json["matrices"]
        self.assertEqual({m["type"]: m["bits_per_weight"] for m in listed if m["type"] != "F32"},
                         {"Q4_K": 6, "Q6_K": 16})

    def test_sessions_together_forked_parked_and_after_a_restart(self):
        model = make_model(self.dir / "model.gguf", "tiny-llama", "Q8_0")
        prompts = [[5 + i] * (20 + 9 * i) for i in range(6)]
        with Server(model, "--backend", "mlx", "--state-dir", self.dir / "state") as server:
            server.ready()
            props = server.ask("GET", "/props").json
            self.assertEqual((props["backend"], props["same_bits"]), ("mlx", False))

            def complete(i):
                answer = server.complete(prompts[i], session_id=f"s{i}", n_probs=1)
                self.assertEqual(answer.status, 200, answer)
                return [t["logprob"] for t in answer.json["completion_probabilities"]]

            alone = [complete(i) for i in range(6)]
            for i in range(6):
                self.assertEqual(server.ask("DELETE", f"/v1/sessions/s{i}").status, 200)
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                together = list(pool.map(complete, range(6)))
            # The first token's, before a near tie can send two answers different ways.
            for one, other in zip(alone, together):
                self.assertAlmostEqual(one[0], other[0], delta=1e-3)

            path = "/v1/sessions/s3"
            self.assertEqual(server.ask("POST", f"{path}/fork",
                                        {"session_id": "fork", "position": 40}).json["tokens"], 40)
            self.assertTrue(server.ask("POST", f"{path}/park").json["parked"])
            self.assertTrue(server.ask("POST", f"{path}/restore").json["restored"])
            again = server.complete(prompts[3] + [9], session_id="again").json
            self.assertGreater(again["tokens_cached"], 0)
            self.assertEqual(server.end(), 0, server.log[-2000:])
        # What was parked is found by the next server, which computes none of it again.
        with Server(model, "--backend", "mlx", "--state-dir", self.dir / "state") as server:
            server.ready()
            again = server.complete(prompts[4] + [7], session_id="s4").json
            self.assertGreaterEqual(again["timings"]["cache_n"], len(prompts[4]))
            self.assertEqual(server.end(), 0, server.log[-2000:])

    def test_what_it_cannot_store_is_refused(self):
        model = make_model(self.dir / "model.gguf", "tiny-llama", "F32")
        refused = weft("run", "-m", model, "--backend", "mlx", "--kv", "q8_0", "-n", "1", "x")
        self.assertEqual(refused.code, 1, refused)
        self.assertRegex(refused.err, "the mlx backend stores no keys and values as Q8_0")
        unknown = weft("run", "-m", model, "--backend", "abacus", "x")
        self.assertEqual(unknown.code, 2, unknown)
        self.assertIn("mlx", unknown.err)


if __name__ == "__main__":
    unittest.main()
