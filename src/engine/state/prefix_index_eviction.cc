// Eviction from a PrefixIndex, and its integrity checks.
#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "engine/state/prefix_index_node.h"

namespace weft {

// --- evicting -----------------------------------------------------------------------

void PrefixIndex::DropPage(Node* node, size_t group, EvictionWish* freed) {
  const PageId page = std::exchange(node->pages[group], kNoPage);
  if (page == kNoPage) return;
  if (UnholdPage(group, page)) {
    ++freed->pages[group];
    ++evicted_pages_;
  }
  if (options_.groups[group].window == 0) return;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (options_.groups[g].window > 0 && node->pages[g] != kNoPage) return;
  }
  windowed_.erase(node->window_key());
}

void PrefixIndex::DropCheckpoint(Node* node, EvictionWish* freed) {
  if (node->slot == kNoSlot) return;
  checkpointed_.erase(node->slot_key());
  if (options_.slots->Unref(std::exchange(node->slot, kNoSlot))) ++freed->slots;
}

PrefixIndex::Node* PrefixIndex::RemoveLeaf(Node* node, EvictionWish* freed) {
  WEFT_CHECK(node->is_leaf() && !node->is_root(), "a loose leaf");
  for (const bool windowed : {false, true}) PutBack(node, windowed);
  for (size_t g = 0; g < node->pages.size(); ++g) DropPage(node, g, freed);
  if (node->slot != kNoSlot) ++evicted_checkpoints_;
  DropCheckpoint(node, freed);
  leaves_.erase(node->leaf_key());
  Node* parent = node->parent;
  if (!claims_at_.empty()) MoveClaims(node, parent);
  parent->children.erase(node);
  nodes_.erase(node->serial);
  ++evicted_nodes_;
  if (!parent->is_leaf()) return parent->is_root() ? nullptr : parent;
  if (parent->is_root()) {
    roots_.erase(roots_.find(*parent->domain));
    return nullptr;
  }
  leaves_.emplace(parent->leaf_key(), parent);
  return parent;
}

PrefixIndex::Node* PrefixIndex::PruneDeadLeaf(Node* node, EvictionWish* freed) {
  while (node != nullptr && node->is_leaf() && (HoldsNothing(node) || !IsResumePoint(node))) {
    node = RemoveLeaf(node, freed);
  }
  return node;
}

bool PrefixIndex::IsLone(size_t group, PageId page) const {
  return options_.groups[group].pool->use_count(page) == holders_[group][static_cast<size_t>(page)];
}

bool PrefixIndex::MayBeSetAside(const Node* node, bool windowed) const {
  bool held = false;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (!CountsIn(windowed, g) || node->pages[g] == kNoPage) continue;
    if (IsLone(g, node->pages[g])) return false;
    held = true;
  }
  return held;
}

void PrefixIndex::SetAside(Node* node, bool windowed) {
  (windowed ? windowed_ : leaves_).erase(windowed ? node->window_key() : node->leaf_key());
  node->aside[windowed] = true;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (!CountsIn(windowed, g) || node->pages[g] == kNoPage) continue;
    options_.groups[g].pool->Watch(node->pages[g]);
    aside_[g].emplace(node->pages[g], node);
  }
}

void PrefixIndex::PutBack(Node* node, bool windowed) {
  if (!std::exchange(node->aside[windowed], false)) return;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (!CountsIn(windowed, g) || node->pages[g] == kNoPage) continue;
    const auto [begin, end] = aside_[g].equal_range(node->pages[g]);
    aside_[g].erase(
        std::find_if(begin, end, [node](const auto& entry) { return entry.second == node; }));
  }
  (windowed ? windowed_ : leaves_).emplace(windowed ? node->window_key() : node->leaf_key(), node);
}

void PrefixIndex::PutReleasedBack() {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    for (const PageId page : options_.groups[g].pool->TakeReleased()) {
      for (auto it = aside_[g].find(page); it != aside_[g].end(); it = aside_[g].find(page)) {
        PutBack(it->second, options_.groups[g].window > 0);
      }
    }
  }
}

bool PrefixIndex::EvictingHelps(const Node* node, const EvictionWish& wish,
                                const EvictionWish& freed) const {
  for (size_t g = 0; g < node->pages.size(); ++g) {
    const auto& group = options_.groups[g];
    if (group.window == 0 && freed.pages[g] < wish.pages[g] && IsLone(g, node->pages[g])) {
      return true;
    }
  }
  return false;
}

