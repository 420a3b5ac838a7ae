// What stands in a conversation: at each position a token or a row, a vector in a token's place.
//
// A row has an id below kNoToken, by which it is compared, indexed and passed on as if it were a
// token. Of one table two rows have the same id if and only if they are the same row of equal
// spans: rows that belong together, such as a picture's, with equal bytes and of one form. So equal
// ids mean equal state, even where a row sees later ones of its span. The table keeps each span
// once, as long as a history, a prefix or a file being written holds one of its rows; an id that
// nobody holds is given again only after all others.
//
// A history has all rows of a span or none, and at each position an axis position, by which ropes
// with axes turn: a span on a grid takes as many as its longer side, everything else one each.
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
#include "weft/options.h"

namespace weft {

struct RowSpan;
struct Row {
  TokenId id = kAnyRow;
  int64_t index = 0;  // in its span
  std::span<const float> values;
  const RowSpan* span = nullptr;
};
struct RowSpan {
  RowForm form;
  std::vector<float> values;
  std::vector<Row> rows;
};
// Holds the row's whole span.
using RowRef = std::shared_ptr<const Row>;

class RowTable {
 public:
  RowTable();
  // The row of exactly these bytes, which stands alone.
  RowRef Keep(std::span<const float> values);
  // The rows of the span of exactly these bytes. REQUIRES: `n_rows` > 0 divides the values.
  std::vector<RowRef> KeepSpan(std::span<const float> values, int64_t n_rows, const RowForm& form);
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
    int64_t axis_begin = 0;  // axis position of its span
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
  // Runs of rows that see each other among the `n` positions from `first` on, counted from `first`.
  // A run may end after these positions.
  std::vector<TokenRun> MutualIn(int64_t first, int64_t n) const;
  // Whether a span lies on both sides of the position.
  bool Cuts(int64_t position) const { return WithoutCut(position) != position; }
  // The last position up to this one that cuts no span.
  int64_t WithoutCut(int64_t position) const;
  // Whether axis positions differ from positions.
  bool has_grids() const { return has_grids_; }
  // Also of positions after the end, as if tokens followed.
  int64_t AxisOf(int64_t position) const;
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
  const Place* LastRowBefore(int64_t position) const;
  std::vector<TokenId> ids_;
  std::vector<Place> rows_;  // in order of position
  bool has_grids_ = false;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_HISTORY_H_
