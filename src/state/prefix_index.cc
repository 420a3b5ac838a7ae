#include "state/prefix_index.h"

#include <algorithm>

#include "base/check.h"
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

namespace {

uint64_t HashPage(uint64_t parent_serial, std::span<const TokenId> page) {
  return XXH3_64bits_withSeed(page.data(), page.size_bytes(), parent_serial);
}

}  // namespace

PrefixIndex::PrefixIndex(PrefixIndexOptions options) : options_(std::move(options)) {
  WEFT_CHECK(options_.page_tokens > 0, "pages hold tokens");
  for (const auto& group : options_.groups) {
    WEFT_CHECK(group.pool != nullptr && group.window >= 0, "a group has a pool");
    const int64_t seen =
        group.window > 0 ? (group.window - 1 + options_.page_tokens - 1) / options_.page_tokens : 0;
    seen_pages_.push_back(seen);
    max_seen_pages_ = std::max(max_seen_pages_, seen);
  }
  n_pages_.resize(options_.groups.size());
}

PrefixIndex::~PrefixIndex() {
  for (const auto& [hash, node] : nodes_) {
    for (size_t g = 0; g < node->pages.size(); ++g) {
      if (node->pages[g] != kNoPage) options_.groups[g].pool->Unref(node->pages[g]);
    }
    if (node->slot != kNoSlot) options_.slots->Unref(node->slot);
  }
}

// --- finding ------------------------------------------------------------------------

PrefixIndex::Node* PrefixIndex::FindRoot(std::string_view domain) const {
  const auto found = roots_.find(std::string(TreeName(domain)));
  return found != roots_.end() ? found->second.get() : nullptr;
}

PrefixIndex::Node* PrefixIndex::FindChild(const Node* parent, std::span<const TokenId> page,
                                          uint64_t hash) const {
  const auto [begin, end] = nodes_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    Node* node = it->second.get();
    if (node->parent == parent && std::ranges::equal(node->tokens, page)) return node;
  }
  return nullptr;
}

std::vector<PrefixIndex::Node*> PrefixIndex::FindPath(std::string_view domain,
                                                      std::span<const TokenId> tokens,
                                                      int64_t max_tokens) const {
  std::vector<Node*> path;
  Node* node = FindRoot(domain);
  if (node == nullptr) return path;
  const size_t page_tokens = static_cast<size_t>(options_.page_tokens);
  const size_t limit =
      std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(max_tokens, 0)));
  size_t deepest = 0;  // length of the path to the deepest resume point so far
  // Per group, how many pages in a row are present up to the current node.
  std::vector<int64_t> run(options_.groups.size(), 0);
  for (size_t at = 0; at + page_tokens <= limit; at += page_tokens) {
    const auto page = tokens.subspan(at, page_tokens);
    node = FindChild(node, page, HashPage(node->serial, page));
    if (node == nullptr) break;
    path.push_back(node);
    bool resumable = options_.slots == nullptr || node->slot != kNoSlot;
    for (size_t g = 0; g < run.size(); ++g) {
      run[g] = node->pages[g] != kNoPage ? run[g] + 1 : 0;
      resumable = resumable && run[g] >= std::min(node->depth, seen_pages_[g]);
    }
    if (resumable) deepest = path.size();
  }
  path.resize(deepest);
  return path;
}

bool PrefixIndex::IsResumePoint(const Node* node) const {
  if (options_.slots != nullptr && node->slot == kNoSlot) return false;
  for (size_t g = 0; g < seen_pages_.size(); ++g) {
    const Node* seen = node;
    for (int64_t i = 0; i < seen_pages_[g] && !seen->is_root(); ++i, seen = seen->parent) {
      if (seen->pages[g] == kNoPage) return false;
    }
  }
  return true;
}

bool PrefixIndex::HoldsNothing(const Node* node) {
  return node->slot == kNoSlot &&
         std::ranges::all_of(node->pages, [](PageId page) { return page == kNoPage; });
}

