"""The tiny models of tools/make_goldens.py: metadata and tensors of each architecture.

A model's weights are even in [low, high) around what real weights do: matrices keep the
size of what flows through them, norms are near 1. Sizes are as small as they can be while
every branch that a file of the architecture may take is there.
"""

import math

import golden_deepseek4
import golden_phimoe

WIDTH, HEADS, KV_HEADS, HEAD, FFN, VOCABULARY, EXPERTS = 32, 4, 2, 8, 40, 64, 4
LLAMA_CPP = "llama.cpp of PyPI llama-cpp-python 0.3.36, without its table of GELU"


class Model:
    def __init__(self, architecture, layers=2, norm="rms", seed=1, judge=LLAMA_CPP, **keys):
        self.architecture, self.layers, self.seed, self.judge = architecture, layers, seed, judge
        self.keys, self.tensors, self.norm_kind = {}, [], norm
        epsilon = "attention.layer_norm_rms_epsilon" if norm == "rms" else "attention.layer_norm_epsilon"
        self.set(vocab_size=VOCABULARY, context_length=512, embedding_length=WIDTH,
                 block_count=layers, feed_forward_length=FFN)
        self.set(**{"attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
                    "rope.freq_base": 10000.0, epsilon: 1e-5})
        self.set(**keys)

    def set(self, **keys):
        self.keys.update({f"{self.architecture}.{key}": value for key, value in keys.items()})
        return self

    def tensor(self, name, dims, low, high):
        self.tensors.append([name, list(dims), low, high])

    def numbers(self, name, dims, limit):
        """I32 values from 0 to below the limit."""
        self.tensors.append([name, list(dims), 0, limit, "I32"])

    def matrix(self, name, n_in, n_out, *count, bias=False, gain=1.0):
        limit = round(gain * math.sqrt(3 / n_in), 4)
        self.tensor(name + ".weight", [n_in, n_out, *count], -limit, limit)
        if bias:
            self.tensor(name + ".bias", [n_out], -0.3, 0.3)

    def norm(self, name, n=WIDTH, bias=False):
        self.tensor(name + ".weight", [n], 0.6, 1.4)
        if bias:
            self.tensor(name + ".bias", [n], -0.3, 0.3)

    def ends(self, tied=False, norm_bias=False, output_bias=False, norm=True):
        self.tensor("token_embd.weight", [WIDTH, VOCABULARY], -1.0, 1.0)
        if norm:
            self.norm("output_norm", bias=norm_bias)
        if not tied:
            self.matrix("output", WIDTH, VOCABULARY, bias=output_bias, gain=2.0)
        return self

    def attention(self, blk, heads=HEADS, kv_heads=KV_HEADS, head=HEAD, fused=False, bias=False,
                  out_bias=False, head_norms=False):
        if fused:
            self.matrix(blk + "attn_qkv", WIDTH, (heads + 2 * kv_heads) * head, bias=bias)
        else:
            for part, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                self.matrix(f"{blk}attn_{part}", WIDTH, n * head, bias=bias)
        self.matrix(blk + "attn_output", heads * head, WIDTH, bias=out_bias)
        if head_norms:
            self.norm(blk + "attn_q_norm", head)
            self.norm(blk + "attn_k_norm", head)

    def ffn(self, blk, n=FFN, gate=True, bias=False, suffix=""):
        for part in ("gate", "up") if gate else ("up",):
            self.matrix(f"{blk}ffn_{part}{suffix}", WIDTH, n, bias=bias)
        self.matrix(f"{blk}ffn_down{suffix}", n, WIDTH, bias=bias)

    def experts(self, blk, n=24, shared=0, bias=False):
        self.matrix(blk + "ffn_gate_inp", WIDTH, EXPERTS, gain=2.0)
        if bias:
            ending = "" if self.architecture == "hy_v3" else ".bias"
            self.tensor(f"{blk}exp_probs_b{ending}", [EXPERTS], -0.3, 0.3)
        self.matrix(blk + "ffn_gate_exps", WIDTH, n, EXPERTS)
        self.matrix(blk + "ffn_up_exps", WIDTH, n, EXPERTS)
        self.matrix(blk + "ffn_down_exps", n, WIDTH, EXPERTS)
        if shared:
            self.ffn(blk, shared, suffix="_shexp")

    def done(self):
        return {"architecture": self.architecture, "judge": self.judge, "seed": self.seed,
                "keys": self.keys, "tensors": self.tensors}

    def dense(self, norm_bias=False, ffn_norm=True, ffn_gate=True, ffn_bias=False, **attention):
        """Layers of a norm, attention, a norm and a feed-forward."""
        for layer in range(self.layers):
            blk = f"blk.{layer}."
            self.norm(blk + "attn_norm", bias=norm_bias)
            self.attention(blk, **attention)
            if ffn_norm:
                self.norm(blk + "ffn_norm", bias=norm_bias)
            self.ffn(blk, gate=ffn_gate, bias=ffn_bias)
        return self


