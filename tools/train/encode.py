"""Dialogues as token ids and weights: what the template writes, and what is learned."""

import re

from dialogues import MARK, UNMARK
from tokenizer import END, ROLES

VALUE_WEIGHT = 4.0  # of what is to be recalled, beside 1 for other words of a reply
FIRST_WEIGHT = 3.0  # of the first word, which settles what is answered at all
_MARKS = re.compile("([" + MARK + UNMARK + "])")


def _encode_marked(tokenizer, text):
    """Ids of the text without its marks, and which of them lie between marks."""
    plain, spans, start = "", [], 0
    for part in _MARKS.split(text):
        if part == MARK:
            start = len(plain.encode())
        elif part == UNMARK:
            spans.append((start, len(plain.encode())))
        else:
            plain += part
    ids = tokenizer.encode(plain)
    inside, at = [], 0
    for i in ids:
        end = at + tokenizer.n_bytes[i]
        # A token may begin with the space before the value.
        inside.append(any(at < e and end > s for s, e in spans))
        at = end
    return ids, inside


def encode_dialogue(tokenizer, messages):
    """Ids, and for each the weight with which it is to be predicted from those before it."""
    ids, weights = [], []
    for message in messages:
        ids.append(ROLES[message.role])
        weights.append(0.0)
        body, inside = _encode_marked(tokenizer, message.text)
        ids += body + [END]
        if message.role == "assistant":
            learned = [VALUE_WEIGHT if v else 1.0 for v in inside] + [1.0]
            learned[0] = max(learned[0], FIRST_WEIGHT)
            weights += learned
        else:
            weights += [0.0] * (len(body) + 1)
    return ids, weights
