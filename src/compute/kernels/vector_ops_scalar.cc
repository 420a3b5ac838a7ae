// The vector of 16 floats in portable C++, and the kernels over it: the oracle of
// the other instruction sets.
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

struct Vec {
  float lane[16];
};

// Register blocking of the attention kernels: see vector_ops_body.h.
constexpr int kScoreQueries = 1;
constexpr int kScoreTiles = 1;
constexpr int kValueQueries = 1;
constexpr int kValueVectors = 1;
constexpr int kStateTiles = 1;
constexpr int kInt8Queries = 1;
constexpr int kInt8Tiles = 1;
constexpr int kInt8ValueQueries = 1;
constexpr int kInt8ValueVectors = 1;

template <typename Fn>
inline Vec Map(Fn fn) {
  Vec out;
  for (int i = 0; i < 16; ++i) out.lane[i] = fn(i);
  return out;
}

inline Vec Set(float x) {
  return Map([&](int) { return x; });
}
inline Vec Load(const float* p) {
  Vec out;
  std::memcpy(out.lane, p, sizeof(out.lane));
  return out;
}
inline void Store(float* p, const Vec& x) { std::memcpy(p, x.lane, sizeof(x.lane)); }
// The first n (1..15) lanes; the rest are zero.
inline Vec LoadFirst(const float* p, int n) {
  return Map([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline void StoreFirst(float* p, int n, const Vec& x) {
  for (int i = 0; i < n; ++i) p[i] = x.lane[i];
}
inline Vec LoadF16(const uint16_t* p) {
  return Map([&](int i) { return F16ToF32(p[i]); });
}
inline Vec LoadBF16(const uint16_t* p) {
  return Map([&](int i) { return BF16ToF32(p[i]); });
}
inline void StoreF16(uint16_t* p, const Vec& x) {
  for (int i = 0; i < 16; ++i) p[i] = F32ToF16(x.lane[i]);
}
inline Vec Add(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec Sub(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec Div(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec Fma(const Vec& a, const Vec& b, const Vec& c) {  // a b + c
  return Map([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Vec Fnma(const Vec& a, const Vec& b, const Vec& c) {  // c - a b
  return Map([&](int i) { return std::fma(-a.lane[i], b.lane[i], c.lane[i]); });
}
// The second operand where the two do not compare, as the hardware has it.
inline Vec Min(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec Max(const Vec& a, const Vec& b) {
  return Map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec Abs(const Vec& a) {
  return Map([&](int i) { return std::fabs(a.lane[i]); });
}
// |a| with the sign of b. REQUIRES: a is not negative.
inline Vec WithSignOf(const Vec& a, const Vec& b) {
  return Map([&](int i) { return std::copysign(a.lane[i], b.lane[i]); });
}
// Lane-wise a < b ? x : y.
inline Vec SelectLess(const Vec& a, const Vec& b, const Vec& x, const Vec& y) {
  return Map([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
}
// Lanes whose bit is set from x, others from y.
inline Vec SelectBits(uint32_t bits, const Vec& x, const Vec& y) {
  return Map([&](int i) { return (bits >> i) & 1 ? x.lane[i] : y.lane[i]; });
}
// The bits of p plus those of z shifted left by 23: p times two to the integer that
// z holds in its lowest mantissa bits.
inline Vec AddExponent(const Vec& p, const Vec& z) {
  return Map([&](int i) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p.lane[i]) +
                                (std::bit_cast<uint32_t>(z.lane[i]) << 23));
  });
}

// Lane i of the result is lane i ^ kStep.
template <int kStep>
inline Vec SwapLanes(const Vec& x) {
  return Map([&](int i) { return x.lane[i ^ kStep]; });
}

inline float ReduceMax(const Vec& x) {
  float most = x.lane[0];
  for (const float lane : x.lane) most = most > lane ? most : lane;
  return most;
}

// Products of bytes for attention over Q8_0.
struct Quads {
  int16_t levels[64];
};
struct Four {
  int16_t factor[4];
};
struct Sums {
  int32_t lane[16];
};
using KeySums = Sums;
using ValueSums = Sums;
constexpr int kLevelBytes = 1;
constexpr int kWeightsBytes = 2 * kAttentionBlock;

inline void AddProducts(const Quads& quads, const Four& four, Sums* sums) {
  for (int i = 0; i < 64; ++i) sums->lane[i / 4] += quads.levels[i] * four.factor[i % 4];
}
inline Vec ToFloats(const Sums& sums) {
  return Map([&](int i) { return static_cast<float>(sums.lane[i]); });
}

inline void StoreLevels(const int8_t* levels, std::byte* out) {
  std::memcpy(out, levels, kKvGroupDims);
}
inline Four BroadcastLevels(const std::byte* levels) {
  Four four;
  for (int i = 0; i < 4; ++i) four.factor[i] = static_cast<int8_t>(levels[i]);
  return four;
}
inline Quads LoadKeys(const std::byte* p) {
  Quads keys;
  for (int i = 0; i < 64; ++i) keys.levels[i] = static_cast<int16_t>(static_cast<int>(p[i]) - 128);
  return keys;
}
inline KeySums StartKeySums(int32_t) { return {}; }
inline void AddKeys(const Quads& keys, const Four& levels, KeySums* sums) {
  AddProducts(keys, levels, sums);
}

// 64 bytes: levels of Q5_0 or Q4_0, or their fifth bits.
struct Bytes {
  uint8_t at[64];
};
inline Bytes LoadBytes(const std::byte* p) {
  Bytes bytes;
  std::memcpy(bytes.at, p, sizeof(bytes));
  return bytes;
}
inline Bytes LowerHalves(Bytes x) {
  for (uint8_t& byte : x.at) byte &= 15;
  return x;
}
inline Bytes UpperHalves(Bytes x) {
  for (uint8_t& byte : x.at) byte >>= 4;
  return x;
}
// Adds the fifth bits of the next run, which are the highest, and drops them.
inline void AddFifths(Bytes* fifths, Bytes* levels) {
  for (int i = 0; i < 64; ++i) {
    levels->at[i] |= static_cast<uint8_t>(fifths->at[i] >> 3 & 16);
    fifths->at[i] = static_cast<uint8_t>(fifths->at[i] << 1);
  }
}

// Adds the fifth bits of values: 8 bytes, for 4 positions by 8 dimensions twice.
inline void AddValueFifths(const std::byte* fifths, Bytes* levels) {
  for (int i = 0; i < 64; ++i) {
    const int own = static_cast<int>(fifths[i / 32 * 4 + i % 4]);
    levels->at[i] |= static_cast<uint8_t>((own >> (i / 4 % 8) & 1) << 4);
  }
}

// Keys of Q5_0 and Q4_0.
using HalfSums = Sums;
inline Sums StartPackedKeys(int32_t start) {
  Sums sums;
  for (int32_t& lane : sums.lane) lane = start;
  return sums;
}
inline HalfSums ZeroHalfSums() { return {}; }
inline Four BroadcastPackedLevels(const std::byte* levels) { return BroadcastLevels(levels); }
inline void AddPackedKeys(const Bytes& keys, const Four& levels, HalfSums* sums) {
  for (int i = 0; i < 64; ++i) sums->lane[i / 4] += keys.at[i] * levels.factor[i % 4];
}
// Adds the sums twice.
inline void AddHalf(const HalfSums& half, KeySums* sums) {
  for (int i = 0; i < 16; ++i) sums->lane[i] += 2 * half.lane[i];
}
// Values of Q5_0 and Q4_0, as those of Q8_0: twice what is stored, less the largest level.
inline Quads PackedValues(const Bytes& stored, int most) {
  Quads quads;
  for (int i = 0; i < 64; ++i) quads.levels[i] = static_cast<int16_t>(2 * stored.at[i] - most);
  return quads;
}

inline void StoreWeights(const Vec& biased, int v, std::byte* out) {
  for (int i = 0; i < 16; ++i) {
    const auto weight = static_cast<uint16_t>(std::bit_cast<uint32_t>(biased.lane[i]) & 0xFFFF);
    std::memcpy(out + 2 * (16 * v + i), &weight, sizeof(weight));
  }
}
inline Four BroadcastWeights(const std::byte* weights, int64_t quad) {
  Four four;
  std::memcpy(&four, weights + quad * sizeof(four), sizeof(four));
  return four;
}
inline Quads LoadValues(const std::byte* p) {
  Quads values;
  for (int i = 0; i < 64; ++i) values.levels[i] = static_cast<int8_t>(p[i]);
  return values;
}
inline ValueSums ZeroValueSums() { return {}; }
inline void AddValues(const Quads& values, const Four& weights, ValueSums* sums) {
  AddProducts(values, weights, sums);
}

#include "compute/kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsScalar = kTable;

}  // namespace weft