ROPE = {"rope.dimension_count": HEAD}
EXPERT_KEYS = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": 24}


def rope_divisors(model):
    model.tensor("rope_freqs.weight", [HEAD // 2], 1.0, 6.0)
    return model


def llama_like(architecture, divisors=False, tied=False, **parts):
    def make():
        model = Model(architecture, **ROPE).ends(tied=tied).dense(**parts)
        return rope_divisors(model).done() if divisors else model.done()
    return make


def qwen():
    model = Model("qwen", **ROPE, **{"attention.head_count_kv": HEADS, "feed_forward_length": 2 * FFN})
    return model.ends().dense(fused=True, kv_heads=HEADS, bias=True).done()


def maincoder():
    return Model("maincoder", **ROPE).ends().dense(head_norms=True).done()


def deci():
    heads, kv_heads, widths = [4, 0, 4], [2, 0, 1], [FFN, 24, 16]
    model = Model("deci", layers=3, **ROPE, **{
        "attention.head_count": heads, "attention.head_count_kv": kv_heads,
        "attention.key_length": HEAD, "attention.value_length": HEAD,
        "feed_forward_length": widths}).ends()
    for layer in range(3):
        blk = f"blk.{layer}."
        if heads[layer] > 0:
            model.norm(blk + "attn_norm")
            model.attention(blk, kv_heads=kv_heads[layer])
        model.norm(blk + "ffn_norm")
        model.ffn(blk, widths[layer])
    return rope_divisors(model).done()


def minicpm():
    model = Model("minicpm", **ROPE, embedding_scale=3.0, residual_scale=0.7, logit_scale=0.5)
    return model.ends(tied=True).dense().done()


def chatglm():
    model = Model("chatglm", **{"rope.dimension_count": HEAD // 2}).ends()
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm")
        model.attention(blk, fused=True, bias=True)
        model.norm(blk + "ffn_norm")
        model.matrix(blk + "ffn_up", WIDTH, 2 * FFN)
        model.matrix(blk + "ffn_down", FFN, WIDTH)
    return model.done()


def layer_norm_model(architecture, **parts):
    def make():
        model = Model(architecture, norm="layer", **ROPE)
        return model.ends(norm_bias=True).dense(norm_bias=True, **parts).done()
    return make


def gptneox(parallel):
    def make():
        model = Model("gptneox", norm="layer", use_parallel_residual=parallel,
                      **{"rope.dimension_count": HEAD // 2, "attention.head_count_kv": HEADS})
        return model.ends(norm_bias=True).dense(norm_bias=True, fused=True, kv_heads=HEADS, bias=True,
                                                out_bias=True, ffn_gate=False, ffn_bias=True).done()
    return make


def falcon(own_norm):
    def make():
        kv_heads = 2 if own_norm else 1
        model = Model("falcon", norm="layer", **ROPE, **{"attention.head_count_kv": kv_heads})
        model.ends(norm_bias=True, tied=own_norm)
        model.dense(norm_bias=True, ffn_norm=False, fused=True, kv_heads=kv_heads, ffn_gate=False)
        if own_norm:
            for layer in range(model.layers):
                model.norm(f"blk.{layer}.attn_norm_2", bias=True)
        return model.done()
    return make


def olmo():
    model = Model("olmo", norm="layer", **ROPE).ends(norm=False)
    for layer in range(model.layers):
        model.attention(f"blk.{layer}.")
        model.ffn(f"blk.{layer}.")
    return model.done()


def experts_model(architecture, layers=2, n_dense=1, shared=24, bias=False, **keys):
    def make():
        model = Model(architecture, layers=layers, **ROPE, **EXPERT_KEYS, **keys).ends()
        for layer in range(layers):
            blk = f"blk.{layer}."
            model.norm(blk + "attn_norm")
            model.attention(blk, head_norms=architecture in ("hy_v3", "mellum"))
            model.norm(blk + "ffn_norm")
            if layer < n_dense:
                model.ffn(blk)
            else:
                model.experts(blk, shared=shared, bias=bias)
        return model.done()
    return make


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 128}


def laguna(by_head):
    def make():
        layers = 5 if by_head else 2
        heads = [4 if layer % 4 == 0 else 8 for layer in range(layers)] if by_head else [4] * layers
        keys = {"attention.head_count": heads, "attention.key_length": HEAD,
                "attention.value_length": HEAD, "leading_dense_block_count": 1,
                "expert_shared_feed_forward_length": 16, "expert_weights_norm": True,
                "expert_weights_scale": 1.5, "rope.dimension_count": HEAD // 2, **YARN}
        if by_head:
            keys.update({"attention.sliding_window": 20, "rope.freq_base_swa": 500.0,
                         "rope.dimension_count_swa": HEAD})
        model = Model("laguna", layers=layers, **EXPERT_KEYS, **keys).ends()
        for layer in range(layers):
            blk, n = f"blk.{layer}.", heads[layer]
            model.norm(blk + "attn_norm")
            model.attention(blk, heads=n, head_norms=True)
            model.matrix(blk + "attn_gate", WIDTH, n if by_head else n * HEAD)
            model.norm(blk + "ffn_norm")
            if layer == 0:
                model.ffn(blk)
            else:
                model.experts(blk, n=24, shared=16, bias=True)
        return model.done()
    return make


def deepseek4():
    strides, dim, q_rank, index, streams = [0, 4, 128, 4], 16, 24, 64, 4
    mixes = (2 + streams) * streams
    model = Model("deepseek4", layers=4, judge="tools/golden_deepseek4.py, float64", **EXPERT_KEYS, **YARN, **{
        "attention.head_count_kv": 1, "attention.key_length": dim, "attention.value_length": dim,
        "rope.dimension_count": 8, "attention.q_lora_rank": q_rank, "attention.sliding_window": 20,
        "attention.output_group_count": 2, "attention.output_lora_rank": 12,
        "attention.compress_ratios": strides, "attention.compress_rope_freq_base": 40000.0,
        "attention.indexer.head_count": 3, "attention.indexer.key_length": index,
        "attention.indexer.top_k": 6, "hyper_connection.count": streams,
        "hyper_connection.sinkhorn_iterations": 4, "hyper_connection.epsilon": 1e-3,
        "hash_layer_count": 2, "expert_gating_func": 4, "expert_weights_norm": True,
        "expert_weights_scale": 1.5, "expert_shared_count": 1, "swiglu_clamp_exp": 0.8,
        "swiglu_clamp_shexp": 0.6}).ends()

    def mix(name, n_out, n_scales):
        model.matrix(name + "_fn", streams * WIDTH, n_out, gain=2.0)
        model.tensor(name + "_base.weight", [n_out], -1.0, 1.0)
        model.tensor(name + "_scale.weight", [n_scales], 0.5, 1.5)

    def entries(name, stride, n):
        width = 2 * n if stride == 4 else n
        model.matrix(name + "_compressor_kv", WIDTH, width)
        model.matrix(name + "_compressor_gate", WIDTH, width)
        model.tensor(name + "_compressor_ape.weight", [width, stride], -1.0, 1.0)
        model.norm(name + "_compressor_norm", n)

    mix("output_hc", streams, 1)
    for layer, stride in enumerate(strides):
        blk = f"blk.{layer}."
        mix(blk + "hc_attn", mixes, 3)
        mix(blk + "hc_ffn", mixes, 3)
        model.norm(blk + "attn_norm")
        model.matrix(blk + "attn_q_a", WIDTH, q_rank)
        model.norm(blk + "attn_q_a_norm", q_rank)
        model.matrix(blk + "attn_q_b", q_rank, HEADS * dim)
        model.matrix(blk + "attn_kv", WIDTH, dim)
        model.norm(blk + "attn_kv_a_norm", dim)
        model.tensor(blk + "attn_sinks.weight", [HEADS], -1.0, 1.0)
        model.matrix(blk + "attn_output_a", HEADS * dim // 2, 2 * 12)
        model.matrix(blk + "attn_output_b", 2 * 12, WIDTH)
        if stride > 0:
            entries(blk + "attn", stride, dim)
        if stride == 4:
            entries(blk + "indexer", stride, index)
            model.matrix(blk + "indexer.proj", WIDTH, 3)
            model.matrix(blk + "indexer.attn_q_b", q_rank, 3 * index)
        model.norm(blk + "ffn_norm")
        model.experts(blk, shared=24, bias=layer >= 2)
        if layer < 2:
            model.numbers(blk + "ffn_gate_tid2eid.weight", [2, VOCABULARY], EXPERTS)
    return model.done()


def muse_glimmer():
    model = Model("muse-glimmer", layers=4, **ROPE, **{
        "attention.key_length": HEAD, "attention.value_length": HEAD,
        "attention.sliding_window": 20, "rope.freq_base_swa": 500.0, "logit_scale": 0.8,
        "final_logit_softcapping": 20.0}).ends()
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            model.norm(blk + name)
        model.attention(blk, head_norms=True)
        model.matrix(blk + "attn_gate", WIDTH, HEADS * HEAD)
        model.ffn(blk)
    return model.done()


def spark2_5():
    heads = [4, 8]
    model = Model("spark2_5", **{
        "attention.head_count": heads, "attention.head_count_kv": [2, 2],
        "attention.key_length": HEAD, "attention.value_length": HEAD,
        "attention.sliding_window": 20, "attention.sliding_window_pattern": [False, True],
        "rope.dimension_count": HEAD, "rope.freq_base_swa": 500.0,
        "rope.dimension_count_swa": HEAD // 2}).ends()
    for layer in range(2):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm")
        model.attention(blk, heads=heads[layer])
        model.matrix(blk + "attn_gate", WIDTH, heads[layer])
        model.norm(blk + "ffn_norm")
        model.ffn(blk)
    return model.done()


def mamba():
    inner, state, rank, taps = 2 * WIDTH, 8, 4, 4
    model = Model("mamba", **{"attention.head_count": 0, "attention.head_count_kv": 0,
                              "feed_forward_length": 0, "ssm.conv_kernel": taps,
                              "ssm.inner_size": inner, "ssm.state_size": state,
                              "ssm.time_step_rank": rank, "ssm.dt_b_c_rms": True}).ends(tied=True)
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm")
        model.matrix(blk + "ssm_in", WIDTH, 2 * inner)
        model.tensor(blk + "ssm_conv1d.weight", [taps, inner], -1.0, 1.0)
        model.tensor(blk + "ssm_conv1d.bias", [inner], -0.3, 0.3)
        model.matrix(blk + "ssm_x", inner, rank + 2 * state)
        model.matrix(blk + "ssm_dt", rank, inner, bias=True)
        model.tensor(blk + "ssm_a", [state, inner], -1.0, -0.05)
        model.tensor(blk + "ssm_d", [inner], 0.5, 1.5)
        model.matrix(blk + "ssm_out", inner, WIDTH)
    return model.done()


def gemma():
    model = Model("gemma", **ROPE, **{"attention.key_length": HEAD, "attention.value_length": HEAD})
    return model.ends(tied=True).dense().done()


def glm4():
    model = Model("glm4", **{"rope.dimension_count": HEAD // 2}).ends()
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            model.norm(blk + name)
        model.attention(blk, bias=True)
        model.matrix(blk + "ffn_up", WIDTH, 2 * FFN)
        model.matrix(blk + "ffn_down", FFN, WIDTH)
    return model.done()


def granitemoe():
    model = Model("granitemoe", **ROPE, **EXPERT_KEYS, **{
        "feed_forward_length": 24, "expert_shared_feed_forward_length": 16, "embedding_scale": 3.0,
        "residual_scale": 0.7, "attention.scale": 0.3, "logit_scale": 0.5}).ends()
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm")
        model.attention(blk)
        model.norm(blk + "ffn_norm")
        model.experts(blk, shared=16)
    return model.done()


def olmoe():
    model = Model("olmoe", **ROPE, **EXPERT_KEYS, **{"feed_forward_length": 24,
                                                     "attention.head_count_kv": HEADS}).ends()
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm")
        model.attention(blk, kv_heads=HEADS)
        model.norm(blk + "attn_q_norm", HEADS * HEAD)
        model.norm(blk + "attn_k_norm", HEADS * HEAD)
        model.norm(blk + "ffn_norm")
        model.experts(blk)
    return model.done()


def seed_oss():
    model = Model("seed_oss", **ROPE).ends()
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm")
        model.attention(blk, bias=True)
        model.norm(blk + "post_attention_norm")
        model.ffn(blk)
    return model.done()


def nemotron_h(architecture, experts):
    def make():
        heads, groups, head, state, taps = 4, 2, 16, 8, 4
        inner, channels = heads * head, heads * head + 2 * groups * state
        keys = {"feed_forward_length": [0, 0, FFN], "attention.head_count_kv": [0, KV_HEADS, 0],
                "attention.key_length": HEAD, "attention.value_length": HEAD,
                "attention.layer_norm_epsilon": 1e-5, "ssm.conv_kernel": taps, "ssm.inner_size": inner, "ssm.state_size": state,
                "ssm.time_step_rank": heads, "ssm.group_count": groups}
        if experts:
            keys.update(EXPERT_KEYS, expert_shared_feed_forward_length=16, expert_shared_count=1,
                        expert_weights_norm=True, expert_weights_scale=1.5)
        model = Model(architecture, layers=3, **keys).ends()
        for layer in range(3):
            model.norm(f"blk.{layer}.attn_norm")
        model.matrix("blk.0.ssm_in", WIDTH, inner + channels + heads)
        model.tensor("blk.0.ssm_conv1d.weight", [taps, channels], -1.0, 1.0)
        model.tensor("blk.0.ssm_conv1d.bias", [channels], -0.3, 0.3)
        model.tensor("blk.0.ssm_dt.bias", [heads], -1.0, 1.0)
        model.tensor("blk.0.ssm_a", [1, heads], -1.0, -0.05)
        model.tensor("blk.0.ssm_d", [1, heads], 0.5, 1.5)
        model.tensor("blk.0.ssm_norm.weight", [inner // groups, groups], 0.6, 1.4)
        model.matrix("blk.0.ssm_out", inner, WIDTH)
        model.attention("blk.1.")
        if experts:
            model.matrix("blk.2.ffn_gate_inp", WIDTH, EXPERTS, gain=2.0)
            model.tensor("blk.2.exp_probs_b.bias", [EXPERTS], -0.3, 0.3)
            for part, n_in, n_out in (("up", WIDTH, 24), ("down", 24, WIDTH)):
                model.matrix(f"blk.2.ffn_{part}_exps", n_in, n_out, EXPERTS)
            model.ffn("blk.2.", 16, gate=False, suffix="_shexp")
        else:
            model.ffn("blk.2.", gate=False)
        return model.done()
    return make


def phimoe():
    model = Model("phimoe", expert_count=8, expert_used_count=2, feed_forward_length=24, **ROPE, **{
        "rope.scaling.attn_factor": 1.1, "rope.scaling.original_context_length": 512},
                  judge="tools/golden_phimoe.py, float64")
    model.ends(norm_bias=True, output_bias=True)
    for part, low in (("short", 1.0), ("long", 4.0)):
        model.tensor(f"rope_factors_{part}.weight", [HEAD // 2], low, 1.5 * low)
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        model.norm(blk + "attn_norm", bias=True)
        model.attention(blk, bias=True, out_bias=True)
        model.norm(blk + "ffn_norm", bias=True)
        model.matrix(blk + "ffn_gate_inp", WIDTH, 8)
        for part, n_in, n_out in (("gate", WIDTH, 24), ("up", WIDTH, 24), ("down", 24, WIDTH)):
            model.matrix(f"{blk}ffn_{part}_exps", n_in, n_out, 8)
    return model.done()


MODELS = {
    "arcee": llama_like("arcee", ffn_gate=False),
    "bailingmoe": experts_model("bailingmoe", n_dense=0, expert_shared_count=1,
                                expert_weights_norm=True, expert_weights_scale=1.5),
    "chatglm": chatglm,
    "codeshell": layer_norm_model("codeshell", bias=True, out_bias=True, ffn_gate=False,
                                  ffn_bias=True),
    "deci": deci,
    "deepseek": experts_model("deepseek", expert_shared_count=2, shared=48,
                              leading_dense_block_count=1, expert_weights_scale=1.5),
    "deepseek4": deepseek4,
    "ernie4_5": llama_like("ernie4_5"),
    "exaone": llama_like("exaone", divisors=True),
    "falcon": falcon(False),
    "falcon-two-norms": falcon(True),
    "gemma": gemma,
    "glm4": glm4,
    "gptneox": gptneox(True),
    "gptneox-in-turn": gptneox(False),
    "granitemoe": granitemoe,
    "hy_v3": experts_model("hy_v3", shared=16, bias=True, expert_shared_feed_forward_length=16,
                           expert_weights_norm=True, expert_weights_scale=1.5),
    "internlm2": llama_like("internlm2"),
    "jais2": layer_norm_model("jais2", bias=True, out_bias=True, ffn_gate=False, ffn_bias=True),
    "laguna": laguna(True),
    "laguna-all": laguna(False),
    "maincoder": maincoder,
    "mamba": mamba,
    "mellum": experts_model("mellum", layers=4, n_dense=0, shared=0, **YARN, **{
        "attention.sliding_window": 20}),
    "minicpm": minicpm,
    "muse-glimmer": muse_glimmer,
    "nemotron_h": nemotron_h("nemotron_h", False),
    "nemotron_h_moe": nemotron_h("nemotron_h_moe", True),
    "olmo": olmo,
    "olmoe": olmoe,
    "orion": layer_norm_model("orion"),
    "pangu-embedded": llama_like("pangu-embedded", bias=True, out_bias=True),
    "phimoe": phimoe,
    "qwen": qwen,
    "seed_oss": seed_oss,
    "spark2_5": spark2_5,
    "xverse": llama_like("xverse"),
}

# Models that are not judged by llama.cpp, by the function that judges them.
JUDGES = {"deepseek4": golden_deepseek4.logits, "phimoe": golden_phimoe.logits}
