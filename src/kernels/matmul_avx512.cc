// The AVX-512 kernels: one register holds the 16 outputs of a tile, or 4 inputs of
// each as bytes. Same order, same bits as matmul_scalar.cc.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/matmul_drive.h"
#include "kernels/matmul_format.h"
#include "kernels/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

// Bytes that a kernel asks for ahead of the block it works on.
constexpr int64_t kPrefetchBytes = 8192;

template <int N>
struct Int {
  static constexpr int value = N;
};

template <typename F, int... I>
[[gnu::always_inline]] inline void UnrollOver(F&& f, std::integer_sequence<int, I...>) {
  (f(Int<I>()), ...);
}

// f(Int<0>()), ..., f(Int<N - 1>()): loops over registers, whose index is a constant
// in every build mode.
template <int N, typename F>
[[gnu::always_inline]] inline void Unroll(F&& f) {
  UnrollOver(f, std::make_integer_sequence<int, N>());
}

// A block of a tile, decoded: 8 groups of 4 inputs, unsigned; exact scales.
template <DType T>
struct Block {
  static constexpr Format kFormat = FormatOf(T);
  __m512i levels[8];
  __m512 scale[2];  // of the half blocks; [0] alone for whole ones
  // Minima of whole blocks, negated as the sums of the activations are. For half
  // blocks: the super scale, and two int16 per lane.
  __m512 min;
  __m512i half_mins;
};

// (v shifted right by kRight, left if negative) & the bits of `mask` in every byte.
template <int kRight>
[[gnu::always_inline]] inline __m512i ShiftAnd(__m512i v, int mask) {
  if constexpr (kRight > 0) v = _mm512_srli_epi16(v, kRight);
  if constexpr (kRight < 0) v = _mm512_slli_epi16(v, -kRight);
  return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask)));
}

