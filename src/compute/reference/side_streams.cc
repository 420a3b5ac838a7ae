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

Rows RunOp(const StepContext& context, const LowRank& op, const Rows& x, const Rows&) {
  Rows out = ApplyLinear(context.tensors, op.up, ApplyLinear(context.tensors, op.down, x));
  ApplyNorm(context.tensors, op.norm, &out);
  for (size_t i = 0; i < out.values().size(); ++i) out.values()[i] += x.values()[i];
  return out;
}

}  // namespace weft::reference
