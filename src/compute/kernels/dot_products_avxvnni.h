// The dot product of bytes of AVX-VNNI. Built with WEFT_EMULATE_VNNI it is other instructions,
// so that tests run the kernels that use it on machines with AVX2 alone.
// Static for the reason given in matmul/matmul_format.h.
#ifndef WEFT_COMPUTE_KERNELS_DOT_PRODUCTS_AVXVNNI_H_
#define WEFT_COMPUTE_KERNELS_DOT_PRODUCTS_AVXVNNI_H_

#include <immintrin.h>

#if !defined(__AVXVNNI__) && !defined(WEFT_EMULATE_VNNI)
#error "needs -mavxvnni, or WEFT_EMULATE_VNNI"
#endif

namespace weft {

// Adds a[4 i] b[4 i] + ... + a[4 i + 3] b[4 i + 3] to sums[i]; the bytes of a are unsigned.
[[gnu::always_inline]] static inline void AddByteProducts(__m256i a, __m256i b, __m256i* sums) {
#ifdef WEFT_EMULATE_VNNI
  // Every second byte as a word, and the bytes between them.
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xFF)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  *sums = _mm256_add_epi32(*sums, _mm256_add_epi32(even, odd));
#else
  // (By hand, because GCC 12 copies sums in each turn of a loop.)
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sums) : "x"(a), "x"(b));
#endif
}

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_DOT_PRODUCTS_AVXVNNI_H_
