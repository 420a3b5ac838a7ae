// The operations of side streams.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

namespace {

RowsView SideOf(const StepContext& context, int64_t side) {
  const int64_t width = context.spec.d_model;
  return context.scratch.sides.Columns(side * width, width);
}

double LengthOf(const float* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  return std::sqrt(squares);
}

void BringToLengthOf(const Compute& compute, const float* like, int64_t n, float* x) {
  const double factor = LengthOf(like, n) / std::max(LengthOf(x, n), 1e-20);
  compute.vec().scale(static_cast<float>(factor), n, x);
}

// Multiplies x by member `member` of a stack.
void MultiplyMember(StepContext* context, const BoundStack& stack, int64_t member,
                    const RowsView& x, const Int8View& int8, const RowsView& out) {
  BoundLinear linear;
  linear.matrix = stack.Member(member);
  const int64_t n = context->n_rows();
  const ActivationRows input = context->compute.Input(x, n, {&linear}, int8);
  context->compute.Multiply({MakeProduct(linear, input, n, out)});
}

struct StackScratch {
  const BoundStack& stack;
  Arena* arena;
  RowsView left = arena->Rows(stack.first.n_out);
  Int8View input = arena->Int8(stack.first.n_in);
};

// For PredictSides and CorrectSides.
template <typename Operation>
struct SideRouterScratch {
  const Bound<Operation>& op;
  Arena* arena;
  RowsView normed = arena->Rows(op.router.matrix.n_in);
  RowsView modes = arena->Rows(op.router.matrix.n_out);
  RowsView coefficients = arena->Rows(op.coefficients.matrix.n_out);
  Int8View input = arena->Int8(op.router.matrix.n_in);
  Int8View modes_int8 = arena->Int8(op.coefficients.matrix.n_in);
};

template <typename Operation>
void FindCoefficients(StepContext* context, const Bound<Operation>& op, const RowsView& x,
                      const SideRouterScratch<Operation>& scratch) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  compute.ForEach(n, x.width * kStep, [&](int64_t row, int) {
    compute.NormRow(op.router_norm, x.row(row), x.width, scratch.normed.row(row));
  });
  const ActivationRows input = compute.Input(scratch.normed, n, {&op.router}, scratch.input);
  compute.Multiply({MakeProduct(op.router, input, n, scratch.modes)});
  for (int64_t row = 0; row < n; ++row) {
    compute.vec().tanh(scratch.modes.width, scratch.modes.row(row));
  }
  const ActivationRows modes =
      compute.Input(scratch.modes, n, {&op.coefficients}, scratch.modes_int8);
  compute.Multiply({MakeProduct(op.coefficients, modes, n, scratch.coefficients)});
}

}  // namespace

void PlanOp(const Bound<EnterSides>& op, Arena* arena) {
  static_cast<void>(StackScratch{op.enter, arena});
}

void RunOp(StepContext* context, const Bound<EnterSides>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Arena arena = context->scratch.ForRows(context->n_rows());
  const StackScratch scratch{op.enter, &arena};
  for (int64_t side = 0; side < op.spec->enter.count; ++side) {
    MultiplyMember(context, op.enter, side, x, scratch.input, SideOf(*context, side));
  }
  context->compute.ForEach(context->n_rows(), 4 * x.width * kStep, [&](int64_t row, int) {
    for (int64_t side = 0; side < op.spec->enter.count; ++side) {
      BringToLengthOf(context->compute, x.row(row), x.width, SideOf(*context, side).row(row));
    }
    std::fill_n(out.row(row), out.width, 0.0f);
  });
}

void PlanOp(const Bound<LeaveSides>& op, Arena* arena) {
  static_cast<void>(StackScratch{op.leave, arena});
}

void RunOp(StepContext* context, const Bound<LeaveSides>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows(), n_sides = op.spec->leave.count;
  Arena arena = context->scratch.ForRows(n);
  const StackScratch scratch{op.leave, &arena};
  const float share = 1 / static_cast<float>(n_sides + 1);
  for (int64_t side = 0; side < n_sides; ++side) {
    MultiplyMember(context, op.leave, side, SideOf(*context, side), scratch.input, scratch.left);
    compute.ForEach(n, 4 * x.width * kStep, [&](int64_t row, int) {
      float* const left = scratch.left.row(row);
      BringToLengthOf(compute, x.row(row), x.width, left);
      if (side == 0) std::fill_n(out.row(row), out.width, 0.0f);
      compute.vec().add_scaled(left, x.width, share, out.row(row));
    });
  }
  compute.ForEach(n, x.width * kStep, [&](int64_t row, int) {
    compute.vec().add_scaled(x.row(row), x.width, share - 1, out.row(row));
  });
}

void PlanOp(const Bound<PredictSides>& op, Arena* arena) {
  static_cast<void>(SideRouterScratch<PredictSides>{op, arena});
}

