#!/usr/bin/env python3
"""Real weights: that their arithmetic is right, and that an answer's bits are the same whoever
runs beside it.

  tests/real/real_models_test.py [--models smollm2,gemma3-270m] [--weft build/release/weft]

Fetches the models with tools/get_model.py; one that cannot be fetched is skipped with a line
that says so. `make test-real` runs it.

  tokens   equal llama.cpp's for the same text (tokens.json)
  logits   the engine's against the reference backend's, and the same bits in any chunks
  answers  to thirty prompts, token by token with their log-probabilities: alone, beside seven
           others, forked, parked and restored, in other chunks, with other numbers of threads
"""
import argparse
import array
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "examples")]

import get_model  # noqa: E402
from isolation import Server  # noqa: E402
from prompts import PROMPTS  # noqa: E402

WEFT = os.environ.get("WEFT", str(ROOT / "build/release/weft"))
TEXT = (HERE / "text.txt").read_text()
LOGIT_TOKENS = 128
# What 8-bit activations cost against exact arithmetic on the same weights, in nats per token.
# Measured: 0.0035 for SmolLM2 and 0.0027 for Gemma 3 over 512 tokens.
MOST_KL = 0.01
ANSWER_TOKENS = 24
BESIDE = 8
FOLLOW_UP = "Say that again in other words."
LIMIT_S = 600


# No copies of weights in the cache of whoever runs the test.
CACHE = tempfile.TemporaryDirectory()
os.environ["WEFT_CACHE"] = CACHE.name


def weft(*args, stdin=""):
    return subprocess.run([WEFT, *map(str, args)], check=True, input=stdin, capture_output=True,
                          text=True, timeout=LIMIT_S).stdout


def token_ids(model, text):
    return json.loads(weft("tokenize", "-m", model, "--json", "-", stdin=text))["tokens"]


def logits(model, tokens, folder, *flags):
    """Bytes of the rows, a float for each token of the vocabulary."""
    ids, out = pathlib.Path(folder) / "ids.json", pathlib.Path(folder) / "logits.f32"
    ids.write_text(json.dumps(tokens))
    weft("logits", "-m", model, "--tokens", ids, "--out", out, *flags)
    return out.read_bytes()


def log_softmax(row):
    most = max(row)
    log_sum = most + math.log(math.fsum(math.exp(x - most) for x in row))
    return [x - log_sum for x in row]


def mean_kl(exact, other, n_rows):
    """Of `exact` to `other`, in nats per row."""
    exact, other = array.array("f", exact), array.array("f", other)
    width, total = len(exact) // n_rows, 0.0
    for i in range(n_rows):
        p = log_softmax(exact[i * width:(i + 1) * width])
        q = log_softmax(other[i * width:(i + 1) * width])
        total += math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q))
    return total / n_rows


def messages_of(history):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(history)]


def ask(server, history, path, session=None):
    """The answer's text, and its tokens with their log-probabilities."""
    body = {"temperature": 0, "max_tokens": ANSWER_TOKENS, "logprobs": True, "top_logprobs": 3}
    if session:
        body["session_id"] = session
    if path == "/v1/chat/completions":
        body["messages"] = messages_of(history)
    else:
        body.update(prompt="\n".join(history) + "\n", logprobs=3)
    status, answer = server.ask("POST", path, body)
    if status != 200:
        raise AssertionError(f"status {status}: {answer}")
    choice = answer["choices"][0]
    return (choice["message"]["content"] or "" if "message" in choice else choice["text"],
            json.dumps(choice["logprobs"], sort_keys=True))


def all_at_once(jobs, width):
    """Results of the functions, `width` of them running together."""
    results, failures, following = [None] * len(jobs), [], iter(range(len(jobs)))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                i = next(following, None)
            if i is None:
                return
            try:
                results[i] = jobs[i]()
            except BaseException as error:  # told by the caller's thread
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


