#include "compute/reference/blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compute/reference/adapters.h"

namespace weft::reference {

namespace {

// The last n_wanted rows of each sequence in `x`.
Rows WantedRows(const Step& step, const Rows& x, int64_t StepSequence::*n_wanted) {
  int64_t count = 0;
  for (const StepSequence& sequence : step.sequences) count += sequence.*n_wanted;
  Rows wanted(count, x.width());
  int64_t from = 0;
  int64_t to = 0;
  for (const StepSequence& sequence : step.sequences) {
    from += static_cast<int64_t>(sequence.tokens.size()) - sequence.*n_wanted;
    for (int64_t i = 0; i < sequence.*n_wanted; ++i, ++from, ++to) {
      std::ranges::copy(x.row(from), wanted.row(to).begin());
    }
  }
  return wanted;
}

}  // namespace

// --- pieces ---------------------------------------------------------------------------

double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

Rows ApplyLinear(const Tensors& tensors, const Linear& linear, const Rows& x) {
  WEFT_CHECK(x.width() == linear.n_in, "a linear's input has its n_in values");
  const std::vector<std::vector<double>> changes = ChangesOf(tensors, linear, x);
  const std::vector<float> bias = tensors.Vector(linear.bias);
  const double scale = linear.scale ? tensors.Vector(linear.scale)[0] : 1;
  Rows out(x.count(), linear.n_out);
  for (int64_t o = 0; o < linear.n_out; ++o) {
    const std::vector<float> weights = tensors.Row(linear.weight, linear.first_row + o);
    for (int64_t i = 0; i < x.count(); ++i) {
      const double sum = Dot(weights, x.row(i)) * scale + (changes.empty() ? 0 : changes[i][o]);
      out.row(i)[o] = static_cast<float>(bias.empty() ? sum : sum + bias[linear.first_row + o]);
    }
  }
  return out;
}

std::vector<float> ApplyMember(const Tensors& tensors, const StackedLinear& stack, int64_t member,
                               std::span<const float> x) {
  WEFT_CHECK(static_cast<int64_t>(x.size()) == stack.n_in, "a member's input has n_in values");
  const int64_t rows_per_slice = tensors.info(stack.weight).rows() / stack.count;
  const int64_t first_row = member * rows_per_slice + stack.first_row;
  const double scale = stack.scale ? tensors.Vector(stack.scale)[member] : 1;
  std::vector<float> bias;
  if (stack.bias) bias = tensors.Row(stack.bias, member);
  std::vector<float> out(stack.n_out);
  for (int64_t o = 0; o < stack.n_out; ++o) {
    double sum = Dot(tensors.Row(stack.weight, first_row + o), x);
    if (!bias.empty()) sum += bias[o];
    out[o] = static_cast<float>(sum * scale);
  }
  return out;
}

void ApplyNorm(const Tensors& tensors, const Norm& norm, Rows* x) {
  if (!norm) return;
  const std::vector<float> weight = tensors.Values(norm.weight);
  const std::vector<float> bias = tensors.Values(norm.bias);
  WEFT_CHECK(norm.width > 0 && x->width() % norm.width == 0, "a norm's width divides the row's");
  for (int64_t i = 0; i < x->count(); ++i) {
    for (int64_t begin = 0; begin < x->width(); begin += norm.width) {
      const std::span<float> group = x->row(i).subspan(begin, norm.width);
      double mean = 0;
      if (norm.kind == NormKind::kLayer) {
        for (const float v : group) mean += v;
        mean /= static_cast<double>(norm.width);
      }
      double variance = 0;
      for (const float v : group) variance += (v - mean) * (v - mean);
      variance /= static_cast<double>(norm.width);
      const double factor = norm.factor / std::sqrt(variance + norm.epsilon);
      for (int64_t j = 0; j < norm.width; ++j) {
        // A weight of one group serves all groups; a longer one spans the row.
        const size_t at = begin + j;
        double value = (group[j] - mean) * factor;
        if (!weight.empty()) value *= weight[at % weight.size()];
        if (!bias.empty()) value += bias[at % bias.size()];
        group[j] = static_cast<float>(value);
      }
    }
  }
}

void ApplyRope(const Rope& rope, int64_t position, std::span<float> head) {
  ApplyRope(rope, RowOrigin{.position = position}, head);
}

void ApplyRope(const Rope& rope, const RowOrigin& row, std::span<float> head) {
  const size_t n = rope.frequencies.size();
  WEFT_CHECK(2 * n <= head.size(), "a rope is no wider than a head");
  const bool halves = rope.pairs == RopePairs::kHalves;
  for (size_t i = 0; i < n; ++i) {
    const int64_t position =
        row.axes == nullptr || rope.axes.empty() ? row.position : (*row.axes)[rope.axes[i]];
    const double angle = static_cast<double>(position + rope.ahead) * rope.frequencies[i];
    const double cosine = std::cos(angle) * rope.magnitude;
    const double sine = std::sin(angle) * rope.magnitude;
    float& first = head[halves ? i : 2 * i];
    float& second = head[halves ? i + n : 2 * i + 1];
    const double a = first;
    const double b = second;
    first = static_cast<float>(a * cosine - b * sine);
    second = static_cast<float>(a * sine + b * cosine);
  }
}

float Activate(Activation activation, const ActivationNumbers& numbers, float gate,
               const float* up) {
  const double g = gate;
  const float limit = numbers.limit;
  double value = 0;
  switch (activation) {
    case Activation::kSilu:
      value = g * Sigmoid(g);
      break;
    case Activation::kGeluTanh:
      value = 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
      break;
    case Activation::kGeluErf:
      value = 0.5 * g * (1 + std::erf(g / std::sqrt(2.0)));
      break;
    case Activation::kRelu:
      value = std::max(g, 0.0);
      break;
    case Activation::kReluSquared:
      value = std::max(g, 0.0) * std::max(g, 0.0);
      break;
    case Activation::kClampedSwiglu: {
      const double clamped = std::min<double>(g, limit);
      value = clamped * Sigmoid(1.702 * clamped);
      if (up != nullptr) value *= std::clamp(*up, -limit, limit) + 1.0;
      return static_cast<float>(value);
    }
    case Activation::kClampedSilu:
      value = std::min<double>(g * Sigmoid(g), limit);
      if (up != nullptr) value *= std::clamp(*up, -limit, limit);
      return static_cast<float>(value);
    case Activation::kSiluOfClamped: {
      const double clamped = std::min<double>(g, limit);
      value = clamped * Sigmoid(clamped);
      if (up != nullptr) value *= std::clamp(*up, -limit, limit);
      return static_cast<float>(value);
    }
    case Activation::kXielu:
      value = g > 0 ? numbers.rise * g * g
                    : numbers.fall * (std::expm1(std::min<double>(g, limit)) - g);
      value += numbers.slope * g;
      break;
  }
  return static_cast<float>(up != nullptr ? value * *up : value);
}

float Softcap(float cap, double value) {
  return static_cast<float>(cap > 0 ? cap * std::tanh(value / cap) : value);
}

// --- feed-forward ---------------------------------------------------------------------

namespace {

// Subtracts the row's mean plus a number of standard deviations from each gate, and clips at 0.
void KeepLargest(float sparsity, Rows* gates) {
  if (sparsity == 0) return;
  const auto n = static_cast<double>(gates->width());
  for (int64_t i = 0; i < gates->count(); ++i) {
    double mean = 0, squares = 0;
    for (const float v : gates->row(i)) mean += v / n;
    for (const float v : gates->row(i)) squares += (v - mean) * (v - mean);
    const double least = mean + sparsity * std::sqrt(squares / (n - 1));
    for (float& v : gates->row(i)) v = static_cast<float>(std::max(0.0, v - least));
  }
}

}  // namespace

Rows RunOp(const StepContext& context, const DenseFfn& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  Rows up = ApplyLinear(tensors, op.up, x);
  if (op.gate) {
    Rows gate = ApplyLinear(tensors, op.gate, x);
    KeepLargest(op.sparsity, &gate);
    for (size_t i = 0; i < up.values().size(); ++i) {
      up.values()[i] = Activate(op.activation, op.numbers, gate.values()[i], &up.values()[i]);
    }
  } else {
    for (float& v : up.values()) v = Activate(op.activation, op.numbers, v, nullptr);
  }
  Rows out = ApplyLinear(tensors, op.down, up);
  if (op.output_gate) {
    const Rows gate = ApplyLinear(tensors, op.output_gate, x);
    for (int64_t i = 0; i < out.count(); ++i) {
      const double factor = Sigmoid(gate.row(i)[0]);
      for (float& v : out.row(i)) v = static_cast<float>(v * factor);
    }
  }
  return out;
}

Rows RunOp(const StepContext& context, const PerLayerGate& op, const Rows& x, const Rows&) {
  Rows gate = ApplyLinear(context.tensors, op.gate, x);
  const int64_t width = context.spec.per_layer_input->width;
  for (int64_t i = 0; i < gate.count(); ++i) {
    const auto input = context.per_layer_inputs.row(i).subspan(op.layer * width, width);
    for (int64_t j = 0; j < width; ++j) {
      gate.row(i)[j] = Activate(op.activation, {}, gate.row(i)[j], &input[j]);
    }
  }
  return ApplyLinear(context.tensors, op.proj, gate);
}

// --- the whole ------------------------------------------------------------------------

namespace {

// What a prediction head makes of embeddings and hidden values.
Rows JoinHidden(const StepContext& context, const HiddenInput& input, Rows embedded) {
  const int64_t n = embedded.count(), width = embedded.width();
  Rows hidden(n, HiddenWidth(context.spec)), joined(n, 2 * width);
  for (int64_t i = 0; i < n; ++i) {
    std::ranges::copy(context.rows[i].hidden, hidden.row(i).begin());
  }
  if (!context.spec.embedding) return ApplyLinear(context.tensors, input.proj, hidden);
  ApplyNorm(context.tensors, input.token_norm, &embedded);
  ApplyNorm(context.tensors, input.hidden_norm, &hidden);
  for (int64_t i = 0; i < n; ++i) {
    std::ranges::copy(embedded.row(i), joined.row(i).begin());
    std::ranges::copy(hidden.row(i), joined.row(i).begin() + width);
  }
  return ApplyLinear(context.tensors, input.proj, joined);
}

Rows ReadRowInput(const StepContext& context, const RowInput& input) {
  Rows x(std::ssize(context.rows), RowWidth(context.spec));
  for (int64_t i = 0; i < x.count(); ++i) {
    std::ranges::copy(context.rows[i].vector, x.row(i).begin());
  }
  ApplyNorm(context.tensors, input.norm, &x);
  if (input.proj) x = ApplyLinear(context.tensors, input.proj, x);
  if (!input.activation) return x;
  for (float& v : x.values()) v = Activate(*input.activation, {}, v, nullptr);
  return x;
}

}  // namespace

Rows Embed(const StepContext& context) {
  const ModelSpec& spec = context.spec;
  if (spec.row_input) return ReadRowInput(context, *spec.row_input);
  Rows out(static_cast<int64_t>(context.rows.size()), spec.d_model);
  const auto add = [&](TensorRef table, int64_t index, size_t i) {
    if (!table) return;
    const std::vector<float> row = context.tensors.Row(table, index);
    for (size_t j = 0; j < row.size(); ++j) out.row(i)[j] += row[j];
  };
  for (size_t i = 0; i < context.rows.size(); ++i) {
    const RowOrigin& origin = context.rows[i];
    const auto scaled = [&](float v) { return v * spec.embedding_scale; };
    if (IsRow(origin.token)) {
      std::ranges::transform(origin.vector.first(spec.d_model), out.row(i).begin(), scaled);
    } else if (spec.embedding) {
      std::ranges::transform(EmbeddingOf(context, i), out.row(i).begin(), scaled);
    }
    add(spec.positions, origin.position, i);
    add(spec.token_types.table, origin.type, i);
  }
  ApplyNorm(context.tensors, spec.input_norm, &out);
  if (spec.hidden_input) return JoinHidden(context, *spec.hidden_input, std::move(out));
  return out;
}

Rows ComputePerLayerInputs(const StepContext& context, const Rows& embedded) {
  const PerLayerInput& input = *context.spec.per_layer_input;
  Rows out = ApplyLinear(context.tensors, input.proj, embedded);
  for (float& v : out.values()) v *= input.proj_scale;
  ApplyNorm(context.tensors, input.norm, &out);
  for (int64_t i = 0; i < out.count(); ++i) {
    const std::vector<float> own = context.tensors.Row(input.table, context.rows[i].token);
    for (int64_t j = 0; j < out.width(); ++j) {
      const double sum = out.row(i)[j] + double{own[j]} * input.table_scale;
      out.row(i)[j] = static_cast<float>(sum * input.sum_scale);
    }
  }
  return out;
}

void RunBlock(StepContext* step, const Block& block, Rows* stream) {
  if (block.keeps_input) step->kept = *stream;
  const StepContext& context = *step;
  Rows h = *stream;
  ApplyNorm(context.tensors, block.pre, &h);
  Rows y(stream->count(), stream->width());
  for (const Path& path : block.paths) {
    Rows x = h;
    ApplyNorm(context.tensors, path.pre, &x);
    Rows out = std::visit([&](const auto& op) { return RunOp(context, op, x, *stream); }, path.op);
    ApplyNorm(context.tensors, path.post, &out);
    for (size_t i = 0; i < y.values().size(); ++i) y.values()[i] += path.scale * out.values()[i];
  }
  ApplyNorm(context.tensors, block.post, &y);
  const std::vector<float> scale = context.tensors.Vector(block.stream_scale);
  for (size_t i = 0; i < y.values().size(); ++i) {
    float& v = stream->values()[i];
    v = block.replaces_stream ? y.values()[i] : v + block.residual_scale * y.values()[i];
    if (!scale.empty()) v *= scale[0];
    v *= block.stream_factor;
  }
  ApplyNorm(context.tensors, block.stream_norm, stream);
  const int64_t width = stream->width();
  for (int64_t i = 0; block.row_part > 0 && i < stream->count(); ++i) {
    const std::span<const float> vector = context.rows[i].vector;
    for (int64_t j = 0; std::ssize(vector) > width && j < width; ++j) {
      stream->row(i)[j] += vector[block.row_part * width + j];
    }
  }
}

Rows ComputeOutputs(const StepContext& context, const Rows& stream) {
  const ModelSpec& spec = context.spec;
  Rows vectors = WantedRows(context.step, stream, &StepSequence::n_vectors);
  Rows behind_norm = vectors;
  ApplyNorm(context.tensors, spec.output_norm, &behind_norm);
  int64_t row = 0;
  auto to = context.step.vectors.begin();
  for (const StepSequence& sequence : context.step.sequences) {
    const Rows& from = sequence.vectors_before_norm ? vectors : behind_norm;
    for (int64_t i = 0; i < sequence.n_vectors; ++i) {
      to = std::ranges::copy(from.row(row++), to).out;
    }
  }
  Rows h = WantedRows(context.step, stream, &StepSequence::n_logits);
  if (h.count() == 0) return h;
  ApplyNorm(context.tensors, spec.output_norm, &h);
  const Tensors tensors =
      context.tensors.ForRows(AdaptersOfWanted(context.step, &StepSequence::n_logits));
  Rows logits = ApplyLinear(tensors, spec.output, h);
  for (float& v : logits.values()) {
    v = Softcap(spec.logit_softcap, double{v} * spec.logit_scale);
  }
  return logits;
}

}  // namespace weft::reference
