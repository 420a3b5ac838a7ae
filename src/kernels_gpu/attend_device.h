// Attention of a block of threads to the splits of one item (attention.h).
//
// A warp has kQueries of the item's queries, and sees all positions of a split at once: a lane
// multiplies four positions by each of them. Then it has four dimensions of each sum, or more, and
// goes through the values position by position. Keys and values come through stages in shared
// memory, which the block fills together while it computes: of keys some dimensions of the whole
// split, of values some positions.
#ifndef WEFT_KERNELS_GPU_ATTEND_DEVICE_H_
#define WEFT_KERNELS_GPU_ATTEND_DEVICE_H_

#include "device/dialect.h"
#include "kernels_gpu/attention.h"
#include "kernels_gpu/kv_device.h"
#include "kernels_gpu/math.h"

namespace weft::device {

constexpr int kBlockTokens = 32;
constexpr int kSplitBlocks = kSplitTokens / kBlockTokens;
WEFT_DEVICE float MinusInfinity() { return FloatOf(0xFF800000u); }

// --- queries ---------------------------------------------------------------------------------

// What a row sees of its sequence: positions, and the splits that these are in.
struct Sight {
  int position, first, last;

  WEFT_DEVICE Sight(const AttendArgs& a, int row) {
    position = a.step.positions[row];
    first = a.window > 0 ? Max(0, position - a.window + 1) : 0;
    last = position;
    if (a.both_ways != 0) {
      const int sequence = a.step.sequences[row];
      const int n_tokens = a.step.first_rows[sequence + 1] - a.step.first_rows[sequence];
      first = a.reach < 0 ? 0 : Max(0, position - a.reach);
      last = a.reach < 0 ? n_tokens - 1 : Min(n_tokens - 1, position + a.reach);
    }
  }
};

// Where sums of a row's splits go: those before `cut` together, each of the others alone.
struct PartPlaces {
  int base, first, last, cut;  // the first and the last split that it sees

  WEFT_DEVICE PartPlaces(const AttendArgs& a, int row, int first_seen, int last_seen) {
    const RowParts parts = a.step.row_parts[a.kv.group * a.step.max_rows + row];
    base = parts.base;
    first = first_seen / kSplitTokens;
    last = last_seen / kSplitTokens;
    cut = Max(parts.cut, first + 1);
  }
  WEFT_DEVICE int Of(int split) const { return split < cut ? 0 : split - cut + 1; }
  WEFT_DEVICE int n() const { return Of(last) + 1; }
};

// A part: the values' sums, then the maximum and the weight.
WEFT_DEVICE float* PartAt(const AttendArgs& a, int64_t part, int head) {
  return a.partials + (part * a.n_heads + head) * PartFloats(a.kv.v_dim);
}

// --- a block's shared memory -------------------------------------------------------------------

// In words: stages, places of pages, what the queries are; then for each warp its queries,
// dimension by dimension, and weights of two blocks of positions, position by position.
template <int kStages>
struct AttendPlaces {
  static constexpr int kPages = kStages * kStageWords;
  static constexpr int kQueryFacts = kPages + kPageWords;
  static constexpr int kWarps = kQueryFacts + kFactWords;
};
enum QueryFact { kRowFact, kHeadFact, kPositionFact, kFirstFact, kLastFact, kMaxFact, kWeightFact };

// --- stages ----------------------------------------------------------------------------------

// Keys of a stage: blocks of 32 positions, each dimension by dimension, and a row to spare, so that
// the lanes of different blocks read different banks. Values: a row of dimensions for each
// position.
template <typename Kv, int kVectors>
struct StageShape {
  static constexpr int kKeyDims = Kv::kBytes == 4 ? 16 : 32;
  static constexpr int kKeyRow = kBlockTokens * Kv::kBytes / 4;
  static constexpr int kKeyBlock = kKeyRow * (kKeyDims + 1);
  static constexpr int kKeyScales = kKeyBlock * kSplitBlocks;
  static constexpr int kMostValueRow = kVectors * 32 * Kv::kBytes / 4 + 4;
  static constexpr int kTokens = 2048 / (kVectors * 8 * Kv::kBytes) < kBlockTokens
                                     ? 2048 / (kVectors * 8 * Kv::kBytes)
                                     : kBlockTokens;
  static constexpr int kValueScales = kMostValueRow * kTokens;
  static_assert(kKeyScales + (Kv::kScaled ? kSplitTokens / 2 : 0) <= kStageWords);
  static_assert(kValueScales + (Kv::kScaled ? kTokens * kVectors / 2 : 0) <= kStageWords);
};

// What one item's stages are made of.
template <typename Kv, int kVectors, typename Shared>
struct Stager {
  using Shape = StageShape<Kv, kVectors>;
  static constexpr int kBytes = Kv::kBytes;
  const AttendArgs& a;
  Shared& words;
  const int kv_head, table, first, last;  // of the item: its page table, positions that are seen
  const int pages;                        // words of shared memory
  // From a page's keys of the head to its values, and to their scales; in bytes.
  int64_t to_values, to_key_scales, to_value_scales;
  int value_row, value_pieces,
      value_shift;  // words of a row; its pieces, and how many bits count them

