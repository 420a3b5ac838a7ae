#include "constraint/token_table.h"

#include <algorithm>
#include <utility>

namespace weft::constraint {
namespace {

constexpr int kMaxHeight = 255;

// The length in bytes of the character at `at` if it belongs to the slice's kind, 0 otherwise.
size_t CharacterAt(const TokenTable::Slice& slice, std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return slice.bytes.Has(lead) ? 1 : 0;
  if (!slice.utf8 || lead < 0xC2 || lead > 0xF4) return 0;
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (text.size() - at < bytes) return 0;
  const auto second = static_cast<uint8_t>(text[at + 1]);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  if (bad) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<uint8_t>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return bytes;
}

struct Lead {
  int characters = 0;
  size_t bytes = 0;
};

// The longest prefix of `text` that belongs to the slice's kind.
Lead LeadOf(const TokenTable::Slice& slice, std::string_view text) {
  Lead lead;
  while (lead.bytes < text.size()) {
    const size_t bytes = CharacterAt(slice, text, lead.bytes);
    if (bytes == 0) break;
    lead.bytes += bytes;
    ++lead.characters;
  }
  return lead;
}

std::vector<TokenTable::Slice> SliceKinds() {
  const ByteSet lower = ByteSet::Range('a', 'z');
  const ByteSet letters = lower | ByteSet::Range('A', 'Z');
  const ByteSet numbered = letters | ByteSet::Range('0', '9');
  const ByteSet words = numbered | ByteSet::Of(' ');
  const ByteSet names = words | ByteSet::Of('_') | ByteSet::Of('-');
  const ByteSet text = ByteSet::Range(0x20, 0x7F) & ~(ByteSet::Of('"') | ByteSet::Of('\\'));
  std::vector<TokenTable::Slice> slices;
  for (const ByteSet& bytes : {lower, letters, numbered, words, names, text, text}) {
    slices.push_back({.bytes = bytes});
  }
  slices.back().utf8 = true;
  return slices;
}

void SetBit(std::vector<uint32_t>* mask, TokenId id) {
  (*mask)[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

std::vector<TextBelow> BelowOf(const TokenTrie& trie) {
  const auto size = static_cast<size_t>(trie.size());
  std::vector<TextBelow> below(size);
  std::vector<TextKinds> at_node(size);   // kinds of the characters that start at the node
  std::vector<size_t> above(size), path;  // parent of each node; current path by depth
  for (size_t at = 0; at < size; ++at) {
    const TrieNode& node = trie[static_cast<int32_t>(at)];
    path.resize(node.depth);
    above[at] = node.depth > 1 ? path[node.depth - 2u] : at;
    path[node.depth - 1u] = at;
    const int rest = node.byte < 0x80 ? 0 : node.byte >= 0xF0 ? 3 : node.byte >= 0xE0 ? 2 : 1;
    const bool begins = (node.byte & 0xC0) != 0x80;
    below[at].missing = begins ? rest : below[above[at]].missing - 1;
    if (node.byte < 0x80) at_node[at] = KindOf(node.byte);
    const uint8_t before = trie[static_cast<int32_t>(above[at])].byte;
    if (!begins && before >= 0xC0)
      at_node[above[at]] = at_node[above[at]] | KindOf(before, node.byte);
  }
  for (size_t at = size; at-- > 0;) {
    if (above[at] != at)
      below[above[at]].kinds = below[above[at]].kinds | below[at].kinds | at_node[at];
  }
  return below;
}

}  // namespace

TextKinds KindOf(uint8_t first, uint8_t second) {
  constexpr std::string_view kSingle = " -_.:/";
  constexpr int kFirstLead = 0xC2, kLeads = 51;
  // First bytes of Unicode spaces and of characters that many patterns do not accept as text.
  constexpr std::pair<uint8_t, uint8_t> kApart[] = {
      {0xE2, 0x80}, {0xE2, 0x81}, {0xE3, 0x80}, {0xEF, 0xBB}};
  const auto ascii = [](size_t bit) { return TextKinds{.ascii = 1ull << bit}; };
  if (first >= 0x80) {
    const auto* const apart = std::ranges::find(kApart, std::pair(first, second));
    const auto bit = apart != std::end(kApart) ? kLeads + (apart - kApart) : first - kFirstLead;
    return {.others = 1ull << bit};
  }
  if (first >= 'a' && first <= 'z') return ascii(static_cast<size_t>(first - 'a'));
  if (first >= 'A' && first <= 'Z') return ascii(static_cast<size_t>(26 + first - 'A'));
  if (first >= '0' && first <= '9') return ascii(52);
  return ascii(53 + std::min(kSingle.find(static_cast<char>(first)), kSingle.size()));
}

std::string ControlBytes(TokenId id) {
  std::string bytes(1, kControlLead);
  for (int shift = 18; shift >= 0; shift -= 6) {
    bytes.push_back(static_cast<char>(0x80 | (id >> shift & 0x3F)));
  }
  return bytes;
}

TokenId ControlAt(std::string_view bytes) {
  if (bytes.size() < kControlSize || bytes[0] != kControlLead) return kNoToken;
  TokenId id = 0;
  for (const char c : bytes.substr(1, kControlSize - 1)) id = id << 6 | (c & 0x3F);
  return id;
}

// Ends the subtrees of the current path below this depth.
void TokenTrie::Close(size_t depth) {
  for (; path_.size() > depth; path_.pop_back()) {
    TrieNode& node = nodes_[static_cast<size_t>(path_.back())];
    node.next = size();
    if (path_.size() == 1) continue;
    uint8_t& above = nodes_[static_cast<size_t>(path_[path_.size() - 2])].height;
    above = std::max(above, static_cast<uint8_t>(std::min(node.height + 1, kMaxHeight)));
  }
}

void TokenTrie::Add(std::string_view text, TokenId token) {
  size_t common = 0;
  while (common < path_.size() && common < text.size() &&
         (*this)[path_[common]].byte == static_cast<uint8_t>(text[common])) {
    ++common;
  }
  Close(common);
  for (size_t i = common; i < text.size(); ++i) {
    path_.push_back(size());
    nodes_.back() = {.tokens = static_cast<int32_t>(tokens_.size()),
                     .depth = static_cast<uint16_t>(i + 1),
                     .byte = static_cast<uint8_t>(text[i])};
    nodes_.emplace_back();
  }
  tokens_.push_back(token);
  nodes_.back().tokens = static_cast<int32_t>(tokens_.size());
}

TokenTable::TokenTable(std::vector<std::string> bytes, std::vector<TokenId> ends,
                       const std::vector<std::pair<TokenId, std::string>>& controls)
    : bytes_(std::move(bytes)), ends_(std::move(ends)) {
  std::ranges::sort(ends_);
  // Otherwise byte tokens could spell a control token.
  for (std::string& text : bytes_) {
    if (text.find(kControlLead) != std::string::npos) text.clear();
  }
  for (const auto& [id, text] : controls) {
    if (IsEnd(id)) continue;
    bytes_[static_cast<size_t>(id)] = ControlBytes(id);
    controls_.emplace(id, text);
  }
  std::vector<Entry> sorted;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!bytes_[i].empty() && bytes_[i].size() <= kMaxTokenBytes && !IsEnd(id)) {
      sorted.push_back({bytes_[i], id});
    }
  }
  std::ranges::sort(sorted, [](const Entry& a, const Entry& b) {
    const int compared = a.text.compare(b.text);
    return compared != 0 ? compared < 0 : a.id < b.id;
  });
  all_ = MakeTrie(sorted);
  MakeSlices(sorted);
}

bool TokenTable::IsEnd(TokenId id) const { return std::ranges::binary_search(ends_, id); }

std::string_view TokenTable::ControlText(TokenId id) const {
  const auto found = controls_.find(id);
  return found == controls_.end() ? std::string_view() : found->second;
}

void TokenTable::MakeSlices(std::span<const Entry> sorted) {
  slices_ = SliceKinds();
  for (Slice& slice : slices_) {
    slice.masks.assign(kSliceLength + 1, std::vector<uint32_t>(mask_words()));
  }
  std::vector<std::vector<Entry>> members(slices_.size());
  std::vector<Entry> longer, rest;
  for (const Entry& entry : sorted) {
    bool placed = false;
    for (size_t s = 0; s < slices_.size() && !placed; ++s) {
      const Lead lead = LeadOf(slices_[s], entry.text);
      if (lead.bytes < entry.text.size() || lead.characters > kSliceLength) continue;
      placed = true;
      members[s].push_back(entry);
      for (int n = lead.characters; n <= kSliceLength; ++n) {
        SetBit(&slices_[s].masks[static_cast<size_t>(n)], entry.id);
      }
    }
    if (placed) continue;
    const bool is_text = LeadOf(text(), entry.text).bytes == entry.text.size();
    (is_text ? longer : rest).push_back(entry);
  }
  texts_.assign(kSliceLength + 1, std::vector<uint32_t>(mask_words()));
  for (const Slice& slice : slices_) {
    for (size_t n = 0; n < texts_.size(); ++n) {
      for (size_t w = 0; w < texts_[n].size(); ++w) texts_[n][w] |= slice.masks[n][w];
    }
  }
  for (const std::vector<Entry>& list : members) tries_.push_back(MakeTrie(list));
  tries_.push_back(MakeTrie(longer));
  for (const TokenTrie& trie : tries_) below_.push_back(BelowOf(trie));
  all_text_ = texts_.back();
  for (const Entry& entry : longer) SetBit(&all_text_, entry.id);
  tries_.push_back(MakeTrie(rest));
  MakeTails(longer, rest);
  MakeBeyond(sorted);
}

void TokenTable::MakeBeyond(std::span<const Entry> sorted) {
  for (const int32_t bytes : kNear) {
    std::vector<Entry> list;
    std::vector<uint32_t>& mask = beyond_.emplace_back(mask_words());
    for (const Entry& entry : sorted) {
      if (entry.text.size() <= static_cast<size_t>(bytes)) continue;
      list.push_back(entry);
      SetBit(&mask, entry.id);
    }
    tries_.push_back(MakeTrie(list));
  }
}

void TokenTable::MakeTails(std::span<const Entry> longer, std::span<const Entry> rest) {
  std::vector<std::vector<Entry>> tails(kMaxLead + 1);
  std::vector<Entry> far;
  for (const Entry& entry : longer) {
    const int characters = LeadOf(text(), entry.text).characters;
    if (characters > kMaxLead) {
      far.push_back(entry);
    } else {
      long_texts_.push_back({characters, entry.id});
    }
  }
  for (const Entry& entry : rest) {
    const Lead lead = LeadOf(text(), entry.text);
    if (lead.characters > kMaxLead) {
      far.push_back(entry);
    } else {
      tails[static_cast<size_t>(lead.characters)].push_back(
          {entry.text.substr(lead.bytes), entry.id});
    }
  }
  std::ranges::stable_sort(long_texts_, {}, &LongText::characters);
  for (std::vector<Entry>& list : tails) {
    std::ranges::stable_sort(list, {}, &Entry::text);
    tries_.push_back(MakeTrie(list));
  }
  std::ranges::stable_sort(far, {}, &Entry::text);
  tries_.push_back(MakeTrie(far));
}

TokenTrie TokenTable::MakeTrie(std::span<const Entry> sorted) {
  TokenTrie trie;
  for (const auto& [text, id] : sorted) trie.Add(text, id);
  trie.Finish();
  return trie;
}

}  // namespace weft::constraint
