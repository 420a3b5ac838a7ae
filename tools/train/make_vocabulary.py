"""Trains the vocabulary on generated dialogues and writes it as JSON."""

import argparse
import random
from collections import Counter

import dialogues
import facts
import lexicon
import tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1792)
    parser.add_argument("--dialogues", type=int, default=6000)
    parser.add_argument("out")
    args = parser.parse_args()
    rng = random.Random(20240501)
    counts = Counter()
    for _ in range(args.dialogues):
        for message in dialogues.make_dialogue(rng, dialogues.LEVELS[3]):
            counts.update(tokenizer.words_of(dialogues.plain(message.text)))
    # Invented names are there to be taken apart; the words that are values, whole.
    for _ in range(20000):
        counts.pop("\u0120" + facts.invented_name(rng), None)
    counts = Counter({w: n for w, n in counts.items() if n > 3})
    for word in lexicon.all_words():
        counts["\u0120" + word] = max(counts["\u0120" + word], 100)
    made = tokenizer.Tokenizer(tokenizer.train(counts, args.tokens))
    made.save(args.out)
    whole = sum(len(made.encode_word(w)) == 1 for w in counts)
    print(f"{len(made)} tokens, {whole} of {len(counts)} words whole")


if __name__ == "__main__":
    main()
