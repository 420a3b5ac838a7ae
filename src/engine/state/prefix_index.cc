// Finding and adding. Eviction and accounting are in prefix_index_eviction.cc, claims in
// prefix_index_lineage.cc, watches in prefix_index_watch.cc.
#include "engine/state/prefix_index.h"

#include <algorithm>

#include "base/check.h"
#include "engine/state/prefix_index_node.h"

namespace weft {

PrefixIndex::PrefixIndex(PrefixIndexOptions options) : options_(std::move(options)) {
  WEFT_CHECK(options_.page_tokens > 0, "pages hold tokens");
  for (const auto& group : options_.groups) {
    WEFT_CHECK(group.pool != nullptr && group.window >= 0, "a group has a pool");
    max_window_ = std::max(max_window_, group.window);
  }
  n_pages_.resize(options_.groups.size());
  aside_.resize(options_.groups.size());
}

PrefixIndex::~PrefixIndex() {
  for (const auto& [serial, node] : nodes_) {
    for (size_t g = 0; g < node->pages.size(); ++g) {
      if (node->pages[g] != kNoPage) options_.groups[g].pool->UnrefCached(node->pages[g]);
    }
    if (node->slot != kNoSlot) options_.slots->Unref(node->slot);
  }
}

// --- finding ------------------------------------------------------------------------

PrefixIndex::Node* PrefixIndex::FindRoot(std::string_view domain) const {
  const auto found = roots_.find(std::string(TreeName(domain)));
  return found != roots_.end() ? found->second.get() : nullptr;
}

std::span<const TokenId> PrefixIndex::PageAfter(const Node* node,
                                                std::span<const TokenId> tokens) const {
  return PartOf(tokens, node->end(options_.page_tokens), options_.page_tokens);
}

PrefixIndex::Node* PrefixIndex::LastWhole(std::string_view domain,
                                          std::span<const TokenId> tokens) const {
  Node* node = FindRoot(domain);
  while (node != nullptr) {
    const auto page = PageAfter(node, tokens);
    Node* const child =
        std::ssize(page) == options_.page_tokens ? node->children.Find(page) : nullptr;
    if (child == nullptr) break;
    node = child;
  }
  return node;
}

PrefixIndex::Node* PrefixIndex::LastKnown(std::string_view domain,
                                          std::span<const TokenId> tokens) const {
  Node* const whole = LastWhole(domain, tokens);
  if (whole == nullptr) return nullptr;
  // A last page that is partly filled.
  if (Node* const part = whole->children.Find(PageAfter(whole, tokens))) return part;
  return whole->is_root() ? nullptr : whole;
}

PrefixIndex::Node* PrefixIndex::FindEnd(std::string_view domain,
                                        std::span<const TokenId> tokens) const {
  Node* const last = LastKnown(domain, tokens);
  const bool is_end = last != nullptr && last->end(options_.page_tokens) == std::ssize(tokens);
  return is_end ? last : nullptr;
}

std::vector<PrefixIndex::Node*> PrefixIndex::PathTo(Node* end) {
  std::vector<Node*> path(static_cast<size_t>(end->depth));
  for (Node* node = end; !node->is_root(); node = node->parent) {
    path[static_cast<size_t>(node->depth - 1)] = node;
  }
  return path;
}

std::pair<PrefixIndex::Node*, int64_t> PrefixIndex::BestChild(const Node* parent,
                                                              std::span<const TokenId> page) const {
  std::pair<Node*, int64_t> best = {nullptr, 0};
  const int64_t from = parent->end(options_.page_tokens);
  const auto try_child = [&](Node* child, int64_t n) {
    if (LastAbsent(child, from + n) < 0) best = {child, n};
    return best.first != nullptr;
  };
  if (options_.slots == nullptr) {
    parent->children.ForEachAlike(page, try_child);
  } else {
    parent->children.ForEachBeginning(page, [&](Node* child) {
      return child->slot != kNoSlot && try_child(child, std::ssize(child->tokens));
    });
  }
  return best;
}

PrefixIndex::Found PrefixIndex::FindPath(std::string_view domain, std::span<const TokenId> tokens,
                                         int64_t max_tokens) const {
  tokens = PartOf(tokens, 0, max_tokens);
  // From the end of the known path upwards.
  for (Node* node = LastWhole(domain, tokens); node != nullptr;) {
    const int64_t at = node->end(options_.page_tokens);
    const auto [child, n] = BestChild(node, PageAfter(node, tokens));
    if (child != nullptr) return {PathTo(child), at + n};
    if (node->is_root()) break;
    const int64_t absent = LastAbsent(node, at);
    if (absent < 0 && (options_.slots == nullptr || node->slot != kNoSlot)) {
      return {PathTo(node), at};
    }
    // Any position after an absent page in the window would see that page too.
    const int64_t depth = absent >= 0 ? absent : node->depth - 1;
    while (node->depth > depth) node = node->parent;
  }
  return {};
}

int64_t PrefixIndex::LastAbsent(const Node* node, int64_t n_tokens) const {
  int64_t last = -1;
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    if (options_.groups[g].window == 0) continue;  // never absent
    const int64_t first = shape(g).VisibleFrom(n_tokens) / options_.page_tokens;
    for (const Node* seen = node; seen->depth > std::max(first, last + 1); seen = seen->parent) {
      if (seen->pages[g] != kNoPage) continue;
      last = seen->depth - 1;
      break;
    }
  }
  return last;
}

