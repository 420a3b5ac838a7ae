"""Conversations that ask a model for what it has to be able to do, with nothing in them that a
training text has: names and values are held out (held_out.py) or invented, and a way to tell and a
way to ask meet that never met in training.

A Trial has the tools of its requests and turns: what the user says, and a check of the reply, or
None. A check is a pair: "value" (value, rivals), "unknown", "other", or "call" (tool, arguments)."""

from collections import namedtuple

import calls
import dialogues
import facts
import held_out
import invented
from facts import fill

Trial = namedtuple("Trial", "tools turns")
Turn = namedtuple("Turn", "text check")


def _held_out(words):
    return lambda rng, *key: rng.choice(words)


_NAMES = _held_out(held_out.NAMES)
_VALUES = {"colour": held_out.COLOURS, "home": held_out.PLACES, "their home": held_out.PLACES,
           "job": held_out.JOBS, "their job": held_out.JOBS, "has": held_out.WORDS,
           "favourite": held_out.WORDS, "secret": held_out.WORDS, "spot": held_out.SPOTS}


def _with_held_out(kind):
    """The kind with names and values that no training text has (numbers and days are what they are)."""
    fields = {key: _NAMES if draw is invented.name else draw for key, draw in kind.fields.items()}
    if kind.name in _VALUES:
        fields["v"] = _held_out(_VALUES[kind.name])
    return kind._replace(fields=fields)


_HELD_OUT_KINDS = [_with_held_out(kind) for kind in facts.KINDS]


def _draw(rng, n_facts, kinds, taken):
    """Facts, and a way to tell and to ask each."""
    told = []
    while len(told) < n_facts:
        kind = rng.choices(kinds, [k.weight for k in kinds])[0]
        fact = facts.draw_fact(rng, taken, kind)
        if fact:
            told.append((fact, facts.draw_phrasing(rng, fact.kind, True)))
    return told


def _told(rng, told):
    """Turns that tell them, one to three at once."""
    turns, at = [], 0
    while at < len(told):
        group = told[at:at + rng.choice([1, 1, 1, 2, 3])]
        at += len(group)
        clauses = [fill(f.kind.say[p[0]], f.fields) for f, p in group]
        turns.append(Turn(dialogues.tell(rng, [f for f, _ in group], clauses)[0].text, None))
    return turns


def _asked(rng, fact, phrasing, told):
    question = fill(fact.kind.ask[phrasing[1]], fact.fields)
    rivals = [f.value for f, _ in told if f.value != fact.value]
    return Turn(dialogues.ask(rng, [fact], [question])[0].text, ("value", (fact.value, rivals)))


def recall(rng, n_facts, kinds=None):
    told = _draw(rng, n_facts, kinds or _HELD_OUT_KINDS, set())
    asked = rng.sample(told, min(n_facts, 5))
    return Trial([], _told(rng, told) + [_asked(rng, f, p, told) for f, p in asked])


def made_up(rng):
    return recall(rng, rng.randint(1, 4), facts.KINDS)


def a_name(rng, name):
    """Nothing but a name, told and asked for."""
    kind = facts.BY_NAME["name"]
    fact = facts.Fact(kind, {"k": "", "v": name}, name)
    told = [(fact, facts.draw_phrasing(rng, kind, True))]
    return Trial([], _told(rng, told) + [_asked(rng, *told[0], told)])


def changed(rng):
    taken = set()
    told = _draw(rng, rng.randint(1, 3), _HELD_OUT_KINDS, taken)
    able = [i for i, (fact, _) in enumerate(told) if fact.kind.change]
    if not able:
        return changed(rng)
    i = rng.choice(able)
    new = facts.draw_change(rng, told[i][0], taken)
    if new is None:
        return changed(rng)
    turns = _told(rng, told)
    if rng.random() < 0.5:
        turns.append(_asked(rng, *told[i], told))
    turns.append(Turn(dialogues.change(rng, new)[0].text, None))
    now = told[:i] + [(new, told[i][1])] + told[i + 1:]
    return Trial([], turns + [_asked(rng, new, told[i][1], now + [told[i]])])


def not_told(rng):
    taken = set()
    told = _draw(rng, rng.randint(0, 3), _HELD_OUT_KINDS, taken)
    (other, phrasing), = _draw(rng, 1, _HELD_OUT_KINDS, taken)
    return Trial([], _told(rng, told) + [_asked(rng, other, phrasing, told)._replace(check=("unknown", None))])


def stranger(rng):
    told = _draw(rng, rng.choice([0, 0, 1, 2]), _HELD_OUT_KINDS, set())
    return Trial([], _told(rng, told) + [Turn(rng.choice(held_out.PROMPTS), ("other", None))])


def tool(rng):
    tools = calls.some_tools(rng)
    chosen = rng.choice(tools)
    text, _ = calls.ask_for(rng, chosen, str)
    return Trial(tools, [Turn(text, ("call", chosen.name))])


# What is measured, and the share that has to be right.
KINDS = {
    "1 fact": lambda rng: recall(rng, 1),
    "2 facts": lambda rng: recall(rng, 2),
    "3 facts": lambda rng: recall(rng, 3),
    "4 facts": lambda rng: recall(rng, 4),
    "8 facts": lambda rng: recall(rng, 8),
    "made up": made_up,
    "changed": changed,
    "not told": not_told,
    "stranger": stranger,
    "tool": tool,
}
