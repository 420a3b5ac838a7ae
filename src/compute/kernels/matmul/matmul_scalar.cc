// The portable kernels: slow, plain, and the oracle of the vector ones.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

// Rounds to the nearest integer, ties to even; |value| < 2^22.
float RoundToEven(float value) {
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}

// The first of two int16 as quantize_row packs them.
int FirstHalf(int32_t halves) { return static_cast<int16_t>(halves & 0xFFFF); }
int SecondHalf(int32_t halves) { return halves >> 16; }

void QuantizeRow(const float* values, int64_t n, int row, ActivationBlock* blocks) {
  for (ActivationBlock* block = blocks; block < blocks + n / kBlock; ++block, values += kBlock) {
    uint32_t max_bits = 0;
    for (int i = 0; i < kBlock; ++i) {
      max_bits = std::max(max_bits, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF);
    }
    if (SetUnscaled(block, row, max_bits)) continue;
    const float max = std::bit_cast<float>(max_bits);
    const float inverse = 127.0f / max;
    int32_t half_sums[2] = {0, 0};
    for (int i = 0; i < kBlock; ++i) {
      const auto q = static_cast<int8_t>(RoundToEven(values[i] * inverse));
      block->q[i / 4][row][i % 4] = q;
      half_sums[i / 16] += q;
    }
    SetSums(block, row, max / 127.0f, half_sums[0], half_sums[1]);
  }
}

// A block of a tile, decoded.
struct DecodedBlock {
  int16_t levels[kBlock][kLanes];  // offset taken off
  float scale[2][kLanes];          // one per half block; only [0] for whole ones
  // Minima of whole blocks, negated as the sums of the activations are. For half
  // blocks: integers and the super scale.
  float min[kLanes];
  int half_min[2][kLanes];
};

int LevelAt(const Format& f, const uint8_t* planes, int group, int at) {
  if (f.bits == 8) return planes[64 * group + at];
  int level = 0, shift = 0;
  if (HasFourBits(f)) {
    level = (planes[64 * (group % 4) + at] >> (4 * (group / 4))) & 0x0F;
    planes += 256;
    shift = 4;
  }
  if (HasTwoBits(f)) {
    level |= ((planes[64 * (group / 4) + at] >> (2 * (group % 4))) & 3) << shift;
    planes += 128;
    shift += 2;
  }
  if (HasOneBit(f)) level |= ((planes[at] >> group) & 1) << shift;
  if (f.table != LevelTable::kNone) return ValuesOf(f.table)[level] + (1 << f.offset_shift);
  return level;
}

void DecodeLevels(const Format& f, const std::byte* levels, DecodedBlock* block) {
  const auto* planes = reinterpret_cast<const uint8_t*>(levels);
  const int offset = f.offset_shift < 0 ? 0 : 1 << f.offset_shift;
  for (int i = 0; i < kBlock; ++i) {
    for (int l = 0; l < kLanes; ++l) {
      block->levels[i][l] = static_cast<int16_t>(LevelAt(f, planes, i / 4, 4 * l + i % 4) - offset);
    }
  }
}

float LoadHalf(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return F16ToF32(bits);
}

// 2^(e - 128): the levels are twice the values of the format's elements.
float HalfPowerOfTwo(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

void DecodeScales(const Format& f, const std::byte* super, const std::byte* meta,
                  DecodedBlock* block) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(meta);
  for (int l = 0; l < kLanes; ++l) {
    if (f.scales == ScaleForm::kF16) {
      for (int h = 0; h <= f.halves; ++h) block->scale[h][l] = LoadHalf(meta + 32 * h + 2 * l);
      if (f.mins) block->min[l] = -LoadHalf(meta + 32 + 2 * l);
      continue;
    }
    if (f.scales == ScaleForm::kE8M0) {
      block->scale[0][l] = HalfPowerOfTwo(bytes[l]);
      continue;
    }
    const float d = LoadHalf(super + 2 * l) * PowerOfHalf(f.super_shift);
    if (!f.mins) {
      for (int h = 0; h <= f.halves; ++h) {
        block->scale[h][l] = d * static_cast<int8_t>(bytes[16 * h + l]);
      }
      continue;
    }
    const float dmin = LoadHalf(super + 32 + 2 * l) * PowerOfHalf(f.min_shift);
    if (!f.halves) {
      block->scale[0][l] = d * bytes[l];
      block->min[l] = dmin * bytes[16 + l];
      continue;
    }
    block->min[l] = dmin;
    for (int h = 0; h < 2; ++h) {
      block->scale[h][l] = d * (bytes[16 * h + l] & 0x0F);
      block->half_min[h][l] = bytes[16 * h + l] >> 4;
    }
  }
}

