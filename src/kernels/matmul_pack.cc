// Packing: stored blocks to the tiles of matmul_format.h. Levels and scales are
// moved, never changed, so the packed weights are exactly the stored ones.
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "kernels/matmul.h"
#include "kernels/matmul_format.h"
#include "kernels/quant_blocks.h"
#include "kernels/quants.h"

namespace weft {
namespace {

using namespace matmul_internal;  // NOLINT: the packer is a part of it

// One output's part of a chunk, as the type stores it.
struct LaneChunk {
  uint8_t levels[kChunk];          // as packed: table index or unsigned level
  uint16_t scale16[kChunkBlocks];  // kF16
  uint16_t min16[kChunkBlocks];
  uint8_t scale8[2 * kChunkBlocks];  // kE8M0 and kSuper, per block or half block
  uint8_t min8[2 * kChunkBlocks];
  uint16_t super_scale;  // kSuper
  uint16_t super_min;
};

uint16_t Load16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

void Store16(std::byte* p, uint16_t value) { std::memcpy(p, &value, sizeof(value)); }

// The types with blocks of 32: scale, perhaps a minimum, perhaps fifth bits, levels.
void ReadSimpleBlock(DType type, const uint8_t* block, int b, LaneChunk* chunk) {
  uint8_t* levels = chunk->levels + b * kBlock;
  const Format f = FormatOf(type);
  if (f.scales == ScaleForm::kE8M0) {
    chunk->scale8[b] = *block++;
  } else {
    chunk->scale16[b] = Load16(block);
    block += 2;
  }
  if (f.mins) {
    chunk->min16[b] = Load16(block);
    block += 2;
  }
  if (f.bits == 8) {
    for (int i = 0; i < kBlock; ++i) levels[i] = block[i] ^ 0x80;  // + 128
    return;
  }
  const uint8_t* fifth_bits = block;
  if (f.bits == 5) block += 4;
  SplitNibbles(block, levels);
  if (f.bits == 5) AddFifthBits(fifth_bits, levels);
}

// The eight 6-bit scales and minima that Q4_K and Q5_K keep in 12 bytes.
void ReadScales6(const uint8_t* s, LaneChunk* chunk) {
  for (int b = 0; b < 4; ++b) {
    chunk->scale8[b] = s[b] & 63;
    chunk->min8[b] = s[b + 4] & 63;
    chunk->scale8[b + 4] = (s[b + 8] & 0x0F) | ((s[b] >> 6) << 4);
    chunk->min8[b + 4] = (s[b + 8] >> 4) | ((s[b + 4] >> 6) << 4);
  }
}

void ReadQ4K(const uint8_t* block, LaneChunk* chunk) {
  chunk->super_scale = Load16(block);
  chunk->super_min = Load16(block + 2);
  ReadScales6(block + 4, chunk);
  const uint8_t* nibbles = block + 16;
  for (int b = 0; b < kChunkBlocks; ++b) {
    const uint8_t* pairs = nibbles + b / 2 * kBlock;
    uint8_t* levels = chunk->levels + b * kBlock;
    for (int i = 0; i < kBlock; ++i) levels[i] = (pairs[i] >> (b % 2 * 4)) & 0x0F;
  }
}

void ReadQ5K(const uint8_t* block, LaneChunk* chunk) {
  chunk->super_scale = Load16(block);
  chunk->super_min = Load16(block + 2);
  ReadScales6(block + 4, chunk);
  const uint8_t* fifth_bits = block + 16;
  const uint8_t* nibbles = block + 48;
  for (int b = 0; b < kChunkBlocks; ++b) {
    const uint8_t* pairs = nibbles + b / 2 * kBlock;
    uint8_t* levels = chunk->levels + b * kBlock;
    for (int i = 0; i < kBlock; ++i) {
      const int low = (pairs[i] >> (b % 2 * 4)) & 0x0F;
      levels[i] = static_cast<uint8_t>(low | (((fifth_bits[i] >> b) & 1) << 4));
    }
  }
}

void ReadQ6K(const uint8_t* block, LaneChunk* chunk) {
  const uint8_t* high = block + 128;
  std::memcpy(chunk->scale8, block + 192, 16);
  chunk->super_scale = Load16(block + 208);
  for (int b = 0; b < kChunkBlocks; ++b) {
    const int half = b / 4, quarter = b % 4;
    const uint8_t* pairs = block + half * 64 + quarter % 2 * kBlock;
    const uint8_t* fours = high + half * kBlock;
    uint8_t* levels = chunk->levels + b * kBlock;
    for (int i = 0; i < kBlock; ++i) {
      const int low = (pairs[i] >> (quarter / 2 * 4)) & 0x0F;
      levels[i] = static_cast<uint8_t>(low | (((fours[i] >> (quarter * 2)) & 3) << 4));
    }
  }
}

// The two-bit parts of Q2_K and Q3_K, 64 bytes.
uint8_t TwoBits(const uint8_t* bits, int i) {
  return (bits[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
}

void ReadQ2K(const uint8_t* block, LaneChunk* chunk) {
  for (int s = 0; s < 16; ++s) {
    chunk->scale8[s] = block[s] & 0x0F;
    chunk->min8[s] = block[s] >> 4;
  }
  for (int i = 0; i < kChunk; ++i) chunk->levels[i] = TwoBits(block + 16, i);
  chunk->super_scale = Load16(block + 80);
  chunk->super_min = Load16(block + 82);
}

void ReadQ3K(const uint8_t* block, LaneChunk* chunk) {
  const uint8_t* scales = block + 96;
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? scales[s] & 0x0F : scales[s - 8] >> 4;
    const int high = (scales[8 + s % 4] >> (2 * (s / 4))) & 3;
    chunk->scale8[s] = static_cast<uint8_t>((low | (high << 4)) - 32);
  }
  for (int i = 0; i < kChunk; ++i) {
    const int high = (block[i % 32] >> (i / 32)) & 1;
    chunk->levels[i] = TwoBits(block + 32, i) | (high << 2);
  }
  chunk->super_scale = Load16(block + 108);
}

void ReadIQ4XS(const uint8_t* block, LaneChunk* chunk) {
  chunk->super_scale = Load16(block);
  const uint16_t high = Load16(block + 2);
  for (int b = 0; b < kChunkBlocks; ++b) {
    const int low = (block[4 + b / 2] >> (4 * (b % 2))) & 0x0F;
    chunk->scale8[b] = static_cast<uint8_t>((low | (((high >> (2 * b)) & 3) << 4)) - 32);
    SplitNibbles(block + 8 + 16 * b, chunk->levels + b * kBlock);
  }
}

void RepeatScale(uint16_t scale, LaneChunk* chunk) {
  for (uint16_t& block_scale : chunk->scale16) block_scale = scale;
}

void ReadTQ2(const uint8_t* block, LaneChunk* chunk) {
  for (int i = 0; i < kChunk; ++i) chunk->levels[i] = TwoBits(block, i);
  RepeatScale(Load16(block + 64), chunk);
}

// Digit `n` (0 first) of the base-3 fraction that a byte holds: byte / 256.
uint8_t TernaryDigit(uint8_t byte, int n) {
  constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
  const uint8_t rest = static_cast<uint8_t>(byte * kPowers[n]);
  return static_cast<uint8_t>((rest * 3) >> 8);
}

// 32 bytes of 5 digits, 16 bytes of 5, 4 bytes of 4.
void ReadTQ1(const uint8_t* block, LaneChunk* chunk) {
  uint8_t* levels = chunk->levels;
  for (int i = 0; i < 160; ++i) levels[i] = TernaryDigit(block[i % 32], i / 32);
  for (int i = 0; i < 80; ++i) levels[160 + i] = TernaryDigit(block[32 + i % 16], i / 16);
  for (int i = 0; i < 16; ++i) levels[240 + i] = TernaryDigit(block[48 + i % 4], i / 4);
  RepeatScale(Load16(block + 52), chunk);
}

// Reads chunk `c` of a stored row; `blocks` of its blocks exist.
void ReadChunk(DType type, const std::byte* row, int64_t c, int blocks, LaneChunk* chunk) {
  const DTypeInfo& info = InfoOf(type);
  const auto* p =
      reinterpret_cast<const uint8_t*>(row) + c * kChunk / info.block_values * info.block_bytes;
  switch (type) {
    case DType::kQ4_K:
      return ReadQ4K(p, chunk);
    case DType::kQ5_K:
      return ReadQ5K(p, chunk);
    case DType::kQ6_K:
      return ReadQ6K(p, chunk);
    case DType::kQ2_K:
      return ReadQ2K(p, chunk);
    case DType::kQ3_K:
      return ReadQ3K(p, chunk);
    case DType::kIQ4_XS:
      return ReadIQ4XS(p, chunk);
    case DType::kTQ1_0:
      return ReadTQ1(p, chunk);
    case DType::kTQ2_0:
      return ReadTQ2(p, chunk);
    default:
      for (int b = 0; b < blocks; ++b) ReadSimpleBlock(type, p + b * info.block_bytes, b, chunk);
  }
}

// Or-s four bytes into four others, each moved left by `left` bits that it has free.
void OrBytes(uint32_t four, int left, uint8_t* to) {
  uint32_t there;
  std::memcpy(&there, to, sizeof(there));
  there |= four << left;
  std::memcpy(to, &there, sizeof(there));
}

// Adds one lane's levels of a block to a zeroed block of a tile.
void StoreLevels(const Format& f, const uint8_t* levels, int lane, std::byte* block) {
  for (int group = 0; group < kBlock / 4; ++group) {
    uint32_t four;  // a level in each byte
    std::memcpy(&four, levels + 4 * group, sizeof(four));
    uint8_t* plane = reinterpret_cast<uint8_t*>(block) + 4 * lane;
    if (f.bits == 8) {
      OrBytes(four, 0, plane + 64 * group);
      continue;
    }
    if (f.bits >= 4) {
      OrBytes(four & 0x0F0F0F0F, 4 * (group / 4), plane + 64 * (group % 4));
      plane += 256;
      four = (four >> 4) & 0x0F0F0F0F;
    }
    if (f.bits == 2 || f.bits == 3 || f.bits == 6) {
      OrBytes(four & 0x03030303, 2 * (group % 4), plane + 64 * (group / 4));
      plane += 128;
      four = (four >> 2) & 0x3F3F3F3F;
    }
    if (f.bits == 3 || f.bits == 5) OrBytes(four & 0x01010101, group, plane);
  }
}

// Writes one lane's scales of block `b`; `meta` is the block's.
void StoreMeta(const Format& f, const LaneChunk& chunk, int b, int lane, std::byte* meta) {
  if (f.scales == ScaleForm::kF16) {
    Store16(meta + 2 * lane, chunk.scale16[b]);
    if (f.mins) Store16(meta + 32 + 2 * lane, chunk.min16[b]);
  } else if (!f.halves) {
    meta[lane] = std::byte{chunk.scale8[b]};
    if (f.mins) meta[16 + lane] = std::byte{chunk.min8[b]};
  } else {
    for (int h = 0; h < 2; ++h) {
      const int s = 2 * b + h;
      const int both = f.mins ? chunk.scale8[s] | (chunk.min8[s] << 4) : chunk.scale8[s];
      meta[16 * h + lane] = static_cast<std::byte>(both);
    }
  }
}

void PackInt8Lane(DType type, const std::byte* row, int64_t n_in, int lane, std::byte* tile) {
  const Format f = FormatOf(type);
  LaneChunk chunk = {};
  for (int64_t c = 0; c < ChunkCount(n_in); ++c) {
    const int blocks =
        static_cast<int>(n_in - c * kChunk < kChunk ? (n_in - c * kChunk) / kBlock : kChunkBlocks);
    ReadChunk(type, row, c, blocks, &chunk);
    if (f.scales == ScaleForm::kSuper) {
      std::byte* super = tile + c * SuperBytes(f);
      Store16(super + 2 * lane, chunk.super_scale);
      if (f.mins) Store16(super + 32 + 2 * lane, chunk.super_min);
    }
    std::byte* meta = tile + ChunkOffset(f, n_in, c);
    std::byte* levels = meta + kChunkBlocks * MetaBytes(f);
    for (int b = 0; b < blocks; ++b) {
      StoreMeta(f, chunk, b, lane, meta + b * MetaBytes(f));
      StoreLevels(f, chunk.levels + b * kBlock, lane, levels + b * LevelBytes(f));
    }
  }
}

void PackFloatLane(DType type, const std::byte* row, int64_t n_in, int lane, std::byte* tile) {
  if (type == DType::kF16 || type == DType::kBF16) {
    for (int64_t i = 0; i < n_in; ++i) {
      std::memcpy(tile + 2 * (i * kLanes + lane), row + 2 * i, 2);
    }
    return;
  }
  std::vector<float> values(n_in);
  Dequantize(type, row, n_in, values.data());
  for (int64_t i = 0; i < n_in; ++i) {
    std::memcpy(tile + 4 * (i * kLanes + lane), &values[i], 4);
  }
}

}  // namespace

ActivationForm ActivationFormOf(DType weight_type) {
  return IsInt8(FormatOf(weight_type)) ? ActivationForm::kInt8 : ActivationForm::kFloat;
}

int64_t PackedTileBytes(DType type, int64_t n_in) {
  const Format f = FormatOf(type);
  if (!IsInt8(f)) {
    const int value_bytes = type == DType::kF16 || type == DType::kBF16 ? 2 : 4;
    return PadTo64(n_in * kLanes * value_bytes);
  }
  const int64_t last_blocks = (n_in / kBlock + kChunkBlocks - 1) % kChunkBlocks + 1;
  return ChunkOffset(f, n_in, ChunkCount(n_in)) -
         (kChunkBlocks - last_blocks) * int64_t{LevelBytes(f)};
}

void PackTile(DType type, const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile) {
  WEFT_CHECK(n_rows >= 1 && n_rows <= kTileOutputs, "a tile packs 1 to 16 rows");
  const int64_t row_bytes = RowBytes(type, n_in);
  std::memset(tile, 0, static_cast<size_t>(PackedTileBytes(type, n_in)));
  for (int lane = 0; lane < n_rows; ++lane) {
    const std::byte* row = rows + lane * row_bytes;
    if (ActivationFormOf(type) == ActivationForm::kInt8) {
      PackInt8Lane(type, row, n_in, lane, tile);
    } else {
      PackFloatLane(type, row, n_in, lane, tile);
    }
  }
}

}  // namespace weft
