#!/usr/bin/env python3
"""Servers that share a store when that hangs, and when a server has lost a session to another."""

import concurrent.futures
import http.client
import time
import unittest

from store_fleet import retry_after, trouble_of, until_taken
from store_test import MORE, PROMPT, StoreTest, free_text
from weft_process import TIMEOUT_S

LEASE = 1  # of tests that wait for its end
LONGER = PROMPT + MORE
LONGEST = LONGER + MORE


class HangTest(StoreTest):
    def test_a_store_that_hangs(self):
        a, b = self.fleet(lease=LEASE).workers
        for session in ("loom", "streamed", "deleted"):
            self.said(a, session)
        new = "Unnamed. " + free_text(100)
        self.store.stop()
        # A server waits for the store for a while, so all at once.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            named = [pool.submit(self.turn, a, session, LONGER) for session in ("loom", "new")]
            named.append(pool.submit(self.act, a, "deleted"))
            streamed = pool.submit(self.turn, a, "streamed", LONGER, stream=True)
            # These need no store, and this one does not answer before they do.
            for server in (a, b):
                self.assertEqual(self.said(server, None, new), self.expected(new))
            answers = [one.result() for one in named]
        for answer in answers:
            self.assertTrouble(answer, 503, "state_unavailable")
            self.assertGreaterEqual(retry_after(answer), 1)
        self.assertEqual(trouble_of(streamed.result().body), "state_unavailable", streamed.result())
        self.assertNotIn(b"[DONE]", streamed.result().body)
        self.assertGreater(a.server.metric("weft_store_errors_total"), 0)
        self.store.go_on()
        for session in ("loom", "new", "streamed"):
            self.assertEqual(self.said_at_last(a, session, LONGEST), self.expected(LONGEST))
        # Late writes of the failed turns change nothing.
        self.moved(a, "loom")
        self.assertEqual(self.tokens(b, "loom"), self.tokens_of(LONGEST))
        self.assertEqual(self.said(b, "loom", LONGEST), self.expected(LONGEST))

    def test_a_server_ends_while_its_store_hangs(self):
        # Turns begin without asking the store.
        a, b = self.fleet(lease=2 * LEASE, flags=("--drain-seconds", 1)).workers
        self.said(a, "idle", LONGER)
        sessions = [f"loom-{i}" for i in range(8)]
        for session in sessions:
            self.said(a, session)
        self.store.stop()
        with concurrent.futures.ThreadPoolExecutor(len(sessions)) as pool:
            asked = [pool.submit(self.turn, a, session, LONGER) for session in sessions]
            a.server.until(lambda: a.server.metric("weft_turns_running") > 0
                           or all(one.done() for one in asked), "no turn runs")
            a.server.signal()
            # While the store still hangs, and by itself.
            self.assertIn(a.server.process.wait(TIMEOUT_S), (0, 1))
            for one in asked:
                try:
                    answer = one.result()
                except (OSError, http.client.HTTPException):
                    continue  # the server was gone
                self.assertEqual(answer.status, 503, answer)
        a.kill()
        self.assertIn("shut down", a.logs[-1])
        self.store.go_on()
        self.assertEqual(self.said_at_last(b, "idle", LONGEST), self.expected(LONGEST))
        for session in sessions:
            self.assertEqual(self.said_at_last(b, session, LONGER), self.expected(LONGER))

    def said_at_last(self, worker, session, prompt):
        """The answer once the store is back and no other has the session."""
        answers = []

        def is_back():
            answers.append(until_taken(lambda: self.turn(worker, session, prompt)))
            return answers[-1].status == 200

        worker.server.until(is_back, "the store does not come back")
        return self.text(answers[-1])