// Adds a block's part of one row to 16 accumulators: the order of all kernels.
void AddBlock(const Format& f, const DecodedBlock& block, const ActivationBlock& x, int row,
              float* acc) {
  int32_t dot[2][kLanes] = {};
  for (int i = 0; i < kBlock; ++i) {
    int32_t* part = dot[f.halves ? i / 16 : 0];
    for (int l = 0; l < kLanes; ++l) part[l] += block.levels[i][l] * x.q[i / 4][row][i % 4];
  }
  const int sum0 = FirstHalf(x.half_sums[row]), sum1 = SecondHalf(x.half_sums[row]);
  for (int l = 0; l < kLanes; ++l) {
    float part = static_cast<float>(dot[0][l]) * block.scale[0][l];
    if (f.mins && !f.halves) part = std::fma(x.sum[row], block.min[l], part);
    acc[l] = std::fma(part, x.scale[row], acc[l]);
    if (!f.halves) continue;
    part = static_cast<float>(dot[1][l]) * block.scale[1][l];
    acc[l] = std::fma(part, x.scale[row], acc[l]);
    if (!f.mins) continue;
    const int sum = sum0 * block.half_min[0][l] + sum1 * block.half_min[1][l];
    acc[l] = std::fma(static_cast<float>(sum) * block.min[l], x.scale[row], acc[l]);
  }
}

constexpr int kRowsAtOnce = 16;

void Int8Tile(const PackedMatrix& w, const std::byte* tile, const Int8Rows& x, int64_t row,
              int n_rows, float (*acc)[kLanes]) {
  const Format f = FormatOf(w.type);
  const int64_t blocks = w.n_in / kBlock;
  DecodedBlock block;
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* const super = tile + b / kChunkBlocks * SuperBytes(f);
    DecodeScales(f, super, tile + MetaOffset(f, w.n_in, b), &block);
    DecodeLevels(f, tile + LevelsOffset(f, w.n_in, b), &block);
    for (int r = 0; r < n_rows; ++r) {
      const int64_t panel = (row + r) / kPanelRows;
      AddBlock(f, block, x.blocks[panel * blocks + b], r % kPanelRows, acc[r]);
    }
  }
}

void DecodeFloats(DType type, const std::byte* tile, int64_t i, float* lanes) {
  for (int l = 0; l < kLanes; ++l) {
    const int64_t at = i * kLanes + l;
    if (type == DType::kF16 || type == DType::kBF16) {
      uint16_t bits;
      std::memcpy(&bits, tile + 2 * at, sizeof(bits));
      lanes[l] = type == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
    } else {
      std::memcpy(&lanes[l], tile + 4 * at, sizeof(float));
    }
  }
}

void FloatTile(const PackedMatrix& w, const std::byte* tile, const ActivationRows& x, int64_t row,
               int n_rows, float (*acc)[kLanes]) {
  float lanes[kLanes];
  for (int64_t i = 0; i < w.n_in; ++i) {
    DecodeFloats(w.type, tile, i, lanes);
    for (int r = 0; r < n_rows; ++r) {
      const float value = x.values[(row + r) * x.values_stride + i];
      for (int l = 0; l < kLanes; ++l) acc[r][l] = std::fma(lanes[l], value, acc[r][l]);
    }
  }
}

void Matmul(const PackedMatrix& w, const ActivationRows& x, int64_t n_rows, int64_t tile_begin,
            int64_t tile_end, float* out, int64_t out_stride) {
  const int64_t tile_bytes = PackedTileBytes(w.type, w.n_in);
  for (int64_t t = tile_begin; t < tile_end; ++t) {
    const std::byte* tile = w.tiles + t * tile_bytes;
    const int64_t lanes = std::min<int64_t>(kLanes, w.n_out - t * kLanes);
    for (int64_t row = 0; row < n_rows; row += kRowsAtOnce) {
      const int rows = static_cast<int>(std::min<int64_t>(kRowsAtOnce, n_rows - row));
      float acc[kRowsAtOnce][kLanes] = {};
      if (IsInt8(FormatOf(w.type))) {
        Int8Tile(w, tile, x.int8, row, rows, acc);
      } else {
        FloatTile(w, tile, x, row, rows, acc);
      }
      for (int r = 0; r < rows; ++r) {
        std::memcpy(out + (row + r) * out_stride + t * kLanes, acc[r], lanes * sizeof(float));
      }
    }
  }
}

}  // namespace

const MatmulKernels kScalarKernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
