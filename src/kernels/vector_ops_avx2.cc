// The vector of 16 floats as two AVX2 registers. Built with -mavx2 -mfma -mf16c.
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "kernels/vector_ops.h"
#include "kernels/vector_ops_kv_layout.h"
#include "kernels/vector_ops_tables.h"

namespace weft {
namespace {

struct Vec {
  __m256 low, high;  // lanes 0..7, 8..15
};

// 16 registers: 8 hold sums, the others keys or values and the broadcasts.
constexpr int kScoreQueries = 2;
constexpr int kScoreTiles = 2;
constexpr int kValueQueries = 2;
constexpr int kValueVectors = 2;
constexpr int kStateTiles = 1;
constexpr int kInt8Queries = 2;
constexpr int kInt8Tiles = 1;
constexpr int kInt8ValueQueries = 2;
constexpr int kInt8ValueVectors = 1;

inline Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, const Vec& x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
inline Vec LoadFirst(const float* p, int n) {
  alignas(32) float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void StoreFirst(float* p, int n, const Vec& x) {
  alignas(32) float lanes[16];
  Store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline Vec LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
inline __m256 WidenBF16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Vec LoadBF16(const uint16_t* p) {
  return {WidenBF16(Load128(p)), WidenBF16(Load128(p + 8))};
}
inline void StoreF16(uint16_t* p, const Vec& x) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.low, kRounding));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.high, kRounding));
}
inline Vec Add(const Vec& a, const Vec& b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vec Sub(const Vec& a, const Vec& b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vec Div(const Vec& a, const Vec& b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec Fnma(const Vec& a, const Vec& b, const Vec& c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline Vec Min(const Vec& a, const Vec& b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Vec Max(const Vec& a, const Vec& b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vec Abs(const Vec& a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Vec WithSignOf(const Vec& a, const Vec& b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(a.low, _mm256_and_ps(b.low, sign)),
          _mm256_or_ps(a.high, _mm256_and_ps(b.high, sign))};
}
inline Vec SelectLess(const Vec& a, const Vec& b, const Vec& x, const Vec& y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline __m256 MaskOfBits(uint32_t bits) {
  const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bit);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane_bit));
}
inline Vec SelectBits(uint32_t bits, const Vec& x, const Vec& y) {
  return {_mm256_blendv_ps(y.low, x.low, MaskOfBits(bits & 0xFF)),
          _mm256_blendv_ps(y.high, x.high, MaskOfBits((bits >> 8) & 0xFF))};
}
inline __m256 AddExponent(__m256 p, __m256 z) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(z), 23)));
}
inline Vec AddExponent(const Vec& p, const Vec& z) {
  return {AddExponent(p.low, z.low), AddExponent(p.high, z.high)};
}

inline float ReduceMax(const Vec& x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Products for attention over Q8_0, of words: those of bytes would saturate. The sum of a
// four lies in two lanes side by side until the end.
struct Quads {
  __m256i four[4];  // of 4 positions or dimensions each, as words
};
constexpr int kLevelBytes = 2;
constexpr int kWeightsBytes = 2 * kAttentionBlock;

inline __m256i Broadcast4(const std::byte* p) {
  int64_t four;
  std::memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi64x(four);
}

inline void StoreLevels(const int8_t* levels, std::byte* out) {
  for (int i = 0; i < kKvGroupDims; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i),
                        _mm256_cvtepi8_epi16(Load128(levels + i)));
  }
}
inline __m256i BroadcastLevels(const std::byte* levels) { return Broadcast4(levels); }
inline Quads LoadKeys(const std::byte* p) {
  return {{_mm256_cvtepu8_epi16(Load128(p)), _mm256_cvtepu8_epi16(Load128(p + 16)),
           _mm256_cvtepu8_epi16(Load128(p + 32)), _mm256_cvtepu8_epi16(Load128(p + 48))}};
}
inline Quads LoadValues(const std::byte* p) {
  return {{_mm256_cvtepi8_epi16(Load128(p)), _mm256_cvtepi8_epi16(Load128(p + 16)),
           _mm256_cvtepi8_epi16(Load128(p + 32)), _mm256_cvtepi8_epi16(Load128(p + 48))}};
}

struct QuadSums {
  __m256i four[4];
};
using KeySums = QuadSums;
using ValueSums = QuadSums;
inline KeySums StartKeySums(int32_t level_sum) {
  const __m256i start = _mm256_set1_epi64x(static_cast<uint32_t>(-128 * level_sum));
  return {{start, start, start, start}};
}
inline ValueSums ZeroValueSums() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero, zero, zero}};
}
inline void AddProducts(const Quads& quads, __m256i factors, QuadSums* sums) {
  for (int i = 0; i < 4; ++i) {
    const __m256i products = _mm256_madd_epi16(quads.four[i], factors);
    __m256i sum = sums->four[i];
    // (By hand, because GCC 12 copies every sum in each turn of a loop.)
    asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
    sums->four[i] = sum;
  }
}
inline void AddKeys(const Quads& keys, __m256i levels, KeySums* sums) {
  AddProducts(keys, levels, sums);
}
inline void AddValues(const Quads& values, __m256i weights, ValueSums* sums) {
  AddProducts(values, weights, sums);
}
inline __m256 AddPairs(__m256i a, __m256i b) {
  return _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xD8));
}
inline Vec ToFloats(const QuadSums& sums) {
  return {AddPairs(sums.four[0], sums.four[1]), AddPairs(sums.four[2], sums.four[3])};
}

inline void StoreWeights(const Vec& biased, int v, std::byte* out) {
  const __m256i low_bits = _mm256_set1_epi32(0xFFFF);
  const __m256i words =
      _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(biased.low), low_bits),
                          _mm256_and_si256(_mm256_castps_si256(biased.high), low_bits));
  _mm256_store_si256(reinterpret_cast<__m256i*>(out) + v, _mm256_permute4x64_epi64(words, 0xD8));
}
inline __m256i BroadcastWeights(const std::byte* weights, int64_t quad) {
  return Broadcast4(weights + 8 * quad);
}

#include "kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsAvx2 = kTable;

}  // namespace weft
