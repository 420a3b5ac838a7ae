"""Facts that a user tells and asks back: the kinds, and how people put them.

A kind has clauses that tell it (`say`), questions (`ask`) and clauses that answer
(`answer`), in which {v} is what is to be recalled and the other fields are the key.
"""

import zlib
from collections import namedtuple

import lexicon as lex

# What the model has to recall is marked, so that training can weigh it.
MARK, UNMARK = "\x01", "\x02"

Kind = namedtuple("Kind", "name weight say ask answer change fields")
Fact = namedtuple("Fact", "kind fields value")


def invented_name(rng):
    parts = [rng.choice(lex.SYLLABLES) for _ in range(rng.randint(1, 2))]
    return ("".join(parts) + rng.choice(lex.ENDINGS)).capitalize()


def a_name(rng):
    return invented_name(rng) if rng.random() < 0.12 else rng.choice(lex.NAMES)


def _digits(rng):
    return str(rng.randint(1000, 9999))


def _age(rng):
    return str(rng.randint(5, 90))


def _pick(words):
    return lambda rng: rng.choice(words)


_PLURAL = {"key": "keys"}

KINDS = [
    Kind("name", 3,
         ["my name is {v}", "I am {v}", "I am called {v}", "you can call me {v}", "people call me {v}",
          "I'm {v}", "the name is {v}"],
         ["what is my name", "who am I", "do you know my name", "what am I called",
          "can you tell me my name", "do you remember my name", "what's my name"],
         ["your name is {v}"], [],
         {"v": a_name}),
    Kind("colour", 5,
         ["my {k} is {v}", "I have a {v} {k}", "I painted my {k} {v}", "the colour of my {k} is {v}",
          "I bought a {v} {k}", "I own a {v} {k}", "I just got a {v} {k}"],
         ["what colour is my {k}", "which colour is my {k}", "what is the colour of my {k}",
          "do you remember the colour of my {k}", "tell me the colour of my {k}",
          "what color is my {k}", "what was the colour of my {k}"],
         ["your {k} is {v}"], ["my {k} is {v} now", "now my {k} is {v}", "I painted my {k} {v}"],
         {"k": _pick(lex.THINGS), "v": _pick(lex.COLOURS)}),
    Kind("pet", 3,
         ["my {k} is called {v}", "I have a {k} named {v}", "my {k}'s name is {v}",
          "the name of my {k} is {v}", "I have a {k} called {v}"],
         ["what is my {k} called", "what is my {k}'s name", "what is the name of my {k}",
          "do you remember the name of my {k}", "how is my {k} called"],
         ["your {k} is called {v}"], [],
         {"k": _pick(lex.ANIMALS), "v": a_name}),
    Kind("relation", 3,
         ["my {k} is called {v}", "my {k}'s name is {v}", "my {k} is {v}", "the name of my {k} is {v}",
          "I have a {k} named {v}"],
         ["what is my {k}'s name", "who is my {k}", "what is my {k} called",
          "what is the name of my {k}", "do you know the name of my {k}"],
         ["your {k} is called {v}"], [],
         {"k": _pick(lex.RELATIONS), "v": a_name}),
    Kind("favourite", 3,
         ["my favourite {k} is {v}", "the {k} I like best is {v}", "my best loved {k} is {v}",
          "of every {k} I like {v} most"],
         ["what is my favourite {k}", "which {k} do I like best", "do you know my favourite {k}",
          "which {k} do I like most", "what is my favorite {k}"],
         ["your favourite {k} is {v}"], ["now my favourite {k} is {v}"],
         {"k": _pick(list(lex.FAVOURITES)),
          "v": lambda rng, k: rng.choice(lex.FAVOURITES[k])}),
    Kind("home", 2,
         ["I live in {v}", "my home is in {v}", "I come from {v}", "my house is in {v}"],
         ["where do I live", "in which city do I live", "where is my home", "which city do I live in",
          "where am I from"],
         ["you live in {v}"], ["I moved to {v}", "now I live in {v}"],
         {"v": _pick(lex.PLACES)}),
    Kind("their home", 3,
         ["{k} lives in {v}", "{k} comes from {v}", "the home of {k} is in {v}", "{k} has a flat in {v}"],
         ["where does {k} live", "in which city does {k} live", "where is the home of {k}",
          "which city does {k} live in"],
         ["{k} lives in {v}"], ["{k} moved to {v}", "now {k} lives in {v}"],
         {"k": a_name, "v": _pick(lex.PLACES)}),
    Kind("job", 1.5,
         ["I work as a {v}", "I am a {v}", "my job is {v}", "I earn my money as a {v}"],
         ["what is my job", "what do I do for work", "what do I work as", "do you know my job"],
         ["you work as a {v}"], ["now I work as a {v}"],
         {"v": _pick(lex.JOBS)}),
    Kind("their job", 2,
         ["{k} works as a {v}", "{k} is a {v}", "the job of {k} is {v}"],
         ["what is the job of {k}", "what does {k} do for work", "what does {k} work as"],
         ["{k} works as a {v}"], ["now {k} works as a {v}"],
         {"k": a_name, "v": _pick(lex.JOBS)}),
    Kind("has", 4,
         ["{k} has a {v}", "{k} owns a {v}", "{k} took the {v}", "{k} got a {v}", "I gave {k} the {v}"],
         ["what does {k} have", "what did {k} get", "which thing does {k} have", "what has {k} got"],
         ["{k} has the {v}"], [],
         {"k": a_name, "v": _pick(lex.HELD)}),
    Kind("who has", 4,
         ["{v} has a {k}", "{v} owns a {k}", "{v} took the {k}", "{v} got a {k}", "I gave {v} the {k}"],
         ["who has the {k}", "who owns the {k}", "who got the {k}", "who has a {k}", "where is the {k}"],
         ["the {k} is with {v}"], ["now {v} has the {k}", "{v} took the {k}"],
         {"k": _pick(lex.HELD), "v": a_name}),
    Kind("count", 3,
         ["I have {v} {k}", "I own {v} {k}", "there are {v} {k} on my table", "I bought {v} {k}"],
         ["how many {k} do I have", "how many {k} are there", "what number of {k} do I have",
          "do you know how many {k} I have"],
         ["you have {v} {k}"], ["now I have {v} {k}"],
         {"k": _pick(lex.COUNTED), "v": _pick(lex.NUMBERS[2:])}),
    Kind("spot", 3,
         ["my {k} is in the {v}", "I put my {k} in the {v}", "I left my {k} in the {v}",
          "you find my {k} in the {v}"],
         ["where is my {k}", "where did I put my {k}", "where did I leave my {k}",
          "where can I find my {k}"],
         ["your {k} is in the {v}"], ["I moved my {k} to the {v}", "now my {k} is in the {v}"],
         {"k": _pick([w for w in lex.PLACED if not w.endswith("s")]), "v": _pick(lex.SPOTS)}),
    Kind("day", 2,
         ["my {k} is on {v}", "I have a {k} on {v}", "on {v} I have a {k}", "there is a {k} on {v}"],
         ["when is my {k}", "on which day is my {k}", "what day is my {k}", "which day is the {k}"],
         ["your {k} is on {v}"], ["my {k} was moved to {v}", "now my {k} is on {v}"],
         {"k": _pick(lex.EVENTS), "v": _pick(lex.DAYS)}),
    Kind("code", 1,
         ["the code of my {k} is {v}", "my {k} code is {v}", "the number of my {k} is {v}"],
         ["what is the code of my {k}", "what is my {k} code", "what is the number of my {k}"],
         ["the code of your {k} is {v}"], [],
         {"k": _pick(["safe", "door", "phone", "bike", "bag", "garage", "house", "locker"]),
          "v": _digits}),
    Kind("age", 1,
         ["I am {v} years old", "my age is {v}", "I turned {v} today"],
         ["how old am I", "what is my age", "do you know how old I am"],
         ["you are {v} years old"], [],
         {"v": _age}),
    Kind("their age", 1,
         ["{k} is {v} years old", "the age of {k} is {v}", "{k} turned {v} today"],
         ["how old is {k}", "what is the age of {k}", "do you know how old {k} is"],
         ["{k} is {v} years old"], [],
         {"k": a_name, "v": _age}),
]
BY_NAME = {kind.name: kind for kind in KINDS}
_WEIGHTS = [kind.weight for kind in KINDS]

