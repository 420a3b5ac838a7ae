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
inline Vec LoadInt8(const int8_t* p) {
  const __m128i bytes = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
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

inline float HalfToFloat(uint16_t half) { return _cvtsh_ss(half); }

#include "kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsAvx2 = kTable;

}  // namespace weft
