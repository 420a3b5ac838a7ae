// The AVX-512 kernels: one register holds the 16 outputs of a tile, or 4 inputs of
// each as bytes. Same order, same bits as matmul_scalar.cc.
//
// Tried, and no faster: 16 rows at once (they do not fit into the registers); cutting the inputs so
// that activations stay in the first-level cache; broadcasting activations by an instruction of its
// own, which takes 20 instructions a row where 12 are enough.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/matmul/matmul_drive.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

// The offset that the levels of a type have in the registers here: one of those for
// which the activations say where a dot product starts, or 64, twice one of them.
constexpr int RaisedOffset(const Format& f) {
  if (f.offset_shift < 0) return 0;
  if (f.halves) return f.offset_shift == 6 ? 64 : 32;
  return f.offset_shift == 3 ? 8 : 128;
}

// The value added to a type's levels to get that offset. (A table's entries include it.)
constexpr int RaiseOf(const Format& f) {
  if (f.offset_shift < 0 || f.table != LevelTable::kNone) return 0;
  return RaisedOffset(f) - (1 << f.offset_shift);
}

// The scales of a block of a tile, exact.
template <Format f>
struct Scales {
  __m512 scale[2];  // one per half block; only [0] for whole ones
  __m512 start[2];  // -kStart times these, exact: a scale has 18 bits, kStart has 2
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

// Group g of a block's levels, decoded: 4 inputs of each output, unsigned, with the
// offset RaisedOffset. (Planes that several groups share are read again for each: loads
// are free here.)
template <Format f, int g>
[[gnu::always_inline]] inline __m512i LoadGroup(const uint8_t* planes) {
  if constexpr (f.bits == 8) return _mm512_loadu_si512(planes + 64 * g);
  __m512i levels = _mm512_setzero_si512();
  if constexpr (f.bits >= 4) {
    levels = ShiftAnd<g / 4 * 4>(_mm512_loadu_si512(planes + 64 * (g % 4)), 0x0F);
  }
  if constexpr (f.bits == 5) {
    const __m512i high = ShiftAnd<g - 4>(_mm512_loadu_si512(planes + 256), 0x10);
    levels = _mm512_or_si512(levels, high);
  }
  if constexpr (f.bits == 6) {
    const __m512i high = _mm512_loadu_si512(planes + 256 + 64 * (g / 4));
    levels = _mm512_or_si512(levels, ShiftAnd<2 * (g % 4) - 4>(high, 0x30));
  }
  if constexpr (f.bits == 1) levels = ShiftAnd<g>(_mm512_loadu_si512(planes), 1);
  if constexpr (f.bits == 2 || f.bits == 3) {
    levels = ShiftAnd<2 * (g % 4)>(_mm512_loadu_si512(planes + 64 * (g / 4)), 3);
  }
  if constexpr (f.bits == 3) {
    levels = _mm512_or_si512(levels, ShiftAnd<g - 2>(_mm512_loadu_si512(planes + 128), 4));
  }
  if constexpr (f.table != LevelTable::kNone) {
    levels = _mm512_shuffle_epi8(LoadTable(kRaised<f.table, RaisedOffset(f)>.values), levels);
  }
  if constexpr (RaiseOf(f) != 0) levels = _mm512_add_epi8(levels, _mm512_set1_epi8(RaiseOf(f)));
  return levels;
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

// Halves that count 2^-kShift times.
template <int kShift>
[[gnu::always_inline]] inline __m512 LoadSupers(const std::byte* p) {
  if constexpr (kShift == 0) return LoadHalves(p);
  return _mm512_mul_ps(LoadHalves(p), _mm512_set1_ps(PowerOfHalf(kShift)));
}

// The super scales of a chunk.
struct Super {
  __m512 scale;
  __m512 min;
};

template <Format f>
[[gnu::always_inline]] inline void LoadScales(const Super& super, const std::byte* meta,
                                              Scales<f>& scales) {
  if constexpr (f.scales == ScaleForm::kF16) {
    scales.scale[0] = LoadHalves(meta);
    if constexpr (f.halves) scales.scale[1] = LoadHalves(meta + 32);
    if constexpr (f.mins) {
      scales.min = _mm512_xor_ps(LoadHalves(meta + 32), _mm512_set1_ps(-0.0f));
    }
  } else if constexpr (f.scales == ScaleForm::kE8M0) {
    const __m512i e = LoadUnsigned(meta);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    scales.scale[0] = _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
  } else if constexpr (!f.mins) {
    Unroll<f.halves ? 2 : 1>([&](auto h) {
      scales.scale[h.value] =
          _mm512_mul_ps(super.scale, _mm512_cvtepi32_ps(LoadSigned(meta + 16 * h.value)));
    });
  } else if constexpr (!f.halves) {
    scales.scale[0] = _mm512_mul_ps(super.scale, _mm512_cvtepi32_ps(LoadUnsigned(meta)));
    scales.min = _mm512_mul_ps(super.min, _mm512_cvtepi32_ps(LoadUnsigned(meta + 16)));
  } else {
    __m512i half_min[2];
    Unroll<2>([&](auto h) {
      const __m512i both = LoadUnsigned(meta + 16 * h.value);
      const __m512i scale = _mm512_and_si512(both, _mm512_set1_epi32(15));
      scales.scale[h.value] = _mm512_mul_ps(super.scale, _mm512_cvtepi32_ps(scale));
      half_min[h.value] = _mm512_srli_epi32(both, 4);
    });
    scales.min = super.min;
    scales.half_mins = _mm512_or_si512(half_min[0], _mm512_slli_epi32(half_min[1], 16));
  }
  Unroll<f.halves ? 2 : 1>([&](auto h) {
    scales.start[h.value] = _mm512_mul_ps(scales.scale[h.value], _mm512_set1_ps(-kStart));
  });
}

// Adds to every lane the products of its four levels with the four activations. In assembly,
// so that the broadcast is part of the instruction: GCC makes two of it, and half as many
// instructions again are too many for a core shared with another thread.
[[gnu::always_inline]] inline __m512i AddProducts(__m512i sum, __m512i levels,
                                                  const int8_t (&q)[4]) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(levels), "m"(q));
  return sum;
}

