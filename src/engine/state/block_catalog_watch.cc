// What the watchers of a BlockCatalog tell.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <vector>

#include "engine/state/block_catalog.h"
#include "engine/state/block_catalog_block.h"

namespace weft {

void BlockCatalog::Watch(std::string_view domain, PrefixLog* log) {
  const Fingerprint root = BlockRoot(domain);
  if (log == nullptr) {
    watchers_.erase(root);
    return;
  }
  const auto sees_all = [](int64_t window) { return window == 0; };
  if (options_.slots || !std::ranges::all_of(options_.windows, sees_all)) return;
  watchers_[root] = {.log = log, .parents = {root}};
}

bool BlockCatalog::TellWatched(int64_t max_blocks) {
  bool has_more = false;
  for (auto& [root, watcher] : watchers_) {
    while (!watcher.parents.empty() && TellChildren(root, &watcher, &max_blocks)) {
      watcher.parents.pop_front();
    }
    has_more = has_more || !watcher.parents.empty();
  }
  return has_more;
}

// Tells the children of the first parent. False if some are left.
bool BlockCatalog::TellChildren(const Fingerprint& root, Watcher* watcher, int64_t* max_blocks) {
  const Fingerprint parent = watcher->parents.front();
  const Children* const children = ChildrenOf(parent);
  const bool is_gone = parent != root && !watcher->told.contains(parent);
  if (children == nullptr || is_gone) return true;
  for (const Block* const child : children->pages) {
    if (watcher->told.contains(child->key) || !IsTellable(*child)) continue;
    if (*max_blocks <= 0) return false;
    --*max_blocks;
    Tell(root, *child, watcher);
  }
  return true;
}

bool BlockCatalog::IsTellable(const Block& block) const {
  const bool is_whole = std::ssize(block.tokens) == options_.page_tokens &&
                        static_cast<size_t>(std::popcount(block.groups)) == options_.windows.size();
  return block.written && is_whole && !std::ranges::any_of(block.tokens, IsRow);
}

void BlockCatalog::Tell(const Fingerprint& root, const Block& block, Watcher* watcher) const {
  const uint64_t number =
      watcher->log->Store({.key = block.key.low,
                           .parent = block.parent == root ? 0 : block.parent.low,
                           .tokens = block.tokens},
                          CacheTier::kDisk);
  watcher->told.emplace(block.key, number);
  watcher->parents.push_back(block.key);
}

void BlockCatalog::NoteWritten(const Block& block) {
  if (block.kind != BlockInfo::Kind::kPage || !IsTellable(block)) return;
  for (auto& [root, watcher] : watchers_) {
    const bool continues = block.parent == root || watcher.told.contains(block.parent);
    if (continues && !watcher.told.contains(block.key)) Tell(root, block, &watcher);
  }
}

void BlockCatalog::NoteRemoval(const Fingerprint& key) {
  for (auto& [root, watcher] : watchers_) {
    if (watcher.told.contains(key)) Untell(key, &watcher);
  }
}

// And all that continue it, before it.
void BlockCatalog::Untell(const Fingerprint& key, Watcher* watcher) const {
  std::vector<Fingerprint> keys = {key};
  for (size_t i = 0; i < keys.size(); ++i) {
    const Children* const children = ChildrenOf(keys[i]);
    if (children == nullptr) continue;
    for (const Block* const child : children->pages) {
      if (watcher->told.contains(child->key)) keys.push_back(child->key);
    }
  }
  for (auto each = keys.rbegin(); each != keys.rend(); ++each) {
    watcher->log->Remove(watcher->told.extract(*each).mapped());
  }
}

}  // namespace weft
