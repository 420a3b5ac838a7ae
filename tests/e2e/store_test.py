#!/usr/bin/env python3
"""Servers that share a store of sessions, and a program of random operations on them.

  store_test.py                       the tests; those of real stores are in real_stores_test.py
  store_test.py --operations 10000    the program alone, with a report; see --help
"""

import concurrent.futures
import contextlib
import pathlib
import sys
import tempfile
import time
import unittest

import s3_server
from serve_test import Server
from store_faults import READ_TIME, TRIES
from store_fleet import BUCKET, KEYS, Fleet, ObjectStore, trouble_of, until_taken
from store_operations import LOSSY, UNCONDITIONAL, Operations, main
from store_requests import Request
from weft_process import TIMEOUT_S, make_model, weft

LEASE = 2  # of tests that wait for its end
LONG_LEASE = 600  # of all others
ROOM = 20_000  # tokens of a turn that is to last
PROMPT = "The weft travels through the warp. " * 4
MORE = " And then it turns."


def free_text(n):
    """A prompt of about 14 n tokens, like no other."""
    return " ".join(f"{n} of {i * i % 97} threads" for i in range(n))


class StoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft_store_")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.dir = pathlib.Path(cls.folder.name)
        cls.model = make_model(cls.dir / "llama.gguf", "tiny-llama", "Q8_0")
        # What a server says that nothing disturbs and that shares nothing.
        cls.alone = Server(cls.model, "--threads", "1").__enter__()
        cls.addClassCleanup(cls.alone.__exit__)
        cls.alone.ready()

    def fleet(self, n=2, lease=LONG_LEASE, store_flags=(), flags=(), start=True):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=self.id().rsplit(".", 1)[1], dir=self.dir))
        self.store = ObjectStore(folder / "store", *store_flags)
        self.addCleanup(self.store.end)
        fleet = Fleet(folder, self.model, self.store, n, lease, flags)
        self.addCleanup(fleet.end)
        return fleet.start() if start else fleet

    # --- requests --------------------------------------------------------------------------

    @staticmethod
    def turn(server, session, prompt=PROMPT, n=8, **fields):
        body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, **fields}
        if session is not None:
            body["session_id"] = session
        return server.ask("POST", "/v1/completions", body)

    def text(self, answer):
        self.assertEqual(answer.status, 200, answer)
        return answer.json["choices"][0]["text"]

    def said(self, server, session, prompt=PROMPT, n=8):
        return self.text(self.turn(server, session, prompt, n))

    def expected(self, prompt, n=8):
        return self.said(self.alone, None, prompt, n)

    @staticmethod
    def act(server, session, what=None, **body):
        if what is None:
            return server.ask("DELETE", f"/v1/sessions/{session}")
        return server.ask("POST", f"/v1/sessions/{session}/{what}", body or None)

    def moved(self, server, session):
        answer = self.act(server, session, "move")
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.json, {"moved": True, "session_id": session})

    def tokens(self, server, session):
        answer = server.ask("GET", f"/v1/sessions/{session}")
        self.assertEqual(answer.status, 200, answer)
        return answer.json["tokens"]

    def tokens_of(self, prompt):
        """How many a session has after that prompt and its answer."""
        self.said(self.alone, "count", prompt)
        return self.tokens(self.alone, "count")

    def assertTrouble(self, answer, status, code):
        self.assertEqual((answer.status, trouble_of(answer.body)), (status, code), answer)

    def assertElsewhere(self, answer, owner):
        self.assertTrouble(answer, 409, "session_elsewhere")
        self.assertEqual(answer.headers["X-Weft-Owner"], owner.url)
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)

    @contextlib.contextmanager
    def stopped_in_turn(self, worker, session, stream):
        """Gives the turn's request, which has ended after the with block."""
        body = {"prompt": PROMPT, "max_tokens": ROOM - 1000, "temperature": 0, "ignore_eos": True,
                "stream": stream, "session_id": session}
        for _ in range(TRIES):
            request = Request(worker, "POST", "/v1/completions", body)
            if stream:
                self.assertTrue(request.first_event.wait(TIMEOUT_S))
            else:
                worker.server.until(lambda: worker.server.metric("weft_turns_running") == 1
                                    or request.done.is_set(), "nothing runs")
            worker.stop()
            if not request.done.wait(READ_TIME):
                break
            # The turn was over.
            self.assertEqual((request.status, request.error), (200, ""))
            worker.go_on()
            self.act(worker, session)
        else:
            self.fail(f"{worker.name} is never in a turn when it stops")
        try:
            yield request
        finally:
            worker.go_on()
        self.assertTrue(request.done.wait(TIMEOUT_S))