void PrefixIndex::EvictLeaves(const EvictionWish& wish, EvictionWish* freed) {
  const auto fulfilled = [&] {
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      if (options_.groups[g].window == 0 && freed->pages[g] < wish.pages[g]) return false;
    }
    return true;
  };
  for (auto it = leaves_.begin(); it != leaves_.end() && !fulfilled();) {
    const LruKey key = it->first;
    Node* node = it->second;
    ++eviction_visits_;
    if (!EvictingHelps(node, wish, *freed)) {
      ++it;
      if (MayBeSetAside(node, /*windowed=*/false)) SetAside(node, /*windowed=*/false);
      continue;
    }
    // Without its child's checkpoint a node may be useless.
    const Node* parent = PruneDeadLeaf(RemoveLeaf(node, freed), freed);
    it = leaves_.upper_bound(key);
    // A parent that became a leaf was used no earlier than its child but has a smaller serial
    // number, so it may sort before the next one.
    if (parent != nullptr && parent->is_leaf() && parent->leaf_key() < key) {
      it = leaves_.find(parent->leaf_key());
    }
  }
}

void PrefixIndex::EvictWindowed(const EvictionWish& wish, EvictionWish* freed) {
  const auto wants = [&](size_t g) {
    return options_.groups[g].window > 0 && freed->pages[g] < wish.pages[g];
  };
  for (auto it = windowed_.begin(); it != windowed_.end();) {
    const LruKey key = it->first;
    Node* node = it->second;
    ++eviction_visits_;
    bool dropped = false;
    bool wanting = false;
    for (size_t g = 0; g < node->pages.size(); ++g) {
      if (!wants(g)) continue;
      wanting = true;
      const PageId page = node->pages[g];
      if (page == kNoPage || !IsLone(g, page)) continue;
      DropPage(node, g, freed);
      dropped = true;
    }
    if (!wanting) return;
    if (dropped) {
      PruneDeadLeaf(node, freed);
    } else if (MayBeSetAside(node, /*windowed=*/true)) {
      SetAside(node, /*windowed=*/true);
    }
    it = windowed_.upper_bound(key);
  }
}

void PrefixIndex::EvictCheckpoints(const EvictionWish& wish, EvictionWish* freed) {
  for (auto it = checkpointed_.begin(); it != checkpointed_.end() && freed->slots < wish.slots;) {
    const LruKey key = it->first;
    Node* node = it->second;
    if (options_.slots->use_count(node->slot) == 1) EvictCheckpoint(node, freed);
    it = checkpointed_.upper_bound(key);
  }
}

void PrefixIndex::EvictCheckpoint(Node* node, EvictionWish* freed) {
  DropCheckpoint(node, freed);
  ++evicted_checkpoints_;
  PruneDeadLeaf(node, freed);
}

void PrefixIndex::LimitCheckpoints(int64_t most) {
  if (static_cast<int64_t>(checkpointed_.size()) > most) UseClaimed();
  EvictionWish freed{std::vector<int64_t>(options_.groups.size())};
  for (auto it = checkpointed_.begin();
       it != checkpointed_.end() && static_cast<int64_t>(checkpointed_.size()) > most;) {
    const LruKey key = it->first;
    EvictCheckpoint(it->second, &freed);
    it = checkpointed_.upper_bound(key);
  }
}

void PrefixIndex::ForgetCheckpoint(std::string_view domain, std::span<const TokenId> tokens) {
  Node* const end = FindEnd(domain, tokens);
  if (end == nullptr) return;
  EvictionWish freed{std::vector<int64_t>(options_.groups.size())};
  DropCheckpoint(end, &freed);
  PruneDeadLeaf(end, &freed);
}

void PrefixIndex::GiveBackTail(std::string_view domain, std::span<const TokenId> tokens,
                               std::span<PageTable* const> tables, bool at_any_price) {
  const int64_t n_whole = std::ssize(tokens) / options_.page_tokens;
  const auto rest = tokens.subspan(static_cast<size_t>(n_whole * options_.page_tokens));
  const std::vector<Node*> path = KnownPath(domain, tokens, std::ssize(tokens));
  Node* const parent = path.empty() ? FindRoot(domain) : path.back();
  if (parent == nullptr || parent->depth != n_whole || rest.empty()) return;
  const auto is_tail = [&](const Node* node) {
    for (size_t g = 0; g < tables.size(); ++g) {
      const PageId last = tables[g]->pages().back();
      if (last != kNoPage && node->pages[g] == last) return node->is_leaf();
    }
    return false;
  };
  std::vector<Node*> tails;
  const auto same = parent->children.find(rest);
  if (same != parent->children.end() && is_tail(*same)) tails.push_back(*same);
  if (!at_any_price) {
    std::erase_if(tails, [](const Node* node) { return node->slot != kNoSlot; });
  } else {
    ForEachLonger(parent, rest, [&](Node* node) {
      if (is_tail(node)) tails.push_back(node);
      return false;
    });
  }
  EvictionWish freed{std::vector<int64_t>(options_.groups.size())};
  for (Node* const tail : tails) {
    PruneDeadLeaf(RemoveLeaf(tail, &freed), &freed);
    --evicted_nodes_;  // not an eviction: it comes back with more
  }
}

