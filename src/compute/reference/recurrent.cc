// The blocks of blocks.h that keep recurrent state.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/reference/blocks.h"

namespace weft::reference {

namespace {

double Silu(double x) { return x * Sigmoid(x); }

// The floats of one state of the sequence that row `i` belongs to, about to change.
float* StateOf(const StepContext& context, int64_t i, int slot_index) {
  const SlotId slot = context.step.sequences[context.rows[i].sequence].slot;
  context.state->TouchSlot(slot);
  return context.state->SlotValues(slot, slot_index);
}

// In place, row after row. State: the n_taps - 1 latest inputs, oldest first.
void Convolve(const StepContext& context, const Convolution& op, Rows* x) {
  const Tensors& tensors = context.tensors;
  const std::vector<float> kernel = tensors.Values(op.kernel);
  const std::vector<float> bias = tensors.Values(op.bias);
  const int64_t n = op.n_channels, n_old = op.n_taps - 1;
  for (int64_t i = 0; i < x->count(); ++i) {
    float* const old = StateOf(context, i, op.slot);
    for (int64_t c = 0; c < n; ++c) {
      const float input = x->row(i)[c];
      double sum = bias.empty() ? 0 : bias[c];
      for (int64_t j = 0; j < n_old; ++j) sum += double{kernel[c * op.n_taps + j]} * old[j * n + c];
      sum += double{kernel[c * op.n_taps + n_old]} * input;
      for (int64_t j = 0; j + 1 < n_old; ++j) old[j * n + c] = old[(j + 1) * n + c];
      old[(n_old - 1) * n + c] = input;
      x->row(i)[c] = static_cast<float>(sum);
    }
  }
}

void ApplySilu(Rows* x) {
  for (float& v : x->values()) v = static_cast<float>(Silu(v));
}

// Columns [first, first + width) of the rows.
Rows Columns(const Rows& x, int64_t first, int64_t width) {
  Rows out(x.count(), width);
  for (int64_t i = 0; i < x.count(); ++i) {
    std::ranges::copy(x.row(i).subspan(first, width), out.row(i).begin());
  }
  return out;
}

// One head's state: `n_rows` rows of `n_columns` floats.
struct HeadState {
  float* values;
  int64_t n_rows, n_columns;

  float& at(int64_t row, int64_t column) const { return values[row * n_columns + column]; }
  void Scale(double factor) const {
    for (int64_t i = 0; i < n_rows * n_columns; ++i) {
      values[i] = static_cast<float>(values[i] * factor);
    }
  }
  // S^T x, for one column.
  double Project(std::span<const float> x, int64_t column) const {
    double sum = 0;
    for (int64_t r = 0; r < n_rows; ++r) sum += double{at(r, column)} * x[r];
    return sum;
  }
  // S = S + k v^T, for one column.
  void Add(std::span<const float> k, double v, int64_t column) const {
    for (int64_t r = 0; r < n_rows; ++r) {
      at(r, column) = static_cast<float>(at(r, column) + double{k[r]} * v);
    }
  }
};

// Brings each run of `width` values to the length `factor`, or less where it is
// shorter than `epsilon`.
void NormalizeRuns(int64_t width, double epsilon, double factor, Rows* x) {
  for (int64_t i = 0; i < x->count(); ++i) {
    for (int64_t begin = 0; begin < x->width(); begin += width) {
      double squares = 0;
      for (const float v : x->row(i).subspan(begin, width)) squares += double{v} * v;
      const double scale = factor / std::max(std::sqrt(squares), epsilon);
      for (float& v : x->row(i).subspan(begin, width)) v = static_cast<float>(v * scale);
    }
  }
}

// The inputs of a delta net's value heads: how much each state decays, and how much
// it learns.
struct Gates {
  Rows decays, betas;
};

Gates ComputeGates(const Tensors& tensors, const GatedDeltaNet& op, const Rows& x) {
  Gates gates{Rows(x.count(), op.n_v_heads), Rows(x.count(), op.n_v_heads)};
  if (op.beta_decay) {
    const Rows both = ApplyLinear(tensors, op.beta_decay, x);
    const int64_t group = op.n_v_heads / op.n_k_heads;
    for (int64_t i = 0; i < x.count(); ++i) {
      for (int64_t v = 0; v < op.n_v_heads; ++v) {
        const int64_t at = v / group * 2 * group + v % group;
        gates.betas.row(i)[v] = both.row(i)[at];
        gates.decays.row(i)[v] = both.row(i)[at + group];
      }
    }
  } else {
    gates.betas = ApplyLinear(tensors, op.beta, x);
    gates.decays = ApplyLinear(tensors, op.decay, x);
  }
  const std::vector<float> bias = tensors.Values(op.decay_bias);
  const std::vector<float> rate = tensors.Values(op.decay_rate);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t v = 0; v < op.n_v_heads; ++v) {
      float& decay = gates.decays.row(i)[v];
      decay = static_cast<float>(std::exp(rate[v] * Softplus(double{decay} + bias[v])));
      float& beta = gates.betas.row(i)[v];
      beta = static_cast<float>(Sigmoid(beta));
    }
  }
  return gates;
}

}  // namespace

