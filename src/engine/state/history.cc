#include "engine/state/history.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/mutex.h"
#include "xxhash.h"

namespace weft {

// --- rows -------------------------------------------------------------------------------

struct RowTable::Shelf {
  mutable Mutex mutex;
  std::unordered_map<TokenId, std::weak_ptr<const Row>> by_id WEFT_GUARDED_BY(mutex);
  // May include spans that are about to leave.
  std::unordered_multimap<uint64_t, const RowSpan*> by_hash WEFT_GUARDED_BY(mutex);
  TokenId last_id WEFT_GUARDED_BY(mutex) = kNoToken;
  std::atomic<int64_t> bytes{0};

  // The first row of the span; null if there is none.
  RowRef FindEqual(uint64_t hash, std::span<const float> values, int64_t n_rows,
                   const RowForm& form) const WEFT_REQUIRES(mutex) {
    const auto [begin, end] = by_hash.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const RowSpan& known = *it->second;
      if (known.values.size() != values.size() || std::ssize(known.rows) != n_rows ||
          known.form != form ||
          std::memcmp(known.values.data(), values.data(), values.size_bytes()) != 0) {
        continue;
      }
      if (RowRef row = by_id.at(known.rows[0].id).lock()) return row;
    }
    return nullptr;
  }

  TokenId NextId() WEFT_REQUIRES(mutex) {
    do {
      last_id = last_id == std::numeric_limits<TokenId>::min() ? kAnyRow : last_id - 1;
    } while (last_id == kAnyRow || by_id.contains(last_id));
    return last_id;
  }

  void Enter(const std::shared_ptr<RowSpan>& span, uint64_t hash) WEFT_REQUIRES(mutex) {
    for (Row& row : span->rows) {
      row.id = NextId();
      by_id[row.id] = RowRef(span, &row);
    }
    by_hash.emplace(hash, span.get());
    bytes += SizeOf(*span);
  }

  void Leave(const RowSpan& span, uint64_t hash) {
    if (span.rows[0].id == kAnyRow) return;  // it never entered
    MutexLock lock(&mutex);
    for (const Row& row : span.rows) by_id.erase(row.id);
    const auto [begin, end] = by_hash.equal_range(hash);
    by_hash.erase(
        std::find_if(begin, end, [&](const auto& entry) { return entry.second == &span; }));
    bytes -= SizeOf(span);
  }

  static int64_t SizeOf(const RowSpan& span) {
    return BytesOf(std::ssize(span.rows), std::ssize(span.rows[0].values));
  }
};

RowTable::RowTable() : shelf_(std::make_shared<Shelf>()) {}

RowRef RowTable::Keep(std::span<const float> values) {
  return KeepSpan(values, 1, RowForm()).front();
}

std::vector<RowRef> RowTable::KeepSpan(std::span<const float> values, int64_t n_rows,
                                       const RowForm& form) {
  const uint64_t hash = XXH3_64bits(values.data(), values.size_bytes());
  // A row's holder holds its span.
  const auto all_of = [](const RowRef& first) {
    std::vector<RowRef> rows;
    for (const Row& row : first->span->rows) rows.emplace_back(first, &row);
    return rows;
  };
  {
    MutexLock lock(&shelf_->mutex);
    if (const RowRef known = shelf_->FindEqual(hash, values, n_rows, form)) return all_of(known);
  }
  // Made before the lock is taken: a span that is destroyed takes it itself.
  const auto leave = [shelf = shelf_, hash](RowSpan* span) {
    shelf->Leave(*span, hash);
    delete span;
  };
  const std::shared_ptr<RowSpan> fresh(
      new RowSpan{.form = form, .values = {values.begin(), values.end()}}, leave);
  const size_t width = values.size() / static_cast<size_t>(n_rows);
  const std::span<const float> kept(fresh->values);
  for (int64_t i = 0; i < n_rows; ++i) {
    fresh->rows.push_back({.index = i,
                           .values = kept.subspan(static_cast<size_t>(i) * width, width),
                           .span = fresh.get()});
  }
  MutexLock lock(&shelf_->mutex);
  if (const RowRef known = shelf_->FindEqual(hash, values, n_rows, form)) return all_of(known);
  shelf_->Enter(fresh, hash);
  return all_of(RowRef(fresh, fresh->rows.data()));
}

RowRef RowTable::Find(TokenId id) const {
  MutexLock lock(&shelf_->mutex);
  const auto found = shelf_->by_id.find(id);
  return found != shelf_->by_id.end() ? found->second.lock() : nullptr;
}