[[gnu::always_inline]] inline __m512i LoadTable(const uint8_t* table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

template <DType T>
[[gnu::always_inline]] inline void LoadLevels(const uint8_t* planes, Block<T>& block) {
  constexpr Format f = FormatOf(T);
  if constexpr (f.bits == 8) {
    Unroll<8>([&](auto g) { block.levels[g.value] = _mm512_loadu_si512(planes + 64 * g.value); });
    return;
  }
  if constexpr (f.bits >= 4) {
    Unroll<4>([&](auto p) {
      const __m512i v = _mm512_loadu_si512(planes + 64 * p.value);
      block.levels[p.value] = ShiftAnd<0>(v, 0x0F);
      block.levels[p.value + 4] = ShiftAnd<4>(v, 0x0F);
    });
  }
  if constexpr (f.table != LevelTable::kNone) {
    const __m512i table = LoadTable(f.table == LevelTable::kIq4 ? kIq4Levels : kMxfp4Levels);
    Unroll<8>(
        [&](auto g) { block.levels[g.value] = _mm512_shuffle_epi8(table, block.levels[g.value]); });
  }
  if constexpr (f.bits == 5) {
    const __m512i high = _mm512_loadu_si512(planes + 256);
    Unroll<8>([&](auto g) {
      block.levels[g.value] =
          _mm512_or_si512(block.levels[g.value], ShiftAnd<g.value - 4>(high, 0x10));
    });
  }
  if constexpr (f.bits == 6) {
    const __m512i high[2] = {_mm512_loadu_si512(planes + 256), _mm512_loadu_si512(planes + 320)};
    Unroll<8>([&](auto g) {
      constexpr int kRight = 2 * (g.value % 4) - 4;
      block.levels[g.value] =
          _mm512_or_si512(block.levels[g.value], ShiftAnd<kRight>(high[g.value / 4], 0x30));
    });
  }
  if constexpr (f.bits <= 3) {
    const __m512i low[2] = {_mm512_loadu_si512(planes), _mm512_loadu_si512(planes + 64)};
    Unroll<8>(
        [&](auto g) { block.levels[g.value] = ShiftAnd<2 * (g.value % 4)>(low[g.value / 4], 3); });
  }
  if constexpr (f.bits == 3) {
    const __m512i high = _mm512_loadu_si512(planes + 128);
    Unroll<8>([&](auto g) {
      block.levels[g.value] =
          _mm512_or_si512(block.levels[g.value], ShiftAnd<g.value - 2>(high, 4));
    });
  }
}

[[gnu::always_inline]] inline __m512 LoadHalves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

[[gnu::always_inline]] inline __m512i LoadUnsigned(const std::byte* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

[[gnu::always_inline]] inline __m512i LoadSigned(const std::byte* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// The super scales of a chunk.
struct Super {
  __m512 scale;
  __m512 min;
};

template <DType T>
[[gnu::always_inline]] inline void LoadScales(const Super& super, const std::byte* meta,
                                              Block<T>& block) {
  constexpr Format f = FormatOf(T);
  if constexpr (f.scales == ScaleForm::kF16) {
    block.scale[0] = LoadHalves(meta);
    if constexpr (f.mins) {
      block.min = _mm512_xor_ps(LoadHalves(meta + 32), _mm512_set1_ps(-0.0f));
    }
  } else if constexpr (f.scales == ScaleForm::kE8M0) {
    const __m512i e = LoadUnsigned(meta);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    block.scale[0] = _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
  } else if constexpr (!f.mins) {
    Unroll<f.halves ? 2 : 1>([&](auto h) {
      block.scale[h.value] =
          _mm512_mul_ps(super.scale, _mm512_cvtepi32_ps(LoadSigned(meta + 16 * h.value)));
    });
  } else if constexpr (!f.halves) {
    block.scale[0] = _mm512_mul_ps(super.scale, _mm512_cvtepi32_ps(LoadUnsigned(meta)));
    block.min = _mm512_mul_ps(super.min, _mm512_cvtepi32_ps(LoadUnsigned(meta + 16)));
  } else {
    __m512i half_min[2];
    Unroll<2>([&](auto h) {
      const __m512i both = LoadUnsigned(meta + 16 * h.value);
      const __m512i scale = _mm512_and_si512(both, _mm512_set1_epi32(15));
      block.scale[h.value] = _mm512_mul_ps(super.scale, _mm512_cvtepi32_ps(scale));
      half_min[h.value] = _mm512_srli_epi32(both, 4);
    });
    block.min = super.min;
    block.half_mins = _mm512_or_si512(half_min[0], _mm512_slli_epi32(half_min[1], 16));
  }
}

// Four activations, to every lane.
[[gnu::always_inline]] inline __m512i Broadcast4(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Adds a block's part of one row to the accumulator.
template <DType T>
[[gnu::always_inline]] inline __m512 AddBlock(const Block<T>& block, const int8_t* q,
                                              const float* scale, const int32_t* sums, __m512 acc) {
  constexpr Format f = FormatOf(T);
  const __m512i sum = _mm512_set1_epi32(f.halves ? sums[1] : sums[0]);
  __m512i dot[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  if constexpr (f.offset_shift >= 0 && f.halves) {
    // Each half's sum moved to its place times the offset, by shifts: multiplications
    // would wait for the ports of the dot products.
    constexpr int kRight = 16 - f.offset_shift;
    dot[0] = _mm512_srai_epi32(_mm512_slli_epi32(sum, 16), kRight);
    dot[1] =
        _mm512_and_si512(_mm512_srai_epi32(sum, kRight), _mm512_set1_epi32(-(1 << f.offset_shift)));
  } else if constexpr (f.offset_shift >= 0) {
    dot[0] = _mm512_slli_epi32(sum, f.offset_shift);
  }
  Unroll<8>([&](auto g) {
    constexpr int kPart = f.halves ? g.value / 4 : 0;
    dot[kPart] =
        _mm512_dpbusd_epi32(dot[kPart], block.levels[g.value], Broadcast4(q + 4 * g.value));
  });
  __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[0]), block.scale[0]);
  if constexpr (f.halves) part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[1]), block.scale[1], part);
  if constexpr (f.mins) {
    const __m512i weighted = f.halves ? _mm512_madd_epi16(sum, block.half_mins) : sum;
    part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(weighted), block.min, part);
  }
  return _mm512_fmadd_ps(part, _mm512_set1_ps(*scale), acc);
}

// Asks for the kBytes that lie kPrefetchBytes beyond p. (A plain loop: GCC drops
// prefetches from functions that it does not inline at once.)
template <int kBytes>
[[gnu::always_inline]] inline void Prefetch(const std::byte* p) {
  for (int line = 0; line < (kBytes + 63) / 64; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes + 64 * line), _MM_HINT_T1);
  }
}

template <int kRows>
[[gnu::always_inline]] inline void StoreRows(const __m512 (&acc)[kRows], int lanes, float* out,
                                             int64_t out_stride) {
  const __mmask16 mask = static_cast<__mmask16>((1u << lanes) - 1);
  Unroll<kRows>(
      [&](auto r) { _mm512_mask_storeu_ps(out + r.value * out_stride, mask, acc[r.value]); });
}