EvictionWish PrefixIndex::EvictLru(const EvictionWish& wish) {
  WEFT_CHECK(wish.pages.size() == options_.groups.size(), "a wish names every group");
  PutReleasedBack();
  UseClaimed();
  EvictionWish freed;
  freed.pages.resize(options_.groups.size());
  EvictLeaves(wish, &freed);
  EvictWindowed(wish, &freed);
  if (options_.slots != nullptr) EvictCheckpoints(wish, &freed);
  return freed;
}

void PrefixIndex::EvictRows(FunctionRef<bool()> enough) {
  PutReleasedBack();
  UseClaimed();
  EvictionWish freed;
  freed.pages.resize(options_.groups.size());
  for (auto it = leaves_.begin(); it != leaves_.end() && !enough();) {
    const LruKey key = it->first;
    Node* node = it->second;
    while (node != nullptr && node->is_leaf() && node->behind_rows) node = RemoveLeaf(node, &freed);
    PruneDeadLeaf(node, &freed);
    it = leaves_.upper_bound(key);
  }
}

int64_t PrefixIndex::Clear() {
  std::vector<Node*> leaves;
  for (const auto& [serial, node] : nodes_) {
    if (node->is_leaf()) leaves.push_back(node.get());
  }
  EvictionWish freed;
  freed.pages.resize(options_.groups.size());
  int64_t removed = 0;
  for (Node* node : leaves) {
    while (node != nullptr && node->is_leaf()) {
      node = RemoveLeaf(node, &freed);
      ++removed;
    }
  }
  return removed;
}

// --- accounting ---------------------------------------------------------------------

PrefixIndexStats PrefixIndex::Stats() const {
  PrefixIndexStats stats;
  stats.domains = static_cast<int64_t>(roots_.size());
  stats.nodes = static_cast<int64_t>(nodes_.size());
  stats.checkpoints = static_cast<int64_t>(checkpointed_.size());
  for (const auto& [key, node] : checkpointed_) {
    if (options_.slots->use_count(node->slot) == 1) ++stats.lone_checkpoints;
  }
  for (const auto& [domain, family] : families_) {
    stats.claims += std::ssize(family->marks) + std::ssize(family->turns);
  }
  stats.pages = n_pages_;
  // A node, its two arrays, and its entries in the hash table, its parent and one order.
  const size_t node_bytes = sizeof(Node) + 5 * 16 + 48 +
                            sizeof(TokenId) * static_cast<size_t>(options_.page_tokens) +
                            sizeof(PageId) * options_.groups.size() + 2 * 64;
  stats.memory_bytes = static_cast<int64_t>(node_bytes * (nodes_.size() + roots_.size()));
  stats.compared_tokens = compared_tokens_;
  stats.eviction_visits = eviction_visits_;
  stats.evicted_nodes = evicted_nodes_;
  stats.evicted_pages = evicted_pages_;
  stats.evicted_checkpoints = evicted_checkpoints_;
  return stats;
}

void PrefixIndex::AddPageCounts(int group, std::vector<int32_t>* counts) const {
  for (const auto& [serial, node] : nodes_) {
    const PageId page = node->pages[static_cast<size_t>(group)];
    if (page != kNoPage) AddCount(counts, page);
  }
}

void PrefixIndex::AddSlotCounts(std::vector<int32_t>* counts) const {
  for (const auto& [serial, node] : nodes_) {
    if (node->slot != kNoSlot) AddCount(counts, node->slot);
  }
}

// A node set aside can be found through each of its pages, once another owner lets go of one.
Status PrefixIndex::CheckAside(const Node* node) const {
  for (size_t g = 0; g < node->pages.size(); ++g) {
    const PageId page = node->pages[g];
    const bool counts = page != kNoPage && node->aside[options_.groups[g].window > 0];
    const auto [begin, end] = aside_[g].equal_range(page);
    const auto n = std::count_if(begin, end, [node](const auto& e) { return e.second == node; });
    if (n != (counts ? 1 : 0) ||
        (counts && options_.groups[g].pool->is_watched(page) && IsLone(g, page))) {
      return Internal("prefix index node ", node->serial, " is set aside and should not be");
    }
  }
  return OkStatus();
}

