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
  // May include rows that are about to leave.
  std::unordered_multimap<uint64_t, const Row*> by_hash WEFT_GUARDED_BY(mutex);
  TokenId last_id WEFT_GUARDED_BY(mutex) = kNoToken;
  std::atomic<int64_t> bytes{0};

  RowRef FindEqual(uint64_t hash, std::span<const float> values) const WEFT_REQUIRES(mutex) {
    const auto [begin, end] = by_hash.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const std::vector<float>& known = it->second->values;
      if (known.size() != values.size() ||
          std::memcmp(known.data(), values.data(), values.size_bytes()) != 0) {
        continue;
      }
      if (RowRef row = by_id.at(it->second->id).lock()) return row;
    }
    return nullptr;
  }

  TokenId NextId() WEFT_REQUIRES(mutex) {
    do {
      last_id = last_id == std::numeric_limits<TokenId>::min() ? kAnyRow : last_id - 1;
    } while (last_id == kAnyRow || by_id.contains(last_id));
    return last_id;
  }

  void Enter(const std::shared_ptr<Row>& row, uint64_t hash) WEFT_REQUIRES(mutex) {
    row->id = NextId();
    by_id[row->id] = row;
    by_hash.emplace(hash, row.get());
    bytes += BytesOf(1, std::ssize(row->values));
  }

  void Leave(const Row& row, uint64_t hash) {
    if (row.id == kAnyRow) return;  // it never entered
    MutexLock lock(&mutex);
    by_id.erase(row.id);
    const auto [begin, end] = by_hash.equal_range(hash);
    by_hash.erase(
        std::find_if(begin, end, [&](const auto& entry) { return entry.second == &row; }));
    bytes -= BytesOf(1, std::ssize(row.values));
  }
};

RowTable::RowTable() : shelf_(std::make_shared<Shelf>()) {}

RowRef RowTable::Keep(std::span<const float> values) {
  const uint64_t hash = XXH3_64bits(values.data(), values.size_bytes());
  {
    MutexLock lock(&shelf_->mutex);
    if (RowRef known = shelf_->FindEqual(hash, values)) return known;
  }
  // Not under the lock, which a row that goes takes.
  const auto leave = [shelf = shelf_, hash](Row* row) {
    shelf->Leave(*row, hash);
    delete row;
  };
  const std::shared_ptr<Row> fresh(new Row{.values = {values.begin(), values.end()}}, leave);
  MutexLock lock(&shelf_->mutex);
  if (RowRef known = shelf_->FindEqual(hash, values)) return known;
  shelf_->Enter(fresh, hash);
  return fresh;
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

void History::Add(RowRef row) {
  const int64_t position = std::ssize(ids_);
  ids_.push_back(row->id);
  rows_.push_back({position, std::move(row)});
}

void History::Append(const History& other, int64_t from) {
  const int64_t shift = std::ssize(ids_) - from;
  for (const Place& place : other.RowsIn(from, std::ssize(other.ids_) - from)) {
    rows_.push_back({place.position + shift, place.row});
  }
  ids_.insert(ids_.end(), other.ids_.begin() + from, other.ids_.end());
}

void History::Cut(int64_t n) {
  ids_.resize(static_cast<size_t>(n));
  while (!rows_.empty() && rows_.back().position >= n) rows_.pop_back();
}

History History::First(int64_t n) const {
  History first(std::vector<TokenId>(ids_.begin(), ids_.begin() + n));
  const std::span<const Place> rows = RowsIn(0, n);
  first.rows_.assign(rows.begin(), rows.end());
  return first;
}

History History::From(int64_t position) const {
  History rest;
  rest.Append(*this, position);
  return rest;
}

}  // namespace weft
