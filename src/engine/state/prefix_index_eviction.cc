// Eviction from a PrefixIndex, and its integrity checks.
#include <algorithm>
#include <array>
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
    ++since_start_.evicted_pages;
  }
  if (options_.groups[group].window == 0) return;
  NoteChange(node, /*below=*/true);
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (options_.groups[g].window > 0 && node->pages[g] != kNoPage) return;
  }
  Leave(node, kWindows);
}

void PrefixIndex::DropCheckpoint(Node* node, EvictionWish* freed) {
  if (node->slot == kNoSlot) return;
  Leave(node, kCheckpoints);
  if (options_.slots->Unref(std::exchange(node->slot, kNoSlot))) ++freed->slots;
  NoteChange(node);
}

PrefixIndex::Node* PrefixIndex::RemoveLeaf(Node* node, EvictionWish* freed) {
  WEFT_CHECK(node->is_leaf() && !node->is_root(), "a loose leaf");
  NoteRemoval(node);
  for (const Order order : {kLeaves, kWindows}) PutBack(node, order);
  for (size_t g = 0; g < node->pages.size(); ++g) DropPage(node, g, freed);
  if (node->slot != kNoSlot) ++since_start_.evicted_checkpoints;
  DropCheckpoint(node, freed);
  Leave(node, kLeaves);
  Node* parent = node->parent;
  if (!claims_at_.empty()) MoveClaims(node, parent);
  parent->children.Erase(node);
  nodes_.erase(node->serial);
  ++since_start_.evicted_nodes;
  if (!parent->is_leaf()) return parent->is_root() ? nullptr : parent;
  if (parent->is_root()) {
    roots_.erase(roots_.find(*parent->domain));
    return nullptr;
  }
  Enter(parent, kLeaves);
  return parent;
}

PrefixIndex::Node* PrefixIndex::PruneDeadLeaf(Node* node, EvictionWish* freed) {
  while (node != nullptr && node->is_leaf() && (HoldsNothing(node) || !IsResumePoint(node))) {
    node = RemoveLeaf(node, freed);
  }
  return node;
}

bool PrefixIndex::IsLone(size_t group, PageId page) const {
  const PagePool& pool = *options_.groups[group].pool;
  return pool.use_count(page) == pool.cached_count(page);
}

bool PrefixIndex::MayBeSetAside(const Node* node, Order order) const {
  bool held = false;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (OrderOf(g) != order || node->pages[g] == kNoPage) continue;
    if (IsLone(g, node->pages[g])) return false;
    held = true;
  }
  return held;
}

void PrefixIndex::SetAside(Node* node, Order order) {
  Leave(node, order);
  node->standing[order] = Standing::kAside;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (OrderOf(g) != order || node->pages[g] == kNoPage) continue;
    options_.groups[g].pool->Watch(node->pages[g]);
    aside_[g].emplace(node->pages[g], node);
  }
}

void PrefixIndex::PutBack(Node* node, Order order) {
  if (node->standing[order] != Standing::kAside) return;
  for (size_t g = 0; g < node->pages.size(); ++g) {
    if (OrderOf(g) != order || node->pages[g] == kNoPage) continue;
    const auto [begin, end] = aside_[g].equal_range(node->pages[g]);
    aside_[g].erase(
        std::find_if(begin, end, [node](const auto& entry) { return entry.second == node; }));
  }
  Enter(node, order);
}

