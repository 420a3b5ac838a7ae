#!/usr/bin/env python3
"""The parts of the fleet tool that have neither clock nor network."""

import argparse
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from fleet import trace  # noqa: E402
from fleet.prefix_cache import Hold, PrefixCache, common  # noqa: E402
from fleet.step_times import Profile, between  # noqa: E402
from fleet.virtual_engine import Turn, VirtualEngine  # noqa: E402

PAGE = 4


def profile(cache_tokens=4000, **fields):
    return Profile(model={}, server={}, page_tokens=PAGE, cache_tokens=cache_tokens, max_running=4,
                   prompt_rows=[[1, 0.01], [100, 0.11]], attention_s=0.0,
                   decode_rows=[[1, 0.01], [4, 0.013]], decode_attention_s=0.0, request_s=0.0,
                   **fields)


class TimesTest(unittest.TestCase):
    def test_between_and_beyond_the_points(self):
        points = [[1, 1.0], [3, 5.0]]
        self.assertEqual([between(points, x) for x in (0, 1, 2, 3, 4)], [1, 1, 3, 5, 7])

    def test_more_workers_than_measured_share(self):
        times = profile(together=[1.0, 1.5])
        self.assertEqual([times.slower(n) for n in (0, 1, 2, 4)], [1.0, 1.0, 1.5, 3.0])


class PrefixCacheTest(unittest.TestCase):
    def compute(self, cache, tokens):
        """As a request alone: how many tokens were cached."""
        hold = Hold(cache)
        hold.reuse(tokens)
        cached, rows = hold.computed, len(tokens) - hold.computed
        self.assertTrue(hold.room_for(rows))
        hold.commit(tokens, rows)
        hold.release(tokens)
        self.check(cache)
        return cached

    def check(self, cache):
        nodes = [cache.root]
        for node in nodes:
            nodes += node.children.values()
            for child in node.children.values():
                self.assertIs(child.parent, node)
                self.assertGreaterEqual(node.used if node.parent else child.used, child.used)
        self.assertEqual(len(nodes) - 1, cache.n_nodes)
        self.assertLessEqual(cache.n_pages, cache.max_pages)

    def test_a_prefix_is_found_to_the_token(self):
        cache = PrefixCache(PAGE, 100)
        self.assertEqual(self.compute(cache, list(range(10))), 0)
        self.assertEqual(self.compute(cache, list(range(10))), 9)  # the last is always computed
        self.assertEqual(self.compute(cache, [0, 1, 2, 3, 4, 5, 99]), 6)
        self.assertEqual(self.compute(cache, list(range(20))), 10)

    def test_as_one_that_compares_with_all(self):
        dice = random.Random(1)
        cache, known = PrefixCache(PAGE, 10_000), []
        for _ in range(300):
            tokens = (dice.choice(known)[:dice.randrange(1, 40)] if known else []) + [
                dice.randrange(3) for _ in range(dice.randrange(1, 12))]
            expected = max((common(tokens[:-1], other) for other in known), default=0)
            self.assertEqual(self.compute(cache, tokens), expected)
            known.append(tokens)

    def test_the_least_recently_used_goes_first(self):
        cache = PrefixCache(PAGE, 4)
        first, second, third = ([n] * 8 for n in (1, 2, 3))
        for tokens in (first, second, first, third):
            self.compute(cache, tokens)
        self.assertEqual(self.compute(cache, first), 7)
        self.assertEqual(self.compute(cache, second), 0)

    def test_what_a_request_uses_stays(self):
        cache = PrefixCache(PAGE, 4)
        hold = Hold(cache)
        self.assertTrue(hold.room_for(12))
        hold.commit([1] * 12, 12)
        other = Hold(cache)
        self.assertFalse(other.room_for(8))
        hold.release([1] * 12)
        self.assertTrue(other.room_for(8))
        other.release([])
        self.assertEqual((cache.n_private, cache.n_in_use), (0, 0))

    def test_watchers_hear_of_whole_pages(self):
        dice = random.Random(2)
        cache = PrefixCache(PAGE, 12)
        cache.told = []
        heard = {}
        for _ in range(200):
            self.compute(cache, [dice.randrange(2) for _ in range(dice.randrange(1, 30))])
            for is_stored, node in cache.told:
                if is_stored:
                    self.assertTrue(node.parent is cache.root or node.parent.key in heard)
                    heard[node.key] = node
                else:
                    del heard[node.key]
            cache.told = []
            self.assertEqual(set(heard), {node.key for node in cache.whole_pages()})
        self.assertGreater(cache.evicted, 0)