PrefixMatch PrefixIndex::Match(std::string_view domain, std::span<const TokenId> tokens,
                               int64_t max_tokens) {
  const std::vector<Node*> path = FindPath(domain, tokens, max_tokens);
  Use(path);
  PrefixMatch match;
  match.n_tokens = static_cast<int64_t>(path.size()) * options_.page_tokens;
  std::vector<PageId> pages(path.size());
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const GroupShape shape{options_.page_tokens, options_.groups[g].window};
    const size_t first =
        shape.window > 0 ? path.size() - std::min(path.size(), static_cast<size_t>(seen_pages_[g]))
                         : 0;
    for (size_t i = 0; i < path.size(); ++i) pages[i] = i < first ? kNoPage : path[i]->pages[g];
    match.tables.push_back(PageTable::OfPages(options_.groups[g].pool, shape, pages));
  }
  if (options_.slots != nullptr && !path.empty()) {
    match.checkpoint = PoolRef::Share(options_.slots, path.back()->slot);
  }
  return match;
}

int64_t PrefixIndex::MatchLength(std::string_view domain, std::span<const TokenId> tokens,
                                 int64_t max_tokens) const {
  return static_cast<int64_t>(FindPath(domain, tokens, max_tokens).size()) * options_.page_tokens;
}

// --- adding -------------------------------------------------------------------------

PrefixIndex::Node* PrefixIndex::MakeRoot(std::string_view domain) {
  const auto [place, added] = roots_.try_emplace(std::string(TreeName(domain)));
  if (added) {
    place->second = std::make_unique<Node>();
    Node* root = place->second.get();
    root->root = root;
    root->domain = &place->first;
    root->serial = next_serial_++;
  }
  return place->second.get();
}

PrefixIndex::Node* PrefixIndex::AddChild(Node* parent, std::span<const TokenId> page,
                                         uint64_t hash) {
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->parent = parent;
  node->root = parent->root;
  node->serial = next_serial_++;
  node->hash = hash;
  node->depth = parent->depth + 1;
  node->tokens.assign(page.begin(), page.end());
  node->pages.assign(options_.groups.size(), kNoPage);
  node->used = node->window_used = clock_;
  nodes_.emplace(hash, std::move(owned));
  if (!parent->is_root() && parent->n_children == 0) leaves_.erase(parent->leaf_key());
  ++parent->n_children;
  leaves_.emplace(node->leaf_key(), node);
  return node;
}

int64_t PrefixIndex::TakePages(Node* node, std::span<PageTable* const> tables, int64_t entry,
                               bool adopt) {
  int64_t adopted = 0;
  for (size_t g = 0; g < tables.size(); ++g) {
    const PageId theirs = tables[g]->pages()[static_cast<size_t>(entry)];
    PageId& ours = node->pages[g];
    if (theirs == kNoPage || theirs == ours) continue;
    if (ours == kNoPage) {
      options_.groups[g].pool->Ref(theirs);
      ours = theirs;
      ++n_pages_[g];
      if (options_.groups[g].window > 0) windowed_.try_emplace(node->window_key(), node);
    } else if (adopt) {
      tables[g]->ReplacePage(entry, ours);
      ++adopted;
    }
  }
  return adopted;
}

void PrefixIndex::TakeCheckpoint(Node* node, SlotId slot) {
  options_.slots->Ref(slot);
  node->slot = slot;
  node->slot_used = clock_;
  checkpointed_.emplace(node->slot_key(), node);
}

