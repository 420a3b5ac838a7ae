"""Conversations of agents, by a seed. No clock and no network here.

Each kind of agent has a system prompt. A conversation begins with it, or branches off another one
after one of its turns, as a child of an agent does. Each further turn brings a tool's result.
"""

import dataclasses
import math
import random

# Lengths are drawn between these shares of their average.
LEAST, MOST = 0.25, 1.75


@dataclasses.dataclass
class Turn:
    text: str
    n_tokens: int       # the text's length
    answer_tokens: int
    think_s: float      # before it is sent


@dataclasses.dataclass
class Conversation:
    number: int
    kind: int
    parent: int         # the conversation that it branches off; -1: none
    after: int          # the parent's turn after which it begins
    start_s: float      # without a parent
    turns: list


class Words:
    """Texts of known length: [text, tokens at the beginning, token after a space]."""

    def __init__(self, words, dice):
        self.words, self.dice = words, dice

    def text(self, n):
        """About n tokens, and how many it has."""
        chosen = [self.dice.choice(self.words) for _ in range(max(1, n))]
        return " ".join(word[0] for word in chosen), len(chosen) - 1 + len(chosen[0][1])


def make(seed, words, options):
    """The system prompts by kind, and the conversations."""
    dice = random.Random(seed)
    texts = Words(words, dice)

    def around(mean):
        return max(1, round(mean * dice.uniform(LEAST, MOST)))

    systems = [texts.text(options.system_tokens)[0] for _ in range(options.kinds)]
    conversations, start_s = [], 0.0
    for number in range(options.conversations):
        parents = [other for other in conversations if len(other.turns) > 1]
        parent = None
        if parents and dice.random() < options.children:
            parent = dice.choice(parents[-2 * options.kinds:])
        else:
            start_s += dice.expovariate(1 / options.every) if conversations else 0.0
        turns = []
        for _ in range(around(options.turns)):
            text, n_tokens = texts.text(around(options.result_tokens))
            think_s = dice.expovariate(1 / options.think) if options.think else 0.0
            turns.append(Turn(text, n_tokens, around(options.answer_tokens), think_s))
        kind = parent.kind if parent else dice.randrange(options.kinds)
        after = dice.randrange(len(parent.turns) - 1) if parent else 0
        conversations.append(Conversation(number, kind, parent.number if parent else -1, after,
                                          start_s, turns))
    return systems, conversations


def percentile(values, share):
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else float("nan")
