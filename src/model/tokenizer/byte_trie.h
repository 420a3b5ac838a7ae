// Maps byte strings to numbers and finds those that start at a given place in a text. Built by one
// thread, then readable by any.
#ifndef WEFT_MODEL_TOKENIZER_BYTE_TRIE_H_
#define WEFT_MODEL_TOKENIZER_BYTE_TRIE_H_

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft {

class ByteTrie {
 public:
  struct Match {
    size_t bytes = 0;  // 0: none
    int32_t value = -1;
  };

  ByteTrie() : slots_(16), values_(1, -1) {}

  // A key that is there already gets the new value. REQUIRES: `key` is not empty.
  void Insert(std::string_view key, int32_t value) {
    starts_[static_cast<unsigned char>(key[0])] = true;
    uint32_t node = 0;
    for (const char c : key) node = ChildOrNew(node, static_cast<unsigned char>(c));
    values_[node] = value;
  }

  bool empty() const { return values_.size() == 1; }
  bool MayStart(char c) const { return starts_[static_cast<unsigned char>(c)]; }

  // Calls fn(match) for all keys that are prefixes of `text`, the shortest first.
  template <typename Fn>
  void ForEachPrefix(std::string_view text, Fn fn) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) fn(Match{i + 1, values_[node]});
    }
  }
  // The longest key that is a prefix of `text`.
  Match LongestPrefix(std::string_view text) const {
    Match best;
    ForEachPrefix(text, [&](const Match& match) { best = match; });
    return best;
  }

 private:
  // Edges in one open-addressed table: parent << 8 | byte -> child. Node 0, the root, is nobody's
  // child, so a child of 0 marks a free slot.
  struct Slot {
    uint64_t edge = 0;
    uint32_t child = 0;
  };

  size_t Find(uint64_t edge) const {
    size_t i = (edge * 0x9E3779B97F4A7C15u >> 32) & (slots_.size() - 1);
    while (slots_[i].child != 0 && slots_[i].edge != edge) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  uint32_t Child(uint32_t node, unsigned char c) const {
    return slots_[Find(uint64_t{node} << 8 | c)].child;
  }

  uint32_t ChildOrNew(uint32_t node, unsigned char c) {
    const uint64_t edge = uint64_t{node} << 8 | c;
    if (const uint32_t child = slots_[Find(edge)].child) return child;
    if (2 * values_.size() >= slots_.size()) {
      std::vector<Slot> old(slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.child != 0) slots_[Find(slot.edge)] = slot;
      }
    }
    const auto child = static_cast<uint32_t>(values_.size());
    values_.push_back(-1);
    slots_[Find(edge)] = {edge, child};
    return child;
  }

  std::vector<Slot> slots_;
  std::vector<int32_t> values_;  // by node; -1: no key ends there
  bool starts_[256] = {};
};

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_BYTE_TRIE_H_
