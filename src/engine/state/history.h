// What stands in a conversation: at each position a token or a row, a vector in a token's place.
//
// A row has an id below kNoToken, by which it is compared, indexed and passed on as if it were a
// token: of one table two rows have the same id if and only if their bytes are equal. The table
// keeps each once, as long as a history, a prefix or a file being written holds it; an id of a row
// that nobody holds is given again only after all others.
//
// Threads: a RowTable and the rows it gave may be used from any thread; a History by one at a time.
#ifndef WEFT_ENGINE_STATE_HISTORY_H_
#define WEFT_ENGINE_STATE_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/tokens.h"

namespace weft {

struct Row {
  TokenId id = kAnyRow;
  std::vector<float> values;
};
using RowRef = std::shared_ptr<const Row>;

class RowTable {
 public:
  RowTable();
  // The row of exactly these bytes.
  RowRef Keep(std::span<const float> values);
  // The row of that id; null if there is none.
  RowRef Find(TokenId id) const;
  // Those of the ids that are rows. REQUIRES: somebody holds them.
  std::vector<RowRef> FindAll(std::span<const TokenId> ids) const;
  // Memory of all rows that somebody holds.
  int64_t bytes() const;
  static int64_t BytesOf(int64_t n_rows, int64_t n_values_each);

 private:
  struct Shelf;
  const std::shared_ptr<Shelf> shelf_;  // shared with the rows, which leave it when they go
};

class History {
 public:
  struct Place {
    int64_t position = 0;
    RowRef row;
  };

  History() = default;
  // A history of tokens only.
  History(std::vector<TokenId> tokens) : ids_(std::move(tokens)) {}  // NOLINT: is meant to convert

  // As a list of ids.
  operator const std::vector<TokenId>&() const { return ids_; }  // NOLINT: likewise
  const TokenId* data() const { return ids_.data(); }
  size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  auto begin() const { return ids_.begin(); }
  auto end() const { return ids_.end(); }
  TokenId operator[](size_t i) const { return ids_[i]; }

  std::span<const Place> rows() const { return rows_; }
  bool has_rows() const { return !rows_.empty(); }
  // The rows among the `n` positions from `first` on.
  std::span<const Place> RowsIn(int64_t first, int64_t n) const;
  // All before the first row.
  std::span<const TokenId> before_rows() const;
  int64_t row_bytes() const;
  // With kAnyRow instead of row ids, which are meaningless elsewhere.
  std::vector<TokenId> WithoutIds() const;

  void push_back(TokenId token) { ids_.push_back(token); }
  void Add(RowRef row);
  // What `other` has from a position on.
  void Append(const History& other, int64_t from = 0);
  // Keeps the first `n` positions.
  void Cut(int64_t n);
  History First(int64_t n) const;
  History From(int64_t position) const;

  friend bool operator==(const History& a, const History& b) { return a.ids_ == b.ids_; }

 private:
  std::vector<TokenId> ids_;
  std::vector<Place> rows_;  // in order of position
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_HISTORY_H_
