// The nodes and the claims of a PrefixIndex, for its implementation files.
#ifndef WEFT_ENGINE_STATE_PREFIX_INDEX_NODE_H_
#define WEFT_ENGINE_STATE_PREFIX_INDEX_NODE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/state/prefix_index.h"
#include "engine/state/prefix_log.h"
#include "engine/state/session_file.h"
#include "engine/state/siblings.h"

namespace weft {

struct PrefixIndex::Node {
  explicit Node(int64_t* compared) : children(compared) {}

  Node* parent = nullptr;  // null for a root
  Node* root = nullptr;
  const std::string* domain = nullptr;  // roots only: its key in roots_
  uint64_t serial = 0;                  // its key in nodes_; larger than the parent's; never reused
  int64_t depth = 0;                    // pages from the root; 0 for a root
  std::vector<TokenId> tokens;          // page_tokens of them; a leaf may have fewer, at least one
  std::vector<RowRef> rows;             // those among the tokens
  bool behind_rows = false;             // it or a node above it has rows
  // For watchers: it is listed; it is a resume point or above one; how many generations below it
  // are to be looked at; and which watcher knows it.
  bool is_listed : 1 = false, leads : 1 = false;
  uint16_t recheck = 0;
  uint32_t watched_by = 0;
  std::vector<PageId> pages;  // per group; kNoPage in windowed groups only
  SlotId slot = kNoSlot;
  Siblings<Node> children;
  // By Order. As a leaf it was never used later than its parent.
  std::array<uint64_t, kOrders> used{};
  std::array<Standing, kOrders> standing{};

  bool is_root() const { return parent == nullptr; }
  bool is_leaf() const { return children.empty(); }
  // Tokens from the root to the end of this node.
  int64_t end(int page_tokens) const {
    return is_root() ? 0 : (depth - 1) * page_tokens + std::ssize(tokens);
  }
  // Among windowed pages used at the same time, deeper ones are evicted first: that leaves a
  // shorter prefix that can still be resumed, not a longer one that cannot.
  LruKey key(Order order) const { return {used[order], order == kWindows ? ~serial : serial}; }
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

// Tells a log of one tree. Nodes in which something has changed are listed and looked at later, a
// few at a time: at first all nodes, from the root on.
struct PrefixIndex::Watcher {
  uint32_t id = 0;
  PrefixLog* log = nullptr;
  Fingerprint root;
  std::deque<uint64_t> list;  // serials; of nodes that may be gone
  struct Told {
    Fingerprint block;  // its key on disk, which its children's depend on
    uint64_t number = 0;
  };
  std::unordered_map<uint64_t, Told> told;  // by serial
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PREFIX_INDEX_NODE_H_
