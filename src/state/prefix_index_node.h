// The node of a PrefixIndex, for the files that implement it.
#ifndef WEFT_STATE_PREFIX_INDEX_NODE_H_
#define WEFT_STATE_PREFIX_INDEX_NODE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "state/prefix_index.h"
#include "xxhash.h"

namespace weft {

struct PrefixIndex::Node {
  Node* parent = nullptr;  // null for a root
  Node* root = nullptr;
  const std::string* domain = nullptr;  // of a root: its key in roots_
  uint64_t serial = 0;                  // larger than the parent's; never used again
  uint64_t hash = 0;                    // its key in nodes_
  int64_t depth = 0;                    // whole pages from the root; a root has 0
  std::vector<TokenId> tokens;          // page_tokens of them
  std::vector<PageId> pages;            // per group; kNoPage in windowed groups only
  SlotId slot = kNoSlot;
  int64_t n_children = 0;
  int64_t pins = 0;   // pinned prefixes that pass through this node
  uint64_t used = 0;  // never later than the parent's
  uint64_t window_used = 0;
  uint64_t slot_used = 0;

  bool is_root() const { return parent == nullptr; }
  LruKey leaf_key() const { return {used, serial}; }
  // Of pages used at the same time the deeper go first: what is left is a shorter
  // prefix that can still be resumed, not a longer one that cannot.
  LruKey window_key() const { return {window_used, ~serial}; }
  LruKey slot_key() const { return {slot_used, serial}; }
};

// A node's key among all nodes.
inline uint64_t HashPage(uint64_t parent_serial, std::span<const TokenId> page) {
  return XXH3_64bits_withSeed(page.data(), page.size_bytes(), parent_serial);
}

}  // namespace weft

#endif  // WEFT_STATE_PREFIX_INDEX_NODE_H_
