// Float functions for kernels, built from operations that every device rounds alike, so their bits
// are the same everywhere. The approximations are the same as in the CPU's kernels, with the same
// accuracy.
#ifndef WEFT_COMPUTE_KERNELS_GPU_MATH_H_
#define WEFT_COMPUTE_KERNELS_GPU_MATH_H_

#include "compute/device/dialect.h"

namespace weft::device {

WEFT_DEVICE float MinusInfinity() { return FloatOf(0xFF800000u); }

// e^x within 1.5 ulp; 0 below -86.5, and no more than e^88.37, which is finite.
//
// x = n ln 2 + r; e^r = 1 + r + r^2 P(r), P fitted on |r| <= ln(2)/2. Adding 1.5 * 2^23 rounds
// to an integer and leaves it in the low bits.
WEFT_DEVICE float Exp(float input) {
  const float x = Max(Min(input, 88.37f), -86.5f);
  const float z = Fma(x, 1.44269504f, 12582912.0f);
  const float n = z - 12582912.0f;
  float r = Fma(-n, 0x1.62e4p-1f, x);
  r = Fma(-n, 1.42860682e-6f, r);
  float p = Fma(0.00139262134663f, r, 0.00836320297158f);
  p = Fma(p, r, 0.0416665544377f);
  p = Fma(p, r, 0.16666576846f);
  p = Fma(p, r, 0.5f);
  const float y = 1.0f + Fma(p, r * r, r);
  const float result = input < -86.5f ? 0.0f : FloatOf(BitsOf(y) + (BitsOf(z) << 23));
  return input != input ? input : result;
}

// Below 0.625 an odd polynomial, to keep the precision of small values; above, by e^2x.
WEFT_DEVICE float Tanh(float x) {
  const float magnitude = Abs(x);
  if (magnitude < 0.625f) {
    const float square = x * x;
    float p = Fma(-0.00604516503757f, square, 0.0209613290553f);
    p = Fma(p, square, -0.0538432631592f);
    p = Fma(p, square, 0.133327188454f);
    p = Fma(p, square, -0.333333284333f);
    return Fma(p * square, x, x);
  }
  const float large = 1.0f - 2.0f / (Exp(magnitude + magnitude) + 1.0f);
  return x < 0.0f ? -large : large;
}

WEFT_DEVICE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
WEFT_DEVICE float Softcap(float cap, float x) { return cap * Tanh(x / cap); }

// The natural logarithm of a finite x >= 2^-126: x = 2^e m with m in [2/3, 4/3), ln(m) by its
// series in s = (m - 1) / (m + 1), |s| <= 1/5.
WEFT_DEVICE float Log(float x) {
  const uint32_t shifted = BitsOf(x) - 0x3F2AAAABu;
  const int exponent = static_cast<int>(shifted) >> 23;
  const float m = FloatOf((shifted & 0x007FFFFFu) + 0x3F2AAAABu);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  float p = Fma(1 / 11.0f, z, 1 / 9.0f);
  p = Fma(p, z, 1 / 7.0f);
  p = Fma(p, z, 1 / 5.0f);
  p = Fma(p, z, 1 / 3.0f);
  p = Fma(p, z, 1.0f);
  return Fma(static_cast<float>(exponent), 0.693147180560f, (s + s) * p);
}

// log(1 + e^x): the logarithm by its series in u / (2 + u), u = e^-|x|.
WEFT_DEVICE float Softplus(float x) {
  const float u = Exp(-Abs(x));
  const float s = u / (2.0f + u);
  const float z = s * s;
  float p = Fma(1 / 13.0f, z, 1 / 11.0f);
  p = Fma(p, z, 1 / 9.0f);
  p = Fma(p, z, 1 / 7.0f);
  p = Fma(p, z, 1 / 5.0f);
  p = Fma(p, z, 1 / 3.0f);
  p = Fma(p, z, 1.0f);
  return Fma(s + s, p, Max(x, 0.0f));
}

// The error function within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
WEFT_DEVICE float Erf(float x) {
  const float magnitude = Abs(x);
  const float t = 1.0f / Fma(0.3275911f, magnitude, 1.0f);
  float p = Fma(1.061405429f, t, -1.453152027f);
  p = Fma(p, t, 1.421413741f);
  p = Fma(p, t, -0.284496736f);
  p = Fma(p, t, 0.254829592f);
  const float value = 1.0f - p * t * Exp(-(x * x));
  return x < 0.0f ? -value : value;
}

// --- sums and maxima of a warp: every lane has the result, and its order is a fixed tree -------

WEFT_DEVICE float WarpSum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}
WEFT_DEVICE float WarpMax(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = Max(value, ShuffleXor(value, mask));
  return value;
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_MATH_H_