// Where a dot product of the block begins.
template <Format f, int kHalf>
[[gnu::always_inline]] inline __m512i StartOfDot(const ActivationBlock& x, int row) {
  switch (RaisedOffset(f)) {
    case 8:
      return _mm512_set1_epi32(x.starts[kStart8][row]);
    case 32:
      return _mm512_set1_epi32(x.starts[kStart32First + kHalf][row]);
    case 64:
      return _mm512_set1_epi32(2 * (x.starts[kStart32First + kHalf][row] - kStartBits) +
                               kStartBits);
    case 128:
      return _mm512_set1_epi32(x.starts[kStart128][row]);
    default:
      return _mm512_set1_epi32(kStartBits);
  }
}

// scale * (sum - kStart) with one rounding. Powers of two may be so great that kStart
// times them is none; scales of the other types are halves times small integers.
template <Format f, int kHalf>
[[gnu::always_inline]] inline __m512 Scaled(__m512 sum, const Scales<f>& scales) {
  if constexpr (f.scales == ScaleForm::kE8M0) {
    return _mm512_mul_ps(_mm512_sub_ps(sum, _mm512_set1_ps(kStart)), scales.scale[0]);
  } else {
    return _mm512_fmadd_ps(sum, scales.scale[kHalf], scales.start[kHalf]);
  }
}

// Adds a block's part of kRows rows to their accumulators. Group by group, all rows
// side by side: the sums of one row wait for each other, those of several do not.
// `x`: the block in each panel.
template <Format f, int kRows>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* planes, const Scales<f>& scales,
                                            const ActivationBlock* const (&x)[3],
                                            __m512 (&acc)[kRows]) {
  Unroll<f.halves ? 2 : 1>([&](auto half) {
    constexpr int kGroups = f.halves ? 4 : 8;
    __m512i dot[kRows];
    Unroll<kRows>([&](auto r) {
      constexpr int kPanel = r.value / kPanelRows, kRow = r.value % kPanelRows;
      dot[r.value] = StartOfDot<f, half.value>(*x[kPanel], kRow);
    });
    Unroll<kGroups>([&](auto group) {
      constexpr int g = half.value * kGroups + group.value;
      const __m512i levels = LoadGroup<f, g>(planes);
      Unroll<kRows>([&](auto r) {
        constexpr int kPanel = r.value / kPanelRows, kRow = r.value % kPanelRows;
        dot[r.value] = AddProducts(dot[r.value], levels, x[kPanel]->q[g][kRow]);
      });
    });
    Unroll<kRows>([&](auto r) {
      constexpr int kPanel = r.value / kPanelRows, kRow = r.value % kPanelRows;
      __m512 part = Scaled<f, half.value>(_mm512_castsi512_ps(dot[r.value]), scales);
      if constexpr (f.mins && !f.halves) {
        part = _mm512_fmadd_ps(_mm512_set1_ps(x[kPanel]->sum[kRow]), scales.min, part);
      }
      acc[r.value] = _mm512_fmadd_ps(part, _mm512_set1_ps(x[kPanel]->scale[kRow]), acc[r.value]);
    });
  });
  if constexpr (f.mins && f.halves) {
    Unroll<kRows>([&](auto r) {
      constexpr int kPanel = r.value / kPanelRows, kRow = r.value % kPanelRows;
      const __m512i sums = _mm512_set1_epi32(x[kPanel]->half_sums[kRow]);
      const __m512i weighted = _mm512_madd_epi16(sums, scales.half_mins);
      const __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(weighted), scales.min);
      acc[r.value] = _mm512_fmadd_ps(part, _mm512_set1_ps(x[kPanel]->scale[kRow]), acc[r.value]);
    });
  }
}

template <int kRows>
[[gnu::always_inline]] inline void StoreRows(const __m512 (&acc)[kRows], const TileWork& work) {
  const __mmask16 mask = static_cast<__mmask16>((1u << work.lanes) - 1);
  Unroll<kRows>([&](auto r) {
    if (r.value >= work.n_rows) return;
    _mm512_mask_storeu_ps(work.out + r.value * work.out_stride, mask, acc[r.value]);
  });
}

