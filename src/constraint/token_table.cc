#include "constraint/token_table.h"

#include <algorithm>
#include <utility>

namespace weft::constraint {
namespace {

// The length of a text in characters when it is of the slice's kind, -1 otherwise.
int LengthInSlice(const TokenTable::Slice& slice, std::string_view text) {
  int length = 0;
  for (size_t at = 0; at < text.size(); ++length) {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 0x80) {
      if (!slice.bytes.Has(lead)) return -1;
      ++at;
      continue;
    }
    if (!slice.utf8 || lead < 0xC2 || lead > 0xF4) return -1;
    const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (text.size() - at < bytes) return -1;
    const auto second = static_cast<uint8_t>(text[at + 1]);
    const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                     (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
    if (bad) return -1;
    for (size_t i = 1; i < bytes; ++i) {
      if ((static_cast<uint8_t>(text[at + i]) & 0xC0) != 0x80) return -1;
    }
    at += bytes;
  }
  return length;
}

std::vector<TokenTable::Slice> SliceKinds() {
  ByteSet lower = ByteSet::Range('a', 'z');
  ByteSet word = lower | ByteSet::Range('A', 'Z') | ByteSet::Range('0', '9') | ByteSet::Of('_') |
                 ByteSet::Of('-');
  ByteSet text = ByteSet::Range(0x20, 0x7F) & ~(ByteSet::Of('"') | ByteSet::Of('\\'));
  std::vector<TokenTable::Slice> slices(4);
  slices[0].bytes = lower;
  slices[1].bytes = word;
  slices[2].bytes = text;
  slices[3].bytes = text;
  slices[3].utf8 = true;
  return slices;
}

}  // namespace

TokenTable::TokenTable(std::vector<std::string> bytes, std::vector<TokenId> ends)
    : bytes_(std::move(bytes)), ends_(std::move(ends)), twins_(bytes_.size(), kNoToken) {
  std::ranges::sort(ends_);
  std::vector<TokenId> order;
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (!bytes_[id].empty() && bytes_[id].size() <= kMostTokenBytes &&
        !IsEnd(static_cast<TokenId>(id))) {
      order.push_back(static_cast<TokenId>(id));
    }
  }
  std::ranges::sort(order, [&](TokenId a, TokenId b) {
    const int compared = Bytes(a).compare(Bytes(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  all_ = MakeTrie(order);
  slices_ = SliceKinds();
  std::vector<std::vector<TokenId>> members(slices_.size());
  std::vector<TokenId> others;
  for (Slice& slice : slices_) {
    slice.masks.assign(kSliceLength + 1, std::vector<uint32_t>(mask_words()));
  }
  for (const TokenId id : order) {
    bool placed = false;
    for (size_t s = 0; s < slices_.size() && !placed; ++s) {
      const int length = LengthInSlice(slices_[s], Bytes(id));
      if (length < 0 || length > kSliceLength) continue;
      placed = true;
      members[s].push_back(id);
      for (int n = length; n <= kSliceLength; ++n) {
        slices_[s].masks[static_cast<size_t>(n)][static_cast<size_t>(id) / 32] |= 1u << (id % 32);
      }
    }
    if (!placed) others.push_back(id);
  }
  for (size_t s = 0; s < slices_.size(); ++s) slices_[s].trie = MakeTrie(members[s]);
  rest_ = MakeTrie(others);
}

bool TokenTable::IsEnd(TokenId id) const { return std::ranges::binary_search(ends_, id); }

TokenTrie TokenTable::MakeTrie(std::span<const TokenId> sorted) {
  TokenTrie trie;
  std::vector<size_t> path;  // nodes of the text before
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      trie[path.back()].next = static_cast<int32_t>(trie.size());
    }
  };
  for (const TokenId id : sorted) {
    const std::string_view text = Bytes(id);
    const auto common = static_cast<size_t>(std::ranges::mismatch(text, before).in1 - text.begin());
    if (common == text.size() && before.size() == text.size()) {
      TokenId last = trie[path.back()].token;
      while (twins_[static_cast<size_t>(last)] != kNoToken)
        last = twins_[static_cast<size_t>(last)];
      if (last != id) twins_[static_cast<size_t>(last)] = id;
      continue;
    }
    close(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(trie.size());
      trie.push_back(
          {.depth = static_cast<uint16_t>(i + 1), .byte = static_cast<uint8_t>(text[i])});
    }
    trie[path.back()].token = id;
    before = text;
  }
  close(0);
  return trie;
}

}  // namespace weft::constraint
