// Packing: stored blocks to the tiles of matmul_format.h. Levels and scales are
// moved, never changed, so the packed weights are exactly the stored ones.
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/matmul/matmul.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/quants/quant_types.h"
#include "compute/kernels/quants/quants.h"

namespace weft {
namespace {

using namespace matmul_internal;  // NOLINT: the packer is a part of it

void Store16(std::byte* p, uint16_t value) { std::memcpy(p, &value, sizeof(value)); }

// Reads the blocks of a chunk that begins at `p`, `n_parts` times 32 values.
template <DType kType>
void ReadChunk(const std::byte* p, int n_parts, BlockParts* chunk) {
  using Type = Quantized<kType>;
  for (int b = 0; b < n_parts; b += Type::kValues / kBlock, p += sizeof(typename Type::Block)) {
    Type::Read(BlockAt<kType>(p), b, chunk);
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
void StoreLevels(const BlockParts (&lanes)[kLaneGroup], int b, std::byte* to) {
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
  constexpr Format kLevels = {.bits = kBits};
  if constexpr (HasFourBits(kLevels)) {
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
  if constexpr (HasTwoBits(kLevels)) {
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
  if constexpr (HasOneBit(kLevels)) {
    Words words = {};
    for (int g = 0; g < 8; ++g) words |= (half[g / 4][g % 4] & (Words{} + 0x01010101)) << g;
    store(0, words);
  }
}

// Writes one lane's scales of block `b`; `meta` is the block's.
template <DType T>
void StoreMeta(const BlockParts& chunk, int b, int lane, std::byte* meta) {
  constexpr Format f = FormatOf(T);
  if constexpr (f.scales == ScaleForm::kF16) {
    for (int h = 0; h <= f.halves; ++h) {
      Store16(meta + 32 * h + 2 * lane, chunk.scale16[f.halves ? 2 * b + h : b]);
    }
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
  const int64_t unwritten = is_whole ? GroupsOffset(f, n_in) : PackedTileBytes(T, n_in);
  std::memset(tile, 0, static_cast<size_t>(unwritten));
  for (int64_t c = 0; c < ChunkCount(n_in); ++c) {
    const int64_t left = (n_in - c * kChunk) / kBlock;
    const int n_blocks = left < kChunkBlocks ? static_cast<int>(left) : kChunkBlocks;
    std::byte* const super = tile + c * SuperBytes(f);
    const int64_t first_block = c * kChunkBlocks;
    for (int first = 0; first < n_rows; first += kLaneGroup) {
      BlockParts chunks[kLaneGroup];
      for (int l = 0; l < kLaneGroup; ++l) {
        BlockParts& chunk = chunks[l];
        const int lane = first + l;
        if (lane >= n_rows) {
          chunk = {};
          continue;
        }
        const std::byte* from = rows + lane * row_bytes + c * chunk_bytes;
        ReadChunk<T>(from, n_blocks, &chunk);
        if constexpr (f.scales == ScaleForm::kSuper) {
          Store16(super + 2 * lane, chunk.d);
          if (f.mins) Store16(super + 32 + 2 * lane, chunk.dmin);
        }
        for (int b = 0; b < n_blocks; ++b) {
          StoreMeta<T>(chunk, b, lane, tile + MetaOffset(f, n_in, first_block + b));
        }
      }
      for (int b = 0; b < n_blocks; ++b) {
        StoreLevels<f.bits>(chunks, b, tile + LevelsOffset(f, n_in, first_block + b) + 4 * first);
      }
    }
  }
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
  const int64_t blocks = n_in / kBlock;
  const int64_t groups = (blocks + GroupBlocks(f) - 1) / GroupBlocks(f);
  return GroupsOffset(f, n_in) + groups * kGroupMetaBytes + blocks * LevelBytes(f);
}

void PackTile(DType type, const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile) {
  WEFT_CHECK(n_rows >= 1 && n_rows <= kTileOutputs, "a tile packs 1 to 16 rows");
  const bool is_int8 =
      WithQuantized(type, [&]<DType kType>() { PackInt8Tile<kType>(rows, n_rows, n_in, tile); });
  if (is_int8) return;
  std::memset(tile, 0, static_cast<size_t>(PackedTileBytes(type, n_in)));
  if (type == DType::kF16 || type == DType::kBF16) {
    PackHalvesTile(rows, n_rows, n_in, tile);
  } else {
    PackFloatTile(type, rows, n_rows, n_in, tile);
  }
}

}  // namespace weft
