// Stages of keys and values in shared memory: their layout, and the asynchronous copies with which
// a block fills them from pages.
#ifndef WEFT_COMPUTE_KERNELS_GPU_ATTEND_STAGE_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_ATTEND_STAGE_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/attend_rows_device.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/kv_device.h"

namespace weft::device {

// Keys of a stage: blocks of 32 positions, each dimension by dimension, plus a spare row, so that
// the lanes of different blocks read different banks. Values: a row of dimensions per position.
template <typename Kv, int kVectors>
struct StageShape {
  static constexpr int kKeyDims = Kv::kBytes == 4 ? 16 : 32;
  static constexpr int kKeyRow = kBlockTokens * Kv::kBytes / 4;
  static constexpr int kKeyBlock = kKeyRow * (kKeyDims + 1);
  static constexpr int kKeyScales = kKeyBlock * kSplitBlocks;
  static constexpr int kMaxValueRow = kVectors * 32 * Kv::kBytes / 4 + 4;
  static constexpr int kTokens = 2048 / (kVectors * 8 * Kv::kBytes) < kBlockTokens
                                     ? 2048 / (kVectors * 8 * Kv::kBytes)
                                     : kBlockTokens;
  static constexpr int kValueScales = kMaxValueRow * kTokens;
  static_assert(kKeyScales + (Kv::kScaled ? kSplitTokens / 2 : 0) <= kStageWords);
  static_assert(kValueScales + (Kv::kScaled ? kTokens * kVectors / 2 : 0) <= kStageWords);
};

// Fills one item's stages. Pages are looked up in units of 16 positions; `units` holds the
// addresses of each unit's keys and values.
template <typename Kv, int kVectors, typename Shared>
struct Stager {
  using Shape = StageShape<Kv, kVectors>;
  static constexpr int kBytes = Kv::kBytes;
  const AttendArgs& a;
  Shared& words;
  const int kv_head, table, first, last;  // the item's page table, and the visible positions
  const int units;                        // first word in shared memory
  // Words per position's values; the number of 16-byte pieces, and its bits.
  int value_row, value_pieces, value_shift;

  WEFT_DEVICE Stager(const AttendArgs& args, Shared& shared, int head, int its_table, int from,
                     int to, int unit_words)
      : a(args),
        words(shared),
        kv_head(head),
        table(its_table),
        first(from),
        last(to),
        units(unit_words) {
    value_row = CeilDiv(a.kv.v_dim * kBytes, 16) * 4 + 4;
    value_pieces = a.kv.v_dim * kBytes / 16;
    value_shift = 0;
    while (1 << value_shift < value_pieces) ++value_shift;
  }

  // --- pages; a page of one token belongs to a text -------------------------------------------

  WEFT_DEVICE bool in_pages() const { return a.kv.page_shift >= kMinPageShift; }
  WEFT_DEVICE int InPage(int position) const { return position & ((1 << a.kv.page_shift) - 1); }
  // The head's keys or values of a position. An invisible position's page may be absent, so another
  // page is read instead, and its contents are ignored.
  WEFT_DEVICE const std::byte* PlaceIn(const KvPlane& plane, int position) const {
    const int page =
        Max(first >> a.kv.page_shift, Min(last >> a.kv.page_shift, position >> a.kv.page_shift));
    return PlaceOf(a.kv.pool, a.step.pages[table + page]) + plane.offset +
           (kv_head * plane.head + InPage(position) * plane.token) * kBytes;
  }
  // Looks up a split's units, for all threads to use after the next barrier.
  WEFT_DEVICE void FindUnits(int split) {
    const int i = ThreadIndex();
    if (!in_pages() || i >= 2 * kSplitUnits) return;
    const auto place = reinterpret_cast<uint64_t>(
        PlaceIn(i % 2 == 0 ? a.kv.keys : a.kv.values, split * kSplitTokens + i / 2 * kUnitTokens));
    const int at = UnitAt(split * kSplitTokens) + 2 * i;
    words[at] = static_cast<uint32_t>(place);
    words[at + 1] = static_cast<uint32_t>(place >> 32);
  }
  WEFT_DEVICE int UnitAt(int position) const {
    return units + position / kUnitTokens % (kSplitsKnown * kSplitUnits) * kUnitWords;
  }
  WEFT_DEVICE const std::byte* Found(int word) const {
    const Words2 two = ReadWords2(words, word);
    return reinterpret_cast<const std::byte*>(static_cast<uint64_t>(two.w[1]) << 32 | two.w[0]);
  }

