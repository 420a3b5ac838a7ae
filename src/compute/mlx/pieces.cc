// The building blocks of operations; see step_context.h.
#include <algorithm>
#include <cmath>

#include "compute/mlx/step_context.h"

namespace weft::mlx {

namespace {

constexpr int kGroup = 32;
// Part of a matrix of halves that is widened to F32 for one product at a time.
constexpr int64_t kWidenedBytes = 64 << 20;
// With fewer weights per lane, waiting for the lane costs more than it saves.
constexpr int64_t kWeightsOfLane = 1 << 15;

std::string ModeOf(const Packing& packing) {
  return packing.form == Form::kMxfp4 ? "mxfp4" : "affine";
}

// Spreads each 16 inputs over a group of 32, as in the packed weights.
mx::array Spread(const mx::array& x, const Packing& packing) {
  if (!packing.spread) return x;
  mx::Shape split = x.shape();
  split.back() /= 16;
  split.push_back(16);
  mx::Shape wide = x.shape();
  wide.back() *= 2;
  const mx::array sixteens = mx::reshape(x, split);
  return mx::reshape(mx::concatenate({sixteens, mx::zeros_like(sixteens)}, -1), wide);
}

mx::array MultiplyFloats(const mx::array& x, const mx::array& values) {
  if (values.dtype() == mx::float32) return mx::matmul(x, mx::swapaxes(values, -1, -2));
  const int n_out = values.shape(0), n_in = values.shape(1);
  const auto piece = static_cast<int>(
      std::max<int64_t>(1, kWidenedBytes / (static_cast<int64_t>(sizeof(float)) * n_in)));
  std::vector<mx::array> parts;
  for (int first = 0; first < n_out; first += piece) {
    const mx::array rows = mx::slice(values, {first, 0}, {std::min(n_out, first + piece), n_in});
    parts.push_back(mx::matmul(x, mx::transpose(mx::astype(rows, mx::float32))));
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, -1);
}

// Rows [first, last) of an array in host memory, without copying.
mx::array RowsOf(const mx::array& x, int first, int last) {
  mx::array rows({last - first, x.shape(1)}, x.dtype(), nullptr, {});
  rows.copy_shared_buffer(x, x.strides(), {true, true, false}, rows.size(),
                          int64_t{first} * x.strides()[0]);
  rows.set_status(mx::array::Status::available);
  return rows;
}

Matrix OutputsOf(const Matrix& matrix, int first, int last) {
  Matrix part{.packing = matrix.packing, .levels = {}, .scales = {}, .biases = {}};
  part.levels = RowsOf(*matrix.levels, first, last);
  part.scales = RowsOf(*matrix.scales, first, last);
  if (matrix.biases) part.biases = RowsOf(*matrix.biases, first, last);
  return part;
}

}  // namespace

mx::array Columns(const mx::array& x, int64_t first, int64_t count) {
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start.back() = Size(first);
  stop.back() = Size(first + count);
  return mx::slice(x, start, stop);
}

mx::array AsHeads(const mx::array& x, int64_t n) {
  return mx::reshape(x, {x.shape(0), Size(n), Size(x.shape(1) / n)});
}

mx::array AsRows(const mx::array& x) { return mx::flatten(x, 1, -1); }

mx::array Multiply(const mx::array& x, const Matrix& matrix) {
  const Packing& packing = matrix.packing;
  if (packing.form == Form::kFloat) return MultiplyFloats(x, *matrix.levels);
  return mx::quantized_matmul(Spread(x, packing), *matrix.levels, *matrix.scales, matrix.biases,
                              /*transpose=*/true, kGroup, packing.bits, ModeOf(packing));
}

mx::array MultiplyInLanes(const Lanes& lanes, const mx::array& x, const Matrix& matrix) {
  const int64_t n_out = matrix.levels->shape(0);
  const int n_parts =
      static_cast<int>(std::min<int64_t>(lanes.count(), n_out * x.shape(-1) / kWeightsOfLane));
  if (n_parts <= 1 || matrix.packing.form == Form::kFloat) return Multiply(x, matrix);
  std::vector<mx::array> parts;
  for (int lane = 0; lane < n_parts; ++lane) {
    const auto bound = [&](int i) { return static_cast<int>(n_out * i / n_parts); };
    const Lanes::Use use(lanes, lane);
    parts.push_back(Multiply(x, OutputsOf(matrix, bound(lane), bound(lane + 1))));
  }
  return mx::concatenate(parts, -1);
}

mx::array ApplyMembers(const BoundStack& stack, const mx::array& x, const mx::array& members) {
  const Packing& packing = stack.matrix.packing;
  const mx::array rows = mx::expand_dims(x, -2);  // [rows, n, 1, n_in]
  const mx::array product =
      packing.form == Form::kFloat
          ? mx::gather_mm(rows, mx::swapaxes(*stack.matrix.levels, -1, -2), std::nullopt, members)
          : mx::gather_qmm(Spread(rows, packing), *stack.matrix.levels, *stack.matrix.scales,
                           stack.matrix.biases, std::nullopt, members, /*transpose=*/true, kGroup,
                           packing.bits, ModeOf(packing));
  mx::array out = mx::squeeze(product, -2);
  if (stack.bias) out = out + mx::take(*stack.bias, members, 0);
  if (stack.scale) out = out * mx::expand_dims(mx::take(*stack.scale, members, 0), -1);
  return out;
}

mx::array ApplyToHeads(const BoundStack& stack, const mx::array& heads) {
  const mx::array by_head = mx::swapaxes(heads, 0, 1);
  mx::array out = mx::swapaxes(Multiply(by_head, stack.matrix), 0, 1);
  if (stack.bias) out = out + *stack.bias;
  if (stack.scale) out = out * mx::expand_dims(*stack.scale, -1);
  return out;
}

mx::array ApplyNorm(const BoundNorm& norm, const mx::array& x) {
  if (!norm) return x;
  const Norm& spec = norm.spec;
  const mx::array groups = AsHeads(x, x.shape(1) / spec.width);
  // One fused GPU kernel if all groups share the weights, which already include the factor.
  const bool is_fused = norm.weight && norm.weight->ndim() == 1;
  const std::optional<mx::array> weight = is_fused ? norm.weight : std::nullopt;
  mx::array out = spec.kind == NormKind::kLayer
                      ? mx::fast::layer_norm(groups, weight, std::nullopt, spec.epsilon)
                      : mx::fast::rms_norm(groups, weight, spec.epsilon);
  if (norm.weight && !is_fused) {
    out = out * *norm.weight;
  } else if (!norm.weight && spec.factor != 1) {
    out = out * mx::array(spec.factor);
  }
  if (norm.bias) out = out + *norm.bias;
  return mx::reshape(out, x.shape());
}

mx::array Silu(const mx::array& x) { return x * mx::sigmoid(x); }

mx::array Activate(Activation activation, const ActivationNumbers& numbers, const mx::array& gate,
                   const mx::array* up) {
  const float limit = numbers.limit;
  const auto number = [](double value) { return mx::array(static_cast<float>(value)); };
  const mx::array& g = gate;
  const auto activated = [&]() -> mx::array {
    switch (activation) {
      case Activation::kSilu:
        return Silu(g);
      case Activation::kGeluTanh: {
        const mx::array inner = number(std::sqrt(2 / M_PI)) * (g + number(0.044715) * g * g * g);
        return number(0.5) * g * (number(1) + mx::tanh(inner));
      }
      case Activation::kGeluErf:
        return number(0.5) * g * (number(1) + mx::erf(g * number(std::sqrt(0.5))));
      case Activation::kRelu:
        return mx::maximum(g, number(0));
      case Activation::kReluSquared:
        return mx::square(mx::maximum(g, number(0)));
      case Activation::kClampedSwiglu: {
        const mx::array clamped = mx::minimum(g, number(limit));
        return clamped * mx::sigmoid(number(1.702) * clamped);
      }
      case Activation::kClampedSilu:
        return mx::minimum(Silu(g), number(limit));
      case Activation::kSiluOfClamped:
        return Silu(mx::minimum(g, number(limit)));
      case Activation::kXielu: {
        const mx::array above = number(numbers.rise) * mx::square(g);
        const mx::array below =
            number(numbers.fall) * (mx::expm1(mx::minimum(g, number(limit))) - g);
        return mx::where(mx::greater(g, number(0)), above, below) + number(numbers.slope) * g;
      }
    }
    return g;
  };
  if (up == nullptr) return activated();
  if (activation == Activation::kClampedSwiglu) {
    return activated() * (mx::clip(*up, number(-limit), number(limit)) + number(1));
  }
  if (activation == Activation::kClampedSilu || activation == Activation::kSiluOfClamped) {
    return activated() * mx::clip(*up, number(-limit), number(limit));
  }
  return activated() * *up;
}

mx::array Softcap(float cap, const mx::array& x) {
  return cap > 0 ? mx::tanh(x / mx::array(cap)) * mx::array(cap) : x;
}

}  // namespace weft::mlx
