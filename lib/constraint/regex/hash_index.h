// Maps hashes to ids of objects that are stored elsewhere, for interning.
#ifndef WEFT_CONSTRAINT_REGEX_HASH_INDEX_H_
#define WEFT_CONSTRAINT_REGEX_HASH_INDEX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace weft::constraint {

inline uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

// Grows incrementally: each Add moves a few slots from the old table to the new one, so no call
// takes long.
class HashIndex {
 public:
  // The id with this hash for which `same(id)` holds; -1 if there is none.
  template <typename Same>
  int32_t Find(uint64_t hash, const Same& same) const {
    const int32_t found = FindIn(slots_, hash, same);
    return found < 0 && !old_.empty() ? FindIn(old_, hash, same) : found;
  }

  bool empty() const { return count_ == 0; }
  void Add(uint64_t hash, int32_t id) {
    if (2 * (count_ + 1) > slots_.size()) {
      old_ = std::exchange(slots_, Slots(std::max(kFewest, 2 * slots_.size())));
    }
    Place({static_cast<uint32_t>(hash), id + 1});
    ++count_;
    if (!old_.empty()) MoveSome();
  }

 private:
  static constexpr size_t kFewest = 64;
  // Old slots moved at each Add. Two would suffice to finish before the next growth.
  static constexpr size_t kMovedAtOnce = 8;
  struct Slot {
    uint32_t hash;   // the low half of the hash
    int32_t behind;  // the id + 1; 0 for an empty slot
  };
  // calloc: the system clears the pages of a large table when they are first used.
  template <typename T>
  struct Cleared {
    using value_type = T;
    T* allocate(size_t count) {
      void* const memory = std::calloc(count, sizeof(T));
      if (memory == nullptr) throw std::bad_alloc();
      return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t /*count*/) { std::free(memory); }
    void construct(T* /*slot*/) {}
    void construct(T* slot, const T& value) { *slot = value; }
    bool operator==(const Cleared& /*other*/) const { return true; }
  };
  using Slots = std::vector<Slot, Cleared<Slot>>;

  template <typename Same>
  static int32_t FindIn(const Slots& slots, uint64_t hash, const Same& same) {
    if (slots.empty()) return -1;
    const size_t mask = slots.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      const Slot slot = slots[at];
      if (slot.behind == 0) return -1;
      if (slot.hash == static_cast<uint32_t>(hash) && same(slot.behind - 1)) return slot.behind - 1;
    }
  }
  void Place(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t at = slot.hash & mask;
    while (slots_[at].behind != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
  void MoveSome() {
    const size_t end = std::min(moved_ + kMovedAtOnce, old_.size());
    for (; moved_ < end; ++moved_) {
      if (old_[moved_].behind != 0) Place(old_[moved_]);
    }
    if (moved_ < old_.size()) return;
    Slots().swap(old_);
    moved_ = 0;
  }

  Slots slots_, old_;
  size_t moved_ = 0;  // slots of old_ that are already in slots_
  size_t count_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_HASH_INDEX_H_