  // --- keys --------------------------------------------------------------------------------------

  // Copies a split's keys, dimensions from `dim` on, in 16-byte pieces.
  WEFT_DEVICE void PutKeys(int stage, int split, int dim) {
    constexpr int kRowPieces = kBlockTokens * kBytes / 16, kPieceTokens = 16 / kBytes;
    const int n_dims = Min(Shape::kKeyDims, a.kv.k_dim - dim), begin = split * kSplitTokens;
    if (!in_pages()) return GatherKeys(stage, begin, dim, n_dims);
    const int dim_bytes = kBytes << a.kv.page_shift;
    for (int piece = ThreadIndex(); piece < n_dims * kRowPieces; piece += ThreadCount()) {
      const int token = piece % kRowPieces * kPieceTokens, unit = UnitAt(begin + token);
      const int from = (dim + piece / kRowPieces) * dim_bytes + token % kUnitTokens * kBytes;
      WEFT_UNROLL
      for (int block = 0; block < kSplitBlocks; ++block) {
        constexpr int kWords = kBlockTokens / kUnitTokens * kUnitWords;
        CopyWords4(words, stage + piece * 4 + block * Shape::kKeyBlock,
                   Found(unit + block * kWords) + from);
      }
    }
    if constexpr (Kv::kScaled) PutKeyScales(stage, begin, dim);
  }
  // The distance between two positions is one byte for keys and two for scales.
  WEFT_DEVICE void PutKeyScales(int stage, int begin, int dim) {
    const KvPlane& keys = a.kv.keys;
    const int64_t to_scales = keys.scale_offset - keys.offset - kv_head * keys.head +
                              (kv_head * keys.scale_head + dim / kScaleDims * keys.scale_group) * 2;
    for (int i = ThreadIndex(); i < kSplitTokens / 8; i += ThreadCount()) {
      const int position = begin + 8 * i, unit = position / kUnitTokens * kUnitTokens;
      CopyWords4(words, stage + Shape::kKeyScales + 4 * i,
                 Found(UnitAt(position)) + to_scales + InPage(unit) + position % kUnitTokens * 2);
    }
  }
  // For texts, which are floats: one position per thread.
  WEFT_DEVICE void GatherKeys(int stage, int begin, int dim, int n_dims) {
    if constexpr (kBytes == 4) {
      for (int at = ThreadIndex(); at < kSplitTokens; at += ThreadCount()) {
        const auto* const from =
            reinterpret_cast<const uint32_t*>(PlaceIn(a.kv.keys, begin + at)) + dim;
        const int to = stage + at / kBlockTokens * Shape::kKeyBlock + at % kBlockTokens;
        for (int d = 0; d < n_dims; ++d) words[to + d * Shape::kKeyRow] = from[d];
      }
    }
  }

  // --- values ------------------------------------------------------------------------------------

