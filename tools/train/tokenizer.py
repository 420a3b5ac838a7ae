"""A byte-level BPE vocabulary: its training, and encoding as Weft encodes.

The text of the generator is ASCII; for it `_WORD` splits exactly as the pre-tokenizer
"qwen2" of the GGUF file does.
"""

import json
import re
from collections import Counter, defaultdict

END, USER, ASSISTANT, SYSTEM, TOOL = range(5)
SPECIALS = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>",
            "<tool_call>", "</tool_call>"]
# Those that a reply may contain as text.
VISIBLE = {"<tool_call>", "</tool_call>"}
ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "tool": TOOL}

_WORD = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]"
                   r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
_SPECIAL = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")


def byte_characters():
    """How the file format writes each byte in a token's text."""
    characters, spare = [], 256
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or (byte >= 0xA1 and byte != 0xAD):
            characters.append(chr(byte))
        else:
            characters.append(chr(spare))
            spare += 1
    return characters


_CHARACTERS = byte_characters()


def words_of(text):
    """The words of a text in the alphabet of the tokens."""
    return ["".join(_CHARACTERS[b] for b in word.encode()) for word in _WORD.findall(text)]


def train(counts, n_tokens):
    """The merges of a vocabulary of n_tokens. `counts`: how often each word occurs.

    A word weighs as the square root of its count: rare names are to become whole
    tokens too."""
    words = sorted(counts)
    weights = [counts[w] ** 0.5 for w in words]
    split = [list(w) for w in words]
    pair_weight, users = Counter(), defaultdict(set)
    for i, parts in enumerate(split):
        for pair in zip(parts, parts[1:]):
            pair_weight[pair] += weights[i]
            users[pair].add(i)
    merges = []
    while len(merges) < n_tokens - len(SPECIALS) - 256 and pair_weight:
        best = max(pair_weight, key=lambda p: (round(pair_weight[p], 6), p))
        if pair_weight[best] <= 0:
            break
        merges.append(best)
        for i in sorted(users[best]):
            parts = split[i]
            for pair in zip(parts, parts[1:]):
                pair_weight[pair] -= weights[i]
            split[i] = parts = _merged(parts, best)
            for pair in zip(parts, parts[1:]):
                pair_weight[pair] += weights[i]
                users[pair].add(i)
        del pair_weight[best]
    return merges


def _merged(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = SPECIALS + _CHARACTERS + ["".join(m) for m in self.merges]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self._ranks = {m: i for i, m in enumerate(self.merges)}
        self._cache = {}

    @classmethod
    def load(cls, path):
        with open(path) as file:
            return cls(json.load(file)["merges"])

    def save(self, path):
        with open(path, "w") as file:
            json.dump({"merges": self.merges}, file)

    def __len__(self):
        return len(self.tokens)

    def encode_word(self, word):
        ids = self._cache.get(word)
        if ids is None:
            parts = list(word)
            while len(parts) > 1:
                best = min(zip(parts, parts[1:]), key=lambda p: self._ranks.get(p, 1 << 30))
                if best not in self._ranks:
                    break
                parts = _merged(parts, best)
            ids = self._cache[word] = [self.ids[p] for p in parts]
        return ids

    def encode(self, text):
        ids = []
        for piece in _SPECIAL.split(text):
            if piece in self.ids and piece in SPECIALS:
                ids.append(self.ids[piece])
            else:
                for word in words_of(piece):
                    ids += self.encode_word(word)
        return ids

    def decode(self, ids):
        bytes_of = {c: b for b, c in enumerate(_CHARACTERS)}
        out = b""
        for i in ids:
            text = self.tokens[i]
            out += text.encode() if i < len(SPECIALS) else bytes(bytes_of[c] for c in text)
        return out.decode(errors="replace")
