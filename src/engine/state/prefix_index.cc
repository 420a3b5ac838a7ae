// Finding and adding. Eviction and accounting are in prefix_index_eviction.cc, claims in
// prefix_index_lineage.cc.
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
  holders_.resize(options_.groups.size());
  n_pages_.resize(options_.groups.size());
  aside_.resize(options_.groups.size());
}

PrefixIndex::~PrefixIndex() {
  for (const auto& [serial, node] : nodes_) {
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

int64_t PrefixIndex::Common(const Node* node, std::span<const TokenId> page) const {
  const int64_t common = CommonLength(node->tokens, page);
  compared_tokens_ += common + 1;
  return common;
}

std::vector<PrefixIndex::Node*> PrefixIndex::KnownPath(std::string_view domain,
                                                       std::span<const TokenId> tokens,
                                                       int64_t max_tokens) const {
  std::vector<Node*> path;
  const Node* node = FindRoot(domain);
  const size_t page_tokens = static_cast<size_t>(options_.page_tokens);
  const size_t limit =
      std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(max_tokens, 0)));
  for (size_t at = 0; node != nullptr && at + page_tokens <= limit; at += page_tokens) {
    const auto child = node->children.find(tokens.subspan(at, page_tokens));
    if (child == node->children.end()) break;
    path.push_back(*child);
    node = *child;
  }
  return path;
}

std::pair<PrefixIndex::Node*, int64_t> PrefixIndex::BestChild(const Node* parent,
                                                              std::span<const TokenId> page) const {
  std::pair<Node*, int64_t> best = {nullptr, 0};
  const int64_t from = parent->end(options_.page_tokens);
  if (options_.slots != nullptr) {
    ForEachBeginning(parent, page, [&](Node* child) {
      if (child->slot == kNoSlot) return false;
      const int64_t n = std::ssize(child->tokens);
      if (LastAbsent(child, from + n) < 0) best = {child, n};
      return best.first != nullptr;
    });
    return best;
  }
  // In both directions from where the page would be inserted, children have less and less in common
  // with it.
  const Node::Children& children = parent->children;
  auto right = children.lower_bound(page);
  auto left = right;
  const auto left_common = [&] {
    return left != children.begin() ? Common(*std::prev(left), page) : 0;
  };
  const auto right_common = [&] { return right != children.end() ? Common(*right, page) : 0; };
  int64_t before = left_common(), behind = right_common();
  for (int i = 0; i < kMaxTried && std::max(before, behind) > 0; ++i) {
    const int64_t n = std::max(before, behind);
    Node* const child = behind >= before ? *right : *std::prev(left);
    if (LastAbsent(child, from + n) < 0) return {child, n};
    if (behind >= before) {
      ++right;
      behind = right_common();
    } else {
      --left;
      before = left_common();
    }
  }
  return best;
}

PrefixIndex::Found PrefixIndex::FindPath(std::string_view domain, std::span<const TokenId> tokens,
                                         int64_t max_tokens) const {
  Found found{KnownPath(domain, tokens, max_tokens), 0};
  const Node* const root = FindRoot(domain);
  const int64_t limit = std::min<int64_t>(std::ssize(tokens), std::max<int64_t>(max_tokens, 0));
  // From the end of the known path upwards.
  while (root != nullptr) {
    const Node* const node = found.path.empty() ? root : found.path.back();
    const int64_t at = node->end(options_.page_tokens);
    const int64_t rest = std::min<int64_t>(limit - at, options_.page_tokens);
    const auto [child, n] =
        BestChild(node, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(rest)));
    if (child != nullptr) {
      found.path.push_back(child);
      found.n_tokens = at + n;
      return found;
    }
    if (node == root) break;
    const int64_t absent = LastAbsent(node, at);
    if (absent < 0 && (options_.slots == nullptr || node->slot != kNoSlot)) {
      found.n_tokens = at;
      return found;
    }
    // Any position after an absent page in the window would see that page too.
    found.path.resize(static_cast<size_t>(absent >= 0 ? absent : node->depth - 1));
  }
  return found;
}

PrefixIndex::Node* PrefixIndex::FindEnd(std::string_view domain,
                                        std::span<const TokenId> tokens) const {
  const std::vector<Node*> path = KnownPath(domain, tokens, std::ssize(tokens));
  const Node* const node = path.empty() ? FindRoot(domain) : path.back();
  if (node == nullptr) return nullptr;
  const auto rest = tokens.subspan(static_cast<size_t>(node->end(options_.page_tokens)));
  if (rest.empty()) return path.empty() ? nullptr : path.back();
  const auto child = node->children.find(rest);
  return child != node->children.end() ? *child : nullptr;
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
  const std::vector<Node*> path = KnownPath(domain, tokens, max_tokens);
  const Node* const node = path.empty() ? FindRoot(domain) : path.back();
  if (node == nullptr) return 0;
  const int64_t at = node->end(options_.page_tokens);
  const int64_t limit = std::min<int64_t>(std::ssize(tokens), std::max<int64_t>(max_tokens, 0));
  const auto page =
      tokens.subspan(static_cast<size_t>(at),
                     static_cast<size_t>(std::min<int64_t>(limit - at, options_.page_tokens)));
  // The child with the most in common is next to where the page would be inserted.
  const auto right = node->children.lower_bound(page);
  int64_t common = right != node->children.end() ? Common(*right, page) : 0;
  if (right != node->children.begin()) common = std::max(common, Common(*std::prev(right), page));
  return at + common;
}

