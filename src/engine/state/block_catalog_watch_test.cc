// What readers of a watched BlockCatalog know, against the blocks that continue one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "engine/state/block_catalog.h"
#include "engine/state/prefix_log.h"

namespace weft {
namespace {

constexpr int kPageTokens = 4;
constexpr uint64_t kBothGroups = 3;

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) { log_.Add(queue_); }

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void Step() {
    const int64_t what = Below(10);
    const std::vector<BlockInfo> blocks = catalog_.Blocks();
    if (what < 5) {
      Add();
    } else if (what < 8 && !writing_.empty()) {
      // In any order: a child's file may be written before its parent's.
      const auto at = writing_.begin() + Below(std::ssize(writing_));
      catalog_.SetWritten(*at, &victims_);
      writing_.erase(at);
    } else if (what == 8 && !blocks.empty()) {
      // Found to be damaged, wherever it is.
      catalog_.Remove(blocks[static_cast<size_t>(Below(std::ssize(blocks)))].key);
    }
    (void)catalog_.TellWatched(Below(3));
  }

  void Watch() { catalog_.Watch("a", &log_); }
  void Check() {
    while (catalog_.TellWatched(2)) continue;
    while (log_.Serve(3)) continue;
    Read();
    std::map<uint64_t, const BlockInfo*> written;
    const std::vector<BlockInfo> blocks = catalog_.Blocks();
    for (const BlockInfo& block : blocks) written[block.key.low] = &block;
    std::set<uint64_t> expected;
    for (const BlockInfo& block : blocks) {
      const BlockInfo* at = &block;
      while (at != nullptr && at->groups == kBothGroups && std::ssize(at->tokens) == kPageTokens &&
             at->first_token > 0) {
        at = written.contains(at->parent.low) ? written[at->parent.low] : nullptr;
      }
      const bool begins = at != nullptr && at->first_token == 0 && at->parent == BlockRoot("a");
      if (begins && at->groups == kBothGroups && std::ssize(at->tokens) == kPageTokens) {
        expected.insert(block.key.low);
      }
    }
    EXPECT_EQ(known_, expected);
    most_ = std::max(most_, expected.size());
  }
  size_t most() const { return most_; }

 private:
  void Add() {
    BlockInfo info{.first_token = 0, .bytes = 1, .used_s = ++now_s_};
    info.parent = BlockRoot(Below(4) == 0 ? "b" : "a");
    const std::vector<BlockInfo> blocks = catalog_.Blocks();
    if (Below(4) > 0 && !blocks.empty()) {
      const BlockInfo& parent = blocks[static_cast<size_t>(Below(std::ssize(blocks)))];
      if (std::ssize(parent.tokens) < kPageTokens) return;
      info.parent = parent.key;
      info.first_token = parent.end_token();
    }
    const int64_t n = Below(4) == 0 ? 1 + Below(kPageTokens) : kPageTokens;
    for (int64_t i = 0; i < n; ++i) info.tokens.push_back(static_cast<TokenId>(Below(2)));
    info.groups = Below(6) == 0 ? 1 : kBothGroups;
    info.key = PageBlockKey(info.parent, info.tokens);
    const BlockInfo* const same = catalog_.Find(info.key);
    const bool replaces = same != nullptr && catalog_.IsWritten(info.key) && same->groups == 1;
    if (same != nullptr && !replaces) return;
    info.groups = replaces ? kBothGroups : info.groups;
    if (catalog_.Add(info, &victims_)) writing_.push_back(info.key);
    std::erase_if(writing_, [&](const Fingerprint& key) { return catalog_.Find(key) == nullptr; });
  }
  void Read() {
    std::vector<PrefixEvent> events;
    ASSERT_TRUE(queue_->Take(&events).ok());
    for (const PrefixEvent& event : events) {
      const CachedPage& page = *event.page;
      EXPECT_EQ(event.tier, CacheTier::kDisk);
      if (event.is_stored) {
        EXPECT_TRUE(page.parent == 0 || known_.contains(page.parent)) << "before its parent";
        EXPECT_TRUE(known_.insert(page.key).second) << "stored twice";
        parents_[page.key] = page.parent;
      } else {
        EXPECT_EQ(known_.erase(page.key), 1u) << "removed without being there";
        for (const uint64_t key : known_) EXPECT_NE(parents_[key], page.key) << "too early";
      }
    }
  }

  std::mt19937_64 random_;
  BlockCatalog catalog_{{.page_tokens = kPageTokens, .windows = {0, 0}, .budget_bytes = 60}};
  PrefixLog log_;
  const std::shared_ptr<PrefixQueue> queue_ = std::make_shared<PrefixQueue>([] {}, [] {});
  std::vector<Fingerprint> writing_;
  BlockCatalog::Victims victims_;
  std::set<uint64_t> known_;
  std::map<uint64_t, uint64_t> parents_;
  int64_t now_s_ = 0;
  size_t most_ = 0;
};

TEST(BlockCatalogWatch, ReadersKnowTheBlocksThatContinueOneAnother) {
  size_t most = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    World world(seed);
    for (int i = 0; i < 400; ++i) {
      world.Step();
      if (i == 50) world.Watch();
      if (i >= 50 && i % 7 == 0) world.Check();
      if (::testing::Test::HasFailure()) return;
    }
    most = std::max(most, world.most());
  }
  EXPECT_GT(most, 10u);
}

TEST(BlockCatalogWatch, NothingIsToldOfModelsThatStartOnlySomewhere) {
  BlockCatalog windowed({.page_tokens = 1, .windows = {0, 8}, .budget_bytes = 60});
  BlockCatalog recurrent({.page_tokens = 1, .windows = {0}, .slots = true, .budget_bytes = 60});
  for (BlockCatalog* const catalog : {&windowed, &recurrent}) {
    PrefixLog log;
    catalog->Watch("a", &log);
    BlockInfo info{.parent = BlockRoot("a"), .tokens = {1}, .groups = 3, .bytes = 1};
    info.key = PageBlockKey(info.parent, info.tokens);
    BlockCatalog::Victims victims;
    ASSERT_TRUE(catalog->Add(info, &victims));
    catalog->SetWritten(info.key, &victims);
    EXPECT_FALSE(catalog->TellWatched(10));
    EXPECT_EQ(log.memory_bytes(), 0);
  }
}

}  // namespace
}  // namespace weft
