// Built with -mavx2 -mfma -mf16c.
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

#include "kernels/vector_ops_avx2.inc"

constexpr int kInt8Queries = 2;
constexpr int kInt8Tiles = 1;
constexpr int kInt8ValueQueries = 2;
constexpr int kInt8ValueVectors = 1;

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