  WEFT_DEVICE Stager(const AttendArgs& args, Shared& shared, int head, int its_table, int from,
                     int to, int page_words)
      : a(args),
        words(shared),
        kv_head(head),
        table(its_table),
        first(from),
        last(to),
        pages(page_words) {
    const KvPlane &keys = a.kv.keys, &values = a.kv.values;
    const int64_t begin = keys.offset + kv_head * keys.head * kBytes;
    to_values = values.offset + kv_head * values.head * kBytes - begin;
    to_key_scales = keys.scale_offset + kv_head * keys.scale_head * 2 - begin;
    to_value_scales = values.scale_offset + kv_head * values.scale_head * 2 - begin;
    value_row = CeilDiv(a.kv.v_dim * kBytes, 16) * 4 + 4;
    value_pieces = a.kv.v_dim * kBytes / 16;
    value_shift = 0;
    while (1 << value_shift < value_pieces) ++value_shift;
  }

  // --- pages, which are those of texts if they have one token ---------------------------------

  WEFT_DEVICE bool in_pages() const { return a.kv.page_shift >= kLeastPageShift; }
  WEFT_DEVICE int in_page(int position) const { return position & ((1 << a.kv.page_shift) - 1); }
  // The head's keys in a page.
  WEFT_DEVICE const std::byte* KeysOf(int page) const {
    return PlaceOf(a.kv.pool, a.step.pages[table + page]) + a.kv.keys.offset +
           kv_head * a.kv.keys.head * kBytes;
  }
  // Finds a split's pages, for all threads behind the next barrier. Those that nobody sees may not
  // be there.
  WEFT_DEVICE void FindPages(int split) {
    const int i = ThreadIndex();
    if (!in_pages() || i >= kSplitTokens >> a.kv.page_shift) return;
    const int begin = split * kSplitTokens + (i << a.kv.page_shift);
    uint64_t place = 0;
    if (begin <= last && begin + (1 << a.kv.page_shift) > first) {
      place = reinterpret_cast<uint64_t>(KeysOf(begin >> a.kv.page_shift));
    }
    const int at = pages + 2 * (split % kSplitsKnown * kMostSplitPages + i);
    words[at] = static_cast<uint32_t>(place);
    words[at + 1] = static_cast<uint32_t>(place >> 32);
  }
  // The same for a page of a split, as it was found; null where nobody sees it.
  WEFT_DEVICE const std::byte* Found(int split, int page) const {
    const Words2 two =
        ReadWords2(words, pages + 2 * (split % kSplitsKnown * kMostSplitPages + page));
    return reinterpret_cast<const std::byte*>(static_cast<uint64_t>(two.w[1]) << 32 | two.w[0]);
  }
  WEFT_DEVICE const std::byte* FoundFor(int position) const {
    if (in_pages()) {
      return Found(position / kSplitTokens, position % kSplitTokens >> a.kv.page_shift);
    }
    return position < first || position > last ? nullptr : KeysOf(position >> a.kv.page_shift);
  }

  // --- keys --------------------------------------------------------------------------------------

  // Where a stage has the first dimension of a split's position, a multiple of 16 bytes.
  WEFT_DEVICE static int WordOfToken(int token) {
    return token / kBlockTokens * Shape::kKeyBlock + token % kBlockTokens * kBytes / 4;
  }
  // Of a split, dimensions from `dim` on.
  WEFT_DEVICE void PutKeys(int stage, int split, int dim) {
    const int n_dims = Min(Shape::kKeyDims, a.kv.k_dim - dim);
    if (!in_pages()) return GatherKeys(stage, split, dim, n_dims);
    // Of a page, a dimension's positions are so many pieces.
    const int row_bits = a.kv.page_shift + kBytes / 2 - 4,
              n_pages = kSplitTokens >> a.kv.page_shift;
    const int from_dim = (dim << a.kv.page_shift) * kBytes;
    for (int piece = ThreadIndex(); piece < n_dims << row_bits; piece += ThreadCount()) {
      const int to = stage + WordOfToken((piece & ((1 << row_bits) - 1)) * (16 / kBytes)) +
                     (piece >> row_bits) * Shape::kKeyRow;
      for (int page = 0; page < n_pages; ++page) {
        const std::byte* const keys = Found(split, page);
        if (keys == nullptr) continue;
        CopyWords4(words, to + WordOfToken(page << a.kv.page_shift), keys + from_dim + piece * 16);
      }
    }
    if constexpr (Kv::kScaled) {
      const int64_t to_scales = to_key_scales + dim / kScaleDims * a.kv.keys.scale_group * 2;
      for (int i = ThreadIndex(); i < kSplitTokens / 8; i += ThreadCount()) {
        const std::byte* const keys = Found(split, i * 8 >> a.kv.page_shift);
        if (keys == nullptr) continue;
        CopyWords4(words, stage + Shape::kKeyScales + i * 4, keys + to_scales + in_page(i * 8) * 2);
      }
    }
  }
  // Of texts, which are floats: a position for each thread.
  WEFT_DEVICE void GatherKeys(int stage, int split, int dim, int n_dims) {
    if constexpr (kBytes == 4) {
      for (int at = ThreadIndex(); at < kSplitTokens; at += ThreadCount()) {
        const std::byte* const keys = FoundFor(split * kSplitTokens + at);
        if (keys == nullptr) continue;
        const auto* const from = reinterpret_cast<const uint32_t*>(keys) + dim;
        const int to = stage + at / kBlockTokens * Shape::kKeyBlock + at % kBlockTokens;
        for (int d = 0; d < n_dims; ++d) words[to + d * Shape::kKeyRow] = from[d];
      }
    }
  }