bool PrefixIndex::IsResumePoint(const Node* node) const {
  return (options_.slots == nullptr || node->slot != kNoSlot) &&
         LastAbsent(node, node->end(options_.page_tokens)) < 0;
}

bool PrefixIndex::HoldsNothing(const Node* node) {
  return node->slot == kNoSlot &&
         std::ranges::all_of(node->pages, [](PageId page) { return page == kNoPage; });
}

PrefixMatch PrefixIndex::Match(std::string_view domain, std::span<const TokenId> tokens,
                               int64_t max_tokens) {
  const Found found = FindPath(domain, tokens, max_tokens);
  Use(found);
  PrefixMatch match;
  match.n_tokens = found.n_tokens;
  std::vector<PageId> pages(found.path.size());
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const size_t first =
        static_cast<size_t>(shape(g).VisibleFrom(found.n_tokens) / options_.page_tokens);
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i] = i < first ? kNoPage : found.path[i]->pages[g];
    }
    match.tables.push_back(
        PageTable::OfPages(options_.groups[g].pool, shape(g), pages, found.n_tokens));
  }
  if (options_.slots != nullptr && !found.path.empty()) {
    match.checkpoint = PoolRef::Share(options_.slots, found.path.back()->slot);
  }
  return match;
}

int64_t PrefixIndex::MatchLength(std::string_view domain, std::span<const TokenId> tokens,
                                 int64_t max_tokens) const {
  return FindPath(domain, tokens, max_tokens).n_tokens;
}

int64_t PrefixIndex::KnownLength(std::string_view domain, std::span<const TokenId> tokens,
                                 int64_t max_tokens) const {
  tokens = PartOf(tokens, 0, max_tokens);
  const Node* const node = LastWhole(domain, tokens);
  if (node == nullptr) return 0;
  int64_t common = 0;
  node->children.ForEachAlike(PageAfter(node, tokens), [&](const Node*, int64_t n) {
    common = n;
    return true;
  });
  return node->end(options_.page_tokens) + common;
}

std::vector<PageId> PrefixIndex::PagesAtEnd(std::string_view domain,
                                            std::span<const TokenId> tokens) const {
  const Node* const end = FindEnd(domain, tokens);
  return end != nullptr ? end->pages : std::vector<PageId>();
}

std::vector<PrefixIndex::Checkpoint> PrefixIndex::Checkpoints(std::string_view domain,
                                                              std::span<const TokenId> tokens,
                                                              int64_t max_tokens) const {
  std::vector<Checkpoint> found;
  tokens = PartOf(tokens, 0, max_tokens);
  for (const Node* node = LastWhole(domain, tokens); node != nullptr; node = node->parent) {
    node->children.ForEachBeginning(PageAfter(node, tokens), [&](const Node* child) {
      if (child->slot != kNoSlot) found.push_back({child->end(options_.page_tokens), child->slot});
      return false;
    });
  }
  std::ranges::reverse(found);
  return found;
}