class EngineTest(unittest.TestCase):
    def run_all(self, engine, arrivals):
        """When each request has its first token and its end; (time, tokens, answer length)."""
        self.now, first, ends, left = 0.0, {}, {}, sorted(arrivals, key=lambda each: each[0])
        turns = []

        def say_of(number):
            def say(token):
                (ends if token is None else first).setdefault(number, self.now)
            return say

        for _ in range(100_000):
            while left and left[0][0] <= self.now:
                at, tokens, n = left.pop(0)
                turns.append(Turn(tokens, n, lambda i: 7, say_of(len(turns)), at))
                engine.submit(turns[-1])
            step = engine.plan(self.now)
            if step is None and not left:
                break
            self.now = left[0][0] if step is None else self.now + step.seconds
            if step is not None:
                engine.finish(step, self.now)
        self.assertEqual((engine.running, list(engine.queued)), ([], []))
        self.assertEqual(len(ends), len(arrivals))
        return turns, first, ends

    def test_one_request_takes_the_measured_times(self):
        turns, first, ends = self.run_all(VirtualEngine(profile()), [(0, list(range(100)), 11)])
        self.assertAlmostEqual(first[0], 0.11)
        self.assertAlmostEqual(ends[0], 0.11 + 10 * 0.01)

    def test_a_prompt_that_comes_again_is_cached(self):
        turns, first, _ = self.run_all(
            VirtualEngine(profile()), [(0, list(range(100)), 1), (1, list(range(100)), 1)])
        self.assertEqual([turn.cached for turn in turns], [0, 99])
        self.assertLess(first[1] - 1, 0.02)

    def test_equal_prompts_wait_for_the_first(self):
        turns, _, _ = self.run_all(
            VirtualEngine(profile()), [(0, list(range(100)) + [n], 1) for n in range(3)])
        self.assertEqual([turn.cached for turn in turns], [0, 100, 100])

    def test_decoding_goes_on_beside_a_prompt(self):
        engine = VirtualEngine(profile())
        _, first, ends = self.run_all(
            engine, [(0, [1] * 4, 30), (0.05, list(range(400)), 1)])
        # A token takes at most `stretch` times as long, and the prompt more than alone.
        self.assertLess(ends[0] - first[0], 3 * 29 * 0.01 + 0.1)
        self.assertGreater(first[1] - 0.05, 0.41)
        # It does not wait until other sessions end, either.
        self.assertLess(first[1], ends[0] + 0.2)

    def test_too_little_memory_delays_and_loses_nothing(self):
        engine = VirtualEngine(profile(cache_tokens=120))
        dice = random.Random(3)
        arrivals = [(dice.random(), [dice.randrange(50) for _ in range(60)], 20) for _ in range(12)]
        turns, _, _ = self.run_all(engine, arrivals)
        self.assertEqual({turn.made for turn in turns}, {20})
        self.assertEqual((engine.cache.n_private, engine.cache.n_in_use), (0, 0))

    def test_a_cancelled_request_gives_all_back(self):
        engine = VirtualEngine(profile())
        turn = Turn(list(range(300)), 5, lambda i: 7, lambda token: None, 0.0)
        engine.submit(turn)
        engine.finish(engine.plan(0.0), 0.01)
        engine.cancel(turn)
        self.assertIsNone(engine.plan(0.02))
        self.assertEqual((engine.cache.n_private, engine.cache.n_in_use), (0, 0))


class TraceTest(unittest.TestCase):
    OPTIONS = argparse.Namespace(kinds=3, conversations=100, system_tokens=50, turns=4,
                                 result_tokens=20, answer_tokens=8, children=0.5, every=1, think=1)
    WORDS = [["one", [1], 2], ["two", [3, 4], 5]]

    def test_a_seed_gives_the_same(self):
        made = [trace.make(seed, self.WORDS, self.OPTIONS) for seed in (1, 1, 2)]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])

    def test_children_branch_off_earlier_ones(self):
        _, conversations = trace.make(1, self.WORDS, self.OPTIONS)
        children = [each for each in conversations if each.parent >= 0]
        self.assertGreater(len(children), 20)
        for child in children:
            parent = conversations[child.parent]
            self.assertLess(parent.number, child.number)
            self.assertEqual(parent.kind, child.kind)
            self.assertLess(child.after, len(parent.turns) - 1)

    def test_percentiles_are_values(self):
        self.assertEqual([trace.percentile(range(1, 11), share) for share in (0.5, 0.9, 1)],
                         [5, 9, 10])


if __name__ == "__main__":
    unittest.main()