  // Copies the values of Shape::kTokens positions in 16-byte pieces, which the threads share.
  WEFT_DEVICE void PutValues(int stage, int position) {
    const bool pieces = in_pages() && a.kv.values.dim == 1 && a.kv.v_dim * kBytes % 16 == 0;
    if (!pieces) {
      GatherValues(stage, position);
    } else {
      const int step = Max(1, ThreadCount() >> value_shift), row_bytes = value_pieces * 16;
      const int begin = ThreadIndex() >> value_shift, end = begin < step ? Shape::kTokens : 0;
      const int unit = UnitAt(position) + 2, in_unit = position % kUnitTokens;
      for (int piece = ThreadIndex() & ((1 << value_shift) - 1); piece < value_pieces;
           piece += ThreadCount()) {
        for (int token = begin; token < end; token += step) {
          CopyWords4(words, stage + token * value_row + piece * 4,
                     Found(unit + token / kUnitTokens * kUnitWords) +
                         (in_unit + token % kUnitTokens) * row_bytes + piece * 16);
        }
      }
    }
    if constexpr (Kv::kScaled) PutValueScales(stage, position);
  }
  // For values with another layout, such as those that are the beginning of keys: word by word, one
  // position per lane.
  WEFT_DEVICE void GatherValues(int stage, int position) {
    constexpr int kEach = 4 / kBytes;
    const int n_words = CeilDiv(a.kv.v_dim, kEach) * Shape::kTokens;
    for (int i = ThreadIndex(); i < n_words; i += ThreadCount()) {
      const int token = i % Shape::kTokens, dim = i / Shape::kTokens * kEach;
      const auto* const from =
          reinterpret_cast<const typename Kv::Raw*>(ValuesOf(position + token));
      uint32_t word = 0;
      for (int d = 0; d < kEach && dim + d < a.kv.v_dim; ++d) {
        word |= static_cast<uint32_t>(from[(dim + d) * a.kv.values.dim]) << (8 * kBytes * d);
      }
      words[stage + token * value_row + dim / kEach] = word;
    }
  }
  WEFT_DEVICE const std::byte* ValuesOf(int position) const {
    if (!in_pages()) return PlaceIn(a.kv.values, position);
    return Found(UnitAt(position) + 2) + position % kUnitTokens * a.kv.values.token * kBytes;
  }
  // Scales are halves, two per word; those of one position are adjacent.
  WEFT_DEVICE void PutValueScales(int stage, int position) {
    constexpr int kRun = Shape::kTokens < kUnitTokens ? Shape::kTokens : kUnitTokens;
    const int bytes = CeilDiv(a.kv.v_dim, kScaleDims) * 2;
    if (a.kv.values.scale_group != 1 || kRun * bytes % 16 != 0) {
      return GatherValueScales(stage, position);
    }
    for (int at = 0; at < Shape::kTokens; at += kRun) {
      const std::byte* const from = ScalesOf(position + at);
      for (int i = ThreadIndex(); i < kRun * bytes / 16; i += ThreadCount()) {
        CopyWords4(words, stage + Shape::kValueScales + at * bytes / 4 + i * 4, from + i * 16);
      }
    }
  }
  WEFT_DEVICE const std::byte* ScalesOf(int position) const {
    const KvPlane& values = a.kv.values;
    const int unit = position / kUnitTokens * kUnitTokens;
    return Found(UnitAt(position) + 2) - InPage(unit) * values.token - values.offset -
           kv_head * values.head + values.scale_offset +
           (kv_head * values.scale_head + InPage(position) * values.scale_token) * 2;
  }
  WEFT_DEVICE void GatherValueScales(int stage, int position) {
    const int groups = CeilDiv(a.kv.v_dim, kScaleDims);
    const auto half = [&](int at) -> uint32_t {
      const int token = Min(at / groups, Shape::kTokens - 1);
      return reinterpret_cast<const uint16_t*>(
          ScalesOf(position + token))[at % groups * a.kv.values.scale_group];
    };
    for (int i = ThreadIndex(); i < (Shape::kTokens * groups + 1) / 2; i += ThreadCount()) {
      words[stage + Shape::kValueScales + i] = half(2 * i) | half(2 * i + 1) << 16;
    }
  }
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_ATTEND_STAGE_DEVICE_H_