std::vector<RowRef> RowTable::FindAll(std::span<const TokenId> ids) const {
  std::vector<RowRef> rows;
  for (const TokenId id : ids) {
    if (!IsRow(id)) continue;
    rows.push_back(Find(id));
    WEFT_CHECK(rows.back() != nullptr, "a row that is in use is held");
  }
  return rows;
}

int64_t RowTable::bytes() const { return shelf_->bytes; }

int64_t RowTable::BytesOf(int64_t n_rows, int64_t n_values_each) {
  // The row itself, its entries in two maps, the counts of its holders.
  constexpr int64_t kOverhead = 192;
  return n_rows * (n_values_each * static_cast<int64_t>(sizeof(float)) + kOverhead);
}

// --- histories --------------------------------------------------------------------------

std::span<const History::Place> History::RowsIn(int64_t first, int64_t n) const {
  const auto before = [](const Place& place, int64_t at) { return place.position < at; };
  const auto begin = std::lower_bound(rows_.begin(), rows_.end(), first, before);
  return {begin, std::lower_bound(begin, rows_.end(), first + n, before)};
}

std::span<const TokenId> History::before_rows() const {
  const std::span<const TokenId> all(ids_);
  return rows_.empty() ? all : all.first(static_cast<size_t>(rows_.front().position));
}

int64_t History::row_bytes() const {
  return rows_.empty() ? 0 : RowTable::BytesOf(std::ssize(rows_), std::ssize(rows_[0].row->values));
}

std::vector<TokenId> History::WithoutIds() const {
  std::vector<TokenId> ids = ids_;
  for (const Place& place : rows_) ids[static_cast<size_t>(place.position)] = kAnyRow;
  return ids;
}

std::vector<TokenRun> History::MutualIn(int64_t first, int64_t n) const {
  std::vector<TokenRun> runs;
  for (const Place& place : RowsIn(first, n)) {
    if (!place.row->span->form.mutual) continue;
    const int64_t at = place.position - first;
    if (!runs.empty() && at < runs.back().end) continue;
    runs.push_back({at, at + std::ssize(place.row->span->rows) - place.row->index});
  }
  return runs;
}

const History::Place* History::LastRowBefore(int64_t position) const {
  if (!rows_.empty() && rows_.back().position < position) return &rows_.back();
  const std::span<const Place> before = RowsIn(0, position);
  return before.empty() ? nullptr : &before.back();
}

int64_t History::WithoutCut(int64_t position) const {
  const Place* const last = LastRowBefore(position);
  if (last == nullptr || last->position + 1 < position) return position;
  const bool ends = last->row->index + 1 == std::ssize(last->row->span->rows);
  return ends ? position : last->position - last->row->index;
}

int64_t History::AxisOf(int64_t position) const {
  const Place* const last = LastRowBefore(position);
  if (last == nullptr) return position;
  const RowForm& form = last->row->span->form;
  const int64_t taken =
      form.grid_rows > 0 ? std::max(form.grid_rows, form.grid_columns) : last->row->index + 1;
  return last->axis_begin + taken + position - last->position - 1;
}

void History::Add(RowRef row) {
  const int64_t position = std::ssize(ids_);
  const bool goes_on = row->index > 0 && !rows_.empty() && rows_.back().position + 1 == position &&
                       rows_.back().row->id == row->span->rows[row->index - 1].id;
  const int64_t axis_begin = goes_on ? rows_.back().axis_begin : AxisOf(position);
  has_grids_ |= row->span->form.grid_rows > 0;
  ids_.push_back(row->id);
  rows_.push_back({position, std::move(row), axis_begin});
}

void History::Append(const History& other, int64_t from) {
  for (const Place& place : other.RowsIn(from, std::ssize(other.ids_) - from)) {
    ids_.insert(ids_.end(), other.ids_.begin() + from, other.ids_.begin() + place.position);
    Add(place.row);
    from = place.position + 1;
  }
  ids_.insert(ids_.end(), other.ids_.begin() + from, other.ids_.end());
}

void History::Cut(int64_t n) {
  ids_.resize(static_cast<size_t>(n));
  while (!rows_.empty() && rows_.back().position >= n) rows_.pop_back();
  has_grids_ = has_grids_ && std::ranges::any_of(rows_, [](const Place& place) {
                 return place.row->span->form.grid_rows > 0;
               });
}

History History::First(int64_t n) const {
  History first = *this;
  first.Cut(n);
  return first;
}

History History::From(int64_t position) const {
  History rest;
  rest.Append(*this, position);
  return rest;
}

}  // namespace weft