template <DType T, int kRows>
void Int8Tile(const PackedMatrix& w, const std::byte* tile, const ActivationRows& x, int64_t row,
              int lanes, float* out, int64_t out_stride) {
  constexpr Format f = FormatOf(T);
  const int64_t blocks = w.n_in / kBlock;
  const int8_t* q = x.int8.q + row * w.n_in;
  const float* scales = x.int8.scales + row * blocks;
  const int32_t* sums = x.int8.sums + 2 * row * blocks;
  const std::byte* at = tile + ChunkOffset(f, w.n_in, 0);
  __m512 acc[kRows];
  Unroll<kRows>([&](auto r) { acc[r.value] = _mm512_setzero_ps(); });
  for (int64_t chunk = 0; chunk < blocks; chunk += kChunkBlocks) {
    const std::byte* meta = at;
    const std::byte* levels = at + kChunkBlocks * MetaBytes(f);
    at = levels + kChunkBlocks * LevelBytes(f);
    Prefetch<kChunkBlocks * MetaBytes(f)>(meta);
    Super super = {};
    if constexpr (f.scales == ScaleForm::kSuper) {
      super.scale = LoadHalves(tile);
      if constexpr (f.mins) super.min = LoadHalves(tile + 32);
      tile += SuperBytes(f);
    }
    const int64_t end = blocks - chunk < kChunkBlocks ? blocks - chunk : kChunkBlocks;
    for (int64_t b = 0; b < end; ++b) {
      Prefetch<LevelBytes(f)>(levels);
      Block<T> block;
      LoadScales<T>(super, meta, block);
      LoadLevels<T>(reinterpret_cast<const uint8_t*>(levels), block);
      Unroll<kRows>([&](auto r) {
        const int64_t at_row = r.value * blocks;
        acc[r.value] = AddBlock<T>(block, q + at_row * kBlock, scales + at_row, sums + 2 * at_row,
                                   acc[r.value]);
      });
      meta += MetaBytes(f);
      levels += LevelBytes(f);
      q += kBlock;
      ++scales;
      sums += 2;
    }
  }
  StoreRows<kRows>(acc, lanes, out, out_stride);
}

enum class FloatForm { kF32, kF16, kBF16 };

template <FloatForm F>
[[gnu::always_inline]] inline __m512 LoadFloats(const std::byte* tile, int64_t i) {
  if constexpr (F == FloatForm::kF32) return _mm512_loadu_ps(tile + 4 * kLanes * i);
  const std::byte* p = tile + 2 * kLanes * i;
  if constexpr (F == FloatForm::kF16) return LoadHalves(p);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <FloatForm F, int kRows>
void FloatTile(const PackedMatrix& w, const std::byte* tile, const ActivationRows& x, int64_t row,
               int lanes, float* out, int64_t out_stride) {
  const float* values = x.values + row * x.values_stride;
  __m512 acc[kRows];
  Unroll<kRows>([&](auto r) { acc[r.value] = _mm512_setzero_ps(); });
  for (int64_t i = 0; i < w.n_in; ++i) {
    const __m512 weights = LoadFloats<F>(tile, i);
    Prefetch<64>(tile + (F == FloatForm::kF32 ? 4 : 2) * kLanes * i);
    Unroll<kRows>([&](auto r) {
      const __m512 value = _mm512_set1_ps(values[r.value * x.values_stride + i]);
      acc[r.value] = _mm512_fmadd_ps(weights, value, acc[r.value]);
    });
  }
  StoreRows<kRows>(acc, lanes, out, out_stride);
}

#include "kernels/matmul_dispatch.inc"

void QuantizeRow(const float* values, int64_t n, int8_t* q, float* scales, int32_t* sums) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7FFFFFFF);
  for (int64_t b = 0; b < n / kBlock; ++b, values += kBlock, q += kBlock, sums += 2) {
    const __m512 v[2] = {_mm512_loadu_ps(values), _mm512_loadu_ps(values + 16)};
    // As integers magnitudes have the order of the floats, NaN above all.
    const __m512i magnitude[2] = {_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude_bits),
                                  _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude_bits)};
    const int32_t max_bits = _mm512_reduce_max_epi32(_mm512_max_epi32(magnitude[0], magnitude[1]));
    float max;
    std::memcpy(&max, &max_bits, sizeof(max));
    const bool finite = max_bits < 0x7F800000;
    if (!finite || max < kSmallestActivation) {
      std::memset(q, 0, kBlock);
      scales[b] = finite ? 0.0f : __builtin_nanf("");
      sums[0] = sums[1] = 0;
      continue;
    }
    scales[b] = max / 127.0f;
    const __m512 inverse = _mm512_set1_ps(127.0f / max);
    constexpr int kToEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512i low = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v[0], inverse), kToEven);
    const __m512i high = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v[1], inverse), kToEven);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(high));
    const int32_t low_sum = _mm512_reduce_add_epi32(low);
    const int32_t high_sum = _mm512_reduce_add_epi32(high);
    sums[0] = -(low_sum + high_sum);
    sums[1] = static_cast<int32_t>((static_cast<uint32_t>(-high_sum) << 16) |
                                   (static_cast<uint32_t>(-low_sum) & 0xFFFF));
  }
}

}  // namespace

const MatmulKernels kAvx512Kernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
