"""DeepSeek V4 in float64, by the equations of its published model (Hugging Face's DeepseekV4).

Whole texts at once, entry by entry: nothing is kept between tokens, so that this shares no idea of
state with the engine that it judges.
"""

import gguf
import numpy


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {t.name: numpy.array(t.data, dtype=numpy.float64) for t in reader.tensors}

    def number(self, key):
        return self.fields["deepseek4." + key].contents()

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T

    def norm(self, name, x):
        return self.plain_norm(x) * self.tensors[name + ".weight"]

    def plain_norm(self, x):
        epsilon = self.number("attention.layer_norm_rms_epsilon")
        return x / numpy.sqrt((x ** 2).mean(axis=-1, keepdims=True) + epsilon)


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def softmax(x, axis=-1):
    weights = numpy.exp(x - x.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def frequencies(file, stretched):
    n = file.number("rope.dimension_count") // 2
    pairs = numpy.arange(n)
    if not stretched:
        return file.number("rope.freq_base") ** (-pairs / n)
    base, factor = file.number("attention.compress_rope_freq_base"), file.number("rope.scaling.factor")
    plain = base ** (-pairs / n)
    context = file.number("rope.scaling.original_context_length")

    def pair_of(turns):
        return 2 * n * numpy.log(context / (turns * 2 * numpy.pi)) / (2 * numpy.log(base))
    low = max(numpy.floor(pair_of(32)), 0)
    high = min(numpy.ceil(pair_of(1)), 2 * n - 1)
    slow = numpy.clip((pairs - low) / max(high - low, 0.001), 0, 1)
    return plain / factor * slow + plain * (1 - slow)


def rotated(x, positions, rates):
    """x: [rows, ..., values]; turns neighbouring pairs of the last values."""
    n = 2 * len(rates)
    angles = numpy.outer(positions, rates).reshape(len(x), *[1] * (x.ndim - 2), len(rates))
    out = x.copy()
    first, second = x[..., -n::2], x[..., 1 - n::2]
    out[..., -n::2] = first * numpy.cos(angles) - second * numpy.sin(angles)
    out[..., 1 - n::2] = first * numpy.sin(angles) + second * numpy.cos(angles)
    return out


def entries(file, name, x, stride, rates):
    """[runs, values]: one for each whole run of `stride` rows."""
    content, gate = (file.linear(f"{name}_compressor_{part}", x) for part in ("kv", "gate"))
    n_runs = len(x) // stride
    if n_runs == 0:
        return numpy.zeros((0, len(file.tensors[name + "_compressor_norm.weight"])))
    whole = slice(0, n_runs * stride)
    content = content[whole].reshape(n_runs, stride, -1)
    gate = gate[whole].reshape(n_runs, stride, -1) + file.tensors[name + "_compressor_ape.weight"]
    if stride == 4:
        n = content.shape[-1] // 2
        content_before = numpy.concatenate([numpy.zeros((1, stride, n)), content[:-1, :, :n]])
        gate_before = numpy.concatenate([numpy.full((1, stride, n), -numpy.inf), gate[:-1, :, :n]])
        content = numpy.concatenate([content_before, content[:, :, n:]], axis=1)
        gate = numpy.concatenate([gate_before, gate[:, :, n:]], axis=1)
    means = (softmax(gate, axis=1) * content).sum(axis=1)
    return rotated(file.norm(name + "_compressor_norm", means), stride * numpy.arange(n_runs), rates)


def chosen(file, blk, x, low, stride, rates):
    """[rows, runs]: which entries each row sees."""
    n_runs = len(x) // stride
    seen = numpy.arange(n_runs)[None] < ((numpy.arange(len(x)) + 1) // stride)[:, None]
    if stride != 4 or n_runs == 0:
        return seen
    heads = file.number("attention.indexer.head_count")
    q = file.linear(blk + "indexer.attn_q_b", low).reshape(len(x), heads, -1)
    q = rotated(q, numpy.arange(len(x)), rates)
    keys = entries(file, blk + "indexer", x, stride, rates)
    products = numpy.maximum(numpy.einsum("ihd,jd->ihj", q, keys), 0)
    scores = numpy.einsum("ihj,ih->ij", products, file.linear(blk + "indexer.proj", x))
    scores = numpy.where(seen, scores, -numpy.inf)
    best = numpy.argsort(-scores, axis=1, kind="stable")[:, :file.number("attention.indexer.top_k")]
    picked = numpy.zeros_like(seen)
    numpy.put_along_axis(picked, best, True, axis=1)
    return seen & picked


def attended(file, blk, x, stride):
    n, heads = len(x), file.number("attention.head_count")
    positions, rates = numpy.arange(n), frequencies(file, stride > 0)
    low = file.norm(blk + "attn_q_a_norm", file.linear(blk + "attn_q_a", x))
    q = file.plain_norm(file.linear(blk + "attn_q_b", low).reshape(n, heads, -1))
    q = rotated(q, positions, rates)
    keys = rotated(file.norm(blk + "attn_kv_a_norm", file.linear(blk + "attn_kv", x)), positions, rates)
    distance = positions[:, None] - positions[None]
    seen = (distance >= 0) & (distance < file.number("attention.sliding_window"))
    if stride > 0:
        keys = numpy.concatenate([keys, entries(file, blk + "attn", x, stride, rates)])
        seen = numpy.concatenate([seen, chosen(file, blk, x, low, stride, rates)], axis=1)
    scores = numpy.einsum("ihd,jd->hij", q, keys) / numpy.sqrt(q.shape[-1])
    scores = numpy.where(seen[None], scores, -numpy.inf)
    sinks = numpy.broadcast_to(file.tensors[blk + "attn_sinks.weight"][:, None, None], (heads, n, 1))
    weights = softmax(numpy.concatenate([scores, sinks], axis=-1))[..., :-1]
    out = rotated(numpy.einsum("hij,jd->ihd", weights, keys), positions, -rates)
    groups = file.number("attention.output_group_count")
    matrix = file.tensors[blk + "attn_output_a.weight"].reshape(groups, -1, out[0].size // groups)
    inner = numpy.einsum("igd,god->igo", out.reshape(n, groups, -1), matrix).reshape(n, -1)
    return file.linear(blk + "attn_output_b", inner)


def clamped(gate, up, limit):
    gate = numpy.minimum(gate, limit)
    return gate * sigmoid(gate) * numpy.clip(up, -limit, limit)


def mixed(file, blk, x, tokens):
    n_used = file.number("expert_used_count")
    scores = numpy.sqrt(numpy.logaddexp(0, file.linear(blk + "ffn_gate_inp", x)))
    if blk + "ffn_gate_tid2eid.weight" in file.tensors:
        picks = file.tensors[blk + "ffn_gate_tid2eid.weight"].astype(int)[tokens]
    else:
        picks = numpy.argsort(-(scores + file.tensors[blk + "exp_probs_b.bias"]), kind="stable")
        picks = picks[:, :n_used]
    gate, up, down = (file.tensors[f"{blk}ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    out = numpy.zeros_like(x)
    for row, experts in enumerate(picks):
        weights = scores[row, experts] / scores[row, experts].sum()
        for expert, weight in zip(experts, weights * file.number("expert_weights_scale")):
            inner = clamped(gate[expert] @ x[row], up[expert] @ x[row], file.number("swiglu_clamp_exp"))
            out[row] += weight * (down[expert] @ inner)
    gate, up = (file.linear(f"{blk}ffn_{part}_shexp", x) for part in ("gate", "up"))
    return out + file.linear(blk + "ffn_down_shexp", clamped(gate, up, file.number("swiglu_clamp_shexp")))


def shares(file, name, streams):
    """How much of each stream a block reads; how much of its output each gets; how they mix."""
    n, epsilon = streams.shape[1], file.number("hyper_connection.epsilon")
    values = file.linear(name + "_fn", file.plain_norm(streams.reshape(len(streams), -1)))
    base, scale = (file.tensors[f"{name}_{part}.weight"] for part in ("base", "scale"))
    read = sigmoid(values[:, :n] * scale[0] + base[:n]) + epsilon
    if values.shape[1] == n:
        return read, None, None
    write = 2 * sigmoid(values[:, n:2 * n] * scale[1] + base[n:2 * n])
    mix = (values[:, 2 * n:] * scale[2] + base[2 * n:]).reshape(-1, n, n)
    mix = softmax(mix) + epsilon
    mix = mix / (mix.sum(axis=1, keepdims=True) + epsilon)
    for _ in range(file.number("hyper_connection.sinkhorn_iterations") - 1):
        mix = mix / (mix.sum(axis=2, keepdims=True) + epsilon)
        mix = mix / (mix.sum(axis=1, keepdims=True) + epsilon)
    return read, write, mix


def logits(path, tokens):
    file = File(path)
    streams = file.tensors["token_embd.weight"][tokens][:, None]
    streams = numpy.repeat(streams, file.number("hyper_connection.count"), axis=1)
    for layer, stride in enumerate(file.number("attention.compress_ratios")):
        blk = f"blk.{layer}."
        for part in ("attn", "ffn"):
            read, write, mix = shares(file, f"{blk}hc_{part}", streams)
            x = file.norm(f"{blk}{part}_norm", numpy.einsum("is,isd->id", read, streams))
            y = attended(file, blk, x, stride) if part == "attn" else mixed(file, blk, x, tokens)
            streams = write[..., None] * y[:, None] + numpy.einsum("ist,isd->itd", mix, streams)
    read, _, _ = shares(file, "output_hc", streams)
    x = file.norm("output_norm", numpy.einsum("is,isd->id", read, streams))
    return file.linear("output", x).astype(numpy.float32)