class MoveTest(StoreTest):
    def test_a_moved_session_has_the_same_bits(self):
        a, b = self.fleet().workers
        first = self.said(a, "loom")
        self.assertEqual(first, self.expected(PROMPT))
        longer = PROMPT + first + MORE
        self.assertElsewhere(self.turn(b, "loom", longer), a)
        self.assertElsewhere(self.act(b, "loom", "move"), a)
        n_tokens = self.tokens(a, "loom")
        self.moved(a, "loom")
        self.assertEqual(self.tokens(b, "loom"), n_tokens)
        second = self.said(b, "loom", longer)
        self.assertEqual(second, self.expected(longer))
        self.assertElsewhere(self.turn(a, "loom", longer), b)
        # Looking is free for all.
        seen = a.ask("GET", "/v1/sessions/loom")
        self.assertEqual((seen.status, seen.json["owner"]), (200, b.url), seen)
        self.assertEqual(seen.json["tokens"], self.tokens(b, "loom"))
        self.assertEqual(self.tokens(b, "loom"), self.tokens_of(longer))
        self.assertEqual(self.act(a, "nobody", "move").status, 404)

    def test_a_lease_ends_by_itself(self):
        a, b = self.fleet(lease=LEASE).workers
        prompt = PROMPT
        for worker in (a, b, a):
            answer = until_taken(lambda at=worker, said=prompt: self.turn(at, "loom", said))
            self.assertEqual(self.text(answer), self.expected(prompt))
            prompt += self.text(answer) + MORE

    def test_a_drained_server_holds_nobody_up(self):
        a, b = self.fleet().workers
        first = self.said(a, "loom")
        longer = PROMPT + first + MORE
        self.assertElsewhere(self.turn(b, "loom", longer), a)

        def rests():
            state = a.ask("POST", "/drain").json
            return (state["turns"], state["sessions_in_memory"]) == (0, 0)

        a.server.until(rests, "a turn or a session stays")
        self.assertEqual(self.said(b, "loom", longer), self.expected(longer))

    def test_so_does_one_that_ends(self):
        a, b = self.fleet().workers
        first = self.said(a, "loom")
        a.end()
        longer = PROMPT + first + MORE
        self.assertEqual(self.said(b, "loom", longer), self.expected(longer))

    def test_blocks_are_used_by_others(self):
        a, b = self.fleet().workers
        long = free_text(120)

        def cached_share(answer):
            usage = answer.json["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]

        first = self.said(a, "loom", long)
        self.moved(a, "loom")
        answer = self.turn(b, "loom", long + first + MORE)
        self.assertEqual(self.text(answer), self.expected(long + first + MORE))
        self.assertGreater(cached_share(answer), 0.9, answer)
        # A prompt without a session is written once it recurs.
        other = "Unnamed. " + free_text(140)
        for _ in range(2):
            first = self.said(a, None, other)
        a.server.until(lambda: a.server.metric("weft_state_disk_pending") == 0,
                       "blocks stay unwritten")
        # A move waits for all that is on its way to the store.
        self.said(a, "last")
        self.moved(a, "last")
        answer = self.turn(b, None, other)
        self.assertEqual(self.text(answer), first)
        self.assertGreater(cached_share(answer), 0.9, answer)


class FaultTest(StoreTest):
    def test_a_killed_server_loses_nothing(self):
        a, b = self.fleet(lease=LEASE).workers
        first = self.said(a, "loom")
        longer = PROMPT + first + MORE
        second = self.said(a, "loom", longer)
        n_tokens = self.tokens(a, "loom")
        a.kill()
        self.assertEqual(self.tokens(b, "loom"), n_tokens)
        longest = longer + second + MORE
        self.assertEqual(self.text(until_taken(lambda: self.turn(b, "loom", longest))),
                         self.expected(longest))
        a.start()
        self.moved(b, "loom")
        self.assertGreater(self.tokens(a, "loom"), n_tokens)

    def test_a_server_that_stopped_in_a_turn_keeps_nothing_of_it(self):
        a, b = self.fleet(lease=LEASE, flags=("--ctx", ROOM)).workers
        with self.stopped_in_turn(a, "loom", stream=True) as request:
            first = self.text(until_taken(lambda: self.turn(b, "loom")))
            self.assertEqual(first, self.expected(PROMPT))
            n_tokens = self.tokens(b, "loom")
        self.assertEqual(request.trouble, "session_moved")
        self.assertFalse(request.is_whole)
        longer = PROMPT + first + MORE
        self.assertEqual(self.tokens(b, "loom"), n_tokens)
        self.assertEqual(self.text(until_taken(lambda: self.turn(b, "loom", longer))),
                         self.expected(longer))
        self.moved(b, "loom")
        self.assertEqual(self.tokens(a, "loom"), self.tokens_of(longer))

    def test_so_it_is_without_a_stream(self):
        a, b = self.fleet(lease=LEASE, flags=("--ctx", ROOM)).workers
        with self.stopped_in_turn(a, "loom", stream=False) as request:
            self.text(until_taken(lambda: self.turn(b, "loom")))
        self.assertEqual((request.status, request.trouble), (409, "session_moved"))

    def test_a_store_that_is_away(self):
        a, b = self.fleet(lease=LEASE).workers
        first = self.said(a, "loom")
        for session in ("streamed", "deleted"):
            self.said(a, session)
        longer = PROMPT + first + MORE
        self.store.kill()
        # A server goes on trying for a while, so all at once.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            refused = [pool.submit(self.turn, a, session, longer) for session in ("loom", "new")]
            refused.append(pool.submit(self.act, a, "deleted"))
            streamed = pool.submit(self.turn, a, "streamed", longer, stream=True)
            self.assertEqual(self.said(a, None, longer), self.expected(longer))
        for answer in refused:
            self.assertTrouble(answer.result(), 503, "state_unavailable")
            self.assertGreaterEqual(int(answer.result().headers["Retry-After"]), 1)
        self.assertEqual(trouble_of(streamed.result().body), "state_unavailable", streamed.result())
        self.assertNotIn(b"[DONE]", streamed.result().body)
        self.store.start()
        answers = []

        def is_back():
            answers.append(until_taken(lambda: self.turn(a, "loom", longer)))
            return answers[-1].status == 200

        a.server.until(is_back, "the store does not come back")
        self.assertEqual(self.text(answers[-1]), self.expected(longer))
        self.assertEqual(self.said(a, "new"), self.expected(PROMPT))
        self.moved(a, "loom")
        self.assertEqual(self.tokens(b, "loom"), self.tokens_of(longer))


class SessionsTest(StoreTest):
    def test_what_one_server_does_the_other_sees(self):
        a, b = self.fleet().workers
        for session in ("deleted", "forked", "emptied"):
            self.said(a, session)
        n_tokens = self.tokens(a, "forked")
        self.assertEqual(self.act(a, "deleted").status, 200)
        self.assertEqual(b.ask("GET", "/v1/sessions/deleted").status, 404)
        self.assertEqual(self.act(b, "deleted", "move").status, 404)
        self.assertEqual(self.act(b, "deleted", "fork", id="x").status, 404)

        self.assertElsewhere(self.act(b, "forked", "fork", id="copy"), a)
        self.moved(a, "forked")
        fork = self.act(b, "forked", "fork", id="copy")
        self.assertEqual((fork.status, fork.json["tokens"]), (200, n_tokens), fork)
        self.moved(b, "copy")
        self.assertEqual(self.tokens(a, "copy"), n_tokens)
        self.assertElsewhere(self.turn(a, "forked"), b)

        self.assertElsewhere(self.act(b, "emptied", "reset"), a)
        self.assertEqual(self.act(a, "emptied", "reset").status, 200)
        self.moved(a, "emptied")
        self.assertEqual(self.tokens(b, "emptied"), 0)
        # A deleted name may be used again, anywhere.
        self.assertEqual(self.said(b, "deleted"), self.expected(PROMPT))
        self.assertElsewhere(self.turn(a, "deleted"), b)
        self.assertEqual(self.act(b, "deleted").status, 200)
        self.assertEqual(self.said(a, "deleted"), self.expected(PROMPT))

    def test_a_name_that_the_store_has_cannot_be_created_again(self):
        a, b = self.fleet().workers
        self.assertEqual(a.ask("POST", "/v1/sessions", {"id": "loom"}).status, 200)
        self.said(a, "loom")
        for _ in range(2):
            answer = b.ask("POST", "/v1/sessions", {"id": "loom"})
            self.assertEqual(answer.status, 409, answer)
            self.act(a, "loom", "move")

    def test_sessions_from_before_the_store(self):
        fleet = self.fleet(start=False)
        a, b = fleet.workers
        a.start(shared=False)
        for session in ("old", "both"):
            self.said(a, session, PROMPT + session)
        n_tokens = self.tokens(a, "old")
        a.end()
        fleet.start()
        self.said(b, "both", "Another one")
        n_other = self.tokens(b, "both")
        self.moved(b, "both")

        self.assertEqual(self.tokens(a, "old"), n_tokens)
        longer = PROMPT + "old" + MORE
        self.assertEqual(self.said(a, "old", longer), self.expected(longer))
        self.moved(a, "old")
        self.assertEqual(self.tokens(b, "old"), self.tokens_of(longer))
        # The store's is the one that counts.
        self.assertEqual(self.tokens(a, "both"), n_other)

    def test_keys_see_their_own(self):
        keys = self.dir / "keys.txt"
        keys.write_text("sk-one one\nsk-two two\n")
        a, b = self.fleet(flags=("--api-key-file", keys)).workers

        def turn(worker, key, prompt):
            return worker.ask("POST", "/v1/completions", {
                "prompt": prompt, "max_tokens": 4, "temperature": 0, "session_id": "loom"},
                Authorization=f"Bearer {key}")

        self.assertEqual(turn(a, "sk-one", PROMPT).status, 200)
        self.assertElsewhere(turn(b, "sk-one", PROMPT), a)
        self.assertEqual(turn(b, "sk-two", "Mine").status, 200)
        self.assertElsewhere(turn(a, "sk-two", PROMPT), b)
        heads = [key for key in s3_server.objects_in(self.store.folder) if "/sessions/" in key]
        self.assertEqual(len(heads), 2, heads)


class StartTest(StoreTest):
    def refused(self, bucket=BUCKET, keys=KEYS):
        result = weft("serve", "-m", self.model, "--port", 0, "--state-dir", self.dir / "refused",
                      "--store", f"s3://{bucket}/fleet", "--store-endpoint", self.store.url,
                      "--worker-url", "http://127.0.0.1:1", env=keys)
        self.assertEqual(result.code, 1, result)
        self.assertNotIn("listening", result.err)
        return result.err

    def test_a_store_that_lets_two_writers_win_is_refused(self):
        self.fleet(n=0, store_flags=("--ignore-conditions-under", ""))
        self.assertRegex(self.refused(), "lets two writers .*: conversations would be lost")

    def test_a_store_that_refuses_or_is_not_there(self):
        self.fleet(n=0)
        self.assertIn("SignatureDoesNotMatch",
                      self.refused(keys={**KEYS, "AWS_SECRET_ACCESS_KEY": "wrong"}))
        self.assertIn("AWS_ACCESS_KEY_ID", self.refused(keys={**KEYS, "AWS_ACCESS_KEY_ID": ""}))
        self.assertIn("there is no bucket nothing", self.refused(bucket="nothing"))
        self.store.kill()
        self.assertIn("cannot be reached", self.refused())


class OperationsTest(StoreTest):
    def operate(self, n, store_flags=(), seed=1, **options):
        fleet = self.fleet(n=3, lease=1, store_flags=store_flags)
        operations = Operations(fleet, seed=seed, **options)
        started = time.monotonic()
        operations.run(n)
        problems = operations.judge()
        print(f"\n{operations.report(problems)}\n{time.monotonic() - started:.1f} s", flush=True)
        self.assertEqual(operations.unexpected, [])
        return problems

    def test_nothing_is_lost_or_forked(self):
        self.assertFalse(self.operate(250))

    def test_a_store_that_forgets_conditions_shows(self):
        """The same program finds what it is to find."""
        for seed in range(TRIES):
            problems = self.operate(8, UNCONDITIONAL, seed, faults={}, kinds={"rivals": 1})
            if problems.lost or problems.forked:
                return
        self.fail(f"nothing shows, {TRIES} times")

    def test_answers_that_are_lost_or_late(self):
        self.assertFalse(self.operate(60, LOSSY, faults={"stop in a turn": 1}))


if __name__ == "__main__":
    if any(argument.startswith("--operations") for argument in sys.argv):
        sys.exit(main())
    unittest.main()
