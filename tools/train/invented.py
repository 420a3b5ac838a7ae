"""Names and words that nobody has: what is copied from the context has to be copied whatever
it is, so almost all that is told in training is made up. Nothing held out is ever drawn."""

import held_out

_HELD_OUT = held_out.values()
# The beginnings of words that a vocabulary has whole: only a token that was copied in training
# is copied later, so some words begin with these.
_BEGINNINGS = []
_ONSETS = ("b c d f g h j k l m n p r s t v w z br ch cl cr dr fl fr gl gr kl kr pl pr qu sc sh sk sl "
           "sn sp st str sw th tr ts ph rh wh y x zh ng kw").split()
_VOWELS = "a e i o u a e i o u a e i o u ai au ea ee ei ia ie io oa oe oo ou ue ui y".split()
_CODAS = ("n r l s t m d k th nd rt x ck ff ll ss tt nn rd st ng sh ch p b g z v rn lf mp ns "
          "ph ld rk").split()
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ACCENTED = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþßāăąćčďđēęěğıīłńňőœřśşšťūůűźżžșțơư"
_SCRIPTS = ["абвгдежзийклмнопрстуфхцчшщыьэюя", "αβγδεζηθικλμνξοπρστυφχψω", "אבגדהוזחטיכלמנסעפצקרשת",
            "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "的一是在不了有和人这中大为上个国我以要他", "あいうえおかきくけこさしすせそたちつてと",
            "가나다라마바사아자차카타파하민수지영"]


def _syllables(rng, count):
    out = ""
    for i in range(count):
        out += rng.choice(_ONSETS) if (i or rng.random() < 0.8) else ""
        out += rng.choice(_VOWELS)
        if rng.random() < (0.6 if i == count - 1 else 0.3):
            out += rng.choice(_CODAS)
    return out


def _letters(rng, alphabet, shortest, longest):
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(shortest, longest)))


def _accented(rng, word):
    at = rng.randrange(len(word) + 1)
    return word[:at] + rng.choice(_ACCENTED) + word[at + rng.randint(0, 1):]


def begin_like(beginnings):
    """From now on some words begin like this."""
    _BEGINNINGS[:] = beginnings


def _begun(rng):
    return rng.choice(_BEGINNINGS) + _syllables(rng, rng.choice([0, 1, 1, 2]))


def _draw(rng, make):
    while True:
        word = make(rng)
        if len(word) > 1 and not any(part.lower() in _HELD_OUT for part in word.replace("-", " ").split()):
            return word


def _one_name(rng):
    chance = rng.random()
    if chance < 0.12 and _BEGINNINGS:
        word = _begun(rng)
    elif chance < 0.62:
        word = _syllables(rng, rng.choice([1, 2, 2, 2, 3, 3, 4]))
    elif chance < 0.82:
        word = _letters(rng, _LETTERS, 2, 10)
    elif chance < 0.96:
        word = _accented(rng, _syllables(rng, rng.choice([1, 2, 2, 3])))
    else:
        word = _letters(rng, rng.choice(_SCRIPTS), 2, 6)
    word = word[:1].upper() + word[1:]
    if rng.random() < 0.04 and len(word) > 4:  # McDonald, DeShawn
        at = rng.randint(2, len(word) - 2)
        word = word[:at] + word[at:].capitalize()
    return word


def name(rng):
    """One that begins with a capital letter, mostly of one word."""
    chance = rng.random()
    if chance < 0.03:
        return _draw(rng, _one_name) + "-" + _draw(rng, _one_name)
    if chance < 0.06:
        return _draw(rng, _one_name) + " " + _draw(rng, _one_name)
    if chance < 0.10:
        return _draw(rng, _one_name).lower()
    return _draw(rng, _one_name)


def word(rng):
    """In small letters, of one to four syllables."""
    chance = rng.random()
    if chance < 0.35 and _BEGINNINGS:
        return _draw(rng, _begun)
    if chance < 0.9:
        return _draw(rng, lambda r: _syllables(r, r.choice([1, 2, 2, 3, 3, 4])))
    return _draw(rng, lambda r: _letters(r, _LETTERS, 3, 9))


def one_of(rng, words, share=0.4):
    """One of these words, or, more often, an invented one."""
    return rng.choice(words) if rng.random() < share else word(rng)


def code(rng):
    """Digits, or digits and letters."""
    if rng.random() < 0.7:
        return _letters(rng, "0123456789", 2, 7)
    return _letters(rng, "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ", 3, 8)


def gibberish(rng):
    return " ".join(_letters(rng, _LETTERS, 1, 9) for _ in range(rng.randint(1, 8)))


def foreign(rng):
    """Words of another script, or with many accents."""
    if rng.random() < 0.5:
        script = rng.choice(_SCRIPTS)
        return " ".join(_letters(rng, script, 1, 8) for _ in range(rng.randint(1, 5))) + rng.choice("?.! ")
    return " ".join(_accented(rng, word(rng)) for _ in range(rng.randint(2, 7))) + rng.choice("?.! ")
