// The packed form of each weight type, for the packer and the kernels alone.
//
// A tile holds 16 outputs ("lanes") over all inputs. The inputs come in blocks of 32, which
// lie in groups of one, two or four, whose meta takes 64 bytes; a chunk of 256 inputs has super
// scales in common (the last chunk and group of a row may hold fewer blocks):
//
//   [super scales of all chunks, padded to 64 bytes][group 0][group 1]...
//   group = [meta of its blocks, 64 bytes][levels of its blocks]
//
// So levels begin at multiples of 64 bytes, and a tile is read from begin to end. If the meta of a
// whole chunk were in one place, some processors would read a third slower.
//
// Levels of a block: 8 groups of 64 bytes; byte 4 * lane + j of group g is the level of
// input 4 g + j, as byte dot products need it. They are stored in planes of the bits of
// all groups:
//   4-bit plane, 256 bytes: vector p holds group p in its low nibbles and group
//                           p + 4 in the high ones
//   2-bit plane, 128 bytes: vector p holds groups 4 p ... 4 p + 3, lowest bits first
//   1-bit plane,  64 bytes: bit g of each byte belongs to group g
// 5 bits are a 4-bit plane and a 1-bit plane above it, 6 are 4 + 2, 3 are 2 + 1, and so on;
// 8 bits are the 8 groups as they are.
//
// Meta of a block (16 lanes each):
//   kF16            half scale[16], and half min[16] where the type has minima;
//                   half blocks: two times half scale[16]
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
#ifndef WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_FORMAT_H_
#define WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_FORMAT_H_

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "compute/kernels/matmul/matmul.h"
#include "compute/kernels/quants/quant_types.h"

namespace weft::matmul_internal {

static constexpr int kLanes = 16;
static constexpr int kBlock = 32;   // inputs
static constexpr int kChunk = 256;  // inputs
static constexpr int kChunkBlocks = kChunk / kBlock;

// The bits of 2^-110: a block of activations below is taken as zero, so that 127 / max is
// finite.
static constexpr uint32_t kSmallestActivationBits = 17u << 23;

// Entries of a table, moved up to be unsigned; by nothing, they are signed bytes.
struct TableLevels {
  uint8_t values[16];
};
template <LevelTable kTable, int kBy>
static constexpr TableLevels RaisedTable() {
  TableLevels raised = {};
  for (int i = 0; i < 16; ++i) raised.values[i] = static_cast<uint8_t>(ValuesOf(kTable)[i] + kBy);
  return raised;
}
template <LevelTable kTable, int kBy>
static constexpr TableLevels kRaised = RaisedTable<kTable, kBy>();

// Whether products by any number of rows have fewer kernels (matmul_dispatch.inc).
static constexpr bool HasFewShapes(const Format& f) {
  return f.min_shift != 0 || (f.table != LevelTable::kNone && f.table != LevelTable::kIq4 &&
                              (f.table != LevelTable::kFp4 || f.halves));
}

// Offsets and minima of the weights need the sums of q. Levels that are stored as
// unsigned, `offset` too large, give a dot product that is too large by offset times the
// sum: it starts at minus that. And it starts at kStartBits above: the integer
// kStartBits + n is, as a float, 1.5 * 2^23 + n, so that a sum |n| < 2^22 needs no
// conversion.
static constexpr int32_t kStartBits = 0x4B400000;
static constexpr float kStart = 0x1.8p23f;
// ActivationBlock::starts: for levels that are too large by 8, by 128, or by 32 where weights
// have a scale per 16 inputs.
enum StartOf { kStart8, kStart128, kStart32First, kStart32Second };

// Sets all of a row of a block but q, given the sums of its first and its last 16 q.
static inline void SetSums(ActivationBlock* block, int row, float scale, int32_t first,
                           int32_t last) {
  block->scale[row] = scale;
  block->sum[row] = static_cast<float>(-(first + last));
  block->starts[kStart8][row] = kStartBits - 8 * (first + last);
  block->starts[kStart128][row] = kStartBits - 128 * (first + last);
  block->starts[kStart32First][row] = kStartBits - 32 * first;
  block->starts[kStart32Second][row] = kStartBits - 32 * last;
  block->half_sums[row] = static_cast<int32_t>((static_cast<uint32_t>(-last) << 16) |
                                               (static_cast<uint32_t>(-first) & 0xFFFF));
}

// The row of a block whose greatest magnitude has these bits, where it is too small for
// 127 / max or not finite; false where it is neither.
static inline bool SetUnscaled(ActivationBlock* block, int row, uint32_t max_bits) {
  const bool finite = max_bits < 0x7F800000;
  if (finite && max_bits >= kSmallestActivationBits) return false;
  for (auto& group : block->q) std::memset(group[row], 0, sizeof(group[row]));
  SetSums(block, row, finite ? 0.0f : __builtin_nanf(""), 0, 0);
  return true;
}

static constexpr bool IsInt8(const Format& f) { return f.scales != ScaleForm::kFloatWeights; }

// Bytes of the levels of one block.
static constexpr int LevelBytes(const Format& f) { return f.bits * kBlock * kLanes / 8; }

// Bytes of the meta of one block.
static constexpr int MetaBytes(const Format& f) {
  switch (f.scales) {
    case ScaleForm::kF16:
      return f.mins || f.halves ? 64 : 32;
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

static constexpr int kGroupMetaBytes = 64;
static constexpr int GroupBlocks(const Format& f) { return kGroupMetaBytes / MetaBytes(f); }

// Offsets in a tile: of its first group, of the meta and of the levels of block `b`.
static constexpr int64_t GroupsOffset(const Format& f, int64_t n_in) {
  return PadTo64(SuperBytes(f) * ChunkCount(n_in));
}
static constexpr int64_t LevelsOffset(const Format& f, int64_t n_in, int64_t b) {
  return GroupsOffset(f, n_in) + (b / GroupBlocks(f) + 1) * kGroupMetaBytes + b * LevelBytes(f);
}
static constexpr int64_t MetaOffset(const Format& f, int64_t n_in, int64_t b) {
  const int64_t in_group = b % GroupBlocks(f);
  return LevelsOffset(f, n_in, b - in_group) - kGroupMetaBytes + in_group * MetaBytes(f);
}

}  // namespace weft::matmul_internal

#endif  // WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_FORMAT_H_