Rows RunOp(const StepContext& context, const ShortConvolution& op, const Rows& x, const Rows&) {
  const Rows in = ApplyLinear(context.tensors, op.in, x);
  const int64_t n = op.convolution.n_channels;
  const Rows b = Columns(in, 0, n), c = Columns(in, n, n);
  Rows y = Columns(in, 2 * n, n);
  for (int64_t i = 0; i < y.count(); ++i) {
    for (int64_t j = 0; j < n; ++j) y.row(i)[j] *= b.row(i)[j];
  }
  Convolve(context, op.convolution, &y);
  for (int64_t i = 0; i < y.count(); ++i) {
    for (int64_t j = 0; j < n; ++j) y.row(i)[j] *= c.row(i)[j];
  }
  return ApplyLinear(context.tensors, op.out, y);
}

Rows RunOp(const StepContext& context, const GatedDeltaNet& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  Rows qkv = ApplyLinear(tensors, op.qkv, x);
  Convolve(context, op.convolution, &qkv);
  ApplySilu(&qkv);
  const int64_t n_keys = op.n_k_heads * op.k_dim, n_values = op.n_v_heads * op.v_dim;
  Rows q = Columns(qkv, 0, n_keys), k = Columns(qkv, n_keys, n_keys);
  const Rows v = Columns(qkv, 2 * n_keys, n_values);
  NormalizeRuns(op.k_dim, op.epsilon, 1 / std::sqrt(static_cast<double>(op.k_dim)), &q);
  NormalizeRuns(op.k_dim, op.epsilon, 1, &k);
  const Gates gates = ComputeGates(tensors, op, x);

  Rows heads(x.count(), n_values);
  const int group = op.n_v_heads / op.n_k_heads;
  for (int64_t i = 0; i < x.count(); ++i) {
    float* const states = StateOf(context, i, op.slot);
    for (int h = 0; h < op.n_v_heads; ++h) {
      const HeadState state{states + h * op.k_dim * op.v_dim, op.k_dim, op.v_dim};
      const int key_head = op.key_heads == KeyHeads::kTiled ? h % op.n_k_heads : h / group;
      const auto query = q.row(i).subspan(key_head * op.k_dim, op.k_dim);
      const auto key = k.row(i).subspan(key_head * op.k_dim, op.k_dim);
      state.Scale(gates.decays.row(i)[h]);
      for (int64_t j = 0; j < op.v_dim; ++j) {
        const double wrong = v.row(i)[h * op.v_dim + j] - state.Project(key, j);
        state.Add(key, gates.betas.row(i)[h] * wrong, j);
        heads.row(i)[h * op.v_dim + j] = static_cast<float>(state.Project(query, j));
      }
    }
  }
  ApplyNorm(tensors, op.norm, &heads);
  const Rows gate = ApplyLinear(tensors, op.gate, x);
  for (int64_t i = 0; i < heads.count(); ++i) {
    for (int64_t j = 0; j < n_values; ++j) {
      heads.row(i)[j] = static_cast<float>(heads.row(i)[j] * Silu(gate.row(i)[j]));
    }
  }
  return ApplyLinear(tensors, op.out, heads);
}

