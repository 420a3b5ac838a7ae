"""A byte-level BPE vocabulary: how it is made, and encoding as Weft encodes.

`_WORD` splits as the pre-tokenizer "qwen2" of the GGUF file does (the generator writes no
combining marks, and no digits but ASCII ones).
"""

import json
import re

END, USER, ASSISTANT, SYSTEM, TOOL = range(5)
SPECIALS = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>",
            "<tool_call>", "</tool_call>"]
# Those that a reply may contain as text.
VISIBLE = {"<tool_call>", "</tool_call>"}
ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "tool": TOOL}

_WORD = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d"
                   r"| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
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


def chain(words):
    """Merges that make these words whole, each from its front: one character more at a time.

    A merge therefore begins with the space before a word, or with a capital letter that begins
    it, and no name is cut in another way where a space stands before it than where none does:
    whatever is not a known word is copied character by character."""
    merges = []
    for word in words:
        for end in range(1, len(word)):
            if (word[:end], word[end]) not in merges:
                merges.append((word[:end], word[end]))
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
        self.n_bytes = [len(t) for t in self.tokens]  # a character of a token is a byte
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

    def beginnings(self):
        """Of words of small letters, behind their space."""
        return [t[1:] for t in self.tokens if re.fullmatch("\u0120[a-z]+", t)]

    def encode_word(self, word):
        ids = self._cache.get(word)
        if ids is None:
            if len(self._cache) > 100000:  # invented words never come again
                self._cache.clear()
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
