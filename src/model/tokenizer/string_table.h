// Maps strings to small numbers: a flat hash table that only grows.
//
// It stores views, so the bytes must outlive it. One thread builds it; afterwards Find may be
// called from any thread.
#ifndef WEFT_MODEL_TOKENIZER_STRING_TABLE_H_
#define WEFT_MODEL_TOKENIZER_STRING_TABLE_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace weft {

class StringTable {
 public:
  // Makes room for `n` strings without growing.
  void Reserve(size_t n);

  // Adds a string; false (and no change) if it is already there.
  bool Insert(std::string_view key, int32_t value);

  // -1 if there is none.
  int32_t Find(std::string_view key) const;

  size_t size() const { return size_; }
  // Length of the longest key in bytes: nothing longer can be found.
  size_t max_length() const { return max_length_; }

 private:
  struct Slot {
    const char* data = nullptr;  // null: free
    uint32_t length = 0;
    int32_t value = 0;
  };
  size_t Start(std::string_view key) const;
  void Grow(size_t slots);

  std::vector<Slot> slots_;  // a power of two in size, at most half full
  size_t size_ = 0;
  size_t max_length_ = 0;
};

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_STRING_TABLE_H_
