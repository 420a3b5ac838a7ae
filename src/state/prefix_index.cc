// Finding, adding and pinning. Eviction and accounting are in prefix_index_eviction.cc.
#include "state/prefix_index.h"

#include <algorithm>

#include "base/check.h"
#include "state/prefix_index_node.h"

namespace weft {

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

std::vector<PrefixIndex::Node*> PrefixIndex::KnownPath(std::string_view domain,
                                                       std::span<const TokenId> tokens,
                                                       int64_t max_tokens) const {
  std::vector<Node*> path;
  Node* node = FindRoot(domain);
  const size_t page_tokens = static_cast<size_t>(options_.page_tokens);
  const size_t limit =
      std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(max_tokens, 0)));
  for (size_t at = 0; node != nullptr && at + page_tokens <= limit; at += page_tokens) {
    const auto page = tokens.subspan(at, page_tokens);
    node = FindChild(node, page, HashPage(node->serial, page));
    if (node != nullptr) path.push_back(node);
  }
  return path;
}

std::vector<PrefixIndex::Node*> PrefixIndex::FindPath(std::string_view domain,
                                                      std::span<const TokenId> tokens,
                                                      int64_t max_tokens) const {
  std::vector<Node*> path = KnownPath(domain, tokens, max_tokens);
  size_t deepest = 0;  // length of the path to the deepest resume point so far
  // Per group, how many pages in a row are present up to the current node.
  std::vector<int64_t> run(options_.groups.size(), 0);
  for (const Node* node : path) {
    bool resumable = options_.slots == nullptr || node->slot != kNoSlot;
    for (size_t g = 0; g < run.size(); ++g) {
      run[g] = node->pages[g] != kNoPage ? run[g] + 1 : 0;
      resumable = resumable && run[g] >= std::min(node->depth, seen_pages_[g]);
    }
    if (resumable) deepest = static_cast<size_t>(node->depth);
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

int64_t PrefixIndex::KnownLength(std::string_view domain, std::span<const TokenId> tokens,
                                 int64_t max_tokens) const {
  return static_cast<int64_t>(KnownPath(domain, tokens, max_tokens).size()) * options_.page_tokens;
}

std::vector<PrefixIndex::Checkpoint> PrefixIndex::Checkpoints(std::string_view domain,
                                                              std::span<const TokenId> tokens,
                                                              int64_t max_tokens) const {
  std::vector<Checkpoint> found;
  for (const Node* node : KnownPath(domain, tokens, max_tokens)) {
    if (node->slot != kNoSlot) found.push_back({node->depth * options_.page_tokens, node->slot});
  }
  return found;
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

}  // namespace weft