std::vector<PageId> PrefixIndex::PagesAtEnd(std::string_view domain,
                                            std::span<const TokenId> tokens) const {
  const std::vector<Node*> path = KnownPath(domain, tokens, std::ssize(tokens));
  const bool known = !path.empty() && path.back()->end(options_.page_tokens) == std::ssize(tokens);
  return known ? path.back()->pages : std::vector<PageId>();
}

std::vector<PrefixIndex::Checkpoint> PrefixIndex::Checkpoints(std::string_view domain,
                                                              std::span<const TokenId> tokens,
                                                              int64_t max_tokens) const {
  std::vector<Checkpoint> found;
  const int64_t limit = std::min<int64_t>(std::ssize(tokens), std::max<int64_t>(max_tokens, 0));
  const auto add = [&](const Node* parent) {
    const int64_t at = parent->end(options_.page_tokens);
    const int64_t n = std::min<int64_t>(limit - at, options_.page_tokens);
    const auto first = std::ssize(found);
    ForEachBeginning(parent, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                     [&](const Node* child) {
                       if (child->slot != kNoSlot) {
                         found.push_back({child->end(options_.page_tokens), child->slot});
                       }
                       return false;
                     });
    std::reverse(found.begin() + first, found.end());
  };
  if (const Node* const root = FindRoot(domain)) add(root);
  for (const Node* node : KnownPath(domain, tokens, max_tokens)) add(node);
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
  node->used = node->window_used = clock_;
  nodes_.emplace(node->serial, std::move(owned));
  if (!parent->is_root() && parent->is_leaf()) {
    PutBack(parent, /*windowed=*/false);
    leaves_.erase(parent->leaf_key());
  }
  parent->children.insert(node);
  leaves_.emplace(node->leaf_key(), node);
  return node;
}

PrefixIndex::Node* PrefixIndex::PlaceChild(Node* parent, std::span<const TokenId> page,
                                           std::span<PageTable* const> tables, int64_t entry,
                                           bool ends_here, PrefixInsert* result) {
  const auto same = parent->children.find(page);
  if (same != parent->children.end()) return *same;
  const auto theirs = [&](size_t g) { return tables[g]->pages()[static_cast<size_t>(entry)]; };
  Node* place = nullptr;
  int tried = 0;
  if (!ends_here) {
    ForEachLonger(parent, page, [&](Node* longer) {
      bool enough = true;
      for (size_t g = 0; g < tables.size(); ++g) {
        enough = enough && (theirs(g) == kNoPage || longer->pages[g] != kNoPage);
      }
      if (enough) place = longer;
      return enough || ++tried == kMaxTried;
    });
    if (place != nullptr) return place;
  }
  ForEachBeginning(parent, page, [&](Node* shorter) {
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
  for (const bool windowed : {false, true}) PutBack(node, windowed);
  Node::Children& siblings = node->parent->children;
  siblings.erase(node);
  SetTokens(node, page);
  siblings.insert(node);
  for (size_t g = 0; g < tables.size(); ++g) {
    const PageId fuller = tables[g]->pages()[static_cast<size_t>(entry)];
    const PageId former = node->pages[g];
    if (former == kNoPage || former == fuller) continue;
    UnholdPage(g, std::exchange(node->pages[g], kNoPage));
    HoldPage(node, g, fuller);
  }
}

void PrefixIndex::HoldPage(Node* node, size_t group, PageId page) {
  const bool windowed = options_.groups[group].window > 0;
  PutBack(node, windowed);
  options_.groups[group].pool->Ref(page);
  node->pages[group] = page;
  AddCount(&holders_[group], page);
  if (holders_[group][static_cast<size_t>(page)] == 1) ++n_pages_[group];
  if (windowed) windowed_.try_emplace(node->window_key(), node);
}

bool PrefixIndex::UnholdPage(size_t group, PageId page) {
  if (--holders_[group][static_cast<size_t>(page)] == 0) --n_pages_[group];
  return options_.groups[group].pool->Unref(page);
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

void PrefixIndex::SetUsed(Node* node, uint64_t used) {
  // Only leaves are in the order.
  const bool ordered = node->is_leaf() && leaves_.erase(node->leaf_key()) > 0;
  node->used = used;
  if (ordered) leaves_.emplace(node->leaf_key(), node);
}

void PrefixIndex::SetWindowUsed(Node* node, uint64_t used) {
  const bool ordered = windowed_.erase(node->window_key()) > 0;
  node->window_used = used;
  if (ordered) windowed_.emplace(node->window_key(), node);
}

void PrefixIndex::SetSlotUsed(Node* node, uint64_t used) {
  checkpointed_.erase(node->slot_key());
  node->slot_used = used;
  checkpointed_.emplace(node->slot_key(), node);
}

void PrefixIndex::Use(const Found& found) {
  if (found.path.empty()) return;
  Tick();
  for (Node* node : found.path) SetUsed(node, clock_);
  const GroupShape widest{options_.page_tokens, max_window_};
  const size_t first =
      max_window_ > 0
          ? static_cast<size_t>(widest.VisibleFrom(found.n_tokens) / options_.page_tokens)
          : found.path.size();
  for (size_t i = first; i < found.path.size(); ++i) SetWindowUsed(found.path[i], clock_);
  if (Node* end = found.path.back(); end->slot != kNoSlot) SetSlotUsed(end, clock_);
}

}  // namespace weft
