#!/usr/bin/env python3
"""Folders as Hugging Face's libraries save models: the logits of the GGUF file with the same
weights, and the ids of the `tokenizers` package of PyPI, which is installed once into
$WEFT_PYTHON_DIR. Exit code 77, a skip, when pip cannot get it.
"""

import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import unittest

from python_packages import SKIP, install
from weft_process import weft

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOLDENS = pathlib.Path(os.environ.get("WEFT_GOLDENS", ROOT.parent / "shared/goldens")) / "models"

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def llama3(digits):
    return (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES)


def cased(suffix, digits):
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (f"{lead}{UPPER}*{LOWER}+{suffix}|{lead}{UPPER}+{LOWER}*{suffix}|{digits}" +
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)


PATTERNS = {
    "llama-bpe": llama3(r"\p{N}{1,3}"),
    "qwen2": llama3(r"\p{N}"),
    "gpt-4o": cased(CONTRACTION + "?", r"\p{N}{1,3}"),
    "tekken": cased("", r"\p{N}"),
}
PROSE = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
ODD = ("Größe 中文字 あいう 한국어 naïve café 🙂👩‍👩‍👧 ½ Ⅷ ٣٤ don't I'LL we've\n\n\t  tabs   and    spaces"
       "\r\n 12345678 3.14 http://x.y/z?a=b&c=d _under_ ABCdef XMLHttp")

NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
        "output_norm.weight": "model.norm.weight"}
CONFIG = {"block_count": "num_hidden_layers", "embedding_length": "hidden_size",
          "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
          "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
          "context_length": "max_position_embeddings",
          "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta"}


def read_gguf(path):
    """The metadata and the tensors (name, dims, bytes) of a file of F32."""
    raw, at = path.read_bytes(), 24

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return raw[at - n:at].decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = take("IQ")
            return [value(inner) for _ in range(n)]
        return take({10: "Q", 11: "q", 12: "d"}.get(kind) or "BbHhIif?"[kind])

    n_tensors, n_keys = struct.unpack_from("<QQ", raw, 8)
    metadata = {}
    for _ in range(n_keys):
        key = text()
        metadata[key] = value(take("I"))
    heads = []
    for _ in range(n_tensors):
        name, n_dims = text(), take("I")
        dims = [take("Q") for _ in range(n_dims)]
        kind, offset = take("IQ")
        assert kind == 0, name
        heads.append((name, dims, offset))
    start = (at + 31) // 32 * 32
    tensors = []
    for name, dims, offset in heads:
        n_bytes = 4
        for n in dims:
            n_bytes *= n
        tensors.append((name, dims, raw[start + offset:start + offset + n_bytes]))
    return metadata, tensors


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, dims, data in tensors:
        head[name] = {"dtype": "F32", "shape": dims[::-1], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors))


def their_rows(dims, data, n_heads):
    """Rows of q or k as Transformers has them: the even ones of each head, then the odd ones."""
    width, rows = 4 * dims[0], dims[1]
    per_head = rows // n_heads
    out = []
    for head in range(n_heads):
        first = head * per_head
        for odd in (0, 1):
            out += [data[(first + r) * width:(first + r + 1) * width]
                    for r in range(odd, per_head, 2)]
    return b"".join(out)


def save(folder, class_name, gguf):
    metadata, tensors = read_gguf(gguf)
    architecture = metadata["general.architecture"]
    config = {"architectures": [class_name]}
    for key, field in CONFIG.items():
        if f"{architecture}.{key}" in metadata:
            config[field] = metadata[f"{architecture}.{key}"]
    stored = []
    for name, dims, data in tensors:
        if class_name.startswith("Llama") and name.endswith(("attn_q.weight", "attn_k.weight")):
            field = "num_key_value_heads" if "attn_k" in name else "num_attention_heads"
            data = their_rows(dims, data, config[field])
        if name in ENDS:
            stored.append((ENDS[name], dims, data))
        else:
            _, number, part, kind = name.split(".")
            stored.append((f"model.layers.{number}.{NAMES[part]}.{kind}", dims, data))
    (folder / "config.json").write_text(json.dumps(config))
    half = len(stored) // 2
    write_safetensors(folder / "model-00001-of-00002.safetensors", stored[:half])
    write_safetensors(folder / "model-00002-of-00002.safetensors", stored[half:])
    vocab = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": vocab}}))


