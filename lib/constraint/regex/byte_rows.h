// Transition tables: a row has an entry for each range of bytes with the same target. Rows with the
// same ranges share the map from bytes to ranges.
#ifndef WEFT_CONSTRAINT_REGEX_BYTE_ROWS_H_
#define WEFT_CONSTRAINT_REGEX_BYTE_ROWS_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "constraint/regex/byte_set.h"
#include "constraint/regex/chunked.h"
#include "constraint/regex/hash_index.h"

namespace weft::constraint {

class ByteRows {
 public:
  struct Row {
    int32_t entries = -1, ranges = -1;  // offsets in entries_ and ranges_
    bool exists() const { return entries >= 0; }
  };

  // Adds a row whose ranges start at `edges`; each entry is `fill` of the first byte of its range.
  // REQUIRES: edges.Has(0).
  template <typename Fill>
  Row Add(const ByteSet& edges, const Fill& fill) {
    std::array<int32_t, 256> made;
    size_t count = 0;
    for (size_t word = 0; word < edges.words.size(); ++word) {
      for (uint64_t left = edges.words[word]; left != 0; left &= left - 1) {
        made[count++] = fill(static_cast<int>(64 * word) + std::countr_zero(left));
      }
    }
    return {static_cast<int32_t>(entries_.AddRun(std::span(made).first(count))), RangesOf(edges)};
  }
  int32_t Get(const Row& row, uint8_t byte) const {
    return entries_.Run(First(row))[RangeOf(row, byte)];
  }
  void Set(const Row& row, uint8_t byte, int32_t value) {
    entries_.Run(First(row))[RangeOf(row, byte)] = value;
  }
  // The memory of all rows.
  size_t bytes() const {
    return entries_.bytes() + ranges_.size() + 2 * edges_.size() * sizeof(ByteSet);
  }

 private:
  static size_t First(const Row& row) { return static_cast<size_t>(row.entries); }
  uint8_t RangeOf(const Row& row, uint8_t byte) const {
    return ranges_[static_cast<size_t>(row.ranges) + byte];
  }
  int32_t RangesOf(const ByteSet& edges) {
    uint64_t hash = 23;
    for (const uint64_t word : edges.words) hash = MixHash(hash, word);
    int32_t id =
        index_.Find(hash, [&](int32_t i) { return edges_[static_cast<size_t>(i)] == edges; });
    if (id < 0) {
      id = static_cast<int32_t>(edges_.size());
      index_.Add(hash, id);
      edges_.push_back(edges);
      uint8_t range = 0;
      for (int byte = 0; byte < 256; ++byte) {
        range = static_cast<uint8_t>(range + (byte > 0 && edges.Has(byte) ? 1 : 0));
        ranges_.push_back(range);
      }
    }
    return 256 * id;
  }

  Chunked<int32_t> entries_;
  std::vector<uint8_t> ranges_;  // range of each byte, for each set in edges_
  std::vector<ByteSet> edges_;
  HashIndex index_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_BYTE_ROWS_H_
