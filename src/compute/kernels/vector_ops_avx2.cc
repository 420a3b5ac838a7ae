// Built with -mavx2 -mfma -mf16c.
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

#include "compute/kernels/vector_ops_avx2.inc"

constexpr int kInt8Queries = 4;
constexpr int kInt8Tiles = 1;
constexpr int kInt8ValueQueries = 4;
constexpr int kInt8ValueVectors = 1;

// Products for attention over Q8_0, of words: those of bytes would saturate. Of each four, bytes
// 0 and 2 lie in one lane of 32 bits, bytes 1 and 3 in the same lane of another vector; so that
// making them words takes no shuffle, and the four's sum is in one lane.
struct Quads {
  __m256i even[2], odd[2];  // 8 positions or dimensions each
};
struct Fours {
  __m256i even, odd;
};
constexpr int kLevelBytes = 2;
constexpr int kWeightsBytes = 2 * kAttentionBlock;

inline __m256i Load256(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i Broadcast2(const std::byte* p) {
  int32_t two;
  std::memcpy(&two, p, sizeof(two));
  return _mm256_set1_epi32(two);
}
// Four words in the order in which StoreFours leaves them.
inline Fours BroadcastFours(const std::byte* p) { return {Broadcast2(p), Broadcast2(p + 4)}; }
// Puts words 0 and 2 of each four before words 1 and 3.
inline void StoreFours(__m256i words, std::byte* out) {
  const __m256i sorted = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xD8), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), sorted);
}

inline void StoreLevels(const int8_t* levels, std::byte* out) {
  for (int i = 0; i < kKvGroupDims; i += 16) {
    StoreFours(_mm256_cvtepi8_epi16(Load128(levels + i)), out + 2 * i);
  }
}
inline Fours BroadcastLevels(const std::byte* levels) { return BroadcastFours(levels); }
inline Quads LoadKeys(const std::byte* p) {
  const __m256i byte = _mm256_set1_epi16(0xFF);
  const __m256i a = Load256(p), b = Load256(p + 32);
  return {{_mm256_and_si256(a, byte), _mm256_and_si256(b, byte)},
          {_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)}};
}
inline Quads LoadValues(const std::byte* p) {
  const __m256i a = Load256(p), b = Load256(p + 32);
  return {{_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8),
           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8)},
          {_mm256_srai_epi16(a, 8), _mm256_srai_epi16(b, 8)}};
}

struct QuadSums {
  __m256i eight[2];
};
using KeySums = QuadSums;
using ValueSums = QuadSums;
inline KeySums StartKeySums(int32_t level_sum) {
  const __m256i start = _mm256_set1_epi32(-128 * level_sum);
  return {{start, start}};
}
inline ValueSums ZeroValueSums() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero}};
}
inline void AddProducts(__m256i pairs, __m256i factors, __m256i* sum) {
  const __m256i products = _mm256_madd_epi16(pairs, factors);
  // (By hand, because GCC 12 copies every sum in each turn of a loop.)
  asm("vpaddd %1, %0, %0" : "+x"(*sum) : "x"(products));
}
inline void AddQuads(const Quads& quads, const Fours& factors, QuadSums* sums) {
  for (int i = 0; i < 2; ++i) {
    AddProducts(quads.even[i], factors.even, &sums->eight[i]);
    AddProducts(quads.odd[i], factors.odd, &sums->eight[i]);
  }
}
inline void AddKeys(const Quads& keys, const Fours& levels, KeySums* sums) {
  AddQuads(keys, levels, sums);
}
inline void AddValues(const Quads& values, const Fours& weights, ValueSums* sums) {
  AddQuads(values, weights, sums);
}
inline Vec ToFloats(const QuadSums& sums) {
  return {_mm256_cvtepi32_ps(sums.eight[0]), _mm256_cvtepi32_ps(sums.eight[1])};
}

// Keys of Q5_0 and Q4_0. Four products of unsigned bytes below 32 and levels of a query, twice, do
// not saturate words.
struct HalfSums {
  __m256i words[2];
};
inline HalfSums ZeroHalfSums() { return {{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
inline KeySums StartPackedKeys(int32_t start) {
  return {{_mm256_set1_epi32(start), _mm256_set1_epi32(start)}};
}
inline __m256i BroadcastPackedLevels(const std::byte* levels) {
  int32_t four;
  std::memcpy(&four, levels, sizeof(four));
  return _mm256_set1_epi32(four);
}
inline void AddPackedKeys(const Bytes& keys, __m256i levels, HalfSums* sums) {
  for (int i = 0; i < 2; ++i) {
    const __m256i products = _mm256_maddubs_epi16(keys.half[i], levels);
    asm("vpaddw %1, %0, %0" : "+x"(sums->words[i]) : "x"(products));
  }
}
// Adds the sums twice.
inline void AddHalf(const HalfSums& half, KeySums* sums) {
  for (int i = 0; i < 2; ++i) {
    const __m256i twice = _mm256_madd_epi16(half.words[i], _mm256_set1_epi16(2));
    sums->eight[i] = _mm256_add_epi32(sums->eight[i], twice);
  }
}
// Values of Q5_0 and Q4_0, as those of Q8_0: twice what is stored, less the largest level.
inline Quads PackedValues(const Bytes& stored, int most) {
  const __m256i byte = _mm256_set1_epi16(0xFF);
  const __m256i top = _mm256_set1_epi16(static_cast<int16_t>(most));
  Quads quads;
  for (int i = 0; i < 2; ++i) {
    const __m256i twice = _mm256_add_epi8(stored.half[i], stored.half[i]);
    quads.even[i] = _mm256_sub_epi16(_mm256_and_si256(twice, byte), top);
    quads.odd[i] = _mm256_sub_epi16(_mm256_srli_epi16(twice, 8), top);
  }
  return quads;
}

inline void StoreWeights(const Vec& biased, int v, std::byte* out) {
  const __m256i low_bits = _mm256_set1_epi32(0xFFFF);
  const __m256i words =
      _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(biased.low), low_bits),
                          _mm256_and_si256(_mm256_castps_si256(biased.high), low_bits));
  StoreFours(_mm256_permute4x64_epi64(words, 0xD8), out + 32 * v);
}
inline Fours BroadcastWeights(const std::byte* weights, int64_t quad) {
  return BroadcastFours(weights + 8 * quad);
}

#include "compute/kernels/vector_ops_body.inc"

}  // namespace

const VectorKernels kVectorKernelsAvx2 = kTable;

}  // namespace weft