// --- adding -------------------------------------------------------------------------

PrefixIndex::Node* PrefixIndex::MakeRoot(std::string_view domain) {
  const auto [place, added] = roots_.try_emplace(std::string(TreeName(domain)));
  if (added) {
    place->second = std::make_unique<Node>(&compared_tokens_);
    Node* root = place->second.get();
    root->root = root;
    root->domain = &place->first;
    root->serial = next_serial_++;
  }
  return place->second.get();
}

void PrefixIndex::SetTokens(Node* node, std::span<const TokenId> page) const {
  node->tokens.assign(page.begin(), page.end());
  if (options_.rows != nullptr) node->rows = options_.rows->FindAll(page);
  node->behind_rows = !node->rows.empty() || node->parent->behind_rows;
}

PrefixIndex::Node* PrefixIndex::AddChild(Node* parent, std::span<const TokenId> page) {
  auto owned = std::make_unique<Node>(&compared_tokens_);
  Node* node = owned.get();
  node->parent = parent;
  node->root = parent->root;
  node->serial = next_serial_++;
  node->depth = parent->depth + 1;
  SetTokens(node, page);
  node->pages.assign(options_.groups.size(), kNoPage);
  node->used.fill(clock_);
  nodes_.emplace(node->serial, std::move(owned));
  PutBack(parent, kLeaves);
  Leave(parent, kLeaves);
  parent->children.Insert(node);
  Enter(node, kLeaves);
  NoteChange(node);
  return node;
}

PrefixIndex::Node* PrefixIndex::PlaceChild(Node* parent, std::span<const TokenId> page,
                                           std::span<PageTable* const> tables, int64_t entry,
                                           bool ends_here, PrefixInsert* result) {
  if (Node* const same = parent->children.Find(page)) return same;
  const auto theirs = [&](size_t g) { return tables[g]->pages()[static_cast<size_t>(entry)]; };
  Node* place = nullptr;
  int tried = 0;
  if (!ends_here) {
    parent->children.ForEachLonger(page, [&](Node* longer) {
      bool enough = true;
      for (size_t g = 0; g < tables.size(); ++g) {
        enough = enough && (theirs(g) == kNoPage || longer->pages[g] != kNoPage);
      }
      if (enough) place = longer;
      return enough || ++tried == Siblings<Node>::kMaxTried;
    });
    if (place != nullptr) return place;
  }
  parent->children.ForEachBeginning(page, [&](Node* shorter) {
    bool loses = shorter->slot != kNoSlot;
    for (size_t g = 0; g < tables.size(); ++g) {
      loses = loses || (theirs(g) == kNoPage && shorter->pages[g] != kNoPage);
    }
    if (!loses) place = shorter;
    return !loses;
  });
  if (place != nullptr) {
    Grow(place, page, tables, entry);
    return place;
  }
  ++result->new_nodes;
  return AddChild(parent, page);
}

void PrefixIndex::Grow(Node* node, std::span<const TokenId> page,
                       std::span<PageTable* const> tables, int64_t entry) {
  for (const Order order : {kLeaves, kWindows}) PutBack(node, order);
  node->parent->children.Erase(node);
  SetTokens(node, page);
  node->parent->children.Insert(node);
  NoteChange(node);
  for (size_t g = 0; g < tables.size(); ++g) {
    const PageId fuller = tables[g]->pages()[static_cast<size_t>(entry)];
    const PageId former = node->pages[g];
    if (former == kNoPage || former == fuller) continue;
    UnholdPage(g, std::exchange(node->pages[g], kNoPage));
    HoldPage(node, g, fuller);
  }
}

void PrefixIndex::HoldPage(Node* node, size_t group, PageId page) {
  PutBack(node, OrderOf(group));
  PagePool* const pool = options_.groups[group].pool;
  pool->RefCached(page);
  node->pages[group] = page;
  if (pool->cached_count(page) == 1) ++n_pages_[group];
  if (OrderOf(group) != kWindows) return;
  Enter(node, kWindows);
  NoteChange(node, /*below=*/true);
}

