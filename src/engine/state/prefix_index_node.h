// The nodes and the claims of a PrefixIndex, for its implementation files.
#ifndef WEFT_ENGINE_STATE_PREFIX_INDEX_NODE_H_
#define WEFT_ENGINE_STATE_PREFIX_INDEX_NODE_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/state/prefix_index.h"
#include "engine/state/session_file.h"

namespace weft {

struct PrefixIndex::Node {
  // Children are in lexicographic order of their tokens: those with a common beginning are
  // adjacent, and a prefix comes before its extensions.
  class ByTokens {
   public:
    using is_transparent = void;
    // `compared` counts the compared tokens.
    explicit ByTokens(int64_t* compared) : compared_(compared) {}
    bool operator()(const Node* a, const Node* b) const { return Less(a->tokens, b->tokens); }
    bool operator()(const Node* a, std::span<const TokenId> b) const { return Less(a->tokens, b); }
    bool operator()(std::span<const TokenId> a, const Node* b) const { return Less(a, b->tokens); }

   private:
    bool Less(std::span<const TokenId> a, std::span<const TokenId> b) const {
      const size_t common = static_cast<size_t>(CommonLength(a, b));
      *compared_ += static_cast<int64_t>(common) + 1;
      if (common == b.size()) return false;
      return common == a.size() || a[common] < b[common];
    }
    int64_t* compared_;
  };
  using Children = std::set<Node*, ByTokens>;

  explicit Node(int64_t* compared) : children(ByTokens(compared)) {}

  Node* parent = nullptr;  // null for a root
  Node* root = nullptr;
  const std::string* domain = nullptr;  // roots only: its key in roots_
  uint64_t serial = 0;                  // its key in nodes_; larger than the parent's; never reused
  int64_t depth = 0;                    // pages from the root; 0 for a root
  std::vector<TokenId> tokens;          // page_tokens of them; a leaf may have fewer, at least one
  std::vector<RowRef> rows;             // those among the tokens
  bool behind_rows = false;             // it or a node above it has rows
  std::vector<PageId> pages;            // per group; kNoPage in windowed groups only
  SlotId slot = kNoSlot;
  Children children;
  uint64_t used = 0;  // never later than the parent's
  uint64_t window_used = 0;
  uint64_t slot_used = 0;
  bool aside[2] = {false, false};  // from leaves_, from windowed_

  bool is_root() const { return parent == nullptr; }
  bool is_leaf() const { return children.empty(); }
  // Tokens from the root to the end of this node.
  int64_t end(int page_tokens) const {
    return is_root() ? 0 : (depth - 1) * page_tokens + std::ssize(tokens);
  }
  LruKey leaf_key() const { return {used, serial}; }
  // Among pages used at the same time, deeper ones are evicted first: that leaves a shorter prefix
  // that can still be resumed, not a longer one that cannot.
  LruKey window_key() const { return {window_used, ~serial}; }
  LruKey slot_key() const { return {slot_used, serial}; }
};

// A claim on the prefix that ends with a node.
struct PrefixIndex::Claim {
  Family* family = nullptr;
  Node* end = nullptr;
  // A conversation's, after its last turn; 0: a mark.
  uint64_t turn = 0;
  uint64_t owner = 0;
  uint64_t begun = 0;       // when its conversation began
  uint64_t since = 0;       // when the turn ended
  int64_t n_prompt = 0;     // tokens of the turn's prompt
  Fingerprint prompt = {};  // those tokens' fingerprint
  bool expects = false;     // the conversation will probably continue
  int child_turns = 0;
  int64_t until_us = 0;  // marks only
  uint64_t used = 0;     // the last use that counts for it; 0: none yet
  uint64_t carried = 0;  // the use up to which that was carried out
};

// The claims of a domain, in the order in which they are evicted: marks from the oldest on, then
// conversations from the one whose turn ended last.
struct PrefixIndex::Family {
  explicit Family(const std::string* key) : domain(key) {}

  const std::string* const domain;  // its key in families_
  std::list<Claim> marks, turns;
  bool is_used = false;  // it is among used_families_
};

template <typename Visit>
void PrefixIndex::ForEachBeginning(const Node* parent, std::span<const TokenId> page,
                                   Visit visit) const {
  while (!page.empty()) {
    const auto after = parent->children.upper_bound(page);
    if (after == parent->children.begin()) return;
    Node* const child = *std::prev(after);
    // A sibling that shares more of the page would sort after the child.
    int64_t common = Common(child, page);
    if (common == std::ssize(child->tokens)) {
      if (visit(child)) return;
      --common;
    }
    page = page.first(static_cast<size_t>(common));
  }
}

template <typename Visit>
void PrefixIndex::ForEachLonger(const Node* parent, std::span<const TokenId> page,
                                Visit visit) const {
  for (auto it = parent->children.upper_bound(page); it != parent->children.end(); ++it) {
    if (Common(*it, page) < std::ssize(page) || visit(*it)) return;
  }
}

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PREFIX_INDEX_NODE_H_
