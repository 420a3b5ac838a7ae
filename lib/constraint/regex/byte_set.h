// A set of bytes, as 256 bits.
#ifndef WEFT_CONSTRAINT_REGEX_BYTE_SET_H_
#define WEFT_CONSTRAINT_REGEX_BYTE_SET_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::constraint {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet Range(int first, int last) {
    ByteSet set;
    for (int b = first; b <= last; ++b) set.Add(b);
    return set;
  }
  static ByteSet Of(uint8_t byte) { return Range(byte, byte); }
  static ByteSet All() { return {{~0ull, ~0ull, ~0ull, ~0ull}}; }

  void Add(int b) { words[static_cast<size_t>(b) >> 6] |= 1ull << (b & 63); }
  bool Has(int b) const { return words[static_cast<size_t>(b) >> 6] >> (b & 63) & 1; }
  bool IsEmpty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  int Count() const {
    int count = 0;
    for (const uint64_t word : words) count += std::popcount(word);
    return count;
  }
  // Whether `holds` is true for any byte. Calls it in ascending order and stops at the first.
  template <typename Holds>
  bool Any(const Holds& holds) const {
    for (size_t word = 0; word < words.size(); ++word) {
      for (uint64_t left = words[word]; left != 0; left &= left - 1) {
        if (holds(static_cast<int>(64 * word) + std::countr_zero(left))) return true;
      }
    }
    return false;
  }
  ByteSet operator|(const ByteSet& o) const {
    return {{words[0] | o.words[0], words[1] | o.words[1], words[2] | o.words[2],
             words[3] | o.words[3]}};
  }
  ByteSet operator&(const ByteSet& o) const {
    return {{words[0] & o.words[0], words[1] & o.words[1], words[2] & o.words[2],
             words[3] & o.words[3]}};
  }
  ByteSet operator~() const { return {{~words[0], ~words[1], ~words[2], ~words[3]}}; }
  // The bytes whose membership differs from that of the byte before, and 0.
  ByteSet Edges() const {
    ByteSet edges;
    uint64_t carry = 0;
    for (size_t i = 0; i < 4; ++i) {
      edges.words[i] = words[i] ^ (words[i] << 1 | carry);
      carry = words[i] >> 63;
    }
    edges.words[0] |= 1;
    return edges;
  }
  bool operator==(const ByteSet&) const = default;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_BYTE_SET_H_