# Kinds whose keys would be confused: two facts of a group may not share a key.
_GROUPS = {"pet": "named", "relation": "named", "has": "has", "who has": "has",
           "their home": "their home", "their job": "their job"}


def _hash(*parts):
    return zlib.crc32("|".join(str(p) for p in parts).encode())


def is_held_out(kind, fields):
    """Combinations of key and value that no training dialogue contains. (None of favourites:
    a season is nothing else, so that without its combination it would not occur at all. Of
    them, as of all kinds, phrasings are held out.)"""
    key, value = fields.get("k", ""), fields["v"]
    if kind.name == "favourite":
        return False
    if kind.name in ("has", "who has"):  # the same fact from both sides
        return _hash("has", *sorted((key, value))) % 10 == 0
    return _hash(kind.name, key, value) % 10 == 0


def is_held_out_phrasing(kind, say, ask):
    return _hash(kind.name, "phrasing", say, ask) % 5 == 0


def fill(clause, fields, mark=False):
    if mark:
        fields = dict(fields, v=MARK + fields["v"] + UNMARK)
    text = clause.format(**fields)
    for vowel in "aeiouAEIOU":  # "a" and "an"
        text = text.replace(" a " + vowel, " an " + vowel)
        text = text.replace(" a " + MARK + vowel, " an " + MARK + vowel)
    return text


def _suits(kind, fields, held_out):
    return kind.name == "favourite" or is_held_out(kind, fields) == held_out


def draw_value(rng, kind, key):
    draw = kind.fields["v"]
    return draw(rng, key) if kind.name == "favourite" else draw(rng)


def draw_fact(rng, taken, held_out, kind=None):
    """A fact whose key is not in `taken` (a set, which it joins)."""
    for _ in range(200):
        chosen = kind or rng.choices(KINDS, _WEIGHTS)[0]
        key = chosen.fields["k"](rng) if "k" in chosen.fields else ""
        value = draw_value(rng, chosen, key)
        group = _GROUPS.get(chosen.name, chosen.name)
        marks = {(group, key)}
        if group == "has":
            marks.add((group, value))
        if marks & taken or key == value:
            continue
        fields = {"k": key, "v": value}
        if not _suits(chosen, fields, held_out):
            continue
        taken |= marks
        return Fact(chosen, fields, value)
    return None


def draw_change(rng, fact, held_out):
    """The same key with another value, or None."""
    for _ in range(50):
        value = draw_value(rng, fact.kind, fact.fields["k"])
        fields = dict(fact.fields, v=value)
        if value != fact.value and _suits(fact.kind, fields, held_out):
            return Fact(fact.kind, fields, value)
    return None


def draw_phrasing(rng, kind, held_out):
    """Indices of a way to tell and a way to ask, of the allowed pairs."""
    pairs = [(s, a) for s in range(len(kind.say)) for a in range(len(kind.ask))]
    allowed = [p for p in pairs if is_held_out_phrasing(kind, *p) == held_out]
    return rng.choice(allowed or pairs)
