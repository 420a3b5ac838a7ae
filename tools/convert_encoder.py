#!/usr/bin/env python3
"""Converts a BERT encoder from Hugging Face's files to GGUF.

  tools/convert_encoder.py [--type f32|f16|q8_0] FOLDER OUT.gguf

FOLDER holds config.json, model.safetensors, vocab.txt and tokenizer_config.json, and if it is
for sentence-transformers also 1_Pooling/config.json. A model with a classifier
(BertForSequenceClassification) becomes one that gives scores. Needs numpy.
"""

import argparse
import json
import os
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "train"))
import gguf  # noqa: E402
from gguf import U32  # noqa: E402

KINDS = {"f32": gguf.F32, "f16": gguf.F16, "q8_0": gguf.Q8_0}
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
MEAN, CLS, LAST, RANK = 1, 2, 3, 4
DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "I32": "<i4"}

ENDS = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def fail(message):
    sys.exit(f"{sys.argv[0]}: {message}")


def read_safetensors(path):
    """Name to array, as float32."""
    raw = path.read_bytes()
    (n,) = struct.unpack_from("<Q", raw)
    arrays = {}
    for name, entry in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(raw[begin:end], "<u2").astype("<u4") << 16
            array = bits.view("<f4")
        elif entry["dtype"] in DTYPES:
            array = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]])
        else:
            fail(f"{path}: {name} has the type {entry['dtype']}, which is not known here")
        arrays[name] = array.reshape(entry["shape"]).astype(np.float32)
    return arrays


def plain_name(name):
    """Without the model's own prefix, and with the names that norms have today."""
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            name = name[:-len(old)] + new
    return name


def gguf_name(name, has_classifier):
    """The tensor's name in GGUF; empty for what plays no part."""
    for old, new in ENDS.items():
        if name.startswith(old):
            return new + name[len(old):]
    if name.startswith("encoder.layer."):
        layer, part = name[len("encoder.layer."):].split(".", 1)
        for old, new in PARTS.items():
            if part.startswith(old + "."):
                return f"blk.{layer}.{new}{part[len(old):]}"
    if has_classifier:
        if name.startswith("pooler.dense."):
            return name.replace("pooler.dense", "cls")
        if name.startswith("classifier."):
            return name.replace("classifier", "cls.output")
    if name.startswith(("pooler.", "cls.", "embeddings.position_ids")):
        return ""
    return fail(f"the tensor {name} has no place in a BERT encoder")


def tensors_of(arrays, kind):
    has_classifier = "classifier.weight" in arrays
    tensors = {}
    for name, array in arrays.items():
        to = gguf_name(name, has_classifier)
        if not to:
            continue
        # Norms, biases and the small tables stay exact.
        is_matrix = to.endswith(".weight") and array.ndim == 2
        small = to in ("token_types.weight", "position_embd.weight", "cls.output.weight")
        fits = kind != gguf.Q8_0 or array.shape[-1] % 32 == 0
        tensors[to] = (array, kind if is_matrix and not small and fits else gguf.F32)
    return tensors


def vocabulary(folder, special):
    """Tokens with a mark where a word begins, instead of one where it continues."""
    tokens, types = [], []
    text = (folder / "vocab.txt").read_text(encoding="utf-8")
    for token in text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        if token in special.values():
            tokens.append(token)
            types.append(UNKNOWN if token == special["unk_token"] else CONTROL)
        else:
            tokens.append(token[2:] if token.startswith("##") else "\u2581" + token)
            types.append(NORMAL)
    return tokens, types


def pooling_of(folder, has_classifier):
    if has_classifier:
        return RANK
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return CLS
    config = json.loads(path.read_text())
    for key, pooling in (("pooling_mode_mean_tokens", MEAN), ("pooling_mode_cls_token", CLS),
                         ("pooling_mode_lasttoken", LAST)):
        if config.get(key):
            return pooling
    return fail(f"{path} pools in a way that is not known here")


def metadata_of(folder, config, has_classifier, kind):
    read = json.loads((folder / "tokenizer_config.json").read_text())
    special = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
               "cls_token": "[CLS]", "mask_token": "[MASK]"}
    for key in special:
        value = read.get(key, special[key])
        special[key] = value["content"] if isinstance(value, dict) else value
    tokens, types = vocabulary(folder, special)
    ids = {token: i for i, token in enumerate(tokens)}
    if len(tokens) > config["vocab_size"]:
        fail(f"vocab.txt has {len(tokens)} tokens, the embedding {config['vocab_size']} rows")
    # Rows that no text uses have tokens that no text makes.
    for i in range(len(tokens), config["vocab_size"]):
        tokens.append(f"[unused-row-{i}]")
        types.append(CONTROL)
    lowercase = read.get("do_lower_case", True)
    strip = read.get("strip_accents")
    metadata = {
        "general.architecture": "bert",
        "general.name": folder.resolve().name,
        "general.file_type": U32(FILE_TYPES[kind]),
        "bert.vocab_size": U32(config["vocab_size"]),
        "bert.context_length": U32(config["max_position_embeddings"]),
        "bert.embedding_length": U32(config["hidden_size"]),
        "bert.block_count": U32(config["num_hidden_layers"]),
        "bert.feed_forward_length": U32(config["intermediate_size"]),
        "bert.attention.head_count": U32(config["num_attention_heads"]),
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": U32(pooling_of(folder, has_classifier)),
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": U32(config.get("type_vocab_size", 1)),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": U32(ids[special["unk_token"]]),
        "tokenizer.ggml.seperator_token_id": U32(ids[special["sep_token"]]),
        "tokenizer.ggml.padding_token_id": U32(ids[special["pad_token"]]),
        "tokenizer.ggml.cls_token_id": U32(ids[special["cls_token"]]),
        "tokenizer.ggml.bos_token_id": U32(ids[special["cls_token"]]),
        "tokenizer.ggml.mask_token_id": U32(ids[special["mask_token"]]),
        "tokenizer.ggml.normalizer.lowercase": lowercase,
        "tokenizer.ggml.normalizer.strip_accents": lowercase if strip is None else strip,
    }
    labels = config.get("id2label")
    if has_classifier and labels:
        metadata["bert.classifier.output_labels"] = [labels[k] for k in sorted(labels, key=int)]
    return metadata


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--type", choices=sorted(KINDS), default="f16")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out")
    args = parser.parse_args()
    config = json.loads((args.folder / "config.json").read_text())
    if config.get("model_type") != "bert":
        fail(f"{args.folder} holds a model of the type {config.get('model_type')}, not bert")
    if config.get("hidden_act", "gelu") != "gelu":
        fail(f"{args.folder} activates by {config['hidden_act']}, not by gelu")
    if config.get("position_embedding_type", "absolute") != "absolute":
        fail(f"{args.folder} has positions that are not absolute")
    arrays = {plain_name(name): array
              for name, array in read_safetensors(args.folder / "model.safetensors").items()}
    has_classifier = "classifier.weight" in arrays
    gguf.write(args.out, metadata_of(args.folder, config, has_classifier, args.type),
               tensors_of(arrays, KINDS[args.type]))
    print(f"{args.out}: {os.path.getsize(args.out)} bytes")


if __name__ == "__main__":
    main()
