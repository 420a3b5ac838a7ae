#include "engine/state/page_pool.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"

namespace weft {

PagePool::PagePool(std::string what, int32_t budget) : what_(std::move(what)), budget_(budget) {
  WEFT_CHECK(budget >= 0, "a pool's budget is not negative");
}

StatusOr<int32_t> PagePool::Allocate() {
  if (in_use_ >= budget_) {
    return ResourceExhausted("no free ", what_, ": all ", budget_, " are in use");
  }
  int32_t id;
  if (free_.empty()) {
    id = extent();
    counts_.push_back(0);
    cached_.push_back(0);
    in_freed_.push_back(false);
    watched_.push_back(false);
  } else {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    id = free_.back();
    free_.pop_back();
  }
  counts_[static_cast<size_t>(id)] = 1;
  ++in_use_;
  high_water_ = std::max(high_water_, in_use_);
  return id;
}

void PagePool::Ref(int32_t id) {
  Add(id);
  if (cached_count(id) > 0 && cached_count(id) == use_count(id) - 1) --only_cached_;
}

void PagePool::RefCached(int32_t id) {
  Add(id);
  ++cached_[static_cast<size_t>(id)];
}

bool PagePool::Unref(int32_t id) {
  WEFT_CHECK(id >= 0 && id < extent() && use_count(id) > cached_count(id),
             "a reference given back twice");
  const bool is_last = Remove(id);
  if (IsOnlyCached(id)) ++only_cached_;
  return is_last;
}

bool PagePool::UnrefCached(int32_t id) {
  WEFT_CHECK(id >= 0 && id < extent() && cached_count(id) > 0,
             "a reference of a cache given back twice");
  --cached_[static_cast<size_t>(id)];
  const bool is_last = Remove(id);
  if (is_last) --only_cached_;
  return is_last;
}

void PagePool::Add(int32_t id) {
  WEFT_CHECK(id >= 0 && id < extent() && use_count(id) > 0, "a reference to what is free");
  WEFT_CHECK(use_count(id) < std::numeric_limits<int32_t>::max(), "too many references");
  ++counts_[static_cast<size_t>(id)];
}

bool PagePool::Remove(int32_t id) {
  const bool is_last = --counts_[static_cast<size_t>(id)] == 0;
  if (watched_[static_cast<size_t>(id)]) {
    watched_[static_cast<size_t>(id)] = false;
    if (!is_last) released_.push_back(id);
  }
  if (!is_last) return false;
  --in_use_;
  free_.push_back(id);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  if (!in_freed_[static_cast<size_t>(id)]) {
    in_freed_[static_cast<size_t>(id)] = true;
    freed_.push_back(id);
  }
  return true;
}

std::vector<int32_t> PagePool::TakeFreed() {
  std::vector<int32_t> ids;
  ids.swap(freed_);
  for (const int32_t id : ids) in_freed_[static_cast<size_t>(id)] = false;
  // Some have been reallocated since.
  std::erase_if(ids, [this](int32_t id) { return use_count(id) > 0; });
  std::sort(ids.begin(), ids.end());
  return ids;
}

void PagePool::set_budget(int32_t budget) {
  WEFT_CHECK(budget >= 0, "a pool's budget is not negative");
  budget_ = budget;
}

Status PagePool::CheckIntegrity(std::span<const int32_t> expected) const {
  int32_t used = 0, only_cached = 0;
  std::vector<bool> listed(counts_.size(), false);
  for (const int32_t id : free_) {
    if (id < 0 || id >= extent() || listed[static_cast<size_t>(id)] || use_count(id) != 0) {
      return Internal("free list of ", what_, ": id ", id, " does not belong there");
    }
    listed[static_cast<size_t>(id)] = true;
  }
  for (size_t id = 0; id < std::max(counts_.size(), expected.size()); ++id) {
    const int32_t have = id < counts_.size() ? counts_[id] : 0;
    const int32_t want = id < expected.size() ? expected[id] : 0;
    if (have != want) {
      return Internal(what_, " ", id, " has ", have, " references, its owners hold ", want);
    }
    if (id >= counts_.size()) continue;
    if (have > 0) ++used;
    if (IsOnlyCached(static_cast<int32_t>(id))) ++only_cached;
    if (cached_[id] > have) return Internal(what_, " ", id, " is cached more often than held");
    if ((have == 0) != listed[id]) return Internal(what_, " ", id, " is free but not listed");
  }
  if (used != in_use_) {
    return Internal("pool of ", what_, " counts ", in_use_, " in use, there are ", used);
  }
  if (only_cached != only_cached_) {
    return Internal("pool of ", what_, " counts ", only_cached_,
                    " that are only cached, there are ", only_cached);
  }
  return OkStatus();
}

void AddCount(std::vector<int32_t>* counts, int32_t id) {
  const size_t index = static_cast<size_t>(id);
  if (index >= counts->size()) counts->resize(index + 1, 0);
  ++(*counts)[index];
}

}  // namespace weft