Rows RunOp(const StepContext& context, const StateSpace& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  const int64_t inner = op.n_heads * op.head_dim;
  const int64_t n_channels = op.convolution.n_channels;
  const Rows in = ApplyLinear(tensors, op.in, x);
  const Rows z = Columns(in, 0, inner);
  Rows xbc = Columns(in, inner, n_channels);
  const Rows steps = Columns(in, inner + n_channels, op.n_heads);
  Convolve(context, op.convolution, &xbc);
  ApplySilu(&xbc);
  const std::vector<float> bias = tensors.Values(op.step_bias);
  const std::vector<float> rate = tensors.Values(op.rate);
  const std::vector<float> skip = tensors.Values(op.skip);

  Rows heads(x.count(), inner);
  const int heads_per_group = op.n_heads / op.n_groups;
  for (int64_t i = 0; i < x.count(); ++i) {
    float* const states = StateOf(context, i, op.slot);
    for (int h = 0; h < op.n_heads; ++h) {
      const HeadState state{states + h * op.state_dim * op.head_dim, op.state_dim, op.head_dim};
      const int64_t group = h / heads_per_group;
      const auto b = xbc.row(i).subspan(inner + group * op.state_dim, op.state_dim);
      const auto c = xbc.row(i).subspan(inner + (op.n_groups + group) * op.state_dim, op.state_dim);
      const double step = Softplus(double{steps.row(i)[h]} + bias[h]);
      state.Scale(std::exp(step * rate[h]));
      for (int64_t j = 0; j < op.head_dim; ++j) {
        const double input = xbc.row(i)[h * op.head_dim + j];
        state.Add(b, step * input, j);
        heads.row(i)[h * op.head_dim + j] =
            static_cast<float>(state.Project(c, j) + skip[h] * input);
      }
    }
    for (int64_t j = 0; j < inner; ++j) {
      heads.row(i)[j] = static_cast<float>(heads.row(i)[j] * Silu(z.row(i)[j]));
    }
  }
  ApplyNorm(tensors, op.norm, &heads);
  return ApplyLinear(tensors, op.out, heads);
}

Rows RunOp(const StepContext& context, const ChannelDeltaNet& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  const int64_t dim = op.head_dim, n = op.n_heads * dim;
  const auto project = [&](const Linear& linear, const Convolution& convolution) {
    Rows rows = ApplyLinear(tensors, linear, x);
    Convolve(context, convolution, &rows);
    ApplySilu(&rows);
    return rows;
  };
  Rows q = project(op.q, op.q_convolution), k = project(op.k, op.k_convolution);
  const Rows v = project(op.v, op.v_convolution);
  NormalizeRuns(dim, op.epsilon, 1 / std::sqrt(static_cast<double>(dim)), &q);
  NormalizeRuns(dim, op.epsilon, 1, &k);
  const Rows steps = ApplyLinear(tensors, op.decay_b, ApplyLinear(tensors, op.decay_a, x));
  const Rows gate = ApplyLinear(tensors, op.gate_b, ApplyLinear(tensors, op.gate_a, x));
  const Rows betas = ApplyLinear(tensors, op.beta, x);
  const std::vector<float> bias = tensors.Values(op.decay_bias);
  const std::vector<float> rate = tensors.Values(op.decay_rate);

  Rows heads(x.count(), n);
  for (int64_t i = 0; i < x.count(); ++i) {
    float* const states = StateOf(context, i, op.slot);
    for (int h = 0; h < op.n_heads; ++h) {
      const HeadState state{states + h * dim * dim, dim, dim};
      const auto query = q.row(i).subspan(h * dim, dim), key = k.row(i).subspan(h * dim, dim);
      for (int64_t r = 0; r < dim; ++r) {
        const double step = Softplus(double{steps.row(i)[h * dim + r]} + bias[h * dim + r]);
        const HeadState row{states + (h * dim + r) * dim, 1, dim};
        row.Scale(std::exp(rate[h] * step));
      }
      const double beta = Sigmoid(betas.row(i)[h]);
      for (int64_t j = 0; j < dim; ++j) {
        state.Add(key, beta * (v.row(i)[h * dim + j] - state.Project(key, j)), j);
        heads.row(i)[h * dim + j] = static_cast<float>(state.Project(query, j));
      }
    }
  }
  ApplyNorm(tensors, op.norm, &heads);
  for (size_t i = 0; i < heads.values().size(); ++i) {
    heads.values()[i] = static_cast<float>(heads.values()[i] * Sigmoid(gate.values()[i]));
  }
  return ApplyLinear(tensors, op.out, heads);
}