class LostTest(StoreTest):
    """One server has had a session, and another has gone on with it."""

    def lost(self, a, b):
        """The session, of which a knows PROMPT and b has LONGER, whose lease is over."""
        self.said(a, "loom")
        text = self.text(until_taken(lambda: self.turn(b, "loom", LONGER)))
        self.assertEqual(text, self.expected(LONGER))
        self.until_free(a, "loom")
        return "loom"

    @staticmethod
    def until_free(server, session):
        """Until no other server has it by the store."""
        def is_free():
            seen = server.ask("GET", f"/v1/sessions/{session}")
            return seen.status == 200 and "owner" not in seen.json

        server.server.until(is_free, "the lease does not end")

    def assertKept(self, server, session, prompt):
        self.assertEqual(self.tokens(server, session), self.tokens_of(prompt))

    def test_looking_tells_what_the_other_has_and_takes_nothing(self):
        a, b = self.fleet(lease=LEASE).workers
        session = self.lost(a, b)
        self.assertKept(a, session, LONGER)
        self.assertKept(b, session, LONGER)
        # The lease is over, so that a taker's look would make this a 409.
        self.assertEqual(self.said(b, session, LONGEST), self.expected(LONGEST))
        self.assertKept(a, session, LONGEST)

    def test_looking_tells_who_has_it(self):
        a, b = self.fleet().workers
        self.said(a, "loom")
        for looking in (b, b, a):
            self.assertKept(looking, "loom", PROMPT)
        self.assertEqual(b.ask("GET", "/v1/sessions/loom").json["owner"], a.url)
        self.assertNotIn("owner", a.ask("GET", "/v1/sessions/loom").json)
        self.assertEqual(b.ask("GET", "/v1/sessions").json["data"], [])
        self.assertEqual(b.ask("GET", "/v1/sessions/nobody").status, 404)
        self.assertEqual(self.said(a, "loom", LONGER), self.expected(LONGER))

    def test_idleness_deletes_only_what_is_a_servers_own(self):
        a, b = self.fleet(lease=LEASE).workers
        session = self.lost(a, b)
        self.said(a, "own")
        self.assertGreaterEqual(self.close_idle(a), 2)
        # This look waits for what a does with the session.
        self.assertKept(a, session, LONGER)
        self.assertKept(b, session, LONGER)
        self.assertEqual(self.said(b, session, LONGEST), self.expected(LONGEST))
        b.server.until(lambda: b.ask("GET", "/v1/sessions/own").status == 404, "own stays")

    def test_idleness_after_a_turn_that_failed(self):
        a, b, c = self.fleet(n=3, lease=LEASE).workers
        self.failed(a, b)
        self.until_free(c, "loom")
        self.close_idle(a)
        self.assertKept(a, "loom", LONGEST)
        self.assertKept(b, "loom", LONGEST)

    def test_idleness_after_a_look_at_a_turn_that_failed(self):
        """The look makes sure that the turn is not kept later; that is no use of the session."""
        a, b = self.fleet(lease=LEASE).workers
        self.failed(a, b)
        self.until_free(a, "loom")
        self.close_idle(a)
        self.assertKept(a, "loom", LONGEST)
        self.assertKept(b, "loom", LONGEST)

    def failed(self, a, b):
        """A turn of a's that the store did not take, after which b goes on."""
        self.said(a, "loom")
        self.store.kill()
        self.assertTrouble(self.turn(a, "loom", LONGER), 503, "state_unavailable")
        self.store.start()
        b.server.until(lambda: until_taken(lambda: self.turn(b, "loom", LONGEST)).status == 200,
                       "the store does not come back")

    def test_idleness_of_a_file_from_before_the_store(self):
        fleet = self.fleet(start=False)
        a, b = fleet.workers
        a.start(shared=False)
        self.said(a, "loom")
        a.end()
        fleet.start()
        self.said(b, "loom", LONGER)
        self.moved(b, "loom")
        self.close_idle(a)
        self.assertKept(a, "loom", LONGER)
        self.assertKept(b, "loom", LONGER)

    def close_idle(self, server):
        answer = server.ask("DELETE", "/v1/sessions?idle_seconds=0")
        self.assertEqual(answer.status, 200, answer)
        return answer.json["closed"]

    def test_what_another_gave_up_can_be_deleted(self):
        a, b = self.fleet().workers
        for session, give_up in (("moved", lambda: self.moved(a, "moved")), ("drained", a.end)):
            self.said(a, session)
            self.assertElsewhere(self.act(b, session), a)
            give_up()
            self.assertEqual(self.act(b, session).status, 200)
            self.assertEqual(b.ask("GET", f"/v1/sessions/{session}").status, 404)
        a.start()
        for session in ("moved", "drained"):
            self.assertEqual(a.ask("GET", f"/v1/sessions/{session}").status, 404)
            self.assertEqual(self.act(a, session, "move").status, 404)

    def test_what_the_lease_gave_up_can_be_deleted(self):
        a, b = self.fleet(lease=LEASE).workers
        session = self.lost(a, b)
        self.assertEqual(until_taken(lambda: self.act(a, session)).status, 200)
        for server in (a, b):
            self.assertEqual(server.ask("GET", f"/v1/sessions/{session}").status, 404)
        # b's copy is not the session any more.
        self.assertEqual(self.act(b, session, "fork", id="copy").status, 404)
        self.assertEqual(self.said(b, session), self.expected(PROMPT))
        self.assertKept(b, session, PROMPT)


class MovingTest(StoreTest):
    """A session that another request is just moving is still there."""

    def test_what_is_asked_during_a_move(self):
        # A store so slow that calls meet the move under way.
        a, b = self.fleet(store_flags=("--delay", 0.1)).workers
        for i, pause in enumerate((0, 0.02, 0.05, 0.15)):
            self.assertEqual(self.during_a_move(a, f"deleted-{i}", pause).status, 200)
            self.assertEqual(b.ask("GET", f"/v1/sessions/deleted-{i}").status, 404)

            answer = self.during_a_move(a, f"emptied-{i}", pause, "reset")
            self.assertEqual((answer.status, self.tokens(b, f"emptied-{i}")), (200, 0), answer)

            answer = self.during_a_move(a, f"forked-{i}", pause, "fork", id=f"copy-{i}")
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(self.tokens(b, f"copy-{i}"), self.tokens_of(PROMPT))

    def during_a_move(self, worker, session, pause, what=None, **body):
        self.said(worker, session)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            moving = pool.submit(self.act, worker, session, "move")
            time.sleep(pause)
            asked = pool.submit(self.act, worker, session, what, **body)
            # It may come second, to a session that is not there any more.
            self.assertIn(moving.result().status, (200, 404))
            return asked.result()


if __name__ == "__main__":
    unittest.main()
