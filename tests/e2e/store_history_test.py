#!/usr/bin/env python3
"""The judgement of histories of shared sessions: what it accepts, and what it finds."""

import math
import random
import unittest

from store_history import Op, Outcome, check_histories

DONE, NOT, UNKNOWN = Outcome.DONE, Outcome.NOT, Outcome.UNKNOWN


def reference(prompt, n):
    return tuple(1000 + (sum(prompt) + i) % 97 for i in range(n))


def turn(prompt, first, last=math.inf, outcome=DONE, **fields):
    content = prompt + reference(prompt, 2) if outcome is DONE else None
    return Op("s", "turn", outcome, first, last, content, prompt, 2, **fields)


def clear(first, last=math.inf, outcome=DONE):
    return Op("s", "clear", outcome, first, last, ())


def read(content, first, last):
    return Op("s", "read", DONE, first, last, content)


def after(prompt):
    return prompt + reference(prompt, 2)


A = (1, 2)
B = after(A) + (3,)
C = after(A) + (4,)


class HistoryTest(unittest.TestCase):
    def counts(self, *ops):
        problems = check_histories(ops, reference)
        counts = {name: n for name, n in problems.counts().items() if n}
        self.assertEqual(bool(problems), bool(counts))
        return counts

    def test_what_may_be(self):
        a, b = turn(A, 0, 1), turn(B, 2, 3)
        for ops in ((a, b, read(after(B), 4, 5)),
                    (a, read(after(A), 2, 2.5), b, read(after(B), 4, 5)),
                    # Nobody knows whether it happened.
                    (a, turn(B, 2, outcome=UNKNOWN), read(after(A), 4, 5)),
                    (a, turn(B, 2, outcome=UNKNOWN), read(after(B), 4, 5)),
                    (a, turn(B, 2, outcome=UNKNOWN), read(after(A), 4, 5), read(after(B), 6, 7)),
                    # At once, in either order.
                    (a, b, turn(C, 2.5, 3.5), read(after(B), 4, 5)),
                    (a, b, turn(C, 2.5, 3.5), read(after(C), 4, 5)),
                    (read((), 0, 1), a, clear(2, 3), read((), 4, 5)),
                    (a, clear(2, outcome=UNKNOWN), read((), 4, 5)),
                    (a, clear(2, outcome=UNKNOWN), read(after(A), 4, 5)),
                    (a, clear(0.5, 3), read(after(A), 4, 5)),
                    (a, turn(B, 2, outcome=UNKNOWN, left=True), read(B + reference(B, 1), 4, 5)),
                    (a, turn(B, 2, outcome=UNKNOWN, left=True), read(B, 4, 5))):
            self.assertEqual(self.counts(*ops), {}, "\n".join(map(str, ops)))

    def test_what_is_lost(self):
        a, b = turn(A, 0, 1), turn(B, 2, 3)
        for ops in ((a, b, read(after(A), 4, 5)),
                    (a, read((), 4, 5)),
                    (a, clear(2, 3), read(after(A), 4, 5)),
                    (clear(0, 1), turn(A, 2, 3), read((), 4, 5)),
                    # The first had begun when the second came, so it must not be kept.
                    (turn(A, 0, 1, UNKNOWN), turn((9,), 2, 3), read(after(A), 4, 5))):
            self.assertEqual(self.counts(*ops), {"lost": 1}, "\n".join(map(str, ops)))

    def test_what_is_forked(self):
        ops = (turn(A, 0, 1), turn(B, 2, 8), turn(C, 2, 8), read(after(B), 3, 4),
               read(after(C), 5, 6), read(after(B), 7, 7.5))
        self.assertEqual(self.counts(*ops), {"forked": 1})

    def test_what_nobody_wrote(self):
        a = turn(A, 0, 1)
        for content in ((7, 8), A, after(A)[:-1], after(B)):
            self.assertEqual(self.counts(a, read(content, 2, 3)), {"foreign": 1})
        # Not the whole turn.
        unknown = turn(B, 2, outcome=UNKNOWN)
        for content in (B, after(B)[:-1], B + (5, 5)):
            self.assertEqual(self.counts(a, unknown, read(content, 4, 5)), {"foreign": 1})

    def test_what_was_refused(self):
        ops = turn(A, 0, 1), turn(B, 2, 3, NOT), read(after(B), 4, 5)
        self.assertEqual(self.counts(*ops), {"refused": 1})
        self.assertEqual(self.counts(*ops[:2], read(after(A), 4, 5)), {})

    def test_what_differs(self):
        wrong = turn(A, 0, 1)
        wrong.content = A + (5, 5)
        self.assertEqual(self.counts(wrong, read(wrong.content, 2, 3)), {"differing": 1})

    def test_forks(self):
        def fork(first, last=math.inf, outcome=DONE):
            return Op("t", "fork", outcome, first, last, source="s")

        def target(content, first, last):
            return Op("t", "read", DONE, first, last, content)

        a, b = turn(A, 0, 1), turn(B, 4, 5)
        for ops in ((a, fork(2, 3), b, target(after(A), 6, 7)),
                    (a, b, fork(4.5, 6), target(after(A), 7, 8)),
                    (a, b, fork(4.5, 6), target(after(B), 7, 8)),
                    (a, fork(2, outcome=UNKNOWN), b, target(after(B), 6, 7)),
                    (a, fork(2, outcome=UNKNOWN), b, target((), 6, 7)),
                    (a, clear(2, 3), fork(4, 5), target((), 6, 7)),
                    (a, fork(2, 3), b, fork(6, 7), target(after(B), 8, 9))):
            self.assertEqual(self.counts(*ops), {}, "\n".join(map(str, ops)))
        for ops, problem in (((a, b, fork(6, 7), target(after(A), 8, 9)), "lost"),
                             ((a, fork(2, 3), b, target(after(B), 6, 7)), "foreign"),
                             ((a, fork(2, 3), target((), 6, 7)), "lost"),
                             ((a, fork(2, 3), target(A, 6, 7)), "foreign"),
                             ((a, fork(2, 3, NOT), target(after(A), 6, 7)), "foreign"),
                             ((a, fork(2, 3), b, fork(6, 7), target(after(A), 8, 9)), "lost")):
            self.assertEqual(self.counts(*ops), {problem: 1}, "\n".join(map(str, ops)))

    def random_ops(self, rng, slack, breaks):
        """Operations that happen one after another, whose clients know only about when. If it
        `breaks`, some acknowledged changes are not made; also says whether a read shows that."""
        ops, content, at, expected, shows = [], (), 0.0, (), False
        for i in range(60):
            at += 1
            kind = rng.choices(("turn", "clear", "read"), (6, 1, 4))[0]
            first, last = at - rng.random() * slack, at + rng.random() * slack
            if kind == "read":
                ops.append(read(content, first, last))
                shows |= content != expected
                continue
            outcome = rng.choices((DONE, NOT, UNKNOWN), (6, 1, 2))[0]
            if outcome is UNKNOWN and not breaks:
                last = rng.choice((last, math.inf))
            prompt = content + (i, 500)
            ops.append(turn(prompt, first, last, outcome) if kind == "turn"
                       else clear(first, last, outcome))
            if outcome is DONE or (outcome is UNKNOWN and (breaks or rng.random() < 0.5)):
                expected = after(prompt) if kind == "turn" else ()
                if not breaks or outcome is not DONE or rng.random() > 0.1:
                    content = expected
        ops.append(read(content, at + 10, at + 11))
        rng.shuffle(ops)
        return ops, shows or content != expected

    def test_random_histories(self):
        for seed in range(300):
            ops, _ = self.random_ops(random.Random(seed), slack=3, breaks=False)
            self.assertEqual(self.counts(*ops), {}, seed)
            # Clients that know more exactly see all that can be seen.
            ops, shows = self.random_ops(random.Random(seed), slack=0.4, breaks=True)
            self.assertEqual(bool(self.counts(*ops)), shows, seed)


if __name__ == "__main__":
    unittest.main()