void RunOp(StepContext* context, const Bound<PredictSides>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const VectorKernels& vec = context->compute.vec();
  const int64_t n_rows = context->n_rows(), width = x.width, n = op.router.matrix.n_out;
  Arena arena = context->scratch.ForRows(n_rows);
  const SideRouterScratch<PredictSides> scratch{op, &arena};
  FindCoefficients(context, op, x, scratch);
  context->compute.ForEach(n_rows, n * n * width * kStep, [&](int64_t row, int) {
    const float* const c = scratch.coefficients.row(row);
    // The sums use the streams' old values.
    std::vector<float> before(context->scratch.sides.row(row),
                              context->scratch.sides.row(row) + (n - 1) * width);
    std::fill_n(out.row(row), width, 0.0f);
    for (int64_t to = 0; to < n; ++to) {
      float* const sum = to == 0 ? out.row(row) : SideOf(*context, to - 1).row(row);
      vec.add_scaled(x.row(row), width, c[to * n], sum);
      for (int64_t from = 1; from < n; ++from) {
        vec.add_scaled(before.data() + (from - 1) * width, width, c[to * n + from], sum);
      }
    }
  });
}

namespace {

struct CorrectScratch : SideRouterScratch<CorrectSides> {
  CorrectScratch(const Bound<CorrectSides>& op, Arena* arena)
      : SideRouterScratch<CorrectSides>{op, arena},
        news(arena->Rows(op.router.matrix.n_in)),
        gate(arena->Rows(op.gate.matrix.n_out)),
        gate_int8(arena->Int8(op.gate.matrix.n_in)),
        proj_int8(arena->Int8(op.proj.matrix.n_in)) {}
  RowsView news;  // z - a, then the scaled stream, then the update to add
  RowsView gate;
  Int8View gate_int8, proj_int8;
};

}  // namespace

void PlanOp(const Bound<CorrectSides>& op, Arena* arena) {
  static_cast<void>(CorrectScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<CorrectSides>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const VectorKernels& vec = compute.vec();
  const int64_t n_rows = context->n_rows(), width = x.width, n = op.router.matrix.n_out;
  Arena arena = context->scratch.ForRows(n_rows);
  const CorrectScratch scratch(op, &arena);
  FindCoefficients(context, op, x, scratch);
  const RowsView &news = scratch.news, &gate = scratch.gate;
  compute.ForEach(n_rows, 4 * width * kStep, [&](int64_t row, int) {
    const float* const c = scratch.coefficients.row(row);
    std::copy_n(x.row(row), width, news.row(row));
    vec.add_scaled(context->scratch.kept.row(row), width, -1, news.row(row));
    for (int64_t to = 1; to < n; ++to) {
      vec.add_scaled(news.row(row), width, 1 + c[to], SideOf(*context, to - 1).row(row));
    }
    std::copy_n(news.row(row), width, out.row(row));
    vec.scale(c[0], width, out.row(row));
    std::copy_n(x.row(row), width, news.row(row));
    vec.add(out.row(row), width, news.row(row));
    vec.multiply(op.scale, width, news.row(row));
  });
  const ActivationRows input = compute.Input(news, n_rows, {&op.gate}, scratch.gate_int8);
  compute.Multiply({MakeProduct(op.gate, input, n_rows, gate)});
  compute.ForEach(n_rows, gate.width * kExp, [&](int64_t row, int) {
    const float* const own = context->scratch.per_layer.row(row) + op.spec->layer * gate.width;
    vec.activate(ShapeOf(Activation::kGeluTanh), gate.row(row), own, gate.width, gate.row(row));
  });
  const ActivationRows inner = compute.Input(gate, n_rows, {&op.proj}, scratch.proj_int8);
  compute.Multiply({MakeProduct(op.proj, inner, n_rows, news)});
  compute.ForEach(n_rows, n * width * kStep, [&](int64_t row, int) {
    compute.NormRow(op.post_norm, news.row(row), width, news.row(row));
    for (int64_t to = 1; to < n; ++to) {
      vec.add(news.row(row), width, SideOf(*context, to - 1).row(row));
    }
  });
}

namespace {

struct GatherScratch {
  const Bound<GatherSides>& op;
  Arena* arena;
  RowsView flat = arena->Rows(op.map.matrix.n_in);
  Int8View input = arena->Int8(op.map.matrix.n_in);
  RowsView mixed = arena->Rows(op.map.matrix.n_out);
};

// Normalises the rows and columns of c[i][j], in place; see GatherSides.
void Balance(const VectorKernels& vec, const GatherSides& op, float* c) {
  const int n = op.n;
  const auto divide = [&](int first, int step) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += c[first + k * step];
    sum += op.mix_epsilon;
    for (int k = 0; k < n; ++k) c[first + k * step] /= sum;
  };
  for (int i = 0; i < n; ++i) {
    vec.softmax(n, c + i * n);
    for (int j = 0; j < n; ++j) c[i * n + j] += op.mix_epsilon;
  }
  for (int j = 0; j < n; ++j) divide(j, n);
  for (int round = 1; round < op.n_rounds; ++round) {
    for (int i = 0; i < n; ++i) divide(i * n, 1);
    for (int j = 0; j < n; ++j) divide(j, n);
  }
}

// Turns a row's products into pre, post and c, in place.
void FindShares(const VectorKernels& vec, const Bound<GatherSides>& op, float* m) {
  const int n = op.spec->n;
  const int64_t n_values = op.map.matrix.n_out;
  for (int64_t i = 0; i < n_values; ++i) {
    m[i] = m[i] * op.scale[std::min<int64_t>(i / n, 2)] + op.base[i];
  }
  const int64_t n_shares = std::min<int64_t>(n_values, 2 * n);
  vec.sigmoid(n_shares, m);
  for (int64_t i = 0; i < n; ++i) m[i] += op.spec->mix_epsilon;
  for (int64_t i = n; i < n_shares; ++i) m[i] *= 2;
  if (!op.spec->ends) Balance(vec, *op.spec, m + 2 * n);
}

}  // namespace