  // --- values ------------------------------------------------------------------------------------

  // Of Shape::kTokens positions.
  WEFT_DEVICE void PutValues(int stage, int position) {
    const bool pieces = in_pages() && a.kv.values.dim == 1 && a.kv.v_dim * kBytes % 16 == 0;
    if (pieces) {
      const int split = position / kSplitTokens, in_split = position % kSplitTokens;
      const int row_bytes = a.kv.v_dim * kBytes;
      // A thread has one piece of every so many positions.
      const int piece_of_all = ThreadIndex() & ((1 << value_shift) - 1);
      const int step = Max(1, ThreadCount() >> value_shift);
      int token = ThreadIndex() >> value_shift;
      if (token >= step) token = Shape::kTokens;
      for (; token < Shape::kTokens; token += step) {
        const std::byte* const keys = Found(split, (in_split + token) >> a.kv.page_shift);
        if (keys == nullptr) continue;
        const std::byte* const from = keys + to_values + in_page(in_split + token) * row_bytes;
        for (int piece = piece_of_all; piece < value_pieces; piece += ThreadCount()) {
          CopyWords4(words, stage + token * value_row + piece * 4, from + piece * 16);
        }
      }
    } else {
      GatherValues(stage, position);
    }
    if constexpr (Kv::kScaled) PutValueScales(stage, position);
  }
  // Values that lie otherwise, as those that are the beginning of keys: word by word, a position
  // for each lane.
  WEFT_DEVICE void GatherValues(int stage, int position) {
    constexpr int kEach = 4 / kBytes;
    const int n_words = CeilDiv(a.kv.v_dim, kEach) * Shape::kTokens;
    for (int i = ThreadIndex(); i < n_words; i += ThreadCount()) {
      const int token = i % Shape::kTokens, dim = i / Shape::kTokens * kEach;
      const std::byte* const keys = FoundFor(position + token);
      if (keys == nullptr) continue;
      const auto* const from = reinterpret_cast<const typename Kv::Raw*>(keys + to_values) +
                               in_page(position + token) * a.kv.values.token;
      uint32_t word = 0;
      for (int d = 0; d < kEach && dim + d < a.kv.v_dim; ++d) {
        word |= static_cast<uint32_t>(from[(dim + d) * a.kv.values.dim]) << (8 * kBytes * d);
      }
      words[stage + token * value_row + dim / kEach] = word;
    }
  }
  // As halves, those of a position together; two of them are a word.
  WEFT_DEVICE void PutValueScales(int stage, int position) {
    const int bytes = CeilDiv(a.kv.v_dim, kScaleDims) * 2;
    const int run = Min(Shape::kTokens, 1 << a.kv.page_shift);  // of one page
    if (a.kv.values.scale_group != 1 || run * bytes % 16 != 0) {
      return GatherValueScales(stage, position);
    }
    for (int at = 0; at < Shape::kTokens; at += run) {
      const std::byte* const keys = FoundFor(position + at);
      if (keys == nullptr) continue;
      const std::byte* const from = keys + to_value_scales + in_page(position + at) * bytes;
      for (int i = ThreadIndex(); i < run * bytes / 16; i += ThreadCount()) {
        CopyWords4(words, stage + Shape::kValueScales + at * bytes / 4 + i * 4, from + i * 16);
      }
    }
  }
  WEFT_DEVICE void GatherValueScales(int stage, int position) {
    const int groups = CeilDiv(a.kv.v_dim, kScaleDims);
    const auto half = [&](int at) -> uint32_t {
      const int token = at / groups;
      const std::byte* const keys = token < Shape::kTokens ? FoundFor(position + token) : nullptr;
      if (keys == nullptr) return 0;
      return reinterpret_cast<const uint16_t*>(
          keys + to_value_scales)[in_page(position + token) * a.kv.values.scale_token +
                                  at % groups * a.kv.values.scale_group];
    };
    for (int i = ThreadIndex(); i < (Shape::kTokens * groups + 1) / 2; i += ThreadCount()) {
      words[stage + Shape::kValueScales + i] = half(2 * i) | half(2 * i + 1) << 16;
    }
  }
};

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_ATTEND_DEVICE_H_
