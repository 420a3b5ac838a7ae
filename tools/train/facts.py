"""Facts that a user tells and asks back: the kinds, and how people put them.

A kind has clauses that tell it (`say`), questions (`ask`) and a clause that answers
(`answer`), in which {v} is what is to be recalled and {k} is the key. `change` are further
clauses that tell it anew; {o} is what it was before.
"""

import zlib
from collections import namedtuple

import invented
import lexicon as lex

# What the model has to recall is marked, so that training can weigh it.
MARK, UNMARK = "\x01", "\x02"

Kind = namedtuple("Kind", "name weight say ask answer change fields")
Fact = namedtuple("Fact", "kind fields value")


def _known(words, share=0.4):
    return lambda rng: invented.one_of(rng, words, share)


def _place(rng):
    return rng.choice(lex.PLACES) if rng.random() < 0.2 else invented.name(rng)


def _favourite(rng, k):
    if rng.random() < 0.4 and k in lex.FAVOURITES:
        return rng.choice(lex.FAVOURITES[k])
    return invented.word(rng) if rng.random() < 0.7 else invented.name(rng)


def _secret(rng):
    return rng.choice([invented.word, invented.word, invented.name, invented.code])(rng)


def _number(rng):
    return rng.choice(lex.NUMBERS[2:]) if rng.random() < 0.6 else str(rng.randint(2, 999))


def _age(rng):
    return str(rng.randint(5, 99))


def _day(rng):
    return rng.choice(lex.DAYS) if rng.random() < 0.9 else invented.name(rng)


_PLACED = [w for w in lex.PLACED if not w.endswith("s")]

