// The vector of 16 floats as four NEON registers. Built with dot products.
#include <arm_neon.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "compute/kernels/vector_ops.h"
#include "compute/kernels/vector_ops_kv_layout.h"
#include "compute/kernels/vector_ops_tables.h"

namespace weft {
namespace {

constexpr int kQuads = 4;

struct Vec {
  float32x4_t quad[kQuads];  // lanes 0..3, 4..7, 8..11, 12..15
};

// 32 registers of 4 floats: 16 hold sums, 8 keys or values.
constexpr int kScoreQueries = 2;
constexpr int kScoreTiles = 2;
constexpr int kValueQueries = 2;
constexpr int kValueVectors = 2;
constexpr int kStateTiles = 2;
constexpr int kInt8Queries = 4;
constexpr int kInt8Tiles = 1;
constexpr int kInt8ValueQueries = 2;
constexpr int kInt8ValueVectors = 1;

template <typename Fn>
[[gnu::always_inline]] inline Vec Map(Fn fn) {
  return {{fn(0), fn(1), fn(2), fn(3)}};
}

inline Vec Set(float x) {
  return Map([&](int) { return vdupq_n_f32(x); });
}
inline Vec Load(const float* p) {
  return Map([&](int k) { return vld1q_f32(p + 4 * k); });
}
inline void Store(float* p, const Vec& x) {
  for (int k = 0; k < kQuads; ++k) vst1q_f32(p + 4 * k, x.quad[k]);
}
inline Vec LoadFirst(const float* p, int n) {
  alignas(16) float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void StoreFirst(float* p, int n, const Vec& x) {
  alignas(16) float lanes[16];
  Store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline Vec LoadF16(const uint16_t* p) {
  return Map([&](int k) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * k))); });
}
inline Vec LoadBF16(const uint16_t* p) {
  return Map([&](int k) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p + 4 * k)), 16));
  });
}
inline void StoreF16(uint16_t* p, const Vec& x) {
  for (int k = 0; k < kQuads; ++k) {
    vst1_u16(p + 4 * k, vreinterpret_u16_f16(vcvt_f16_f32(x.quad[k])));
  }
}
inline Vec Add(const Vec& a, const Vec& b) {
  return Map([&](int k) { return vaddq_f32(a.quad[k], b.quad[k]); });
}
inline Vec Sub(const Vec& a, const Vec& b) {
  return Map([&](int k) { return vsubq_f32(a.quad[k], b.quad[k]); });
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return Map([&](int k) { return vmulq_f32(a.quad[k], b.quad[k]); });
}
inline Vec Div(const Vec& a, const Vec& b) {
  return Map([&](int k) { return vdivq_f32(a.quad[k], b.quad[k]); });
}
inline Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
  return Map([&](int k) { return vfmaq_f32(c.quad[k], a.quad[k], b.quad[k]); });
}
inline Vec Fnma(const Vec& a, const Vec& b, const Vec& c) {
  return Map([&](int k) { return vfmsq_f32(c.quad[k], a.quad[k], b.quad[k]); });
}
// Not the processor's own minimum and maximum, which have other rules for NaN and zeros.
inline float32x4_t Lesser(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline float32x4_t Greater(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline Vec Min(const Vec& a, const Vec& b) {
  return Map([&](int k) { return Lesser(a.quad[k], b.quad[k]); });
}
inline Vec Max(const Vec& a, const Vec& b) {
  return Map([&](int k) { return Greater(a.quad[k], b.quad[k]); });
}
inline Vec Abs(const Vec& a) {
  return Map([&](int k) { return vabsq_f32(a.quad[k]); });
}
inline Vec WithSignOf(const Vec& a, const Vec& b) {
  const uint32x4_t sign = vdupq_n_u32(0x80000000);
  return Map([&](int k) { return vbslq_f32(sign, b.quad[k], a.quad[k]); });
}
inline Vec SelectLess(const Vec& a, const Vec& b, const Vec& x, const Vec& y) {
  return Map(
      [&](int k) { return vbslq_f32(vcltq_f32(a.quad[k], b.quad[k]), x.quad[k], y.quad[k]); });
}
inline Vec SelectBits(uint32_t bits, const Vec& x, const Vec& y) {
  constexpr uint32_t kLaneBits[16] = {1,       2,       4,       8,      1 << 4,  1 << 5,
                                      1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                                      1 << 12, 1 << 13, 1 << 14, 1 << 15};
  const uint32x4_t wanted = vdupq_n_u32(bits);
  return Map([&](int k) {
    return vbslq_f32(vtstq_u32(wanted, vld1q_u32(kLaneBits + 4 * k)), x.quad[k], y.quad[k]);
  });
}
inline Vec AddExponent(const Vec& p, const Vec& z) {
  return Map([&](int k) {
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p.quad[k]),
                                           vshlq_n_u32(vreinterpretq_u32_f32(z.quad[k]), 23)));
  });
}

