// Finds the id of something that is kept elsewhere, by its hash: what interning needs.
#ifndef WEFT_CONSTRAINT_REGEX_HASH_INDEX_H_
#define WEFT_CONSTRAINT_REGEX_HASH_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::constraint {

inline uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

class HashIndex {
 public:
  // The id for which `same(id)` holds among those with this hash; -1 when there is none.
  template <typename Same>
  int32_t Find(uint64_t hash, const Same& same) const {
    if (slots_.empty()) return -1;
    for (size_t at = hash & Mask();; at = (at + 1) & Mask()) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (slot.hash == hash && same(slot.id)) return slot.id;
    }
  }

  bool empty() const { return count_ == 0; }
  void Add(uint64_t hash, int32_t id) {
    if (2 * (count_ + 1) > slots_.size()) Grow();
    Place(hash, id);
    ++count_;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    int32_t id = -1;
  };

  size_t Mask() const { return slots_.size() - 1; }
  void Place(uint64_t hash, int32_t id) {
    size_t at = hash & Mask();
    while (slots_[at].id >= 0) at = (at + 1) & Mask();
    slots_[at] = {hash, id};
  }
  void Grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 64 : 2 * old.size(), Slot{});
    for (const Slot& slot : old) {
      if (slot.id >= 0) Place(slot.hash, slot.id);
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_HASH_INDEX_H_
