// The AVX2 kernels: two registers hold the 16 outputs of a tile, or 4 inputs of each
// as bytes. Same order, same bits as matmul_scalar.cc.
#include <immintrin.h>

#include <cstring>

#include "kernels/matmul/matmul_drive.h"
#include "kernels/matmul/matmul_format.h"
#include "kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

// Levels of 8 bits would overflow the 16-bit sums of products as unsigned bytes.
// They are taken as signed weights instead: |weight| times the activation with the
// weight's sign, which fits even for -128.
constexpr bool IsSigned(const Format& f) { return f.bits == 8 || f.table == LevelTable::kIq4; }

// The greatest level.
constexpr int MostOf(const Format& f) {
  return f.table == LevelTable::kMxfp4 ? 28 : (1 << f.bits) - 1;
}

// How many groups' products of two inputs fit into a 16-bit sum: activations are at most 127.
constexpr int GroupsPerSum(const Format& f) {
  if (IsSigned(f)) return 1;
  int groups = 8;
  while (groups * 2 * 127 * MostOf(f) > 0x7FFF) groups /= 2;
  return groups;
}

// Outputs 8 s ... 8 s + 7 of a block of a tile, decoded; exact scales.
template <Format f>
struct DecodedBlock {
  __m256i levels[2][8];  // [s][group]; magnitudes if signed
  __m256i signs[2][8];   // signed weights, if signed
  __m256 scale[2][2];    // [s][half block]
  // Minima of whole blocks, negated as the sums of the activations are. For half
  // blocks: the super scale, and two int16 per lane.
  __m256 min[2];
  __m256i half_mins[2];
};

template <int kRight>
[[gnu::always_inline]] inline __m256i ShiftAnd(__m256i v, int mask) {
  if constexpr (kRight > 0) v = _mm256_srli_epi16(v, kRight);
  if constexpr (kRight < 0) v = _mm256_slli_epi16(v, -kRight);
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(mask)));
}

[[gnu::always_inline]] inline __m256i LoadTable(const uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

[[gnu::always_inline]] inline __m256i Load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// The 8 groups of 8 outputs, whose bytes are the first or second half of each plane
// vector: `planes` points at that half.
template <Format f>
[[gnu::always_inline]] inline void LoadLevels(const uint8_t* planes, __m256i* levels) {
  if constexpr (f.bits == 8) {
    Unroll<8>([&](auto g) { levels[g.value] = Load(planes + 64 * g.value); });
  }
  if constexpr (f.bits >= 4 && f.bits < 8) {
    Unroll<4>([&](auto p) {
      const __m256i v = Load(planes + 64 * p.value);
      levels[p.value] = ShiftAnd<0>(v, 0x0F);
      levels[p.value + 4] = ShiftAnd<4>(v, 0x0F);
    });
  }
  if constexpr (f.table != LevelTable::kNone) {
    const __m256i table =
        LoadTable(f.table == LevelTable::kIq4 ? kIq4Levels.values : kMxfp4Levels.values);
    Unroll<8>([&](auto g) { levels[g.value] = _mm256_shuffle_epi8(table, levels[g.value]); });
  }
  if constexpr (f.bits == 5) {
    const __m256i high = Load(planes + 256);
    Unroll<8>([&](auto g) {
      levels[g.value] = _mm256_or_si256(levels[g.value], ShiftAnd<g.value - 4>(high, 0x10));
    });
  }
  if constexpr (f.bits == 6) {
    const __m256i high[2] = {Load(planes + 256), Load(planes + 320)};
    Unroll<8>([&](auto g) {
      constexpr int kRight = 2 * (g.value % 4) - 4;
      levels[g.value] = _mm256_or_si256(levels[g.value], ShiftAnd<kRight>(high[g.value / 4], 0x30));
    });
  }
  if constexpr (f.bits <= 3) {
    const __m256i low[2] = {Load(planes), Load(planes + 64)};
    Unroll<8>([&](auto g) { levels[g.value] = ShiftAnd<2 * (g.value % 4)>(low[g.value / 4], 3); });
  }
  if constexpr (f.bits == 3) {
    const __m256i high = Load(planes + 128);
    Unroll<8>([&](auto g) {
      levels[g.value] = _mm256_or_si256(levels[g.value], ShiftAnd<g.value - 2>(high, 4));
    });
  }
}

template <Format f>
[[gnu::always_inline]] inline void LoadBlock(const std::byte* levels, DecodedBlock<f>& block) {
  Unroll<2>([&](auto s) {
    LoadLevels<f>(reinterpret_cast<const uint8_t*>(levels) + 32 * s.value, block.levels[s.value]);
    if constexpr (IsSigned(f)) {
      Unroll<8>([&](auto g) {
        const __m256i weight =
            _mm256_xor_si256(block.levels[s.value][g.value], _mm256_set1_epi8(-128));
        block.signs[s.value][g.value] = weight;
        block.levels[s.value][g.value] = _mm256_abs_epi8(weight);
      });
    }
  });
}

[[gnu::always_inline]] inline __m256 LoadHalves(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

[[gnu::always_inline]] inline __m256i LoadUnsigned(const std::byte* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

[[gnu::always_inline]] inline __m256i LoadSigned(const std::byte* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

// The scales of outputs 8 s ... 8 s + 7.
template <Format f>
[[gnu::always_inline]] inline void LoadScales(const std::byte* super, const std::byte* meta, int s,
                                              DecodedBlock<f>& block) {
  __m256* scale = block.scale[s];
  if constexpr (f.scales == ScaleForm::kF16) {
    scale[0] = LoadHalves(meta + 16 * s);
    if constexpr (f.mins) {
      block.min[s] = _mm256_xor_ps(LoadHalves(meta + 32 + 16 * s), _mm256_set1_ps(-0.0f));
    }
    return;
  }
  if constexpr (f.scales == ScaleForm::kE8M0) {
    const __m256i e = LoadUnsigned(meta + 8 * s);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    scale[0] = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, is_tiny));
    return;
  }
  const __m256 d = LoadHalves(super + 16 * s);
  if constexpr (!f.mins) {
    for (int h = 0; h <= f.halves; ++h) {
      scale[h] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(LoadSigned(meta + 16 * h + 8 * s)));
    }
    return;
  }
  const __m256 dmin = LoadHalves(super + 32 + 16 * s);
  if constexpr (!f.halves) {
    scale[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(LoadUnsigned(meta + 8 * s)));
    block.min[s] = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(LoadUnsigned(meta + 16 + 8 * s)));
    return;
  }
  __m256i half_min[2];
  for (int h = 0; h < 2; ++h) {
    const __m256i both = LoadUnsigned(meta + 16 * h + 8 * s);
    const __m256i low = _mm256_and_si256(both, _mm256_set1_epi32(15));
    scale[h] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(low));
    half_min[h] = _mm256_srli_epi32(both, 4);
  }
  block.min[s] = dmin;
  block.half_mins[s] = _mm256_or_si256(half_min[0], _mm256_slli_epi32(half_min[1], 16));
}

