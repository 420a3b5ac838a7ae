// The operations of side streams, of blocks.h.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/reference/blocks.h"

namespace weft::reference {

namespace {

double Length(std::span<const float> x) { return std::sqrt(Dot(x, x)); }

// `x` at the length of `like`.
std::vector<float> AtLengthOf(std::span<const float> like, std::vector<float> x) {
  const double factor = Length(like) / std::max(Length(x), 1e-20);
  for (float& v : x) v = static_cast<float>(v * factor);
  return x;
}

std::span<float> SideOf(const StepContext& context, int64_t row, int64_t side) {
  const int64_t width = context.spec.d_model;
  return context.sides->row(row).subspan(side * width, width);
}

Rows Coefficients(const StepContext& context, const Norm& norm, const Linear& router,
                  const Linear& coefficients, Rows x) {
  ApplyNorm(context.tensors, norm, &x);
  Rows modes = ApplyLinear(context.tensors, router, x);
  for (float& v : modes.values()) v = std::tanh(v);
  return ApplyLinear(context.tensors, coefficients, modes);
}

}  // namespace

Rows RunOp(const StepContext& context, const EnterSides& op, const Rows& x, const Rows&) {
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t side = 0; side < op.enter.count; ++side) {
      std::ranges::copy(
          AtLengthOf(x.row(i), ApplyMember(context.tensors, op.enter, side, x.row(i))),
          SideOf(context, i, side).begin());
    }
  }
  return Rows(x.count(), x.width());
}

Rows RunOp(const StepContext& context, const LeaveSides& op, const Rows& x, const Rows&) {
  Rows out(x.count(), x.width());
  const double share = 1 / static_cast<double>(op.leave.count + 1);
  for (int64_t i = 0; i < x.count(); ++i) {
    std::vector<double> sum(x.row(i).begin(), x.row(i).end());
    for (int64_t side = 0; side < op.leave.count; ++side) {
      const std::vector<float> left = AtLengthOf(
          x.row(i), ApplyMember(context.tensors, op.leave, side, SideOf(context, i, side)));
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += left[j];
    }
    for (size_t j = 0; j < sum.size(); ++j) {
      out.row(i)[j] = static_cast<float>(sum[j] * share - x.row(i)[j]);
    }
  }
  return out;
}

Rows RunOp(const StepContext& context, const PredictSides& op, const Rows& x, const Rows&) {
  const Rows c = Coefficients(context, op.router_norm, op.router, op.coefficients, x);
  const int64_t n = op.router.n_out, width = x.width();
  Rows out(x.count(), width);
  const Rows sides = *context.sides;  // as they were
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t to = 0; to < n; ++to) {
      for (int64_t j = 0; j < width; ++j) {
        double sum = double{c.row(i)[to * n]} * x.row(i)[j];
        for (int64_t from = 1; from < n; ++from) {
          sum += double{c.row(i)[to * n + from]} * sides.row(i)[(from - 1) * width + j];
        }
        if (to == 0) {
          out.row(i)[j] = static_cast<float>(sum);
        } else {
          float& side = SideOf(context, i, to - 1)[j];
          side = static_cast<float>(side + sum);
        }
      }
    }
  }
  return out;
}

Rows RunOp(const StepContext& context, const CorrectSides& op, const Rows& x, const Rows&) {
  const Rows c = Coefficients(context, op.router_norm, op.router, op.coefficients, x);
  const std::vector<float> scale = context.tensors.Vector(op.scale);
  const int64_t n = op.router.n_out, width = x.width();
  Rows out(x.count(), width), scaled(x.count(), width);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const double news = double{x.row(i)[j]} - context.kept.row(i)[j];
      out.row(i)[j] = static_cast<float>(c.row(i)[0] * news);
      scaled.row(i)[j] = static_cast<float>((x.row(i)[j] + c.row(i)[0] * news) * scale[j]);
      for (int64_t to = 1; to < n; ++to) {
        float& side = SideOf(context, i, to - 1)[j];
        side = static_cast<float>(side + (1.0 + c.row(i)[to]) * news);
      }
    }
  }
  Rows gate = ApplyLinear(context.tensors, op.gate, scaled);
  for (int64_t i = 0; i < gate.count(); ++i) {
    const auto own = context.per_layer_inputs.row(i).subspan(op.layer * gate.width(), gate.width());
    for (int64_t j = 0; j < gate.width(); ++j) {
      gate.row(i)[j] = Activate(Activation::kGeluTanh, {}, gate.row(i)[j], &own[j]);
    }
  }
  Rows added = ApplyLinear(context.tensors, op.proj, gate);
  ApplyNorm(context.tensors, op.post_norm, &added);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t to = 1; to < n; ++to) {
      for (int64_t j = 0; j < width; ++j) SideOf(context, i, to - 1)[j] += added.row(i)[j];
    }
  }
  return out;
}

