// Activations of feed-forward networks, as floats and as bytes.
#ifndef WEFT_COMPUTE_KERNELS_GPU_ACTIVATE_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_ACTIVATE_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/math.h"
#include "compute/kernels_gpu/quantize_device.h"

namespace weft::device {

WEFT_DEVICE float ActivateOne(const ActivateArgs& a, float g) {
  switch (a.kind) {
    case Act::kSilu:
    case Act::kSiluOfClamped:
      return g / (1.0f + Exp(-g));
    case Act::kGeluTanh: {
      // x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
      const float cubic = Fma(g * g * g, 0.044715f, g);
      return g / (1.0f + Exp(cubic * -1.5957691216f));
    }
    case Act::kGeluErf:
      return g * 0.5f * (1.0f + Erf(g * 0.70710678118f));
    case Act::kRelu:
      return Max(g, 0.0f);
    case Act::kClampedSilu:
      return Min(g / (1.0f + Exp(-g)), a.limit);
    case Act::kXielu: {
      const float below = (Exp(Min(g, a.limit)) - 1.0f - g) * a.fall;
      return Fma(g, a.slope, g > 0.0f ? g * g * a.rise : below);
    }
    default: {
      const float positive = Max(g, 0.0f);
      return positive * positive;
    }
  }
}

WEFT_DEVICE float ActivateValue(const ActivateArgs& a, float gate, bool has_up, float up) {
  if (a.kind == Act::kClampedSwiglu) {
    const float g = Min(gate, a.limit);
    const float swish = g * Sigmoid(g * 1.702f);
    return has_up ? swish * (Max(Min(up, a.limit), -a.limit) + 1.0f) : swish;
  }
  if (a.kind == Act::kSiluOfClamped) gate = Min(gate, a.limit);
  const float value = ActivateOne(a, gate);
  if (a.kind == Act::kClampedSilu || a.kind == Act::kSiluOfClamped)
    up = Max(Min(up, a.limit), -a.limit);
  return has_up ? value * up : value;
}

// Activates and quantizes block `block` of a row, with kQuantizeLanes lanes. Lanes without a block
// of their own still take part, and read a valid block.
WEFT_DEVICE void ActivateBlock(const ActivateBytesArgs& a, int64_t row, int block, bool there) {
  const bool has_up = a.rows.up.values != nullptr;
  const int64_t at =
      static_cast<int64_t>(block) * kBlockInputs + ThreadIndex() % kQuantizeLanes * kQuantizeEach;
  float values[kQuantizeEach], up[kQuantizeEach] = {};
  LoadFour(a.rows.gate.values + row * a.rows.gate.stride + at, values);
  if (has_up) LoadFour(a.rows.up.values + row * a.rows.up.stride + at, up);
  const float factor = a.rows.factors != nullptr ? a.rows.factors[row] : 1.0f;
  WEFT_UNROLL
  for (int i = 0; i < kQuantizeEach; ++i) {
    values[i] = ActivateValue(a.rows, values[i] * factor, has_up, up[i] * factor);
  }
  QuantizeBlock(values, a.out, row, block, a.n_blocks, there);
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_ACTIVATE_DEVICE_H_