template <Format f, int kRows>
void Int8Tile(const TileWork& work) {
  const int64_t blocks = work.w.n_in / kBlock;
  // The blocks of each panel; the first panel stands in for those that kRows does not reach.
  const ActivationBlock* x[3];
  Unroll<3>([&](auto p) {
    const int64_t panel = work.row / kPanelRows + (p.value * kPanelRows < kRows ? p.value : 0);
    x[p.value] = work.x.int8.blocks + panel * blocks;
  });
  const std::byte* super_scales = work.tile;
  const std::byte* at = work.tile + GroupsOffset(f, work.w.n_in);
  const std::byte* meta = nullptr;
  __m512 acc[kRows];
  Unroll<kRows>([&](auto r) { acc[r.value] = _mm512_setzero_ps(); });
  for (int64_t chunk = 0; chunk < blocks; chunk += kChunkBlocks) {
    Super super = {};
    if constexpr (f.scales == ScaleForm::kSuper) {
      super.scale = LoadSupers<f.super_shift>(super_scales);
      if constexpr (f.mins) {
        super.min = LoadSupers<f.min_shift>(super_scales + 32);
      }
      super_scales += SuperBytes(f);
    }
    const int64_t end = blocks - chunk < kChunkBlocks ? blocks - chunk : kChunkBlocks;
    for (int64_t b = 0; b < end; ++b) {
      if (b % GroupBlocks(f) == 0) {
        meta = at;
        Prefetch<kGroupMetaBytes>(meta);
        at += kGroupMetaBytes;
      }
      Prefetch<LevelBytes(f)>(at);
      Scales<f> scales;
      LoadScales<f>(super, meta, scales);
      AddBlock<f>(reinterpret_cast<const uint8_t*>(at), scales, x, acc);
      meta += MetaBytes(f);
      at += LevelBytes(f);
      Unroll<3>([&](auto p) { ++x[p.value]; });
    }
  }
  StoreRows<kRows>(acc, work);
}

template <FloatForm F>
[[gnu::always_inline]] inline __m512 LoadFloats(const std::byte* tile, int64_t i) {
  if constexpr (F == FloatForm::kF32) return _mm512_loadu_ps(tile + 4 * kLanes * i);
  const std::byte* p = tile + 2 * kLanes * i;
  if constexpr (F == FloatForm::kF16) return LoadHalves(p);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <FloatForm F, int kRows>
void FloatTile(const TileWork& work) {
  const float* values[kRows];
  Unroll<kRows>([&](auto r) { values[r.value] = FloatRow(work, r.value); });
  __m512 acc[kRows];
  Unroll<kRows>([&](auto r) { acc[r.value] = _mm512_setzero_ps(); });
  for (int64_t i = 0; i < work.w.n_in; ++i) {
    const __m512 weights = LoadFloats<F>(work.tile, i);
    Prefetch<64>(work.tile + (F == FloatForm::kF32 ? 4 : 2) * kLanes * i);
    Unroll<kRows>([&](auto r) {
      acc[r.value] = _mm512_fmadd_ps(weights, _mm512_set1_ps(values[r.value][i]), acc[r.value]);
    });
  }
  StoreRows<kRows>(acc, work);
}

#include "compute/kernels/matmul/matmul_dispatch.inc"

// Sixteen small integers as bytes, to four groups.
void StoreBytes(__m512i v, int row, int8_t (*groups)[kPanelRows][4]) {
  alignas(16) int8_t bytes[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm512_cvtepi32_epi8(v));
  for (int g = 0; g < 4; ++g) std::memcpy(groups[g][row], bytes + 4 * g, 4);
}

void QuantizeRow(const float* values, int64_t n, int row, ActivationBlock* blocks) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7FFFFFFF);
  for (ActivationBlock* block = blocks; block < blocks + n / kBlock; ++block, values += kBlock) {
    const __m512 v[2] = {_mm512_loadu_ps(values), _mm512_loadu_ps(values + 16)};
    // As integers magnitudes have the order of the floats, NaN above all.
    const __m512i magnitude[2] = {_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude_bits),
                                  _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude_bits)};
    const int32_t max_bits = _mm512_reduce_max_epi32(_mm512_max_epi32(magnitude[0], magnitude[1]));
    if (SetUnscaled(block, row, static_cast<uint32_t>(max_bits))) continue;
    float max;
    std::memcpy(&max, &max_bits, sizeof(max));
    const __m512 inverse = _mm512_set1_ps(127.0f / max);
    constexpr int kToEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512i low = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v[0], inverse), kToEven);
    const __m512i high = _mm512_cvt_roundps_epi32(_mm512_mul_ps(v[1], inverse), kToEven);
    StoreBytes(low, row, block->q);
    StoreBytes(high, row, block->q + 4);
    const int32_t low_sum = _mm512_reduce_add_epi32(low);
    const int32_t high_sum = _mm512_reduce_add_epi32(high);
    SetSums(block, row, max / 127.0f, low_sum, high_sum);
  }
}

}  // namespace

const MatmulKernels kAvx512Kernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