// Lane i of the result is lane i ^ kStep.
template <int kStep>
inline Vec SwapLanes(const Vec& x) {
  if constexpr (kStep >= 4) {
    return Map([&](int k) { return x.quad[k ^ (kStep / 4)]; });
  } else if constexpr (kStep == 2) {
    return Map([&](int k) { return vextq_f32(x.quad[k], x.quad[k], 2); });
  } else {
    return Map([&](int k) { return vrev64q_f32(x.quad[k]); });
  }
}

// Lane i with lane i + 8, then i + 4 and so on, as the other instruction sets have it.
inline float ReduceMax(const Vec& x) {
  const float32x4_t four = Greater(Greater(x.quad[0], x.quad[2]), Greater(x.quad[1], x.quad[3]));
  const float32x4_t two = Greater(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(Greater(two, vextq_f32(two, two, 1)), 0);
}

// Products of bytes for attention over Q8_0, both signed. Weights are split into their upper
// and lower seven bits.
struct Quads {
  int8x16_t four[kQuads];
};
struct QuadSums {
  int32x4_t four[kQuads];
};
constexpr int kLevelBytes = 1;
constexpr int kWeightsBytes = 2 * kAttentionBlock;

inline int8x16_t Broadcast4(const std::byte* p) {
  return vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(p)));
}
inline QuadSums ZeroSums() {
  const int32x4_t zero = vdupq_n_s32(0);
  return {{zero, zero, zero, zero}};
}
inline void AddProducts(const Quads& quads, int8x16_t factors, QuadSums* sums) {
  for (int k = 0; k < kQuads; ++k) {
    sums->four[k] = vdotq_s32(sums->four[k], quads.four[k], factors);
  }
}

inline void StoreLevels(const int8_t* levels, std::byte* out) {
  std::memcpy(out, levels, kKvGroupDims);
}
inline int8x16_t BroadcastLevels(const std::byte* levels) { return Broadcast4(levels); }
inline Quads LoadValues(const std::byte* p) {
  const auto* const bytes = reinterpret_cast<const int8_t*>(p);
  return {{vld1q_s8(bytes), vld1q_s8(bytes + 16), vld1q_s8(bytes + 32), vld1q_s8(bytes + 48)}};
}
// Keys are stored 128 above their levels.
inline Quads LoadKeys(const std::byte* p) {
  Quads keys = LoadValues(p);
  for (int8x16_t& four : keys.four) four = veorq_s8(four, vdupq_n_s8(-128));
  return keys;
}

using KeySums = QuadSums;
inline KeySums StartKeySums(int32_t) { return ZeroSums(); }
inline void AddKeys(const Quads& keys, int8x16_t levels, KeySums* sums) {
  AddProducts(keys, levels, sums);
}
inline Vec ToFloats(const KeySums& sums) {
  return Map([&](int k) { return vcvtq_f32_s32(sums.four[k]); });
}

// 64 bytes: levels of Q5_0 or Q4_0, or their fifth bits.
struct Bytes {
  uint8x16_t part[kQuads];
};
inline Bytes LoadBytes(const std::byte* p) {
  const auto* const at = reinterpret_cast<const uint8_t*>(p);
  return {{vld1q_u8(at), vld1q_u8(at + 16), vld1q_u8(at + 32), vld1q_u8(at + 48)}};
}
inline Bytes LowerHalves(Bytes x) {
  for (uint8x16_t& part : x.part) part = vandq_u8(part, vdupq_n_u8(15));
  return x;
}
inline Bytes UpperHalves(Bytes x) {
  for (uint8x16_t& part : x.part) part = vshrq_n_u8(part, 4);
  return x;
}
// Adds the fifth bits of the next run, which are the highest, and drops them.
inline void AddFifths(Bytes* fifths, Bytes* levels) {
  for (int k = 0; k < kQuads; ++k) {
    const uint8x16_t next = vandq_u8(vshrq_n_u8(fifths->part[k], 3), vdupq_n_u8(16));
    levels->part[k] = vorrq_u8(levels->part[k], next);
    fifths->part[k] = vaddq_u8(fifths->part[k], fifths->part[k]);
  }
}

