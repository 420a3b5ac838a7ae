// What the watchers of a PrefixIndex tell.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "engine/state/block_catalog.h"
#include "engine/state/prefix_index_node.h"

namespace weft {
namespace {

// Looking at a node visits the pages in its window, this many in the time of the rest.
constexpr int64_t kWindowPagesPerNode = 8;

}  // namespace

void PrefixIndex::Watch(std::string_view domain, PrefixLog* log) {
  const std::string tree(TreeName(domain));
  if (log == nullptr) {
    const auto found = watchers_.find(tree);
    if (found == watchers_.end()) return;
    for (const uint64_t serial : found->second->list) {
      if (const auto node = nodes_.find(serial); node != nodes_.end()) {
        node->second->is_listed = false;
      }
    }
    watchers_.erase(found);
    return;
  }
  auto watcher = std::make_unique<Watcher>();
  watcher->id = ++last_watcher_;
  watcher->log = log;
  watcher->root = BlockRoot(tree);
  if (const Node* const root = FindRoot(domain)) {
    for (Node* const child : root->children) List(watcher.get(), child);
  }
  watchers_.emplace(tree, std::move(watcher));
}

bool PrefixIndex::TellWatched(int64_t max_nodes) {
  bool has_more = false;
  const int64_t cost = 1 + max_window_ / options_.page_tokens / kWindowPagesPerNode;
  for (const auto& [tree, watcher] : watchers_) {
    for (; !watcher->list.empty() && max_nodes > 0; watcher->list.pop_front()) {
      const auto found = nodes_.find(watcher->list.front());
      if (found == nodes_.end()) continue;
      LookAt(watcher.get(), found->second.get());
      max_nodes -= cost;
    }
    has_more = has_more || !watcher->list.empty();
  }
  return has_more;
}

PrefixIndex::Watcher* PrefixIndex::WatcherOf(const Node* node) const {
  const auto found = watchers_.find(*node->root->domain);
  return found != watchers_.end() ? found->second.get() : nullptr;
}

void PrefixIndex::List(Watcher* watcher, Node* node) {
  if (node->is_listed) return;
  node->is_listed = true;
  watcher->list.push_back(node->serial);
}

void PrefixIndex::ListChanged(Node* node, bool below) {
  Watcher* const watcher = WatcherOf(node);
  if (watcher == nullptr) return;
  if (below && node->watched_by == watcher->id) {
    const int64_t pages = max_window_ / options_.page_tokens + 2;
    node->recheck = static_cast<uint16_t>(std::min<int64_t>(pages, UINT16_MAX));
  }
  List(watcher, node);
}

// The first time that the watcher comes to it.
void PrefixIndex::Meet(Watcher* watcher, Node* node) {
  if (std::exchange(node->watched_by, watcher->id) == watcher->id) return;
  node->leads = false;
  node->recheck = 0;
  for (Node* const child : node->children) List(watcher, child);
}

void PrefixIndex::LookAt(Watcher* watcher, Node* node) {
  node->is_listed = false;
  Meet(watcher, node);
  if (const uint16_t below = std::exchange(node->recheck, uint16_t{0}); below > 0) {
    for (Node* const child : node->children) {
      if (child->watched_by == watcher->id) {
        child->recheck = std::max<uint16_t>(child->recheck, static_cast<uint16_t>(below - 1));
      }
      List(watcher, child);
    }
  }
  if (IsResumePoint(node)) return Lead(watcher, node);
  const bool child_leads = std::ranges::any_of(node->children, [watcher](const Node* child) {
    return child->watched_by == watcher->id && child->leads;
  });
  if (!node->leads || child_leads) return;
  node->leads = false;
  Untell(watcher, node);
  if (!node->parent->is_root()) List(watcher, node->parent);
}

void PrefixIndex::Forget(Node* node) {
  Watcher* const watcher = WatcherOf(node);
  if (watcher == nullptr || node->watched_by != watcher->id || !node->leads) return;
  node->leads = false;
  Untell(watcher, node);
  if (!node->parent->is_root()) List(watcher, node->parent);
}

void PrefixIndex::Lead(Watcher* watcher, Node* node) {
  std::vector<Node*> path = {node};  // and those above it that lead nowhere yet
  for (Node* at = node; !at->is_root(); at = at->parent) {
    Meet(watcher, at);
    if (at->leads) break;
    at->leads = true;
    if (at != node) path.push_back(at);
  }
  for (auto at = path.rbegin(); at != path.rend(); ++at) Tell(watcher, *at);
}

bool PrefixIndex::IsTellable(const Node* node) const {
  return !node->behind_rows && std::ssize(node->tokens) == options_.page_tokens;
}

void PrefixIndex::Tell(Watcher* watcher, Node* node) {
  if (!IsTellable(node) || watcher->told.contains(node->serial)) return;
  const Node* const parent = node->parent;
  const Fingerprint& before =
      parent->is_root() ? watcher->root : watcher->told.at(parent->serial).block;
  const Fingerprint block = PageBlockKey(before, node->tokens);
  const uint64_t number = watcher->log->Store(
      {.key = block.low, .parent = parent->is_root() ? 0 : before.low, .tokens = node->tokens},
      CacheTier::kMemory);
  watcher->told.emplace(node->serial, Watcher::Told{block, number});
}

void PrefixIndex::Untell(Watcher* watcher, Node* node) {
  const auto found = watcher->told.find(node->serial);
  if (found == watcher->told.end()) return;
  watcher->log->Remove(found->second.number);
  watcher->told.erase(found);
}

Status PrefixIndex::CheckWatched(const Node* node) const {
  const Watcher* const watcher = watchers_.empty() ? nullptr : WatcherOf(node);
  if (watcher == nullptr || !watcher->list.empty()) return OkStatus();
  const bool leads =
      IsResumePoint(node) ||
      std::ranges::any_of(node->children, [](const Node* child) { return child->leads; });
  const bool is_told = watcher->told.contains(node->serial);
  if (node->watched_by != watcher->id || node->leads != leads || node->is_listed ||
      is_told != (leads && IsTellable(node))) {
    return Internal("prefix index node ", node->serial, " is told wrongly");
  }
  return OkStatus();
}

}  // namespace weft
