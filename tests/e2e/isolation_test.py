#!/usr/bin/env python3
"""examples/isolation.py with small models of random weights, whose words mean nothing but
whose every bit depends on what they read; and that it sees what it is to see."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

from weft_process import COMPUTE, WEFT, make_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import isolation  # noqa: E402


class IsolationTest(unittest.TestCase):
    def check(self, shape, *flags):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(pathlib.Path(folder) / "model.gguf", shape, "Q8_0")
            args = isolation.parse(["--weft", str(WEFT), "--tokens", "16", *flags, "--",
                                    "-m", str(model), "--threads", "2", *COMPUTE])
            alone, together, most = isolation.run_both(args)
        # Each has answers of its own, or there would be nothing to mix up.
        self.assertEqual(len({json.dumps(c.tokens) for c in alone}), len(alone))
        table = io.StringIO()
        with contextlib.redirect_stdout(table):
            bad = isolation.report(alone, together, most, check_names=False)
        self.assertEqual(bad, 0, table.getvalue())
        return table.getvalue()

    def test_attention(self):
        self.assertRegex(self.check("tiny-llama", "--temperature", "1"),
                         r"48 conversations, \d+ at a time, 12 of them forks, "
                         r"12 with a client that left: all equal to their runs alone")

    def test_recurrent_state(self):
        self.check("tiny-lfm2", "--conversations", "24")


def heard(name, colour, last_two, token="a"):
    """A conversation that was held."""
    conversation = isolation.Conversation(name.lower(), name, colour)
    for question, answer in zip(conversation.questions(), ["Hello.", "Nice.", *last_two]):
        conversation.messages += [{"role": "user", "content": question},
                                  {"role": "assistant", "content": answer}]
        conversation.tokens.append([{"token": token, "logprob": -1.5}])
    return conversation


class ReportTest(unittest.TestCase):
    RIGHT = ["You are Mira.", "It is green."]

    def bad(self, together, alone=None, check_names=True):
        alone = alone or heard("Mira", "green", self.RIGHT)
        with contextlib.redirect_stdout(io.StringIO()):
            return isolation.report([alone], [together], 1, check_names)

    def test_what_is_right(self):
        self.assertEqual(self.bad(heard("Mira", "green", self.RIGHT)), 0)

    def test_another_bit(self):
        other = heard("Mira", "green", self.RIGHT)
        other.tokens[2][0]["logprob"] = -1.5000000000000002
        self.assertEqual(isolation.differing_answers(heard("Mira", "green", self.RIGHT), other), [3])
        self.assertEqual(self.bad(other), 1)

    def test_the_name_of_another(self):
        other = heard("Mira", "green", ["You are Mira, not Tom.", "It is green."])
        self.assertEqual(isolation.foreign_names(other), ["Tom"])
        self.assertEqual(self.bad(other), 1)
        self.assertEqual(self.bad(other, check_names=False), 0)

    def test_what_was_forgotten(self):
        self.assertEqual(isolation.forgotten(heard("Mira", "green", ["Who knows.", "It is red."])),
                         ["name", "colour"])
        self.assertEqual(self.bad(heard("Mira", "green", ["Mira.", "It is greenish."])), 1)


if __name__ == "__main__":
    unittest.main()