PrefixInsert PrefixIndex::Insert(std::string_view domain, std::span<const TokenId> tokens,
                                 int64_t n_tokens, std::span<PageTable* const> tables, bool adopt,
                                 SlotId checkpoint) {
  WEFT_CHECK(n_tokens >= 0 && static_cast<size_t>(n_tokens) <= tokens.size(),
             "the tokens of the pages are given");
  WEFT_CHECK(tables.size() == options_.groups.size(), "one table per group");
  for (size_t g = 0; g < tables.size(); ++g) {
    WEFT_CHECK(tables[g]->n_tokens() >= n_tokens, "a table holds the tokens");
    WEFT_CHECK(options_.groups[g].window > 0 || tables[g]->first_present() == 0,
               "a table without window is complete");
  }
  int64_t n_pages = n_tokens / options_.page_tokens;
  WEFT_CHECK(checkpoint == kNoSlot || (options_.slots != nullptr && n_tokens > 0 &&
                                       n_tokens % options_.page_tokens == 0),
             "a checkpoint lies at the end of a page");
  // Nodes that would hold nothing, and have none below that do, are of no use.
  const auto absent = [&](const PageTable* table) { return table->first_present() >= n_pages; };
  while (n_pages > 0 && checkpoint == kNoSlot && std::ranges::all_of(tables, absent)) --n_pages;
  PrefixInsert result;
  if (n_pages == 0) return result;

  ++clock_;
  std::vector<Node*> path;
  Node* node = MakeRoot(domain);
  for (int64_t entry = 0; entry < n_pages; ++entry) {
    const auto page = tokens.subspan(static_cast<size_t>(entry * options_.page_tokens),
                                     static_cast<size_t>(options_.page_tokens));
    const uint64_t hash = HashPage(node->serial, page);
    Node* child = FindChild(node, page, hash);
    if (child == nullptr) {
      child = AddChild(node, page, hash);
      ++result.new_nodes;
    }
    result.adopted_pages += TakePages(child, tables, entry, adopt);
    path.push_back(node = child);
  }
  if (checkpoint != kNoSlot && node->slot == kNoSlot) {
    TakeCheckpoint(node, checkpoint);
    result.checkpoint_kept = true;
  }
  Use(path);
  return result;
}

void PrefixIndex::SetUsed(Node* node) {
  if (node->n_children > 0) {
    node->used = clock_;
    return;
  }
  leaves_.erase(node->leaf_key());
  node->used = clock_;
  leaves_.emplace(node->leaf_key(), node);
}

void PrefixIndex::SetWindowUsed(Node* node) {
  const bool ordered = windowed_.erase(node->window_key()) > 0;
  node->window_used = clock_;
  if (ordered) windowed_.emplace(node->window_key(), node);
}

void PrefixIndex::Use(std::span<Node* const> path) {
  if (path.empty()) return;
  ++clock_;
  for (Node* node : path) SetUsed(node);
  const size_t seen = std::min(path.size(), static_cast<size_t>(max_seen_pages_));
  for (Node* node : path.last(seen)) SetWindowUsed(node);
  if (Node* end = path.back(); end->slot != kNoSlot) {
    checkpointed_.erase(end->slot_key());
    end->slot_used = clock_;
    checkpointed_.emplace(end->slot_key(), end);
  }
}

// --- pinning ------------------------------------------------------------------------

PrefixIndex::Pinned PrefixIndex::Pin(std::string_view domain, std::span<const TokenId> tokens) {
  const std::vector<Node*> path = FindPath(domain, tokens, static_cast<int64_t>(tokens.size()));
  if (path.empty()) return {};
  for (Node* node : path) ++node->pins;
  const uint64_t id = next_pin_++;
  pins_.emplace(id, path.back());
  return {id, static_cast<int64_t>(path.size()) * options_.page_tokens};
}

Status PrefixIndex::Unpin(uint64_t id) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return NotFound("no prefix is pinned under the number ", id);
  Node* end = found->second;
  for (Node* node = end; !node->is_root(); node = node->parent) --node->pins;
  pins_.erase(found);
  // What lay behind it may have gone meanwhile.
  EvictionWish freed{std::vector<int64_t>(options_.groups.size())};
  PruneDeadLeaf(end, &freed);
  return OkStatus();
}

// --- evicting -----------------------------------------------------------------------

void PrefixIndex::DropPage(Node* node, size_t group, EvictionWish* freed) {
  const PageId page = std::exchange(node->pages[group], kNoPage);
  if (page == kNoPage) return;
  if (options_.groups[group].pool->Unref(page)) {
    ++freed->pages[group];
    ++evicted_pages_;
  }
  --n_pages_[group];
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
  ++evicted_checkpoints_;
}