// Four activations, to every lane.
[[gnu::always_inline]] inline __m256i Broadcast4(const int8_t (&q)[4]) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return _mm256_set1_epi32(four);
}

// Has `v` in a register from here on. Left alone, GCC 12 adds products in the shape of a tree,
// for which it computes all of them first and has no registers, and loads levels anew for
// every row.
[[gnu::always_inline]] inline void Settle(__m256i& v) { asm("" : "+x"(v)); }

// `sums`: of the products of groups [kBegin, kEnd), for both halves of the outputs and kRows
// rows together: loads are what a kernel runs out of first, and what is loaded here is used for
// all rows, or for both halves.
template <Format f, int kBegin, int kEnd, int kRows>
[[gnu::always_inline]] inline void Dot(const DecodedBlock<f>& block, const ActivationBlock& x,
                                       __m256i (&sums)[kRows][2]) {
  constexpr int kGroups = kEnd - kBegin;
  constexpr int kStep = GroupsPerSum(f) < kGroups ? GroupsPerSum(f) : kGroups;
  Unroll<kGroups / kStep>([&](auto step) __attribute__((always_inline)) {
    constexpr int kFirst = kBegin + step.value * kStep;
    __m256i pairs[kRows][2];
    Unroll<kStep>([&](auto g) __attribute__((always_inline)) {
      constexpr int kGroup = kFirst + g.value;
      __m256i levels[2], signs[2];
      Unroll<2>([&](auto s) __attribute__((always_inline)) {
        Settle(levels[s.value] = block.levels[s.value][kGroup]);
        if constexpr (IsSigned(f)) Settle(signs[s.value] = block.signs[s.value][kGroup]);
      });
      Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
        const __m256i four = Broadcast4(x.q[kGroup][r.value]);
        Unroll<2>([&](auto s) __attribute__((always_inline)) {
          __m256i signed_four = four;
          if constexpr (IsSigned(f)) {
            signed_four = _mm256_sign_epi8(four, signs[s.value]);
          }
          const __m256i products = _mm256_maddubs_epi16(levels[s.value], signed_four);
          __m256i& pair = pairs[r.value][s.value];
          Settle(pair = g.value == 0 ? products : _mm256_add_epi16(pair, products));
          if constexpr (g.value + 1 < kStep) return;
          const __m256i fours = _mm256_madd_epi16(pair, _mm256_set1_epi16(1));
          __m256i& sum = sums[r.value][s.value];
          Settle(sum = step.value == 0 ? fours : _mm256_add_epi32(sum, fours));
        });
      });
    });
  });
}