Rows RunOp(const StepContext& context, const SelectiveScan& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  const int64_t n = op.n_channels, n_state = op.state_dim, rank = op.step.n_in;
  const Rows in = ApplyLinear(tensors, op.in, x);
  Rows u = Columns(in, 0, n);
  const Rows z = Columns(in, n, n);
  Convolve(context, op.convolution, &u);
  ApplySilu(&u);
  const Rows selected = ApplyLinear(tensors, op.select, u);
  const auto part = [&](int64_t first, int64_t width, const Norm& norm) {
    Rows rows = Columns(selected, first, width);
    ApplyNorm(tensors, norm, &rows);
    return rows;
  };
  const Rows steps = ApplyLinear(tensors, op.step, part(0, rank, op.step_norm));
  const Rows b = part(rank, n_state, op.b_norm), c = part(rank + n_state, n_state, op.c_norm);
  const std::vector<float> rate = tensors.Values(op.rate), skip = tensors.Values(op.skip);

  Rows y(x.count(), n);
  for (int64_t i = 0; i < x.count(); ++i) {
    float* const state = StateOf(context, i, op.slot);
    for (int64_t channel = 0; channel < n; ++channel) {
      const double step = Softplus(steps.row(i)[channel]), input = u.row(i)[channel];
      double sum = skip[channel] * input;
      for (int64_t r = 0; r < n_state; ++r) {
        float& h = state[r * n + channel];
        h = static_cast<float>(std::exp(step * rate[channel * n_state + r]) * h +
                               step * input * b.row(i)[r]);
        sum += double{h} * c.row(i)[r];
      }
      y.row(i)[channel] = static_cast<float>(sum * Silu(z.row(i)[channel]));
    }
  }
  return ApplyLinear(tensors, op.out, y);
}

namespace {

// x + (p - x) lerp for each row of `lerp`, p being the row before; keeps the last row in the slot.
std::vector<Rows> ShiftAndMix(const StepContext& context, int slot, std::span<const float> lerp,
                              const Rows& x) {
  const int64_t n = x.width();
  std::vector<Rows> mixed(lerp.size() / n, Rows(x.count(), n));
  for (int64_t i = 0; i < x.count(); ++i) {
    float* const before = StateOf(context, i, slot);
    for (size_t m = 0; m < mixed.size(); ++m) {
      for (int64_t j = 0; j < n; ++j) {
        const double value = x.row(i)[j];
        mixed[m].row(i)[j] = static_cast<float>(value + (before[j] - value) * lerp[m * n + j]);
      }
    }
    std::ranges::copy(x.row(i), before);
  }
  return mixed;
}

// b(act(a(x))) + bias, then sigmoid.
template <typename Act>
Rows LowRankGate(const Tensors& tensors, const Linear& a, const Linear& b, TensorRef bias_ref,
                 const Rows& x, Act act) {
  Rows low = ApplyLinear(tensors, a, x);
  for (float& v : low.values()) v = static_cast<float>(act(double{v}));
  Rows out = ApplyLinear(tensors, b, low);
  const std::vector<float> bias = tensors.Values(bias_ref);
  for (size_t i = 0; i < out.values().size() && !bias.empty(); ++i) {
    out.values()[i] = static_cast<float>(Sigmoid(double{out.values()[i]} + bias[i % bias.size()]));
  }
  return out;
}

// One row's values.
struct TimeMixRow {
  std::span<const float> r, w, k, v, a, d;
};

void AdvanceTimeMix(int n_heads, int64_t dim, const TimeMixRow& row, float* states,
                    std::span<float> y) {
  for (int h = 0; h < n_heads; ++h) {
    const HeadState state{states + h * dim * dim, dim, dim};
    const int64_t at = h * dim;
    for (int64_t c = 0; c < dim; ++c) {
      const double removed = state.Project(row.d.subspan(at, dim), c);
      double sum = 0;
      for (int64_t j = 0; j < dim; ++j) {
        const double s = double{row.w[at + j]} * state.at(j, c) -
                         double{row.d[at + j]} * row.a[at + j] * removed +
                         double{row.k[at + j]} * row.v[at + c];
        state.at(j, c) = static_cast<float>(s);
        sum += s * row.r[at + j];
      }
      y[at + c] = static_cast<float>(sum);
    }
  }
}

}  // namespace

