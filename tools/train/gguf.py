"""Writes GGUF files: metadata, then tensors of F32, F16 or Q8_0, in numpy arrays."""

import struct

import numpy as np

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
F32, F16, Q8_0 = 0, 1, 8
_ALIGNMENT = 32


def _string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


class U32(int):
    """An integer that is written as unsigned; plain ones are signed."""


def _scalar(value):
    """The type number and the bytes of a value."""
    if isinstance(value, bool):
        return _BOOL, struct.pack("<B", value)
    if isinstance(value, U32):
        return _U32, struct.pack("<I", value)
    if isinstance(value, int):
        return _I32, struct.pack("<i", value)
    if isinstance(value, float):
        return _F32, struct.pack("<f", value)
    return _STRING, _string(value)


def _value(value):
    if not isinstance(value, list):
        kind, raw = _scalar(value)
        return struct.pack("<I", kind) + raw
    items = [_scalar(v) for v in value]
    return struct.pack("<IIQ", _ARRAY, items[0][0], len(items)) + b"".join(raw for _, raw in items)


def quantize_q8_0(values):
    """Blocks of 32: an F16 scale, then 32 signed bytes."""
    blocks = values.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(1) / 127
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    quants = np.rint(blocks * inverse[:, None]).astype(np.int8)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    out[:, 2:] = quants.view(np.uint8)
    return out.tobytes()


def _data(values, kind):
    if kind == Q8_0:
        return quantize_q8_0(values)
    return values.astype("<f2" if kind == F16 else "<f4").tobytes()


def _pad(n):
    return b"\0" * (-n % _ALIGNMENT)


def write(path, metadata, tensors):
    """`metadata`: key -> value; `tensors`: name -> (array, type), rows last but one."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    body = b""
    for name, (values, kind) in tensors.items():
        dims = values.shape[::-1]
        head += _string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", kind, len(body))
        raw = _data(values, kind)
        body += raw + _pad(len(raw))
    with open(path, "wb") as file:
        file.write(head + _pad(len(head)) + body)