// The products of a row with one half of the outputs, given their sum with the levels as they
// are stored: less what the offset of the levels added. A product of words takes the sums of the
// activations, of all or of one half, where they lie: a third of the instructions of taking
// them apart.
template <Format f, int kHalf>
[[gnu::always_inline]] inline __m256 WithoutOffset(__m256i sum, const ActivationBlock& x, int row) {
  if constexpr (f.offset_shift >= 0 && !IsSigned(f)) {
    constexpr int kOffset = 1 << f.offset_shift;
    constexpr int kFirst = f.halves && kHalf == 1 ? 0 : kOffset;
    constexpr int kSecond = f.halves && kHalf == 0 ? 0 : kOffset;
    const __m256i negated_sums = _mm256_set1_epi32(x.half_sums[row]);
    const __m256i offsets = _mm256_set1_epi32(kSecond * 0x10000 + kFirst);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(negated_sums, offsets));
  }
  return _mm256_cvtepi32_ps(sum);
}

// Adds a block's part of the first kRows rows of a panel to their accumulators.
template <Format f, int kRows>
[[gnu::always_inline]] inline void AddBlock(const DecodedBlock<f>& block, const ActivationBlock& x,
                                            __m256 (*acc)[2]) {
  Unroll<f.halves ? 2 : 1>([&](auto half) __attribute__((always_inline)) {
    constexpr int kGroups = f.halves ? 4 : 8;
    __m256i sums[kRows][2];
    Dot<f, half.value * kGroups, (half.value + 1) * kGroups>(block, x, sums);
    Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const __m256 scale = _mm256_set1_ps(x.scale[r.value]);
      Unroll<2>([&](auto s) __attribute__((always_inline)) {
        __m256 part =
            _mm256_mul_ps(WithoutOffset<f, half.value>(sums[r.value][s.value], x, r.value),
                          block.scale[s.value][half.value]);
        if constexpr (f.mins && !f.halves) {
          part = _mm256_fmadd_ps(_mm256_set1_ps(x.sum[r.value]), block.min[s.value], part);
        }
        acc[r.value][s.value] = _mm256_fmadd_ps(part, scale, acc[r.value][s.value]);
      });
    });
  });
  if constexpr (f.halves && f.mins) {
    Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const __m256 scale = _mm256_set1_ps(x.scale[r.value]);
      const __m256i both = _mm256_set1_epi32(x.half_sums[r.value]);
      Unroll<2>([&](auto s) __attribute__((always_inline)) {
        const __m256i weighted = _mm256_madd_epi16(both, block.half_mins[s.value]);
        const __m256 part = _mm256_mul_ps(_mm256_cvtepi32_ps(weighted), block.min[s.value]);
        acc[r.value][s.value] = _mm256_fmadd_ps(part, scale, acc[r.value][s.value]);
      });
    });
  }
}

// Inlined, so that the accumulators need no address while they are summed.
template <int kRows>
[[gnu::always_inline]] inline void StoreRows(const __m256 (&acc)[kRows][2], const TileWork& work) {
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    if (r.value >= work.n_rows) return;
    const auto put = [&](float* to) __attribute__((always_inline)) {
      _mm256_storeu_ps(to, acc[r.value][0]);
      _mm256_storeu_ps(to + 8, acc[r.value][1]);
    };
    float* const out = work.out + r.value * work.out_stride;
    if (work.lanes == kLanes) return put(out);
    float values[kLanes];
    put(values);
    std::memcpy(out, values, static_cast<size_t>(work.lanes) * sizeof(float));
  });
}