bool PrefixIndex::UnholdPage(size_t group, PageId page) {
  PagePool* const pool = options_.groups[group].pool;
  if (pool->cached_count(page) == 1) --n_pages_[group];
  return pool->UnrefCached(page);
}

int64_t PrefixIndex::TakePages(Node* node, std::span<PageTable* const> tables, int64_t entry,
                               bool adopt) {
  int64_t adopted = 0;
  for (size_t g = 0; g < tables.size(); ++g) {
    const PageId theirs = tables[g]->pages()[static_cast<size_t>(entry)];
    const PageId ours = node->pages[g];
    if (theirs == kNoPage || theirs == ours) continue;
    if (ours == kNoPage) {
      HoldPage(node, g, theirs);
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
  node->used[kCheckpoints] = clock_;
  Enter(node, kCheckpoints);
  NoteChange(node);
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
  const int page_tokens = options_.page_tokens;
  WEFT_CHECK(checkpoint == kNoSlot || (options_.slots != nullptr && n_tokens > 0),
             "a checkpoint lies at the end of tokens");
  if (options_.slots != nullptr && checkpoint == kNoSlot) n_tokens -= n_tokens % page_tokens;
  int64_t n_pages = (n_tokens + page_tokens - 1) / page_tokens;
  // Leave out nodes that would hold nothing and have no descendants that do.
  const auto absent = [&](const PageTable* table) { return table->first_present() >= n_pages; };
  while (n_pages > 0 && checkpoint == kNoSlot && std::ranges::all_of(tables, absent)) --n_pages;
  PrefixInsert result;
  if (n_pages == 0) return result;

  Tick();
  Found inserted{{}, std::min(n_tokens, n_pages * page_tokens)};
  Node* node = MakeRoot(domain);
  for (int64_t entry = 0; entry < n_pages; ++entry) {
    const int64_t from = entry * page_tokens;
    const int64_t n = std::min<int64_t>(page_tokens, inserted.n_tokens - from);
    const auto page = tokens.subspan(static_cast<size_t>(from), static_cast<size_t>(n));
    const bool ends_here = checkpoint != kNoSlot && entry == n_pages - 1;
    node = PlaceChild(node, page, tables, entry, ends_here, &result);
    // The table has only a part of a longer node.
    if (std::ssize(node->tokens) == n) {
      result.adopted_pages += TakePages(node, tables, entry, adopt && n == page_tokens);
    }
    inserted.path.push_back(node);
  }
  if (checkpoint != kNoSlot && node->slot == kNoSlot) {
    TakeCheckpoint(node, checkpoint);
    result.checkpoint_kept = true;
  }
  Use(inserted);
  return result;
}

void PrefixIndex::Enter(Node* node, Order order) {
  if (std::exchange(node->standing[order], Standing::kInOrder) == Standing::kInOrder) return;
  orders_[order].emplace(node->key(order), node);
}

void PrefixIndex::Leave(Node* node, Order order) {
  if (std::exchange(node->standing[order], Standing::kOutside) != Standing::kInOrder) return;
  orders_[order].erase(node->key(order));
}

void PrefixIndex::SetUsed(Node* node, Order order, uint64_t used) {
  const bool is_ordered = node->standing[order] == Standing::kInOrder;
  if (is_ordered) Leave(node, order);
  node->used[order] = used;
  if (is_ordered) Enter(node, order);
}

void PrefixIndex::Use(const Found& found) {
  if (found.path.empty()) return;
  Tick();
  for (Node* node : found.path) SetUsed(node, kLeaves, clock_);
  const GroupShape widest{options_.page_tokens, max_window_};
  const size_t first =
      max_window_ > 0
          ? static_cast<size_t>(widest.VisibleFrom(found.n_tokens) / options_.page_tokens)
          : found.path.size();
  for (size_t i = first; i < found.path.size(); ++i) SetUsed(found.path[i], kWindows, clock_);
  if (Node* end = found.path.back(); end->slot != kNoSlot) SetUsed(end, kCheckpoints, clock_);
}

}  // namespace weft
