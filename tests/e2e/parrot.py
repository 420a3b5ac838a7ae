"""A model that says one given text, whatever it is asked.

Its layer adds nothing. A token's embedding is a unit vector of its own, and each row of the output
matrix looks for the token before it in the text. The template ends with the token before the first.
"""

import pathlib
import struct

WIDTH = 64  # of a head, and of the feed-forward layer
FIRST = 260  # after the special tokens and those of bytes
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}<go>"
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item):
    kind, raw = {int: (4, lambda: struct.pack("<I", item)),
                 float: (6, lambda: struct.pack("<f", item)),
                 str: (8, lambda: text(item)),
                 list: (9, lambda: array(item))}[type(item)]
    return kind, raw()


def array(items):
    values = [value(item) for item in items]
    return struct.pack("<IQ", values[0][0], len(items)) + b"".join(raw for _, raw in values)


def matrix(n_rows, columns, ones):
    data = bytearray(4 * n_rows * columns)
    for row, column in ones:
        struct.pack_into("<f", data, 4 * (row * columns + column), 1.0)
    return (columns, n_rows), bytes(data)


def pieces(words):
    """The text in tokens, no two of which are equal."""
    found, begin = [], 0
    for end in range(1, len(words) + 1):
        piece = words[begin:end]
        if len(piece) >= 4 and piece not in found or end == len(words):
            found.append(piece)
            begin = end
    assert len(set(found)) == len(found), found[-1]
    return found


def make_parrot(path, words):
    says = pieces(words)
    tokens = ["<unk>", "<s>", "</s>", "<go>", *(f"<0x{byte:02X}>" for byte in range(256)), *says]
    kinds = [UNKNOWN, CONTROL, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(says)]
    n = len(tokens)
    width = -(-n // WIDTH) * WIDTH
    values = {
        "general.architecture": "llama", "general.name": "parrot", "llama.block_count": 1,
        "llama.context_length": 512, "llama.embedding_length": width,
        "llama.feed_forward_length": WIDTH, "llama.attention.head_count": width // WIDTH,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [token.replace(" ", "\u2581") for token in tokens],
        "tokenizer.ggml.scores": [0.0] * n,
        "tokenizer.ggml.token_type": [int(kind) for kind in kinds],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE}
    path_of_text = [3, *range(FIRST, n), 2]
    vector = ((width,), struct.pack(f"<{width}f", *[1.0] * width))
    zero = matrix(width, width, [])
    tensors = {
        "token_embd.weight": matrix(n, width, ((token, token) for token in range(n))),
        "output_norm.weight": vector,
        "output.weight": matrix(n, width, zip(path_of_text[1:], path_of_text)),
        "blk.0.attn_norm.weight": vector, "blk.0.ffn_norm.weight": vector,
        **{f"blk.0.attn_{name}.weight": zero for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": matrix(WIDTH, width, []),
        "blk.0.ffn_up.weight": matrix(WIDTH, width, []),
        "blk.0.ffn_down.weight": matrix(width, WIDTH, [])}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, item in values.items():
        kind, raw = value(item)
        head += text(key) + struct.pack("<I", kind) + raw
    offset, body = 0, b""
    for name, (shape, data) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", 0, offset)
        body += data + bytes(-len(data) % 32)
        offset = len(body)
    pathlib.Path(path).write_bytes(head + bytes(-len(head) % 32) + body)
    return pathlib.Path(path)
