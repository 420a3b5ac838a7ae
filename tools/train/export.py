"""Writes a checkpoint as a GGUF file for Weft."""

import argparse
import os

import gguf
import train
from gguf import U32
from tokenizer import END, SPECIALS, VISIBLE, Tokenizer

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


def metadata_of(shape, tokenizer, template, kind):
    kv_heads = [0 if layer == "C" else shape.n_kv_heads for layer in shape.layers]
    types = [_USER_DEFINED if t in VISIBLE else _CONTROL for t in SPECIALS]
    return {
        "general.architecture": "lfm2",
        "general.name": "weft-box",
        "general.file_type": U32(kind if kind != gguf.Q8_0 else 7),
        "lfm2.vocab_size": U32(shape.n_vocab),
        "lfm2.context_length": U32(shape.context_tokens),
        "lfm2.embedding_length": U32(shape.d_model),
        "lfm2.block_count": U32(len(shape.layers)),
        "lfm2.feed_forward_length": U32(shape.d_ff),
        "lfm2.attention.head_count": U32(shape.n_heads),
        "lfm2.attention.head_count_kv": kv_heads,
        "lfm2.attention.layer_norm_rms_epsilon": float(shape.epsilon),
        "lfm2.rope.freq_base": float(shape.rope_base),
        "lfm2.rope.dimension_count": U32(shape.n_rot),
        "lfm2.shortconv.l_cache": U32(shape.n_taps),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": types + [_NORMAL] * (len(tokenizer) - len(types)),
        "tokenizer.ggml.merges": [" ".join(m) for m in tokenizer.merges],
        "tokenizer.ggml.eos_token_id": U32(END),
        "tokenizer.ggml.padding_token_id": U32(END),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": template,
    }


def tensors_of(model, kind):
    shape = model.shape

    def matrix(parameter):
        return parameter.detach().numpy(), kind

    def exact(parameter):
        return parameter.detach().numpy(), gguf.F32

    tensors = {"token_embd.weight": matrix(model.embedding.weight),
               "token_embd_norm.weight": exact(model.output_norm.weight)}
    for i, layer in enumerate(model.layers):
        mixer = layer.mixer
        part = {"attn_norm": exact(layer.mixer_norm.weight), "ffn_norm": exact(layer.ffn_norm.weight),
                "ffn_gate": matrix(layer.gate_up.weight[:shape.d_ff]),
                "ffn_up": matrix(layer.gate_up.weight[shape.d_ff:]),
                "ffn_down": matrix(layer.down.weight)}
        if shape.layers[i] == "C":
            part.update({"shortconv.in_proj": matrix(mixer.in_proj.weight),
                         "shortconv.conv": exact(mixer.kernel),
                         "shortconv.out_proj": matrix(mixer.out_proj.weight)})
        else:
            part.update({"attn_q": matrix(mixer.q.weight), "attn_k": matrix(mixer.k.weight),
                         "attn_v": matrix(mixer.v.weight), "attn_output": matrix(mixer.out.weight),
                         "attn_q_norm": exact(mixer.q_norm.weight),
                         "attn_k_norm": exact(mixer.k_norm.weight)})
        tensors.update({f"blk.{i}.{name}.weight": t for name, t in part.items()})
    return tensors


def read_template():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template.jinja")) as file:
        return file.read().rstrip("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--vocabulary", help="vocab.json (default: beside the checkpoint)")
    parser.add_argument("--type", choices=["f32", "f16", "q8_0"], default="f16")
    parser.add_argument("out")
    args = parser.parse_args()
    beside = os.path.join(os.path.dirname(args.checkpoint), "vocab.json")
    tokenizer = Tokenizer.load(args.vocabulary or beside)
    model, state = train.load_model(args.checkpoint)
    kind = {"f32": gguf.F32, "f16": gguf.F16, "q8_0": gguf.Q8_0}[args.type]
    gguf.write(args.out, metadata_of(model.shape, tokenizer, read_template(), kind),
               tensors_of(model, kind))
    print(f"{args.out}: {os.path.getsize(args.out)} bytes, {state['progress']}")


if __name__ == "__main__":
    main()