class FolderTest(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.place.name) / "model"
        self.folder.mkdir()

    def tearDown(self):
        self.place.cleanup()

    def test_logits_are_those_of_the_gguf_file(self):
        if not GOLDENS.is_dir():
            self.skipTest("no reference data: set WEFT_GOLDENS to the goldens' folder")
        for name, class_name in (("llama", "LlamaForCausalLM"), ("qwen2", "Qwen2ForCausalLM"),
                                 ("qwen3", "Qwen3ForCausalLM")):
            gguf = GOLDENS / f"{name}.gguf"
            save(self.folder, class_name, gguf)
            outs = []
            for model in (gguf, self.folder):
                out = self.folder.parent / "logits.f32"
                done = weft("logits", "-m", model, "--tokens", GOLDENS / f"{name}.tokens.json",
                            "--out", out)
                self.assertEqual(done.code, 0, done)
                outs.append(out.read_bytes())
                shown = weft("show", "-m", model, "--json")
                self.assertEqual(shown.code, 0, shown)
            self.assertEqual(outs[0], outs[1], name)

    def test_a_folder_that_cannot_run_says_why(self):
        done = weft("tokenize", "-m", self.folder, "x")
        self.assertEqual(done.code, 1, done)
        self.assertIn("a folder without config.json", done.err)

    def check_ids(self, name, tokenizer):
        (self.folder / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
        write_safetensors(self.folder / "model.safetensors", [("x", [1], b"abcd")])
        tokenizer.save(str(self.folder / "tokenizer.json"))
        drawn = random.Random(3)
        words = ODD.split(" ") + [" ", "  ", "\n", "\t", "a", "Z", "中", "1", "<|im_end|>"]
        texts = [ODD, PROSE[:3000], "x<|im_end|>y"]
        texts += ["".join(drawn.choices(words, k=12)) for _ in range(9)]
        for text in texts:
            done = weft("tokenize", "-m", self.folder, "--json", "-", stdin=text)
            self.assertEqual(done.code, 0, done)
            theirs = tokenizer.encode(text, add_special_tokens=False).ids
            self.assertEqual(done.json["tokens"], theirs, (name, text))

    def test_ids_are_those_of_the_tokenizers_package(self):
        marks = ["<|endoftext|>", "<|im_end|>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet,
                                      special_tokens=marks, show_progress=False)
        for name, pattern in PATTERNS.items():
            whole = name in ("llama-bpe", "tekken")
            tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=whole))
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
            tokenizer.train_from_iterator([PROSE, ODD, ODD], trainer)
            self.check_ids(name, tokenizer)
        for name in ("gpt-2", "smollm"):
            tokenizer = tokenizers.Tokenizer(models.BPE())
            bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.pre_tokenizer = bytes_alone if name == "gpt-2" else pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), bytes_alone])
            tokenizer.train_from_iterator([PROSE, ODD, ODD], trainer)
            self.check_ids(name, tokenizer)

    def test_ids_of_pieces_are_those_of_the_tokenizers_package(self):
        """A vocabulary of SentencePiece's kind: bytes where no token fits."""
        tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True,
                                                    fuse_unk=True))
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("▁"), "merged_with_next")
        all_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
        tokenizer.train_from_iterator([PROSE, ODD], trainers.BpeTrainer(
            vocab_size=2000, show_progress=False,
            special_tokens=["<unk>", "<s>", "</s>", "<|im_end|>", *all_bytes]))
        written = json.loads(tokenizer.to_str())
        written["pre_tokenizer"] = None
        written["added_tokens"] = [token for token in written["added_tokens"]
                                   if token["content"] not in all_bytes]
        self.check_ids("pieces", tokenizers.Tokenizer.from_str(json.dumps(written)))


if __name__ == "__main__":
    if not install(HERE / "folder_requirements.txt", os.environ["WEFT_PYTHON_DIR"]):
        sys.exit(SKIP)
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    unittest.main()
