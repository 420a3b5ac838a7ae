"""The lfm2 architecture as Weft computes it (src/model/arch/lfm2.cc), for training.

  x = embedding(token)
  per layer:  x += mixer(norm(x));  x += down(silu(gate h) * up h), h = norm(x)
  logits = embedding . norm(x)

A mixer is a gated short convolution, or attention with norms of query and key per head.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Shape:
    n_vocab: int
    d_model: int = 128
    d_ff: int = 256
    layers: str = "CCACACA"  # C: convolution, A: attention
    n_heads: int = 4
    n_kv_heads: int = 4
    n_rot: int = 16  # values of a head that turn with the position
    rope_base: float = 10000.0
    n_taps: int = 4
    epsilon: float = 1e-5
    context_tokens: int = 2048

    @property
    def head_dim(self):
        return self.d_model // self.n_heads


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, epsilon):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True).add_(epsilon))
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    def backward(ctx, grad):
        normed, scale, weight = ctx.saved_tensors
        product = grad * normed
        d_weight = product.reshape(-1, product.shape[-1]).sum(0)
        inner = (product @ weight).unsqueeze(-1) / product.shape[-1]
        return (grad * weight).sub_(normed * inner).mul_(scale), d_weight, None


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return _RmsNorm.apply(x, self.weight, self.epsilon)


class _GatedSilu(torch.autograd.Function):
    """silu(gate) * up of [gate, up]."""

    @staticmethod
    def forward(ctx, both):
        gate, up = both.chunk(2, -1)
        ctx.save_for_backward(both)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx, grad):
        (both,) = ctx.saved_tensors
        gate, up = both.chunk(2, -1)
        out = torch.empty_like(both)
        d_gate, d_up = out.chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        torch.mul(gate, sigmoid, out=d_up)  # silu
        torch.addcmul(sigmoid, d_up, 1 - sigmoid, out=d_gate)
        d_gate.mul_(up).mul_(grad)
        d_up.mul_(grad)
        return out


class ShortConvolution(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.in_proj = nn.Linear(shape.d_model, 3 * shape.d_model, bias=False)
        self.kernel = nn.Parameter(torch.zeros(shape.d_model, shape.n_taps))  # last: the token itself
        self.out_proj = nn.Linear(shape.d_model, shape.d_model, bias=False)
        nn.init.normal_(self.kernel, std=0.5)

    def forward(self, h, rope):
        b, c, x = self.in_proj(h).chunk(3, -1)
        u = b * x
        n_taps = self.kernel.shape[1]
        y = u * self.kernel[:, n_taps - 1]
        for back in range(1, n_taps):
            shifted = F.pad(u[:, :-back], (0, 0, back, 0))
            y = torch.addcmul(y, shifted, self.kernel[:, n_taps - 1 - back])
        return self.out_proj(c * y)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        n_kv = shape.n_kv_heads * shape.head_dim
        self.q = nn.Linear(shape.d_model, shape.d_model, bias=False)
        self.k = nn.Linear(shape.d_model, n_kv, bias=False)
        self.v = nn.Linear(shape.d_model, n_kv, bias=False)
        self.out = nn.Linear(shape.d_model, shape.d_model, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.epsilon)
        self.k_norm = Norm(shape.head_dim, shape.epsilon)

    def begin_as_copy(self):
        """What is attended to is added as it is, so that only where to look is to be learned."""
        nn.init.orthogonal_(self.v.weight)
        group = self.shape.n_heads // self.shape.n_kv_heads
        values = self.v.weight.view(self.shape.n_kv_heads, self.shape.head_dim, -1)
        self.out.weight.data.copy_(0.5 * values.repeat_interleave(group, 0).flatten(0, 1).t())

    def _turn(self, x, rope):
        cos, sin = rope
        half, n_rot = self.shape.n_rot // 2, self.shape.n_rot
        a, b = x[..., :half], x[..., half:n_rot]
        return torch.cat((a * cos - b * sin, a * sin + b * cos, x[..., n_rot:]), -1)

    def forward(self, h, rope):
        shape, (n, length, _) = self.shape, h.shape

        def heads(x, count):
            return x.view(n, length, count, shape.head_dim)

        q = self._turn(self.q_norm(heads(self.q(h), shape.n_heads)), rope)
        k = self._turn(self.k_norm(heads(self.k(h), shape.n_kv_heads)), rope)
        v = heads(self.v(h), shape.n_kv_heads)
        if shape.n_kv_heads != shape.n_heads:
            k, v = (t.repeat_interleave(shape.n_heads // shape.n_kv_heads, 2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3)
        mask = torch.ones(length, length, dtype=torch.bool, device=h.device).triu(1)
        scores = (scores * (1 / math.sqrt(shape.head_dim))).masked_fill(mask, -math.inf)
        weights = torch.softmax(scores, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, shape.d_model))


class Layer(nn.Module):
    def __init__(self, kind, shape):
        super().__init__()
        self.mixer_norm = Norm(shape.d_model, shape.epsilon)
        self.mixer = (ShortConvolution if kind == "C" else Attention)(shape)
        self.ffn_norm = Norm(shape.d_model, shape.epsilon)
        self.gate_up = nn.Linear(shape.d_model, 2 * shape.d_ff, bias=False)
        self.down = nn.Linear(shape.d_ff, shape.d_model, bias=False)

    def forward(self, x, rope):
        x = x + self.mixer(self.mixer_norm(x), rope)
        return x + self.down(_GatedSilu.apply(self.gate_up(self.ffn_norm(x))))


class Lfm2(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.n_vocab, shape.d_model)
        self.layers = nn.ModuleList(Layer(kind, shape) for kind in shape.layers)
        self.output_norm = Norm(shape.d_model, shape.epsilon)
        nn.init.normal_(self.embedding.weight, std=0.05)
        for layer in self.layers:  # most blocks begin as almost nothing
            layer.down.weight.data.mul_(0.3)
            if isinstance(layer.mixer, ShortConvolution):
                layer.mixer.out_proj.weight.data.mul_(0.5)
            else:
                layer.mixer.begin_as_copy()

    def rope(self, length):
        half = self.shape.n_rot // 2
        device = self.embedding.weight.device
        frequencies = self.shape.rope_base ** (-torch.arange(half, device=device).double() / half)
        angles = torch.arange(length, device=device).double()[:, None] * frequencies
        return angles.cos().float()[:, None], angles.sin().float()[:, None]  # [length, 1, half]

    def run_layers(self, x, cos, sin):
        for layer in self.layers:
            x = layer(x, (cos, sin))
        return x

    def forward(self, ids, at=None):
        """Logits at all positions, or at the flat positions `at` alone."""
        x = self.run_layers(self.embedding(ids), *self.rope(ids.shape[1]))
        if at is not None:
            x = x.reshape(-1, x.shape[-1])[at]
        return self.output_norm(x) @ self.embedding.weight.t()