KINDS = [
    Kind("name", 6,
         ["my name is {v}", "I am {v}", "I am called {v}", "you can call me {v}", "people call me {v}",
          "I'm {v}", "the name is {v}", "call me {v}", "this is {v}"],
         ["what is my name", "who am I", "do you know my name", "what am I called",
          "can you tell me my name", "do you remember my name", "what's my name", "what was my name",
          "say my name", "tell me my name"],
         "your name is {v}",
         ["my name is {v} now", "I changed my name to {v}", "my name is not {o} but {v}",
          "my new name is {v}", "call me {v} from now on", "call me {v} instead",
          "my name is no longer {o}, it is {v}", "I am {v}, not {o}"],
         {"v": invented.name}),
    Kind("colour", 4,
         ["my {k} is {v}", "I have a {v} {k}", "I painted my {k} {v}", "the colour of my {k} is {v}",
          "I bought a {v} {k}", "I own a {v} {k}", "I just got a {v} {k}", "the color of my {k} is {v}"],
         ["what colour is my {k}", "which colour is my {k}", "what is the colour of my {k}",
          "do you remember the colour of my {k}", "tell me the colour of my {k}",
          "what color is my {k}", "what was the colour of my {k}", "what is the color of my {k}"],
         "your {k} is {v}",
         ["my {k} is {v} now", "now my {k} is {v}", "I painted my {k} {v}", "my {k} is not {o} but {v}",
          "the new colour of my {k} is {v}"],
         {"k": _known(lex.THINGS, 0.8), "v": _known(lex.COLOURS)}),
    Kind("pet", 3,
         ["my {k} is called {v}", "I have a {k} named {v}", "my {k}'s name is {v}",
          "the name of my {k} is {v}", "I have a {k} called {v}", "my {k} is named {v}"],
         ["what is my {k} called", "what is my {k}'s name", "what is the name of my {k}",
          "do you remember the name of my {k}", "how is my {k} called", "what's my {k}'s name"],
         "your {k} is called {v}",
         ["my {k} is called {v} now", "the new name of my {k} is {v}", "my {k}'s name is not {o} but {v}"],
         {"k": _known(lex.ANIMALS, 0.8), "v": invented.name}),
    Kind("relation", 4,
         ["my {k} is called {v}", "my {k}'s name is {v}", "my {k} is {v}", "the name of my {k} is {v}",
          "I have a {k} named {v}", "my {k} is named {v}"],
         ["what is my {k}'s name", "who is my {k}", "what is my {k} called",
          "what is the name of my {k}", "do you know the name of my {k}", "what's my {k}'s name"],
         "your {k} is called {v}",
         ["my {k} is called {v} now", "my new {k} is called {v}", "my {k}'s name is not {o} but {v}"],
         {"k": _known(lex.RELATIONS, 0.9), "v": invented.name}),
    Kind("favourite", 4,
         ["my favourite {k} is {v}", "the {k} I like best is {v}", "my favorite {k} is {v}",
          "of every {k} I like {v} most"],
         ["what is my favourite {k}", "which {k} do I like best", "do you know my favourite {k}",
          "which {k} do I like most", "what is my favorite {k}", "what's my favourite {k}"],
         "your favourite {k} is {v}",
         ["now my favourite {k} is {v}", "my favourite {k} is not {o} but {v}",
          "my new favourite {k} is {v}"],
         {"k": _known(list(lex.FAVOURITES), 0.85), "v": _favourite}),
    Kind("home", 3,
         ["I live in {v}", "my home is in {v}", "I come from {v}", "my house is in {v}", "I am from {v}"],
         ["where do I live", "in which city do I live", "where is my home", "which city do I live in",
          "where am I from", "where is my house", "do you know where I live", "tell me where I live"],
         "you live in {v}",
         ["I moved to {v}", "now I live in {v}", "I live in {v} now", "I do not live in {o} but in {v}"],
         {"v": _place}),
    Kind("their home", 2,
         ["{k} lives in {v}", "{k} comes from {v}", "the home of {k} is in {v}", "{k} has a flat in {v}"],
         ["where does {k} live", "in which city does {k} live", "where is the home of {k}",
          "do you know where {k} lives", "where does {k} come from",
          "which city does {k} live in"],
         "{k} lives in {v}", ["{k} moved to {v}", "now {k} lives in {v}"],
         {"k": invented.name, "v": _place}),
    Kind("job", 3,
         ["I work as a {v}", "I am a {v}", "my job is {v}", "I earn my money as a {v}", "I'm a {v}",
          "I am a {v} by trade", "I have a job as a {v}"],
         ["what is my job", "what do I do for work", "what do I work as", "do you know my job",
          "what's my job", "which job do I have", "tell me my job", "what was my job"],
         "your job is {v}", ["now I work as a {v}", "my new job is {v}", "I am not a {o} but a {v}"],
         {"v": _known(lex.JOBS, 0.5)}),
    Kind("their job", 1.5,
         ["{k} works as a {v}", "{k} is a {v}", "the job of {k} is {v}", "{k} has a job as a {v}",
          "{k}'s job is {v}"],
         ["what is the job of {k}", "what does {k} do for work", "what does {k} work as", "which job does {k} have",
          "what is {k}'s job", "do you know the job of {k}"],
         "the job of {k} is {v}", ["now {k} works as a {v}", "the new job of {k} is {v}"],
         {"k": invented.name, "v": _known(lex.JOBS, 0.5)}),
    Kind("has", 2,
         ["{k} has a {v}", "{k} owns a {v}", "{k} took the {v}", "{k} got a {v}", "I gave {k} the {v}",
          "{k} has the {v}", "I gave the {v} to {k}", "{k} bought a {v}"],
         ["what does {k} have", "what did {k} get", "which thing does {k} have", "what has {k} got",
          "what does {k} own", "tell me what {k} has", "do you know what {k} has"],
         "{k} has the {v}", [],
         {"k": invented.name, "v": _known(lex.HELD, 0.5)}),
    Kind("who has", 2.5,
         ["{v} has a {k}", "{v} owns a {k}", "{v} took the {k}", "{v} got a {k}", "I gave {v} the {k}",
          "{v} has the {k}", "I gave the {k} to {v}", "{v} bought a {k}", "the {k} is with {v}"],
         ["who has the {k}", "who owns the {k}", "who got the {k}", "who has a {k}", "who took the {k}",
          "do you know who has the {k}", "tell me who has the {k}"],
         "the {k} is with {v}", ["now {v} has the {k}", "{v} took the {k}"],
         {"k": _known(lex.HELD, 0.8), "v": invented.name}),
    Kind("count", 2.5,
         ["I have {v} {k}", "I own {v} {k}", "there are {v} {k} on my table", "I bought {v} {k}",
          "I have got {v} {k}", "I've got {v} {k}", "I collected {v} {k}"],
         ["how many {k} do I have", "how many {k} are there", "what number of {k} do I have",
          "do you know how many {k} I have", "how many {k} have I got", "tell me how many {k} I have"],
         "you have {v} {k}", ["now I have {v} {k}", "I have {v} {k} now"],
         {"k": _known(lex.COUNTED, 0.9), "v": _number}),
    Kind("spot", 3,
         ["my {k} is in the {v}", "I put my {k} in the {v}", "I left my {k} in the {v}",
          "you find my {k} in the {v}", "I keep my {k} in the {v}", "I forgot my {k} in the {v}"],
         ["where is my {k}", "where did I put my {k}", "where did I leave my {k}",
          "where can I find my {k}", "do you know where my {k} is", "tell me where my {k} is"],
         "your {k} is in the {v}", ["I moved my {k} to the {v}", "now my {k} is in the {v}"],
         {"k": _known(_PLACED, 0.85), "v": _known(lex.SPOTS)}),
    Kind("day", 2,
         ["my {k} is on {v}", "I have a {k} on {v}", "on {v} I have a {k}", "there is a {k} on {v}",
          "my {k} takes place on {v}", "on {v} there is my {k}"],
         ["when is my {k}", "on which day is my {k}", "what day is my {k}", "which day is the {k}",
          "do you know when my {k} is", "tell me when my {k} is"],
         "your {k} is on {v}", ["my {k} was moved to {v}", "now my {k} is on {v}"],
         {"k": _known(lex.EVENTS, 0.9), "v": _day}),
    Kind("code", 1.5,
         ["the code of my {k} is {v}", "my {k} code is {v}", "the number of my {k} is {v}",
          "the code for my {k} is {v}", "my {k} has the code {v}"],
         ["what is the code of my {k}", "what is my {k} code", "what is the number of my {k}",
          "what is the code for my {k}", "do you know the code of my {k}", "which code does my {k} have"],
         "the code of your {k} is {v}", ["the new code of my {k} is {v}", "now my {k} code is {v}"],
         {"k": _known(lex.CODED, 0.9), "v": invented.code}),
    Kind("secret", 3,
         ["the {k} is {v}", "our {k} is {v}", "remember the {k} {v}", "remember that the {k} is {v}",
          "my {k} is {v}", "please remember that the {k} is {v}"],
         ["what is the {k}", "what was the {k}", "do you remember the {k}", "tell me the {k}",
          "do you know the {k}", "what is my {k}"],
         "the {k} is {v}", ["the new {k} is {v}", "the {k} is {v} now", "the {k} is not {o} but {v}"],
         {"k": _known(lex.SECRETS, 0.6), "v": _secret}),
    Kind("age", 2,
         ["I am {v} years old", "my age is {v}", "I turned {v} today", "I'm {v} years old", "I turned {v}",
          "I just turned {v}", "I am {v}"],
         ["how old am I", "what is my age", "do you know how old I am", "what's my age", "tell me my age",
          "tell me how old I am", "what was my age"],
         "you are {v} years old", ["I am {v} years old now", "I am not {o} but {v} years old"],
         {"v": _age}),
    Kind("their age", 1.5,
         ["{k} is {v} years old", "the age of {k} is {v}", "{k} turned {v} today", "{k} just turned {v}",
          "{k}'s age is {v}"],
         ["how old is {k}", "what is the age of {k}", "do you know how old {k} is", "tell me how old {k} is",
          "what is {k}'s age"],
         "{k} is {v} years old", ["{k} is {v} years old now"],
         {"k": invented.name, "v": _age}),
]
BY_NAME = {kind.name: kind for kind in KINDS}
_WEIGHTS = [kind.weight for kind in KINDS]