template <Format f, int kRows>
void Int8Tile(const TileWork& work) {
  const int64_t blocks = work.w.n_in / kBlock;
  const ActivationBlock* x = work.x.int8.blocks + work.row / kPanelRows * blocks;
  const std::byte* super = work.tile;
  const std::byte* at = work.tile + GroupsOffset(f, work.w.n_in);
  const std::byte* meta = nullptr;
  __m256 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t chunk = 0; chunk < blocks; chunk += kChunkBlocks, super += SuperBytes(f)) {
    const int64_t end = blocks - chunk < kChunkBlocks ? blocks - chunk : kChunkBlocks;
    for (int64_t b = 0; b < end; ++b, ++x) {
      if (b % GroupBlocks(f) == 0) {
        meta = at;
        Prefetch<kGroupMetaBytes>(meta);
        at += kGroupMetaBytes;
      }
      Prefetch<LevelBytes(f)>(at);
      DecodedBlock<f> block;
      for (int s = 0; s < 2; ++s) LoadScales<f>(super, meta, s, block);
      LoadBlock<f>(at, block);
      constexpr int kPanels = kRows / kPanelRows, kLeft = kRows % kPanelRows;
      for (int p = 0; p < kPanels; ++p) {
        AddBlock<f, kPanelRows>(block, x[p * blocks], acc + p * kPanelRows);
      }
      if constexpr (kLeft > 0) {
        AddBlock<f, kLeft>(block, x[kPanels * blocks], acc + kPanels * kPanelRows);
      }
      meta += MetaBytes(f);
      at += LevelBytes(f);
    }
  }
  StoreRows<kRows>(acc, work);
}

// Eight weights, from their address on.
template <FloatForm F>
[[gnu::always_inline]] inline __m256 LoadFloats(const std::byte* p) {
  if constexpr (F == FloatForm::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (F == FloatForm::kF16) return LoadHalves(p);
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <FloatForm F, int kRows>
void FloatTile(const TileWork& work) {
  constexpr int kBytes = F == FloatForm::kF32 ? 4 : 2;
  if constexpr (kRows > 4) {  // more do not fit into the registers
    TileWork part = work;
    part.n_rows = 4;
    FloatTile<F, 4>(part);
    part.row += 4;
    part.n_rows = work.n_rows - 4;
    part.out += 4 * work.out_stride;
    FloatTile<F, kRows - 4>(part);
  } else {
    const float* values[kRows];
    Unroll<kRows>([&](auto r) { values[r.value] = FloatRow(work, r.value); });
    const std::byte* tile = work.tile;
    __m256 acc[kRows][2];
    Unroll<kRows>([&](auto r) { acc[r.value][0] = acc[r.value][1] = _mm256_setzero_ps(); });
    for (int64_t i = 0; i < work.w.n_in; ++i, tile += kBytes * kLanes) {
      const __m256 weights[2] = {LoadFloats<F>(tile), LoadFloats<F>(tile + 8 * kBytes)};
      Prefetch<64>(tile);
      Unroll<kRows>([&](auto r) {
        const __m256 value = _mm256_set1_ps(values[r.value][i]);
        acc[r.value][0] = _mm256_fmadd_ps(weights[0], value, acc[r.value][0]);
        acc[r.value][1] = _mm256_fmadd_ps(weights[1], value, acc[r.value][1]);
      });
    }
    StoreRows<kRows>(acc, work);
  }
}

#include "kernels/matmul/matmul_dispatch.inc"

// Eight small integers as bytes, to two groups.
void StoreBytes(__m256i v, int row, int8_t (*groups)[kPanelRows][4]) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i bytes = _mm_packs_epi16(words, words);
  _mm_storeu_si32(groups[0][row], bytes);
  _mm_storeu_si32(groups[1][row], _mm_srli_epi64(bytes, 32));
}

int32_t SumLanes(__m256i v) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

int32_t MaxLanes(__m256i v) {
  __m128i max = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(max, _mm_shuffle_epi32(max, 0xB1)));
}

void QuantizeRow(const float* values, int64_t n, int row, ActivationBlock* blocks) {
  for (ActivationBlock* block = blocks; block < blocks + n / kBlock; ++block, values += kBlock) {
    __m256 v[4];
    __m256i magnitude = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(values + 8 * i);
      // As integers magnitudes have the order of the floats, NaN above all.
      magnitude = _mm256_max_epi32(
          magnitude, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7FFFFFFF)));
    }
    const int32_t max_bits = MaxLanes(magnitude);
    if (SetUnscaled(block, row, static_cast<uint32_t>(max_bits))) continue;
    float max;
    std::memcpy(&max, &max_bits, sizeof(max));
    const __m256 inverse = _mm256_set1_ps(127.0f / max);
    __m256i rounded[4];
    for (int i = 0; i < 4; ++i) {
      constexpr int kToEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      rounded[i] = _mm256_cvtps_epi32(_mm256_round_ps(_mm256_mul_ps(v[i], inverse), kToEven));
      StoreBytes(rounded[i], row, block->q + 2 * i);
    }
    const int32_t low_sum = SumLanes(_mm256_add_epi32(rounded[0], rounded[1]));
    const int32_t high_sum = SumLanes(_mm256_add_epi32(rounded[2], rounded[3]));
    SetSums(block, row, max / 127.0f, low_sum, high_sum);
  }
}

}  // namespace

const MatmulKernels kAvx2Kernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