Rows RunOp(const StepContext& context, const TimeMix& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  const int64_t n = x.width(), dim = op.head_dim;
  const std::vector<Rows> mixed = ShiftAndMix(context, op.shift_slot, tensors.Values(op.lerp), x);
  const auto same = [](double v) { return v; };
  const Rows r = ApplyLinear(tensors, op.receptance, mixed[0]);
  Rows w = LowRankGate(tensors, op.decay_a, op.decay_b, op.decay_bias, mixed[1],
                       [](double v) { return std::tanh(v); });
  for (float& v : w.values()) v = static_cast<float>(std::exp(-std::exp(-0.5) * v));
  Rows k = ApplyLinear(tensors, op.key, mixed[2]), v = ApplyLinear(tensors, op.value, mixed[3]);
  const Rows a = LowRankGate(tensors, op.rate_a, op.rate_b, op.rate_bias, mixed[4], same);
  const Rows g = LowRankGate(tensors, op.gate_a, op.gate_b, TensorRef(), mixed[5],
                             [](double v) { return Sigmoid(v); });
  if (op.is_first) {
    *context.first_values = v;
  } else {
    const Rows mix = LowRankGate(tensors, op.mix_a, op.mix_b, op.mix_bias, mixed[3], same);
    for (size_t i = 0; i < v.values().size(); ++i) {
      float& value = v.values()[i];
      value += (context.first_values->values()[i] - value) * mix.values()[i];
    }
  }
  const std::vector<float> removal = tensors.Values(op.removal),
                           renewal = tensors.Values(op.renewal), bonus = tensors.Values(op.bonus);
  Rows d = k, y(x.count(), n);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t j = 0; j < n; ++j) {
      d.row(i)[j] *= removal[j];
      k.row(i)[j] = static_cast<float>(k.row(i)[j] * (1 + (a.row(i)[j] - 1.0) * renewal[j]));
    }
  }
  NormalizeRuns(dim, 1e-12, 1, &d);
  for (int64_t i = 0; i < x.count(); ++i) {
    AdvanceTimeMix(op.n_heads, dim, {r.row(i), w.row(i), k.row(i), v.row(i), a.row(i), d.row(i)},
                   StateOf(context, i, op.slot), y.row(i));
  }
  ApplyNorm(tensors, op.norm, &y);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t at = 0; at < n; at += dim) {
      double sum = 0;
      for (int64_t j = at; j < at + dim; ++j) sum += double{k.row(i)[j]} * r.row(i)[j] * bonus[j];
      for (int64_t j = at; j < at + dim; ++j) {
        y.row(i)[j] = static_cast<float>((y.row(i)[j] + sum * v.row(i)[j]) * g.row(i)[j]);
      }
    }
  }
  return ApplyLinear(tensors, op.out, y);
}

Rows RunOp(const StepContext& context, const ChannelMix& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  const std::vector<Rows> mixed = ShiftAndMix(context, op.shift_slot, tensors.Values(op.lerp), x);
  Rows inner = ApplyLinear(tensors, op.key, mixed[0]);
  for (float& v : inner.values()) v = Activate(Activation::kReluSquared, {}, v, nullptr);
  return ApplyLinear(tensors, op.value, inner);
}

}  // namespace weft::reference