void PlanOp(const Bound<GatherSides>& op, Arena* arena) {
  static_cast<void>(GatherScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<GatherSides>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n_rows = context->n_rows(), width = x.width, n = op.spec->n;
  Arena arena = context->scratch.ForRows(n_rows);
  const GatherScratch scratch{op, &arena};
  const RowsView& flat = scratch.flat;
  compute.ForEach(n_rows, flat.width * kStep, [&](int64_t row, int) {
    for (int64_t side = 0; op.spec->begins && side < n; ++side) {
      std::copy_n(x.row(row), width, SideOf(*context, side).row(row));
    }
    compute.vec().rms_norm(context->scratch.sides.row(row), flat.width, op.spec->epsilon, 1,
                           nullptr, flat.row(row));
  });
  const ActivationRows input = compute.Input(flat, n_rows, {&op.map}, scratch.input);
  compute.Multiply({MakeProduct(op.map, input, n_rows, scratch.mixed)});
  compute.ForEach(n_rows, flat.width * kStep, [&](int64_t row, int) {
    float* const shares = scratch.mixed.row(row);
    FindShares(compute.vec(), op, shares);
    std::fill_n(out.row(row), width, 0.0f);
    for (int64_t side = 0; side < n; ++side) {
      compute.vec().add_scaled(SideOf(*context, side).row(row), width, shares[side], out.row(row));
    }
    if (op.spec->ends) return;
    std::copy(shares + n, shares + scratch.mixed.width, SideOf(*context, n).row(row));
  });
}

void PlanOp(const Bound<SpreadSides>&, Arena*) {}

void RunOp(StepContext* context, const Bound<SpreadSides>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const VectorKernels& vec = context->compute.vec();
  const int64_t width = x.width, n = op.spec->n;
  context->compute.ForEach(context->n_rows(), n * n * width * kStep, [&](int64_t row, int) {
    const float* const post = SideOf(*context, n).row(row);
    const float* const c = post + n;
    // The sums use the streams' old values.
    const float* const sides = context->scratch.sides.row(row);
    const std::vector<float> before(sides, sides + n * width);
    for (int64_t to = 0; to < n; ++to) {
      float* const sum = SideOf(*context, to).row(row);
      std::copy_n(x.row(row), width, sum);
      vec.scale(post[to], width, sum);
      for (int64_t from = 0; from < n; ++from) {
        vec.add_scaled(before.data() + from * width, width, c[from * n + to], sum);
      }
    }
    std::fill_n(out.row(row), width, 0.0f);
  });
}

namespace {

struct LowRankScratch {
  const Bound<LowRank>& op;
  Arena* arena;
  RowsView low = arena->Rows(op.down.matrix.n_out);
  Int8View input = arena->Int8(op.down.matrix.n_in);
  Int8View low_int8 = arena->Int8(op.up.matrix.n_in);
};

}  // namespace

void PlanOp(const Bound<LowRank>& op, Arena* arena) {
  static_cast<void>(LowRankScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<LowRank>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const LowRankScratch scratch{op, &arena};
  const ActivationRows input = compute.Input(x, n, {&op.down}, scratch.input);
  compute.Multiply({MakeProduct(op.down, input, n, scratch.low)});
  const ActivationRows low = compute.Input(scratch.low, n, {&op.up}, scratch.low_int8);
  compute.Multiply({MakeProduct(op.up, low, n, out)});
  compute.ForEach(n, out.width * kStep, [&](int64_t row, int) {
    compute.NormRow(op.norm, out.row(row), out.width, out.row(row));
    compute.vec().add(x.row(row), out.width, out.row(row));
  });
}

}  // namespace weft::cpu