void PrefixIndex::PutReleasedBack() {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    for (const PageId page : options_.groups[g].pool->TakeReleased()) {
      for (auto it = aside_[g].find(page); it != aside_[g].end(); it = aside_[g].find(page)) {
        PutBack(it->second, OrderOf(g));
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

void PrefixIndex::ForEachOldest(Order order, FunctionRef<bool(Node*)> visit) {
  LruOrder& nodes = orders_[order];
  for (auto it = nodes.begin(); it != nodes.end();) {
    const LruKey key = it->first;
    if (!visit(it->second)) return;
    it = nodes.upper_bound(key);
  }
}

void PrefixIndex::EvictLeaves(const EvictionWish& wish, EvictionWish* freed) {
  const auto fulfilled = [&] {
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      if (options_.groups[g].window == 0 && freed->pages[g] < wish.pages[g]) return false;
    }
    return true;
  };
  LruOrder& leaves = orders_[kLeaves];
  for (auto it = leaves.begin(); it != leaves.end() && !fulfilled();) {
    const LruKey key = it->first;
    Node* node = it->second;
    ++since_start_.eviction_visits;
    if (!EvictingHelps(node, wish, *freed)) {
      ++it;
      if (MayBeSetAside(node, kLeaves)) SetAside(node, kLeaves);
      continue;
    }
    // Without its child's checkpoint a node may be useless.
    const Node* parent = PruneDeadLeaf(RemoveLeaf(node, freed), freed);
    it = leaves.upper_bound(key);
    // A parent that became a leaf was used no earlier than its child but has a smaller serial
    // number, so it may sort before the next one.
    if (parent != nullptr && parent->is_leaf() && parent->key(kLeaves) < key) {
      it = leaves.find(parent->key(kLeaves));
    }
  }
}

void PrefixIndex::EvictWindowed(const EvictionWish& wish, EvictionWish* freed) {
  const auto wants = [&](size_t g) {
    return options_.groups[g].window > 0 && freed->pages[g] < wish.pages[g];
  };
  ForEachOldest(kWindows, [&](Node* node) {
    ++since_start_.eviction_visits;
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
    if (dropped) {
      PruneDeadLeaf(node, freed);
    } else if (wanting && MayBeSetAside(node, kWindows)) {
      SetAside(node, kWindows);
    }
    return wanting;
  });
}

void PrefixIndex::EvictCheckpoints(const EvictionWish& wish, EvictionWish* freed) {
  ForEachOldest(kCheckpoints, [&](Node* node) {
    if (freed->slots >= wish.slots) return false;
    if (options_.slots->use_count(node->slot) == 1) EvictCheckpoint(node, freed);
    return true;
  });
}

void PrefixIndex::EvictCheckpoint(Node* node, EvictionWish* freed) {
  DropCheckpoint(node, freed);
  ++since_start_.evicted_checkpoints;
  PruneDeadLeaf(node, freed);
}

void PrefixIndex::LimitCheckpoints(int64_t most) {
  const auto too_many = [&] { return std::ssize(orders_[kCheckpoints]) > most; };
  if (!too_many()) return;
  UseClaimed();
  EvictionWish freed{std::vector<int64_t>(options_.groups.size())};
  ForEachOldest(kCheckpoints, [&](Node* node) {
    if (too_many()) EvictCheckpoint(node, &freed);
    return too_many();
  });
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
  Node* const parent = LastWhole(domain, tokens);
  if (parent == nullptr) return;
  const auto rest = tokens.subspan(static_cast<size_t>(parent->end(options_.page_tokens)));
  if (rest.empty()) return;
  const auto is_tail = [&](const Node* node) {
    for (size_t g = 0; g < tables.size(); ++g) {
      const PageId last = tables[g]->pages().back();
      if (last != kNoPage && node->pages[g] == last) return node->is_leaf();
    }
    return false;
  };
  std::vector<Node*> tails;
  parent->children.ForEachLonger(rest, [&](Node* node) {
    const bool loses = node->tokens.size() > rest.size() || node->slot != kNoSlot;
    if (is_tail(node) && (at_any_price || !loses)) tails.push_back(node);
    return !at_any_price;
  });
  EvictionWish freed{std::vector<int64_t>(options_.groups.size())};
  for (Node* const tail : tails) {
    PruneDeadLeaf(RemoveLeaf(tail, &freed), &freed);
    --since_start_.evicted_nodes;  // not an eviction: it comes back with more
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
  ForEachOldest(kLeaves, [&](Node* node) {
    if (enough()) return false;
    while (node != nullptr && node->is_leaf() && node->behind_rows) node = RemoveLeaf(node, &freed);
    PruneDeadLeaf(node, &freed);
    return true;
  });
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
  PrefixIndexStats stats = since_start_;
  stats.domains = static_cast<int64_t>(roots_.size());
  stats.nodes = static_cast<int64_t>(nodes_.size());
  stats.checkpoints = std::ssize(orders_[kCheckpoints]);
  for (const auto& [key, node] : orders_[kCheckpoints]) {
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
    const bool counts = page != kNoPage && node->standing[OrderOf(g)] == Standing::kAside;
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
  if (node->parent == nullptr || node->depth != node->parent->depth + 1 ||
      node->root != node->parent->root || node->serial <= node->parent->serial) {
    return wrong("does not fit its parent");
  }
  const int64_t n_tokens = std::ssize(node->tokens);
  if (n_tokens < 1 || n_tokens > options_.page_tokens) return wrong("does not fit a page");
  if (n_tokens < options_.page_tokens && !node->is_leaf()) return wrong("goes on after a gap");
  if (node->parent->children.Find(node->tokens) != node) return wrong("not in its place");
  const bool all_needed = options_.slots == nullptr && max_window_ == 0;
  bool has_longer = false;
  node->parent->children.ForEachLonger(node->tokens, [&](const Node* longer) {
    has_longer = has_longer || longer != node;
    return has_longer;
  });
  if (all_needed && has_longer) return wrong("another one has it and more");
  if (!node->parent->is_root() && node->used[kLeaves] > node->parent->used[kLeaves]) {
    return wrong("used later than its parent");
  }
  WEFT_RETURN_IF_ERROR(CheckAside(node));
  WEFT_RETURN_IF_ERROR(CheckWatched(node));
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
  const bool has_slot = node->slot != kNoSlot;
  if (has_slot && options_.slots->use_count(node->slot) < 1) return wrong("its slot is free");
  const std::array<bool, kOrders> belongs = {node->is_leaf(), windowed, has_slot};
  for (const Order order : {kLeaves, kWindows, kCheckpoints}) {
    const auto found = orders_[order].find(node->key(order));
    const bool is_there = found != orders_[order].end() && found->second == node;
    if ((node->standing[order] != Standing::kOutside) != belongs[order] ||
        (node->standing[order] == Standing::kInOrder) != is_there) {
      return wrong("not in its place in an order of eviction");
    }
  }
  return OkStatus();
}

Status PrefixIndex::CheckTotals() const {
  std::unordered_map<const Node*, size_t> children;
  std::vector<std::vector<int32_t>> holders(options_.groups.size());
  std::array<size_t, kOrders> ordered{};
  for (const auto& [serial, node] : nodes_) {
    ++children[node->parent];
    for (size_t order = 0; order < kOrders; ++order) {
      ordered[order] += node->standing[order] == Standing::kInOrder ? 1 : 0;
    }
    for (size_t g = 0; g < holders.size(); ++g) {
      if (node->pages[g] != kNoPage) AddCount(&holders[g], node->pages[g]);
    }
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
    const PagePool& pool = *options_.groups[g].pool;
    holders[g].resize(static_cast<size_t>(pool.extent()));
    const int64_t held = std::ssize(holders[g]) - std::ranges::count(holders[g], 0);
    bool same = held == n_pages_[g];
    for (PageId page = 0; page < pool.extent(); ++page) {
      same = same && holders[g][static_cast<size_t>(page)] == pool.cached_count(page);
    }
    if (!same) {
      return Internal("the prefix index miscounts its pages of group ", g);
    }
  }
  for (size_t order = 0; order < kOrders; ++order) {
    if (ordered[order] != orders_[order].size()) {
      return Internal("the totals of the prefix index do not add up");
    }
  }
  return OkStatus();
}

Status PrefixIndex::CheckIntegrity() const {
  for (const auto& [serial, node] : nodes_) WEFT_RETURN_IF_ERROR(CheckNode(node.get()));
  WEFT_RETURN_IF_ERROR(CheckClaims());
  return CheckTotals();
}

}  // namespace weft
