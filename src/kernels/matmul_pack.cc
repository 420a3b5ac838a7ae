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
template <DType T>
void ReadSimpleBlock(const uint8_t* block, int b, LaneChunk* chunk) {
  uint8_t* levels = chunk->levels + b * kBlock;
  constexpr Format f = FormatOf(T);
  if constexpr (f.scales == ScaleForm::kE8M0) {
    chunk->scale8[b] = *block++;
  } else {
    chunk->scale16[b] = Load16(block);
    block += 2;
  }
  if constexpr (f.mins) {
    chunk->min16[b] = Load16(block);
    block += 2;
  }
  if constexpr (f.bits == 8) {
    for (int i = 0; i < kBlock; ++i) levels[i] = block[i] ^ 0x80;  // + 128
    return;
  }
  const uint8_t* fifth_bits = block;
  if constexpr (f.bits == 5) block += 4;
  SplitNibbles(block, levels);
  if constexpr (f.bits == 5) AddFifthBits(fifth_bits, levels);
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

// Reads the `n_blocks` blocks of a chunk that begins at `p`.
template <DType T>
void ReadChunk(const uint8_t* p, int n_blocks, LaneChunk* chunk) {
  if constexpr (T == DType::kQ4_K) {
    ReadQ4K(p, chunk);
  } else if constexpr (T == DType::kQ5_K) {
    ReadQ5K(p, chunk);
  } else if constexpr (T == DType::kQ6_K) {
    ReadQ6K(p, chunk);
  } else if constexpr (T == DType::kQ2_K) {
    ReadQ2K(p, chunk);
  } else if constexpr (T == DType::kQ3_K) {
    ReadQ3K(p, chunk);
  } else if constexpr (T == DType::kIQ4_XS) {
    ReadIQ4XS(p, chunk);
  } else if constexpr (T == DType::kTQ1_0) {
    ReadTQ1(p, chunk);
  } else if constexpr (T == DType::kTQ2_0) {
    ReadTQ2(p, chunk);
  } else {
    const int64_t block_bytes = InfoOf(T).block_bytes;
    for (int b = 0; b < n_blocks; ++b) ReadSimpleBlock<T>(p + b * block_bytes, b, chunk);
  }
}

// Four words, each four levels of a lane or the same bits of several groups of four.
using Words [[gnu::vector_size(16)]] = uint32_t;

Words LoadWords(const uint8_t* p) {
  Words words;
  std::memcpy(&words, p, sizeof(words));
  return words;
}

// Word i of lane l becomes word l of row i.
void Transpose(Words (&lanes)[4]) {
  const Words low01 = __builtin_shufflevector(lanes[0], lanes[1], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(lanes[0], lanes[1], 2, 6, 3, 7);
  const Words low23 = __builtin_shufflevector(lanes[2], lanes[3], 0, 4, 1, 5);
  const Words high23 = __builtin_shufflevector(lanes[2], lanes[3], 2, 6, 3, 7);
  lanes[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  lanes[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  lanes[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  lanes[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

// Lanes whose levels are stored together.
constexpr int kLaneGroup = 4;

// Writes four lanes' levels of block `b` of their chunks: four words to each vector of the
// block's planes, at `to` in the first one.
template <int kBits>
void StoreLevels(const LaneChunk (&lanes)[kLaneGroup], int b, std::byte* to) {
  const auto store = [&](int vector, Words words) {
    std::memcpy(to + 64 * vector, &words, sizeof(words));
  };
  Words half[2][kLaneGroup];  // the first and the last 16 levels of each lane
  for (int l = 0; l < kLaneGroup; ++l) {
    half[0][l] = LoadWords(lanes[l].levels + b * kBlock);
    half[1][l] = LoadWords(lanes[l].levels + b * kBlock + 16);
  }
  if constexpr (kBits == 8) {
    for (int h = 0; h < 2; ++h) {
      Transpose(half[h]);
      for (int g = 0; g < 4; ++g) store(4 * h + g, half[h][g]);
    }
    return;
  }
  if constexpr (kBits >= 4) {
    const Words four = Words{} + 0x0F0F0F0F;
    Words plane[kLaneGroup];
    for (int l = 0; l < kLaneGroup; ++l) {
      plane[l] = (half[0][l] & four) | ((half[1][l] & four) << 4);
      for (int h = 0; h < 2; ++h) half[h][l] >>= 4;
    }
    Transpose(plane);
    for (int g = 0; g < 4; ++g) store(g, plane[g]);
    to += 256;
  }
  if constexpr (kBits != 4) {
    Transpose(half[0]);
    Transpose(half[1]);
  }
  if constexpr (kBits == 2 || kBits == 3 || kBits == 6) {
    const Words two = Words{} + 0x03030303;
    for (int h = 0; h < 2; ++h) {
      Words words = {};
      for (int g = 0; g < 4; ++g) {
        words |= (half[h][g] & two) << (2 * g);
        half[h][g] >>= 2;
      }
      store(h, words);
    }
    to += 128;
  }
  if constexpr (kBits == 3 || kBits == 5) {
    Words words = {};
    for (int g = 0; g < 8; ++g) words |= (half[g / 4][g % 4] & (Words{} + 0x01010101)) << g;
    store(0, words);
  }
}

// Writes one lane's scales of block `b`; `meta` is the block's.
template <DType T>
void StoreMeta(const LaneChunk& chunk, int b, int lane, std::byte* meta) {
  constexpr Format f = FormatOf(T);
  if constexpr (f.scales == ScaleForm::kF16) {
    Store16(meta + 2 * lane, chunk.scale16[b]);
    if (f.mins) Store16(meta + 32 + 2 * lane, chunk.min16[b]);
  } else if constexpr (!f.halves) {
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

// Chunk by chunk, so that what its lanes write to stays in the first-level cache.
template <DType T>
void PackInt8Tile(const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile) {
  constexpr Format f = FormatOf(T);
  const int64_t row_bytes = RowBytes(T, n_in), chunk_bytes = RowBytes(T, kChunk);
  // Lanes and blocks that are missing read as zero.
  const bool is_whole = n_rows == kLanes && n_in % kChunk == 0;
  const int64_t unwritten = is_whole ? ChunkOffset(f, n_in, 0) : PackedTileBytes(T, n_in);
  std::memset(tile, 0, static_cast<size_t>(unwritten));
  for (int64_t c = 0; c < ChunkCount(n_in); ++c) {
    const int64_t left = (n_in - c * kChunk) / kBlock;
    const int n_blocks = left < kChunkBlocks ? static_cast<int>(left) : kChunkBlocks;
    std::byte* const super = tile + c * SuperBytes(f);
    std::byte* const meta = tile + ChunkOffset(f, n_in, c);
    std::byte* const levels = meta + kChunkBlocks * MetaBytes(f);
    for (int first = 0; first < n_rows; first += kLaneGroup) {
      LaneChunk chunks[kLaneGroup];
      for (int l = 0; l < kLaneGroup; ++l) {
        LaneChunk& chunk = chunks[l];
        const int lane = first + l;
        if (lane >= n_rows) {
          chunk = {};
          continue;
        }
        const std::byte* from = rows + lane * row_bytes + c * chunk_bytes;
        ReadChunk<T>(reinterpret_cast<const uint8_t*>(from), n_blocks, &chunk);
        if constexpr (f.scales == ScaleForm::kSuper) {
          Store16(super + 2 * lane, chunk.super_scale);
          if (f.mins) Store16(super + 32 + 2 * lane, chunk.super_min);
        }
        for (int b = 0; b < n_blocks; ++b) StoreMeta<T>(chunk, b, lane, meta + b * MetaBytes(f));
      }
      for (int b = 0; b < n_blocks; ++b) {
        StoreLevels<f.bits>(chunks, b, levels + b * LevelBytes(f) + 4 * first);
      }
    }
  }
}

// As PackInt8Tile for that one of kTypes which `type` is; false where it is none.
template <DType... kTypes>
bool PackAsOneOf(DType type, const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile) {
  return ((type == kTypes && (PackInt8Tile<kTypes>(rows, n_rows, n_in, tile), true)) || ...);
}

void PackHalvesTile(const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile) {
  for (int64_t begin = 0; begin < n_in; begin += kChunk) {
    const int64_t end = n_in - begin < kChunk ? n_in : begin + kChunk;
    for (int lane = 0; lane < n_rows; ++lane) {
      const std::byte* const row = rows + lane * n_in * 2;
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(tile + 2 * (i * kLanes + lane), row + 2 * i, 2);
      }
    }
  }
}

void PackFloatTile(DType type, const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile) {
  std::vector<float> values(n_in);
  for (int lane = 0; lane < n_rows; ++lane) {
    Dequantize(type, rows + lane * RowBytes(type, n_in), n_in, values.data());
    for (int64_t i = 0; i < n_in; ++i) {
      std::memcpy(tile + 4 * (i * kLanes + lane), &values[i], 4);
    }
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
  if (PackAsOneOf<DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                  DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kQ2_K, DType::kQ3_K,
                  DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kTQ1_0, DType::kTQ2_0>(
          type, rows, n_rows, n_in, tile)) {
    return;
  }
  WEFT_CHECK(ActivationFormOf(type) == ActivationForm::kFloat, "a quantized type without a packer");
  std::memset(tile, 0, static_cast<size_t>(PackedTileBytes(type, n_in)));
  if (type == DType::kF16 || type == DType::kBF16) {
    PackHalvesTile(rows, n_rows, n_in, tile);
  } else {
    PackFloatTile(type, rows, n_rows, n_in, tile);
  }
}

}  // namespace weft
