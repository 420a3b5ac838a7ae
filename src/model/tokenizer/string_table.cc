#include "model/tokenizer/string_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

size_t StringTable::Start(std::string_view key) const {
  return XXH3_64bits(key.data(), key.size()) & (slots_.size() - 1);
}

void StringTable::Reserve(size_t n) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, 2 * n));
  if (slots > slots_.size()) Grow(slots);
}

void StringTable::Grow(size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.data == nullptr) continue;
    size_t i = Start({slot.data, slot.length});
    while (slots_[i].data != nullptr) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

bool StringTable::Insert(std::string_view key, int32_t value) {
  Reserve(size_ + 1);
  size_t i = Start(key);
  for (; slots_[i].data != nullptr; i = (i + 1) & (slots_.size() - 1)) {
    if (std::string_view(slots_[i].data, slots_[i].length) == key) return false;
  }
  slots_[i] = {key.data(), static_cast<uint32_t>(key.size()), value};
  ++size_;
  max_length_ = std::max(max_length_, key.size());
  return true;
}

int32_t StringTable::Find(std::string_view key) const {
  if (size_ == 0 || key.size() > max_length_) return -1;
  for (size_t i = Start(key); slots_[i].data != nullptr; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].length == key.size() &&
        std::memcmp(slots_[i].data, key.data(), key.size()) == 0) {
      return slots_[i].value;
    }
  }
  return -1;
}

}  // namespace weft
