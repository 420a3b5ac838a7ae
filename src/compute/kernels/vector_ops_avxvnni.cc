// AVX2 with dot products of bytes (AVX-VNNI), for attention over Q8_0. Built with -mavx2 -mfma
// -mf16c -mavxvnni.
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "compute/kernels/dot_products_avxvnni.h"
#include "compute/kernels/vector_ops.h"
#include "compute/kernels/vector_ops_kv_layout.h"
#include "compute/kernels/vector_ops_tables.h"

namespace weft {
namespace {

#include "compute/kernels/vector_ops_avx2.inc"

constexpr int kInt8Queries = 4;
constexpr int kInt8Tiles = 1;
constexpr int kInt8ValueQueries = 2;
constexpr int kInt8ValueVectors = 1;

// The instruction multiplies unsigned with signed bytes. Weights are split into their upper and
// lower seven bits.
struct Quads {
  __m256i eight[2];
};
constexpr int kLevelBytes = 1;
constexpr int kWeightsBytes = 2 * kAttentionBlock;

inline __m256i Load256(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i Broadcast4(const std::byte* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi32(four);
}

inline void StoreLevels(const int8_t* levels, std::byte* out) {
  std::memcpy(out, levels, kKvGroupDims);
}
inline __m256i BroadcastLevels(const std::byte* levels) { return Broadcast4(levels); }
inline Quads LoadKeys(const std::byte* p) { return {{Load256(p), Load256(p + 32)}}; }
inline Quads LoadValues(const std::byte* p) { return LoadKeys(p); }

struct KeySums {
  __m256i eight[2];
};
inline KeySums StartKeySums(int32_t level_sum) {
  const __m256i start = _mm256_set1_epi32(-128 * level_sum);
  return {{start, start}};
}
inline void AddKeys(const Quads& keys, __m256i levels, KeySums* sums) {
  for (int i = 0; i < 2; ++i) AddByteProducts(keys.eight[i], levels, &sums->eight[i]);
}
inline Vec ToFloats(const KeySums& sums) {
  return {_mm256_cvtepi32_ps(sums.eight[0]), _mm256_cvtepi32_ps(sums.eight[1])};
}

// Keys of Q5_0 and Q4_0.
using HalfSums = KeySums;
inline KeySums StartPackedKeys(int32_t start) {
  return {{_mm256_set1_epi32(start), _mm256_set1_epi32(start)}};
}
inline HalfSums ZeroHalfSums() { return StartPackedKeys(0); }
inline __m256i BroadcastPackedLevels(const std::byte* levels) { return Broadcast4(levels); }
inline void AddPackedKeys(const Bytes& keys, __m256i levels, HalfSums* sums) {
  for (int i = 0; i < 2; ++i) AddByteProducts(keys.half[i], levels, &sums->eight[i]);
}
// Adds the sums twice.
inline void AddHalf(const HalfSums& half, KeySums* sums) {
  for (int i = 0; i < 2; ++i) {
    const __m256i twice = _mm256_add_epi32(half.eight[i], half.eight[i]);
    sums->eight[i] = _mm256_add_epi32(sums->eight[i], twice);
  }
}
// Values of Q5_0 and Q4_0, as those of Q8_0: twice what is stored, less the largest level.
inline Quads PackedValues(const Bytes& stored, int most) {
  const __m256i top = _mm256_set1_epi8(static_cast<int8_t>(most));
  Quads quads;
  for (int i = 0; i < 2; ++i) {
    quads.eight[i] = _mm256_sub_epi8(_mm256_add_epi8(stored.half[i], stored.half[i]), top);
  }
  return quads;
}

struct Weights {
  __m256i upper, lower;
};
struct ValueSums {
  __m256i upper[2], lower[2];
};
// Eight weights of a byte each.
inline void StoreBytes(__m256i weights, std::byte* out) {
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(weights), _mm256_extracti128_si256(weights, 1));
  _mm_storeu_si64(out, _mm_packus_epi16(words, words));
}
inline void StoreWeights(const Vec& biased, int v, std::byte* out) {
  const __m256i seven_bits = _mm256_set1_epi32(127), byte = _mm256_set1_epi32(255);
  int at = 16 * v;
  for (const __m256 part : {biased.low, biased.high}) {
    const __m256i bits = _mm256_castps_si256(part);
    StoreBytes(_mm256_and_si256(_mm256_srli_epi32(bits, 7), byte), out + at);
    StoreBytes(_mm256_and_si256(bits, seven_bits), out + kAttentionBlock + at);
    at += 8;
  }
}
inline Weights BroadcastWeights(const std::byte* weights, int64_t quad) {
  return {Broadcast4(weights + 4 * quad), Broadcast4(weights + kAttentionBlock + 4 * quad)};
}
inline ValueSums ZeroValueSums() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero}, {zero, zero}};
}
inline void AddValues(const Quads& values, const Weights& weights, ValueSums* sums) {
  for (int i = 0; i < 2; ++i) {
    AddByteProducts(weights.upper, values.eight[i], &sums->upper[i]);
    AddByteProducts(weights.lower, values.eight[i], &sums->lower[i]);
  }
}
inline Vec ToFloats(const ValueSums& sums) {
  const auto joined = [&](int i) {
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(sums.upper[i], 7), sums.lower[i]));
  };
  return {joined(0), joined(1)};
}

#include "compute/kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsAvxVnni = kTable;

}  // namespace weft
