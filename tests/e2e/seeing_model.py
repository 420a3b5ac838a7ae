"""Tiny random models that see pictures, and pictures for them. Their answers differ with every
pixel."""

import base64
import pathlib
import struct
import zlib

from weft_process import add_metadata, make_model

# Like the templates of models that see, it writes the mark of a picture itself, so that the same
# words in a message are only words.
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
WIDTH = 32  # the length of the tiny projectors' embeddings
SIZES = ("--embd", WIDTH, "--heads", 2, "--kv-heads", 1, "--head-dim", 16, "--ffn", 64)


def make_seeing(folder, shape="tiny-llama", projector="tiny-idefics3-mmproj"):
    """The files of a model and of its projector. Not named so that one is found next to the other."""
    folder = pathlib.Path(folder)
    plain = make_model(folder / "plain.gguf", shape, "F32", *SIZES)
    model = add_metadata(plain, {"tokenizer.chat_template": TEMPLATE}, folder / "llama.gguf")
    return model, make_model(folder / "projector.gguf", projector)


def _png(width, height, rows):
    def chunk(kind, data):
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def png(seed, width=84, height=84):
    """A picture of stripes, as a file."""
    return _png(width, height, b"".join(
        b"\0" + bytes((x * 7 + y * seed * 3 + c * 60 + seed * 11) % 256
                      for x in range(width) for c in range(3))
        for y in range(height)))


def large_png(seed, side=1792):
    """A picture in one color."""
    return _png(side, side, (b"\0" + bytes((seed, 100, 200)) * side) * side)


def coded(data):
    return base64.b64encode(data).decode()