class RealModel:
    """The tests of one model; its subclasses are made by load_tests."""

    name = None

    @classmethod
    def setUpClass(cls):
        try:
            cls.model = str(get_model.get(cls.name))
        except get_model.CannotFetch as error:
            print(f"SKIPPED: {cls.name}: {error}", file=sys.stderr)
            raise unittest.SkipTest(str(error)) from None
        shown = json.loads(weft("show", "--json", cls.model))
        is_talker = shown["chat"]["own_template"]
        cls.path = "/v1/chat/completions" if is_talker else "/v1/completions"

    def test_tokens(self):
        for case in json.loads((HERE / "tokens.json").read_text())[self.name]:
            text = TEXT if case["text"] is None else case["text"]
            self.assertEqual(token_ids(self.model, text), case["tokens"], text[:200])

    def test_logits(self):
        tokens = token_ids(self.model, TEXT)[:LOGIT_TOKENS]
        with tempfile.TemporaryDirectory() as folder:
            ours = logits(self.model, tokens, folder, "--chunk", LOGIT_TOKENS)
            for chunks in (["1"], ["7", "64", "3"]):
                self.assertEqual(logits(self.model, tokens, folder, "--chunk", *chunks), ours)
            self.assertEqual(logits(self.model, tokens, folder, "--threads", "1"), ours)
            exact = logits(self.model, tokens, folder, "--backend", "reference")
        kl = mean_kl(exact, ours, len(tokens))
        print(f"{self.name}: KL to exact arithmetic {kl:.5f} nats over {len(tokens)} tokens")
        self.assertLess(kl, MOST_KL)
        self.assertGreater(kl, 0)  # the reference computes otherwise

    def serve(self, *flags):
        return Server(WEFT, ["-m", self.model, "--ctx", "2048", *flags])

    def test_answers(self):
        with self.serve() as server:
            alone = [ask(server, [prompt], self.path) for prompt in PROMPTS]
            again = [ask(server, [PROMPTS[i], alone[i][0], FOLLOW_UP], self.path)
                     for i in range(len(PROMPTS))]
        self.assertGreater(len({text for text, _ in alone}), len(PROMPTS) // 2)
        with self.serve() as server:
            self.check_beside(server, alone)
            self.check_forks(server, alone, again)
        with tempfile.TemporaryDirectory() as folder, self.serve("--state-dir", folder) as server:
            self.check_parked(server, alone, again)
        with self.serve("--threads", "1", "--step-ms", "1") as server:
            self.check_beside(server, alone)

    def check_beside(self, server, alone):
        jobs = [lambda prompt=prompt: ask(server, [prompt], self.path) for prompt in PROMPTS]
        self.assertEqual(all_at_once(jobs, BESIDE), alone)

    def turns(self, server, alone, again, between):
        """Each prompt in a session of its own, then `between` of its name and index, then the
        follow-up in the session that it gives."""
        def hold(i):
            name = f"s{i}"
            self.assertEqual(ask(server, [PROMPTS[i]], self.path, name), alone[i])
            history = [PROMPTS[i], alone[i][0], FOLLOW_UP]
            for session in between(server, name):
                self.assertEqual(ask(server, history, self.path, session), again[i])
        all_at_once([lambda i=i: hold(i) for i in range(len(PROMPTS))], BESIDE)

    def check_forks(self, server, alone, again):
        def fork(server, name):
            status, answer = server.ask("POST", f"/v1/sessions/{name}/fork",
                                        {"session_id": name + "-fork"})
            self.assertEqual(status, 200, answer)
            return [name + "-fork", name]
        self.turns(server, alone, again, fork)

    def check_parked(self, server, alone, again):
        def park(server, name):
            status, answer = server.ask("POST", f"/v1/sessions/{name}/park")
            self.assertEqual(status, 200, answer)
            return [name]
        self.turns(server, alone, again, park)


def load_tests(loader, *_):
    suite = unittest.TestSuite()
    for name in CHOSEN:
        suite.addTests(loader.loadTestsFromTestCase(
            type(name, (RealModel, unittest.TestCase), {"name": name})))
    return suite


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2,gemma3-270m",
                        help="of tools/get_model.py --list, with commas between")
    parser.add_argument("--weft", default=WEFT)
    args, rest = parser.parse_known_args()
    WEFT, CHOSEN = args.weft, args.models.split(",")
    unittest.main(argv=[sys.argv[0], *rest])