# Kinds whose keys would be confused: two facts of a group may not share a key.
_GROUPS = {"pet": "named", "relation": "named", "has": "has", "who has": "has"}


def is_held_out_phrasing(kind, say, ask):
    """Pairs of a way to tell and a way to ask that no training dialogue contains."""
    return zlib.crc32(f"{kind.name}|phrasing|{say}|{ask}".encode()) % 5 == 0


def fill(clause, fields, mark=False):
    if mark:
        fields = dict(fields, v=MARK + fields["v"] + UNMARK)
    text = clause.format(**fields)
    for vowel in "aeiouAEIOU":  # "a" and "an"
        text = text.replace(" a " + vowel, " an " + vowel)
        text = text.replace(" a " + MARK + vowel, " an " + MARK + vowel)
    return text


def draw_value(rng, kind, key):
    draw = kind.fields["v"]
    return draw(rng, key) if kind.name == "favourite" else draw(rng)


def draw_fact(rng, taken, kind=None):
    """A fact whose key and value are not in `taken` (a set, which they join)."""
    for _ in range(200):
        chosen = kind or rng.choices(KINDS, _WEIGHTS)[0]
        key = chosen.fields["k"](rng) if "k" in chosen.fields else ""
        value = draw_value(rng, chosen, key)
        marks = {(_GROUPS.get(chosen.name, chosen.name), key), value.lower()}
        if not marks & taken and key.lower() not in taken and key.lower() != value.lower():
            taken |= marks | ({key.lower()} if key[:1].isupper() else set())
            return Fact(chosen, {"k": key, "v": value}, value)
    return None


def draw_key(rng, fact, taken):
    """A question about a key of the same kind that was not told: its fields, or None."""
    if "k" not in fact.kind.fields:
        return None
    for _ in range(20):
        key = fact.kind.fields["k"](rng)
        if (_GROUPS.get(fact.kind.name, fact.kind.name), key) not in taken and key.lower() not in taken:
            return {"k": key, "v": ""}
    return None


def draw_change(rng, fact, taken):
    """The same key with another value, or None."""
    for _ in range(20):
        value = draw_value(rng, fact.kind, fact.fields["k"])
        if value.lower() not in taken:
            taken.add(value.lower())
            return Fact(fact.kind, dict(fact.fields, v=value, o=fact.value), value)
    return None


def draw_phrasing(rng, kind, held_out):
    """Indices of a way to tell and a way to ask, of the allowed pairs."""
    pairs = [(s, a) for s in range(len(kind.say)) for a in range(len(kind.ask))]
    allowed = [p for p in pairs if is_held_out_phrasing(kind, *p) == held_out]
    return rng.choice(allowed or pairs)
