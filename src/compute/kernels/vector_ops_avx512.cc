// The vector of 16 floats as one AVX-512 register. Built with -mavx512{f,bw,dq,vl,vnni}.
#include <immintrin.h>

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

using Vec = __m512;

// 32 registers: 16 sums, 4 vectors of keys or values, and the broadcasts.
constexpr int kScoreQueries = 4;
constexpr int kScoreTiles = 4;
constexpr int kValueQueries = 4;
constexpr int kValueVectors = 4;
constexpr int kStateTiles = 2;
constexpr int kInt8Queries = 4;
constexpr int kInt8Tiles = 2;
constexpr int kInt8ValueQueries = 4;
constexpr int kInt8ValueVectors = 2;

inline __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

inline Vec Set(float x) { return _mm512_set1_ps(x); }
inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline Vec LoadFirst(const float* p, int n) { return _mm512_maskz_loadu_ps(FirstLanes(n), p); }
inline void StoreFirst(float* p, int n, Vec x) { _mm512_mask_storeu_ps(p, FirstLanes(n), x); }
inline Vec LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec LoadBF16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void StoreF16(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Fnma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }
inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec Abs(Vec a) { return _mm512_abs_ps(a); }
inline Vec WithSignOf(Vec a, Vec b) {
  return _mm512_or_ps(a, _mm512_and_ps(b, _mm512_set1_ps(-0.0f)));
}
inline Vec SelectLess(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline Vec SelectBits(uint32_t bits, Vec x, Vec y) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), y, x);
}
inline Vec AddExponent(Vec p, Vec z) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(z), 23)));
}

// Lane i of the result is lane i ^ kStep.
template <int kStep>
inline Vec SwapLanes(Vec x) {
  constexpr int kOrder = kStep == 8 || kStep == 2 ? 0x4E : 0xB1;
  if constexpr (kStep >= 4) {
    return _mm512_shuffle_f32x4(x, x, kOrder);
  } else {
    return _mm512_permute_ps(x, kOrder);
  }
}

inline float ReduceMax(Vec x) {
  alignas(64) float lanes[16];
  Store(lanes, x);
  const __m256 eight = _mm256_max_ps(_mm256_load_ps(lanes), _mm256_load_ps(lanes + 8));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Products of bytes for attention over Q8_0: the instruction multiplies unsigned with signed
// ones. Weights are split into their upper and lower seven bits.
using Quads = __m512i;
constexpr int kLevelBytes = 1;
constexpr int kWeightsBytes = 2 * kAttentionBlock;

using Four = std::byte[4];

// (By hand, because GCC 12 copies every sum twice in each turn of a loop, and broadcasts
// by an instruction of its own.)
inline void AddProducts(const Quads& unsigned_bytes, const Quads& signed_bytes, __m512i* sums) {
  asm("vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(unsigned_bytes), "v"(signed_bytes));
}
inline void AddProducts(const Quads& unsigned_bytes, const Four& signed_bytes, __m512i* sums) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*sums) : "v"(unsigned_bytes), "m"(signed_bytes));
}

inline void StoreLevels(const int8_t* levels, std::byte* out) {
  std::memcpy(out, levels, kKvGroupDims);
}
inline const Four& BroadcastLevels(const std::byte* levels) {
  return *reinterpret_cast<const Four*>(levels);  // done by the product
}
inline Quads LoadKeys(const std::byte* p) { return _mm512_loadu_si512(p); }

using KeySums = __m512i;
inline KeySums StartKeySums(int32_t level_sum) { return _mm512_set1_epi32(-128 * level_sum); }
inline void AddKeys(const Quads& keys, const Four& levels, KeySums* sums) {
  AddProducts(keys, levels, sums);
}
inline Vec ToFloats(const KeySums& sums) { return _mm512_cvtepi32_ps(sums); }