Status PrefixIndex::CheckNode(const Node* node) const {
  const auto wrong = [node](std::string_view what) {
    return Internal("prefix index node ", node->serial, " at depth ", node->depth, ": ", what);
  };
  const auto in = [node](const LruOrder& order, const LruKey& key) {
    const auto found = order.find(key);
    return found != order.end() && found->second == node;
  };
  if (node->parent == nullptr || node->depth != node->parent->depth + 1 ||
      node->root != node->parent->root || node->serial <= node->parent->serial) {
    return wrong("does not fit its parent");
  }
  const int64_t n_tokens = std::ssize(node->tokens);
  if (n_tokens < 1 || n_tokens > options_.page_tokens) return wrong("does not fit a page");
  if (n_tokens < options_.page_tokens && !node->is_leaf()) return wrong("goes on after a gap");
  const auto place = node->parent->children.find(const_cast<Node*>(node));
  if (place == node->parent->children.end() || *place != node) return wrong("not in its place");
  const bool all_needed = options_.slots == nullptr && max_window_ == 0;
  if (const auto next = std::next(place); all_needed && next != node->parent->children.end() &&
                                          Common(*next, node->tokens) == n_tokens) {
    return wrong("another one has it and more");
  }
  if (!node->parent->is_root() && node->used > node->parent->used) {
    return wrong("used later than its parent");
  }
  if (in(leaves_, node->leaf_key()) != (node->is_leaf() && !node->aside[false])) {
    return wrong("leaf order");
  }
  WEFT_RETURN_IF_ERROR(CheckAside(node));
  bool windowed = false;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    const auto& group = options_.groups[g];
    const PageId page = node->pages[g];
    if (page == kNoPage && group.window == 0) return wrong("a page is missing");
    if (page != kNoPage && (page >= group.pool->extent() || group.pool->use_count(page) < 1)) {
      return wrong("a page is free");
    }
    windowed = windowed || (page != kNoPage && group.window > 0);
  }
  if (in(windowed_, node->window_key()) != (windowed && !node->aside[true])) {
    return wrong("window order");
  }
  const bool has_slot = node->slot != kNoSlot;
  if (in(checkpointed_, node->slot_key()) != has_slot) return wrong("checkpoint order");
  if (has_slot && options_.slots->use_count(node->slot) < 1) return wrong("its slot is free");
  return OkStatus();
}

Status PrefixIndex::CheckTotals() const {
  std::unordered_map<const Node*, size_t> children;
  std::vector<std::vector<int32_t>> holders(options_.groups.size());
  size_t leaves = 0, windowed = 0, checkpoints = 0;
  for (const auto& [serial, node] : nodes_) {
    ++children[node->parent];
    leaves += node->is_leaf() && !node->aside[false] ? 1 : 0;
    checkpoints += node->slot != kNoSlot ? 1 : 0;
    bool has_windowed = false;
    for (size_t g = 0; g < holders.size(); ++g) {
      const bool present = node->pages[g] != kNoPage;
      if (present) AddCount(&holders[g], node->pages[g]);
      has_windowed = has_windowed || (present && options_.groups[g].window > 0);
    }
    windowed += has_windowed && !node->aside[true] ? 1 : 0;
  }
  for (const auto& [serial, node] : nodes_) {
    if (node->children.size() != children[node.get()]) {
      return Internal("prefix index node ", node->serial, " miscounts its children");
    }
  }
  for (const auto& [domain, root] : roots_) {
    if (root->is_leaf() || root->children.size() != children[root.get()]) {
      return Internal("a root of the prefix index miscounts its children");
    }
  }
  for (size_t g = 0; g < holders.size(); ++g) {
    holders[g].resize(holders_[g].size());
    const int64_t held = std::ssize(holders[g]) - std::ranges::count(holders[g], 0);
    if (holders[g] != holders_[g] || held != n_pages_[g]) {
      return Internal("the prefix index miscounts its pages of group ", g);
    }
  }
  if (leaves != leaves_.size() || windowed != windowed_.size() ||
      checkpoints != checkpointed_.size()) {
    return Internal("the totals of the prefix index do not add up");
  }
  return OkStatus();
}

Status PrefixIndex::CheckIntegrity() const {
  for (const auto& [serial, node] : nodes_) WEFT_RETURN_IF_ERROR(CheckNode(node.get()));
  WEFT_RETURN_IF_ERROR(CheckClaims());
  return CheckTotals();
}

}  // namespace weft
