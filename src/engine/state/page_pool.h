// Reference counts for a pool of numbered items: the pages of one layer group, or the slots of a
// model. The memory belongs to the backend; this is only the accounting.
//
//   Allocate()  returns the lowest free id with one reference, so that ids in use stay low
//               and the memory of high ids can be freed.
//   Ref, Unref  add and remove an owner. The last Unref frees the id.
//   RefCached, UnrefCached
//               the same for an owner that lets go when others need room: the prefix index.
//   TakeFreed() returns the ids freed since the last call, for StateStore::DiscardPages.
//   Watch()     makes TakeReleased report, once, that one owner of the id let go while others
//               stayed.
//
// Owners are page tables, the prefix index and PoolRefs. Each can count its references (AddCounts),
// and CheckIntegrity compares the sum with the counts here.
//
// Threads: nothing here locks; the pools belong to the thread that runs the engine.
#ifndef WEFT_ENGINE_STATE_PAGE_POOL_H_
#define WEFT_ENGINE_STATE_PAGE_POOL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/state_ids.h"
#include "base/status.h"

namespace weft {

class PagePool {
 public:
  // At most `budget` ids are in use at a time. `what` names an item in messages: "page of layer
  // group 0", "slot".
  PagePool(std::string what, int32_t budget);

  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // RESOURCE_EXHAUSTED if the budget is used up; nothing has changed then. The contents of the id's
  // memory are undefined. The id may be extent() - 1, beyond what the backend was last told to grow
  // to.
  StatusOr<int32_t> Allocate();

  // REQUIRES: `id` is in use.
  void Ref(int32_t id);
  // True if this was the last reference: the id is now free. REQUIRES: `id` is in use, and the
  // caller owns one of its references.
  bool Unref(int32_t id);
  void RefCached(int32_t id);
  bool UnrefCached(int32_t id);

  // References to `id`; 0 if it is free. REQUIRES: 0 <= id < extent().
  int32_t use_count(int32_t id) const { return counts_[static_cast<size_t>(id)]; }
  // Those of them that RefCached added.
  int32_t cached_count(int32_t id) const { return cached_[static_cast<size_t>(id)]; }

  // Ids freed since the last call that are still free, ascending. Their contents are no longer
  // needed.
  std::vector<int32_t> TakeFreed();

  // TakeReleased will report the next Unref of `id` that leaves an owner, once. REQUIRES: `id` is
  // in use.
  void Watch(int32_t id) { watched_[static_cast<size_t>(id)] = true; }
  bool is_watched(int32_t id) const { return watched_[static_cast<size_t>(id)]; }
  // The watched ids that an owner has released since the last call.
  std::vector<int32_t> TakeReleased() { return std::exchange(released_, {}); }

  int32_t in_use() const { return in_use_; }
  // How many of these have no other references than RefCached's.
  int32_t only_cached() const { return only_cached_; }
  int32_t available() const { return in_use_ < budget_ ? budget_ - in_use_ : 0; }
  int32_t high_water() const { return high_water_; }  // the most ever in use
  // One more than the highest id issued so far: the size the backend's memory must have.
  int32_t extent() const { return static_cast<int32_t>(counts_.size()); }

  int32_t budget() const { return budget_; }
  // May be less than the number in use: Allocate then refuses until enough are freed.
  void set_budget(int32_t budget);

  const std::string& what() const { return what_; }

  // INTERNAL unless every count equals the expected one (zero for ids beyond the end of `expected`)
  // and the free list holds exactly the free ids.
  Status CheckIntegrity(std::span<const int32_t> expected) const;

 private:
  bool IsOnlyCached(int32_t id) const {
    return cached_count(id) > 0 && cached_count(id) == use_count(id);
  }
  void Add(int32_t id);
  // True if it was the last reference.
  bool Remove(int32_t id);

  const std::string what_;
  int32_t budget_;
  int32_t in_use_ = 0;
  int32_t only_cached_ = 0;
  int32_t high_water_ = 0;
  std::vector<int32_t> counts_;  // by id
  std::vector<int32_t> cached_;  // by id: the part of counts_ that RefCached added
  std::vector<int32_t> free_;    // min-heap of the ids below extent() with count 0
  std::vector<int32_t> freed_;   // candidates for TakeFreed, each once
  std::vector<bool> in_freed_;   // by id: whether it is in freed_
  std::vector<bool> watched_;    // by id
  std::vector<int32_t> released_;
};

// Slots are counted in the same way.
using SlotPool = PagePool;

// One reference to an id, released by the destructor. The pool must outlive it.
class PoolRef {
 public:
  PoolRef() = default;
  // Takes over a reference that the caller owns, e.g. from a fresh allocation.
  static PoolRef Adopt(PagePool* pool, int32_t id) { return PoolRef(pool, id); }
  // Adds a reference.
  static PoolRef Share(PagePool* pool, int32_t id) {
    pool->Ref(id);
    return PoolRef(pool, id);
  }

  PoolRef(PoolRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, -1)) {}
  PoolRef& operator=(PoolRef&& other) noexcept {
    if (this != &other) {
      Reset();
      pool_ = std::exchange(other.pool_, nullptr);
      id_ = std::exchange(other.id_, -1);
    }
    return *this;
  }
  ~PoolRef() { Reset(); }

  explicit operator bool() const { return pool_ != nullptr; }
  int32_t id() const { return id_; }  // -1 if empty
  PoolRef Share() const { return pool_ != nullptr ? Share(pool_, id_) : PoolRef(); }
  void Reset() {
    if (pool_ != nullptr) pool_->Unref(id_);
    pool_ = nullptr;
    id_ = -1;
  }

 private:
  PoolRef(PagePool* pool, int32_t id) : pool_(pool), id_(id) {}

  PagePool* pool_ = nullptr;
  int32_t id_ = -1;
};

// Adds one to (*counts)[id], growing it with zeros. Used by the owners' AddCounts.
void AddCount(std::vector<int32_t>* counts, int32_t id);

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PAGE_POOL_H_