// 64 bytes: levels of Q5_0 or Q4_0, or their fifth bits.
using Bytes = __m512i;
inline Bytes LoadBytes(const std::byte* p) { return _mm512_loadu_si512(p); }
inline Bytes LowerHalves(const Bytes& x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline Bytes UpperHalves(const Bytes& x) { return LowerHalves(_mm512_srli_epi16(x, 4)); }
// Adds the fifth bits of the next run, which are the highest, and drops them.
inline void AddFifths(Bytes* fifths, Bytes* levels) {
  const __m512i next = _mm512_and_si512(_mm512_srli_epi16(*fifths, 3), _mm512_set1_epi8(16));
  *levels = _mm512_or_si512(*levels, next);
  *fifths = _mm512_add_epi8(*fifths, *fifths);
}

// Adds the fifth bits of values: 8 bytes, for 4 positions by 8 dimensions twice.
inline void AddValueFifths(const std::byte* fifths, Bytes* levels) {
  const __m512i bits = _mm512_setr_epi32(0x01010101, 0x02020202, 0x04040404, 0x08080808, 0x10101010,
                                         0x20202020, 0x40404040, static_cast<int>(0x80808080),
                                         0x01010101, 0x02020202, 0x04040404, 0x08080808, 0x10101010,
                                         0x20202020, 0x40404040, static_cast<int>(0x80808080));
  int32_t four[2];
  std::memcpy(four, fifths, sizeof(four));
  const __m512i all = _mm512_mask_set1_epi32(_mm512_set1_epi32(four[0]), 0xFF00, four[1]);
  const __mmask64 set = _mm512_test_epi8_mask(all, bits);
  *levels = _mm512_or_si512(*levels, _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16)));
}

// Keys of Q5_0 and Q4_0.
using HalfSums = KeySums;
inline KeySums StartPackedKeys(int32_t start) { return _mm512_set1_epi32(start); }
inline HalfSums ZeroHalfSums() { return _mm512_setzero_si512(); }
inline const Four& BroadcastPackedLevels(const std::byte* levels) {
  return BroadcastLevels(levels);
}
inline void AddPackedKeys(const Bytes& keys, const Four& levels, HalfSums* sums) {
  AddProducts(keys, levels, sums);
}
// Adds the sums twice.
inline void AddHalf(const HalfSums& half, KeySums* sums) {
  *sums = _mm512_add_epi32(*sums, _mm512_add_epi32(half, half));
}
// Values of Q5_0 and Q4_0, as those of Q8_0: twice what is stored, less the largest level.
inline Quads PackedValues(const Bytes& stored, int most) {
  return _mm512_sub_epi8(_mm512_add_epi8(stored, stored),
                         _mm512_set1_epi8(static_cast<int8_t>(most)));
}

struct Weights {
  __m512i upper, lower;
};
struct ValueSums {
  __m512i upper, lower;
};
inline void StoreWeights(const Vec& biased, int v, std::byte* out) {
  const __m512i bits = _mm512_castps_si512(biased);
  const __m512i lower = _mm512_and_si512(bits, _mm512_set1_epi32(127));
  const __m512i upper = _mm512_srli_epi32(bits, 7);
  auto* const at = reinterpret_cast<__m128i*>(out);
  _mm_store_si128(at + v, _mm512_cvtepi32_epi8(upper));
  _mm_store_si128(at + 4 + v, _mm512_cvtepi32_epi8(lower));
}
inline Quads Broadcast4(const std::byte* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}
inline Weights BroadcastWeights(const std::byte* weights, int64_t quad) {
  return {Broadcast4(weights + 4 * quad), Broadcast4(weights + kAttentionBlock + 4 * quad)};
}
inline Quads LoadValues(const std::byte* p) { return _mm512_loadu_si512(p); }
inline ValueSums ZeroValueSums() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
inline void AddValues(const Quads& values, const Weights& weights, ValueSums* sums) {
  AddProducts(weights.upper, values, &sums->upper);
  AddProducts(weights.lower, values, &sums->lower);
}
inline Vec ToFloats(const ValueSums& sums) {
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(sums.upper, 7), sums.lower));
}

#include "compute/kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsAvx512 = kTable;

}  // namespace weft
