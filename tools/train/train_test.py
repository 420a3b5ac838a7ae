#!/usr/bin/env python3
"""Tests of the generator and the vocabulary of the built-in model."""

import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import dialogues  # noqa: E402
import facts  # noqa: E402
import tokenizer  # noqa: E402
from encode import VALUE_WEIGHT, encode_dialogue  # noqa: E402


def told_by(messages):
    return " ".join(m.text for m in messages if m.role == "user")


class DialoguesTest(unittest.TestCase):
    def test_equal_seeds_give_equal_dialogues(self):
        def draw(seed):
            rng = random.Random(seed)
            return [dialogues.make_dialogue(rng, level) for level in dialogues.LEVELS]

        self.assertEqual(draw(3), draw(3))
        self.assertNotEqual(draw(3), draw(4))

    def test_training_facts_and_phrasings_are_not_held_out(self):
        rng = random.Random(1)
        for kind in facts.KINDS:
            for _ in range(50):
                fact = facts.draw_fact(rng, set(), False, kind)
                self.assertFalse(facts.is_held_out(kind, fact.fields))
                say, ask = facts.draw_phrasing(rng, kind, False)
                self.assertFalse(facts.is_held_out_phrasing(kind, say, ask))

    def test_every_kind_has_held_out_phrasings(self):
        for kind in facts.KINDS:
            pairs = [facts.is_held_out_phrasing(kind, s, a)
                     for s in range(len(kind.say)) for a in range(len(kind.ask))]
            self.assertIn(True, pairs, kind.name)
            self.assertIn(False, pairs, kind.name)

    def test_recall_test_has_the_size_asked_for(self):
        rng = random.Random(2)
        for n_facts, n_turns in [(1, 2), (4, 6), (8, 10)]:
            test = dialogues.make_recall_test(rng, n_facts, n_turns)
            users = [m for m in test.messages if m.role == "user"]
            self.assertEqual(len(users), n_turns)
            self.assertGreater(len(test.checks), 0)
            for index, (value, rivals) in test.checks.items():
                self.assertIn(facts.MARK + value + facts.UNMARK, test.messages[index].text)
                self.assertIn(value, told_by(test.messages[:index]))
                self.assertNotIn(value, rivals)

    def test_a_count_is_what_was_gained_and_lost(self):
        rng = random.Random(4)
        numbers = {word: n for n, word in enumerate(dialogues.lex.NUMBERS)}
        for _ in range(200):
            count = None
            for user, reply in dialogues.count_thread(rng):
                words = [numbers[w.lower().strip(".?:")] for w in user.text.split()
                         if w.lower().strip(".?:") in numbers]
                says = numbers[reply.text.split(facts.MARK)[1].split(facts.UNMARK)[0]]
                if count is None:
                    count = words[0]
                elif "lose" in user.text or "away" in user.text:
                    count -= words[0]
                else:
                    count += words[0] if words else 0
                self.assertEqual(says, count, (user, reply))


class TokenizerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        counts = {}
        rng = random.Random(5)
        for _ in range(60):
            for message in dialogues.make_dialogue(rng, dialogues.LEVELS[3]):
                for word in tokenizer.words_of(dialogues.plain(message.text)):
                    counts[word] = counts.get(word, 0) + 1
        cls.tokenizer = tokenizer.Tokenizer(tokenizer.train(counts, 450))

    def test_dialogues_come_back_from_their_tokens(self):
        rng = random.Random(6)
        for _ in range(50):
            messages = dialogues.make_dialogue(rng, dialogues.LEVELS[3])
            ids, weights = encode_dialogue(self.tokenizer, messages)
            self.assertEqual(len(ids), len(weights))
            self.assertEqual(self.tokenizer.decode(ids), "".join(
                f"<|{m.role}|>{dialogues.plain(m.text)}<|end|>" for m in messages))

    def test_every_byte_is_a_token(self):
        self.assertEqual(len(set(tokenizer.byte_characters())), 256)
        self.assertLessEqual(set(tokenizer.byte_characters()), set(self.tokenizer.tokens))

    def test_only_replies_are_learned_and_values_weigh_most(self):
        messages = [dialogues.Message("user", "My boat is green."),
                    dialogues.Message("assistant", "Your boat is " + dialogues.marked("green") + ".")]
        ids, weights = encode_dialogue(self.tokenizer, messages)
        heavy = self.tokenizer.decode([i for i, w in zip(ids, weights) if w == VALUE_WEIGHT])
        self.assertEqual(heavy, " green")
        self.assertEqual(self.tokenizer.decode([i for i, w in zip(ids, weights) if w]),
                         "Your boat is green.<|end|>")


if __name__ == "__main__":
    unittest.main()
