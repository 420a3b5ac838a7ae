#!/usr/bin/env python3
"""Tests of the generator and the vocabulary of the built-in model."""

import random
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import calls  # noqa: E402
import dialogues  # noqa: E402
import facts  # noqa: E402
import held_out  # noqa: E402
import invented  # noqa: E402
import measure_recall  # noqa: E402
import strangers  # noqa: E402
import tokenizer  # noqa: E402
import trials  # noqa: E402
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

    def test_nothing_held_out_is_ever_said_in_training(self):
        rng = random.Random(1)
        said = set()
        for level in dialogues.LEVELS:
            for _ in range(150):
                for message in dialogues.make_dialogue(rng, level):
                    text = dialogues.plain(message.text)
                    said.add(text)
                    said.update(re.findall(r"[^\W\d_]+", text.lower()))
        self.assertEqual(said & held_out.values(), set())
        self.assertEqual(said & set(held_out.PROMPTS), set())
        self.assertGreaterEqual(len(held_out.NAMES), 500)
        self.assertEqual(len(held_out.PROMPTS), len(set(held_out.PROMPTS)))

    def test_training_phrasings_are_not_held_out(self):
        rng = random.Random(1)
        for kind in facts.KINDS:
            for _ in range(50):
                self.assertFalse(facts.is_held_out_phrasing(kind, *facts.draw_phrasing(rng, kind, False)))

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

    def test_a_change_is_what_is_recalled(self):
        rng = random.Random(3)
        for _ in range(200):
            trial = trials.changed(rng)
            _, (value, rivals) = trial.turns[-1].check
            told = [t.text for t in trial.turns if not t.check]
            self.assertRegex(told[-1], r"(?i)" + re.escape(value))
            self.assertNotIn(value, rivals)
            self.assertTrue(rivals)

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


    def test_every_trial_has_a_check_that_can_fail(self):
        nothing, another = {"content": ""}, {"content": "Your name is Nobody.", "tool_calls": []}
        for kind in [measure_recall.NAMES, *trials.KINDS]:
            for trial in measure_recall.draw(kind, 1, 20):
                checks = [turn.check for turn in trial.turns if turn.check]
                self.assertTrue(checks)
                for check in checks:
                    self.assertFalse(measure_recall.is_right(check, nothing))
                    self.assertFalse(measure_recall.is_right(check, another))

    def test_a_reply_counts_with_the_value_and_no_other(self):
        check = ("value", ("José", ["Josef", "green"]))
        self.assertTrue(measure_recall.is_right(check, {"content": "Your name is José."}))
        for wrong in ("Your name is Jose.", "Your name is Joséa.", "José and Josef.", "José, green."):
            self.assertFalse(measure_recall.is_right(check, {"content": wrong}))
        self.assertTrue(measure_recall.is_right(("other", None), {"content": strangers.OTHER}))
        self.assertFalse(measure_recall.is_right(("unknown", None), {"content": strangers.OTHER}))
        called = {"tool_calls": [{"function": {"name": "get_light", "arguments": "{}"}}]}
        self.assertTrue(measure_recall.is_right(("call", "get_light"), called))
        self.assertFalse(measure_recall.is_right(("call", "light"), called))

    def test_a_tool_is_called_by_the_name_that_was_said(self):
        rng = random.Random(8)
        for _ in range(200):
            tool = calls.a_tool(rng, set())
            text, call = calls.ask_for(rng, tool, str)
            self.assertIn(f'"name": "{tool.name}"', call)
            for parameter in tool.parameters:
                value = call.split('"arguments": ')[1].split(f'"{parameter}": "')[1].split('"')[0]
                self.assertIn(value, text)


class TokenizerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        words = ["\u0120my", "\u0120name", "\u0120your", "My", "Your", "What", "\u0120boat", "':"]
        cls.tokenizer = tokenizer.Tokenizer(tokenizer.chain(words))

    def test_known_words_are_whole_and_names_alike_everywhere(self):
        encode = self.tokenizer.encode
        self.assertEqual(len(encode("My name")), 2)
        rng = random.Random(9)
        for name in held_out.NAMES + [invented.name(rng).capitalize() for _ in range(500)]:
            alone = encode(name)
            self.assertEqual(encode(f"My {name}.")[2:-1], alone, name)
            self.assertEqual(encode(f'"{name}')[1:], alone, name)

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
        self.assertEqual(heavy, "green")
        self.assertEqual(self.tokenizer.decode([i for i, w in zip(ids, weights) if w]),
                         "Your boat is green.<|end|>")


if __name__ == "__main__":
    unittest.main()