// Adds the fifth bits of values: 8 bytes, for 4 positions by 8 dimensions twice.
inline void AddValueFifths(const std::byte* fifths, Bytes* levels) {
  alignas(16) static constexpr uint8_t kBits[32] = {1,  1,  1,  1,  2,  2,  2,   2,   4,   4,  4,
                                                    4,  8,  8,  8,  8,  16, 16,  16,  16,  32, 32,
                                                    32, 32, 64, 64, 64, 64, 128, 128, 128, 128};
  for (int k = 0; k < kQuads; ++k) {
    const uint8x16_t own = vreinterpretq_u8_s8(Broadcast4(fifths + k / 2 * 4));
    const uint8x16_t set = vtstq_u8(own, vld1q_u8(kBits + k % 2 * 16));
    levels->part[k] = vorrq_u8(levels->part[k], vandq_u8(set, vdupq_n_u8(16)));
  }
}

// Keys of Q5_0 and Q4_0.
using HalfSums = KeySums;
inline KeySums StartPackedKeys(int32_t start) {
  const int32x4_t all = vdupq_n_s32(start);
  return {{all, all, all, all}};
}
inline HalfSums ZeroHalfSums() { return ZeroSums(); }
inline int8x16_t BroadcastPackedLevels(const std::byte* levels) { return Broadcast4(levels); }
inline void AddPackedKeys(const Bytes& keys, int8x16_t levels, HalfSums* sums) {
  for (int k = 0; k < kQuads; ++k) {
    sums->four[k] = vdotq_s32(sums->four[k], vreinterpretq_s8_u8(keys.part[k]), levels);
  }
}
// Adds the sums twice.
inline void AddHalf(const HalfSums& half, KeySums* sums) {
  for (int k = 0; k < kQuads; ++k) {
    sums->four[k] = vaddq_s32(sums->four[k], vshlq_n_s32(half.four[k], 1));
  }
}
// Values of Q5_0 and Q4_0, as those of Q8_0: twice what is stored, less the largest level.
inline Quads PackedValues(const Bytes& stored, int most) {
  Quads quads;
  for (int k = 0; k < kQuads; ++k) {
    const uint8x16_t twice = vaddq_u8(stored.part[k], stored.part[k]);
    quads.four[k] = vsubq_s8(vreinterpretq_s8_u8(twice), vdupq_n_s8(static_cast<int8_t>(most)));
  }
  return quads;
}

struct Weights {
  int8x16_t upper, lower;
};
struct ValueSums {
  QuadSums upper, lower;
};
inline void StoreWeights(const Vec& biased, int v, std::byte* out) {
  uint16x8_t upper[2], lower[2];
  for (int half = 0; half < 2; ++half) {
    const uint16x8_t bits = vmovn_high_u32(vmovn_u32(vreinterpretq_u32_f32(biased.quad[2 * half])),
                                           vreinterpretq_u32_f32(biased.quad[2 * half + 1]));
    upper[half] = vshrq_n_u16(bits, 7);
    lower[half] = vandq_u16(bits, vdupq_n_u16(127));
  }
  auto* const at = reinterpret_cast<uint8_t*>(out);
  vst1q_u8(at + 16 * v, vmovn_high_u16(vmovn_u16(upper[0]), upper[1]));
  vst1q_u8(at + kAttentionBlock + 16 * v, vmovn_high_u16(vmovn_u16(lower[0]), lower[1]));
}
inline Weights BroadcastWeights(const std::byte* weights, int64_t quad) {
  return {Broadcast4(weights + 4 * quad), Broadcast4(weights + kAttentionBlock + 4 * quad)};
}
inline ValueSums ZeroValueSums() { return {ZeroSums(), ZeroSums()}; }
inline void AddValues(const Quads& values, const Weights& weights, ValueSums* sums) {
  AddProducts(values, weights.upper, &sums->upper);
  AddProducts(values, weights.lower, &sums->lower);
}
inline Vec ToFloats(const ValueSums& sums) {
  return Map([&](int k) {
    return vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(sums.upper.four[k], 7), sums.lower.four[k]));
  });
}

#include "compute/kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsNeon = kTable;

}  // namespace weft
