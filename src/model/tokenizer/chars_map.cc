#include "model/tokenizer/chars_map.h"

#include <cstring>

namespace weft {

StatusOr<CharsMap> CharsMap::Parse(std::string_view bytes) {
  CharsMap map;
  uint32_t n_trie = 0;
  if (bytes.size() < sizeof(n_trie)) return InvalidArgument("it is too short");
  std::memcpy(&n_trie, bytes.data(), sizeof(n_trie));
  bytes.remove_prefix(sizeof(n_trie));
  if (n_trie > bytes.size() || n_trie % sizeof(uint32_t) != 0) {
    return InvalidArgument("its trie of ", n_trie, " bytes does not fit in it");
  }
  map.nodes_.resize(n_trie / sizeof(uint32_t));
  if (n_trie > 0) std::memcpy(map.nodes_.data(), bytes.data(), n_trie);
  map.texts_ = bytes.substr(n_trie);
  if (map.texts_.empty() || map.texts_.back() != '\0') map.texts_ += '\0';
  return map;
}

CharsMap::Match CharsMap::LongestPrefix(std::string_view text) const {
  const auto base_of = [](uint32_t node) { return (node >> 10) << ((node & (1u << 9)) >> 6); };
  Match best;
  uint32_t at = base_of(Node(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    at ^= byte;
    const uint32_t node = Node(at);
    if ((node & ((1u << 31) | 0xFF)) != byte) break;
    at ^= base_of(node);
    if ((node & (1u << 8)) == 0) continue;
    const uint32_t begin = Node(at) & ((1u << 31) - 1);
    if (begin < texts_.size()) best = {i + 1, texts_.data() + begin};
  }
  return best;
}

}  // namespace weft