PrefixIndex::Node* PrefixIndex::RemoveLeaf(Node* node, EvictionWish* freed) {
  WEFT_CHECK(node->n_children == 0 && node->pins == 0 && !node->is_root(), "a loose leaf");
  for (size_t g = 0; g < node->pages.size(); ++g) DropPage(node, g, freed);
  DropCheckpoint(node, freed);
  leaves_.erase(node->leaf_key());
  Node* parent = node->parent;
  const auto [begin, end] = nodes_.equal_range(node->hash);
  nodes_.erase(std::find_if(begin, end, [node](const auto& e) { return e.second.get() == node; }));
  ++evicted_nodes_;
  if (--parent->n_children > 0) return parent->is_root() ? nullptr : parent;
  if (parent->is_root()) {
    roots_.erase(roots_.find(*parent->domain));
    return nullptr;
  }
  leaves_.emplace(parent->leaf_key(), parent);
  return parent;
}

void PrefixIndex::PruneDeadLeaf(Node* node, EvictionWish* freed) {
  while (node != nullptr && node->n_children == 0 && node->pins == 0 &&
         (HoldsNothing(node) || !IsResumePoint(node))) {
    node = RemoveLeaf(node, freed);
  }
}

bool PrefixIndex::EvictingHelps(const Node* node, const EvictionWish& wish,
                                const EvictionWish& freed) const {
  for (size_t g = 0; g < node->pages.size(); ++g) {
    const auto& group = options_.groups[g];
    if (group.window == 0 && freed.pages[g] < wish.pages[g] &&
        group.pool->use_count(node->pages[g]) == 1) {
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
    if (node->pins > 0 || !EvictingHelps(node, wish, *freed)) {
      ++it;
      continue;
    }
    const Node* parent = RemoveLeaf(node, freed);
    it = leaves_.upper_bound(key);
    // A parent that became a leaf has at least its child's time of use, but a smaller
    // serial number, so it may lie before what comes next.
    if (parent != nullptr && parent->n_children == 0 && parent->leaf_key() < key) {
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
    bool dropped = false;
    bool wanting = false;
    for (size_t g = 0; g < node->pages.size(); ++g) {
      if (!wants(g)) continue;
      wanting = true;
      const PageId page = node->pages[g];
      if (node->pins > 0 || page == kNoPage || options_.groups[g].pool->use_count(page) > 1) {
        continue;
      }
      DropPage(node, g, freed);
      dropped = true;
    }
    if (!wanting) return;
    if (dropped) PruneDeadLeaf(node, freed);
    it = windowed_.upper_bound(key);
  }
}

void PrefixIndex::EvictCheckpoints(const EvictionWish& wish, EvictionWish* freed) {
  for (auto it = checkpointed_.begin(); it != checkpointed_.end() && freed->slots < wish.slots;) {
    const LruKey key = it->first;
    Node* node = it->second;
    if (node->pins == 0 && options_.slots->use_count(node->slot) == 1) {
      DropCheckpoint(node, freed);
      PruneDeadLeaf(node, freed);
    }
    it = checkpointed_.upper_bound(key);
  }
}

EvictionWish PrefixIndex::EvictLru(const EvictionWish& wish) {
  WEFT_CHECK(wish.pages.size() == options_.groups.size(), "a wish names every group");
  EvictionWish freed;
  freed.pages.resize(options_.groups.size());
  EvictLeaves(wish, &freed);
  EvictWindowed(wish, &freed);
  if (options_.slots != nullptr) EvictCheckpoints(wish, &freed);
  return freed;
}

int64_t PrefixIndex::ClearTree(const Node* root) {
  std::vector<Node*> leaves;
  for (const auto& [key, node] : leaves_) {
    if (root == nullptr || node->root == root) leaves.push_back(node);
  }
  EvictionWish freed;
  freed.pages.resize(options_.groups.size());
  int64_t removed = 0;
  for (Node* node : leaves) {
    while (node != nullptr && node->n_children == 0 && node->pins == 0) {
      node = RemoveLeaf(node, &freed);
      ++removed;
    }
  }
  return removed;
}

int64_t PrefixIndex::Clear(std::string_view domain) {
  const Node* root = FindRoot(domain);
  return root != nullptr ? ClearTree(root) : 0;
}

int64_t PrefixIndex::ClearAll() { return ClearTree(nullptr); }

// --- accounting ---------------------------------------------------------------------

PrefixIndexStats PrefixIndex::Stats() const {
  PrefixIndexStats stats;
  stats.domains = static_cast<int64_t>(roots_.size());
  stats.nodes = static_cast<int64_t>(nodes_.size());
  stats.checkpoints = static_cast<int64_t>(checkpointed_.size());
  stats.pins = static_cast<int64_t>(pins_.size());
  stats.pages = n_pages_;
  // A node, its two arrays, and its entries in the hash table and one order.
  const size_t node_bytes = sizeof(Node) + 5 * 16 +
                            sizeof(TokenId) * static_cast<size_t>(options_.page_tokens) +
                            sizeof(PageId) * options_.groups.size() + 2 * 64;
  stats.memory_bytes = static_cast<int64_t>(node_bytes * (nodes_.size() + roots_.size()));
  stats.evicted_nodes = evicted_nodes_;
  stats.evicted_pages = evicted_pages_;
  stats.evicted_checkpoints = evicted_checkpoints_;
  return stats;
}

void PrefixIndex::AddPageCounts(int group, std::vector<int32_t>* counts) const {
  for (const auto& [hash, node] : nodes_) {
    const PageId page = node->pages[static_cast<size_t>(group)];
    if (page != kNoPage) AddCount(counts, page);
  }
}

void PrefixIndex::AddSlotCounts(std::vector<int32_t>* counts) const {
  for (const auto& [hash, node] : nodes_) {
    if (node->slot != kNoSlot) AddCount(counts, node->slot);
  }
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
  if (node->hash != HashPage(node->parent->serial, node->tokens)) return wrong("wrong hash");
  if (!node->parent->is_root() && node->used > node->parent->used) {
    return wrong("used later than its parent");
  }
  if (in(leaves_, node->leaf_key()) != (node->n_children == 0)) return wrong("leaf order");
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
  if (in(windowed_, node->window_key()) != windowed) return wrong("window order");
  const bool has_slot = node->slot != kNoSlot;
  if (in(checkpointed_, node->slot_key()) != has_slot) return wrong("checkpoint order");
  if (has_slot && options_.slots->use_count(node->slot) < 1) return wrong("its slot is free");
  return OkStatus();
}

Status PrefixIndex::CheckTotals() const {
  std::unordered_map<const Node*, int64_t> children, pins;
  std::vector<int64_t> n_pages(options_.groups.size());
  size_t leaves = 0, windowed = 0, checkpoints = 0;
  for (const auto& [hash, node] : nodes_) {
    ++children[node->parent];
    leaves += node->n_children == 0 ? 1 : 0;
    checkpoints += node->slot != kNoSlot ? 1 : 0;
    bool has_windowed = false;
    for (size_t g = 0; g < n_pages.size(); ++g) {
      const bool present = node->pages[g] != kNoPage;
      n_pages[g] += present ? 1 : 0;
      has_windowed = has_windowed || (present && options_.groups[g].window > 0);
    }
    windowed += has_windowed ? 1 : 0;
  }
  for (const auto& [id, node] : pins_) {
    for (const Node* n = node; !n->is_root(); n = n->parent) ++pins[n];
  }
  for (const auto& [hash, node] : nodes_) {
    if (node->n_children != children[node.get()] || node->pins != pins[node.get()]) {
      return Internal("prefix index node ", node->serial, " miscounts its children or pins");
    }
  }
  for (const auto& [domain, root] : roots_) {
    if (root->n_children == 0 || root->n_children != children[root.get()]) {
      return Internal("a root of the prefix index miscounts its children");
    }
  }
  if (n_pages != n_pages_ || leaves != leaves_.size() || windowed != windowed_.size() ||
      checkpoints != checkpointed_.size()) {
    return Internal("the totals of the prefix index do not add up");
  }
  return OkStatus();
}

Status PrefixIndex::CheckIntegrity() const {
  for (const auto& [hash, node] : nodes_) WEFT_RETURN_IF_ERROR(CheckNode(node.get()));
  return CheckTotals();
}

}  // namespace weft