namespace {

// The row-normed, then column-normed coefficients of c[i][j], in place; see GatherSides.
void Balance(const GatherSides& op, std::span<double> c) {
  const auto n = static_cast<size_t>(op.n);
  const auto divide = [&](size_t first, size_t step) {
    double sum = op.mix_epsilon;
    for (size_t k = 0; k < n; ++k) sum += c[first + k * step];
    for (size_t k = 0; k < n; ++k) c[first + k * step] /= sum;
  };
  for (size_t i = 0; i < n; ++i) {
    const std::span<double> row = c.subspan(i * n, n);
    const double largest = *std::ranges::max_element(row);
    double sum = 0;
    for (double& v : row) sum += v = std::exp(v - largest);
    for (double& v : row) v = v / sum + op.mix_epsilon;
  }
  for (size_t j = 0; j < n; ++j) divide(j, n);
  for (int round = 1; round < op.n_rounds; ++round) {
    for (size_t i = 0; i < n; ++i) divide(i * n, 1);
    for (size_t j = 0; j < n; ++j) divide(j, n);
  }
}

// Writes post and c to the last side stream.
void KeepCoefficients(const GatherSides& op, std::span<const float> mixed,
                      std::span<const float> scale, std::span<const float> base,
                      std::span<float> to) {
  const auto n = static_cast<size_t>(op.n);
  for (size_t i = 0; i < n; ++i) {
    to[i] = static_cast<float>(2 * Sigmoid(double{scale[1]} * mixed[n + i] + base[n + i]));
  }
  std::vector<double> c;
  for (size_t i = 2 * n; i < mixed.size(); ++i) c.push_back(double{scale[2]} * mixed[i] + base[i]);
  Balance(op, c);
  for (size_t i = 0; i < c.size(); ++i) to[n + i] = static_cast<float>(c[i]);
}

}  // namespace

Rows RunOp(const StepContext& context, const GatherSides& op, const Rows& x, const Rows&) {
  Rows flat(x.count(), op.n * x.width()), out(x.count(), x.width());
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t side = 0; op.begins && side < op.n; ++side) {
      std::ranges::copy(x.row(i), SideOf(context, i, side).begin());
    }
    std::ranges::copy(context.sides->row(i).first(flat.width()), flat.row(i).begin());
  }
  ApplyNorm(context.tensors, {.kind = NormKind::kRms, .width = flat.width(), .epsilon = op.epsilon},
            &flat);
  const Rows mixed = ApplyLinear(context.tensors, op.map, flat);
  const std::vector<float> scale = context.tensors.Vector(op.scale);
  const std::vector<float> base = context.tensors.Vector(op.base);
  for (int64_t i = 0; i < x.count(); ++i) {
    std::vector<double> sum(x.width());
    for (int64_t side = 0; side < op.n; ++side) {
      const double share =
          Sigmoid(double{scale[0]} * mixed.row(i)[side] + base[side]) + op.mix_epsilon;
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += share * SideOf(context, i, side)[j];
    }
    std::ranges::transform(sum, out.row(i).begin(), [](double v) { return float(v); });
    if (!op.ends) KeepCoefficients(op, mixed.row(i), scale, base, SideOf(context, i, op.n));
  }
  return out;
}

Rows RunOp(const StepContext& context, const SpreadSides& op, const Rows& x, const Rows&) {
  const int64_t n = op.n;
  for (int64_t i = 0; i < x.count(); ++i) {
    const std::span<const float> post = SideOf(context, i, n), c = post.subspan(n);
    for (int64_t j = 0; j < x.width(); ++j) {
      std::vector<double> sums(n);
      for (int64_t to = 0; to < n; ++to) {
        sums[to] = double{post[to]} * x.row(i)[j];
        for (int64_t from = 0; from < n; ++from) {
          sums[to] += double{c[from * n + to]} * SideOf(context, i, from)[j];
        }
      }
      for (int64_t to = 0; to < n; ++to) {
        SideOf(context, i, to)[j] = static_cast<float>(sums[to]);
      }
    }
  }
  return Rows(x.count(), x.width());
}

Rows RunOp(const StepContext& context, const LowRank& op, const Rows& x, const Rows&) {
  Rows out = ApplyLinear(context.tensors, op.up, ApplyLinear(context.tensors, op.down, x));
  ApplyNorm(context.tensors, op.norm, &out);
  for (size_t i = 0; i < out.values().size(); ++i) out.values()[i] += x.values()[i];
  return out;
}

}  // namespace weft::reference
