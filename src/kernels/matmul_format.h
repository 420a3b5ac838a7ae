// The packed form of each weight type, for the packer and the kernels alone.
//
// A tile holds 16 outputs ("lanes") over all inputs. The inputs come in chunks of
// 256, a chunk in blocks of 32 (the last chunk of a row may hold fewer blocks):
//
//   [super scales of all chunks, padded to 64 bytes][chunk 0][chunk 1]...
//   chunk = [meta of its 8 blocks][levels of its blocks]
//
// Levels of a block: 8 groups of 64 bytes, byte 4 * lane + j of group g being the
// level of input 4 g + j, which is what a dot product of bytes wants. They are
// stored in planes of the bits of all groups:
//   4-bit plane, 256 bytes: vector p holds group p in its low nibbles and group
//                           p + 4 in the high ones
//   2-bit plane, 128 bytes: vector p holds groups 4 p ... 4 p + 3, lowest bits first
//   1-bit plane,  64 bytes: bit g of each byte belongs to group g
// 5 bits are a 4-bit plane and a 1-bit plane above it, 6 are 4 + 2, 3 are 2 + 1;
// 8 bits are the 8 groups as they are.
//
// Meta of a block (16 lanes each):
//   kF16            half scale[16], and half min[16] where the type has minima
//   kE8M0           uint8 exponent[16]
//   kSuper          whole blocks with minima: uint8 scale[16], uint8 min[16];
//                   whole blocks without: int8 scale[16];
//                   half blocks with minima: two times uint8 (scale | min << 4)[16];
//                   half blocks without: two times int8 scale[16]
// Super scales of a chunk: half d[16], and half dmin[16] where the type has minima.
//
// Float types: value of input i and lane l at i * 16 + l.
//
// Everything is static: the same functions are compiled for several instruction
// sets, and the linker must never choose one of them for all.
#ifndef WEFT_KERNELS_MATMUL_FORMAT_H_
#define WEFT_KERNELS_MATMUL_FORMAT_H_

#include <cstdint>

#include "base/dtype.h"

namespace weft::matmul_internal {

static constexpr int kLanes = 16;
static constexpr int kBlock = 32;   // inputs
static constexpr int kChunk = 256;  // inputs
static constexpr int kChunkBlocks = kChunk / kBlock;

// A block of activations below this is taken as zero, so that 127 / max is finite.
static constexpr float kSmallestActivation = 0x1p-110f;

enum class ScaleForm : uint8_t { kFloatWeights, kF16, kE8M0, kSuper };
enum class LevelTable : uint8_t { kNone, kIq4, kMxfp4 };

struct Format {
  ScaleForm scales = ScaleForm::kFloatWeights;
  int bits = 0;  // of a level, in store
  LevelTable table = LevelTable::kNone;
  bool halves = false;  // a scale (and a minimum) per 16 inputs instead of 32
  bool mins = false;    // weight = scale * level + min
  // No minima: weight = scale * (level - (1 << offset_shift)); -1: no offset.
  int offset_shift = -1;
};

// Levels of the two non-linear types, moved up to be unsigned: by 128 and by 16.
static constexpr uint8_t kIq4Levels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                           129, 141, 153, 166, 181, 197, 217, 241};
static constexpr uint8_t kMxfp4Levels[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                             16, 15, 14, 13, 12, 10, 8,  4};

// How `type` is packed. Types without a form of their own are decoded to F32.
static constexpr Format FormatOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {ScaleForm::kF16, 4, LevelTable::kNone, false, false, 3};
    case DType::kQ5_0:
      return {ScaleForm::kF16, 5, LevelTable::kNone, false, false, 4};
    case DType::kQ8_0:
      return {ScaleForm::kF16, 8, LevelTable::kNone, false, false, 7};
    case DType::kIQ4_NL:
      return {ScaleForm::kF16, 4, LevelTable::kIq4, false, false, 7};
    case DType::kMXFP4:
      return {ScaleForm::kE8M0, 4, LevelTable::kMxfp4, false, false, 4};
    case DType::kQ4_1:
      return {ScaleForm::kF16, 4, LevelTable::kNone, false, true, -1};
    case DType::kQ5_1:
      return {ScaleForm::kF16, 5, LevelTable::kNone, false, true, -1};
    case DType::kQ4_K:
      return {ScaleForm::kSuper, 4, LevelTable::kNone, false, true, -1};
    case DType::kQ5_K:
      return {ScaleForm::kSuper, 5, LevelTable::kNone, false, true, -1};
    case DType::kIQ4_XS:
      return {ScaleForm::kSuper, 4, LevelTable::kIq4, false, false, 7};
    case DType::kQ6_K:
      return {ScaleForm::kSuper, 6, LevelTable::kNone, true, false, 5};
    case DType::kQ3_K:
      return {ScaleForm::kSuper, 3, LevelTable::kNone, true, false, 2};
    case DType::kQ2_K:
      return {ScaleForm::kSuper, 2, LevelTable::kNone, true, true, -1};
    case DType::kTQ1_0:
    case DType::kTQ2_0:  // one scale per 256, repeated for its blocks
      return {ScaleForm::kF16, 2, LevelTable::kNone, false, false, 0};
    default:
      return {};
  }
}

static constexpr bool IsInt8(const Format& f) { return f.scales != ScaleForm::kFloatWeights; }

// Bytes of the levels of one block.
static constexpr int LevelBytes(const Format& f) { return f.bits * kBlock * kLanes / 8; }

// Bytes of the meta of one block.
static constexpr int MetaBytes(const Format& f) {
  switch (f.scales) {
    case ScaleForm::kF16:
      return f.mins ? 64 : 32;
    case ScaleForm::kE8M0:
      return 16;
    case ScaleForm::kSuper:
      return f.halves || f.mins ? 32 : 16;
    default:
      return 0;
  }
}

// Bytes of the super scales of one chunk.
static constexpr int SuperBytes(const Format& f) {
  return f.scales != ScaleForm::kSuper ? 0 : f.mins ? 64 : 32;
}

static constexpr int64_t PadTo64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static constexpr int64_t ChunkCount(int64_t n_in) { return (n_in + kChunk - 1) / kChunk; }

// Offset in a tile of chunk `c`; all chunks before the last are full.
static constexpr int64_t ChunkOffset(const Format& f, int64_t n_in, int64_t c) {
  return PadTo64(SuperBytes(f) * ChunkCount(n_in)) +
         c * kChunkBlocks * (MetaBytes(f) + LevelBytes(f));
}

}  // namespace weft::matmul_internal

#endif  // WEFT_KERNELS_MATMUL_FORMAT_H_
