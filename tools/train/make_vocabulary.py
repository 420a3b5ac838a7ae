"""Makes the vocabulary of generated dialogues and writes it as JSON: the words that the
generator itself says again and again; names and values are left to be taken apart."""

import argparse
import random
import re
from collections import Counter

import dialogues
import tokenizer

# A word of small letters behind a space, or one that begins a sentence, or punctuation.
_WORD = re.compile("\u0120[a-z]+|[A-Z][a-z]+|'s|[^A-Za-z0-9\u0120\u0080-\uffff]{2,}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1280)
    parser.add_argument("--dialogues", type=int, default=6000)
    parser.add_argument("out")
    args = parser.parse_args()
    rng = random.Random(20240501)
    counts = Counter()
    for _ in range(args.dialogues):
        for message in dialogues.make_dialogue(rng, dialogues.LEVELS[2]):
            text = dialogues.plain(message.text)
            counts.update(w for w in tokenizer.words_of(text) if _WORD.fullmatch(w))
    words, merges = [], []
    for word, count in counts.most_common():
        tried = tokenizer.chain(words + [word])
        if len(tried) + len(tokenizer.SPECIALS) + 256 > args.tokens or count < 20:
            break
        words.append(word)
        merges = tried
    made = tokenizer.Tokenizer(merges)
    made.save(args.out)
    print(f"{len(made)} tokens, {len(words)} words whole, the rarest {count} times: {words[-1]}")


if __name__ == "__main__":
    main()
