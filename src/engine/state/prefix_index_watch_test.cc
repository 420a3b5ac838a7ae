// What readers of a watched PrefixIndex know, against what sessions can start from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/state/page_pool.h"
#include "engine/state/page_table.h"
#include "engine/state/prefix_index.h"
#include "engine/state/prefix_log.h"

namespace weft {
namespace {

constexpr int kPageTokens = 4;

struct Shape {
  std::vector<int64_t> windows;
  bool slots = false;
};

// What a reader knows, and that it is told in order.
class Reader {
 public:
  explicit Reader(PrefixLog* log) { log->Add(queue_); }

  void Read() {
    std::vector<PrefixEvent> events;
    EXPECT_EQ(Message(queue_->Take(&events)), "");
    for (const PrefixEvent& event : events) {
      const CachedPage& page = *event.page;
      if (event.is_stored) {
        EXPECT_TRUE(page.parent == 0 || pages_.contains(page.parent)) << "before its parent";
        EXPECT_TRUE(pages_.emplace(page.key, page).second) << "stored twice";
      } else {
        for (const auto& [key, other] : pages_) EXPECT_NE(other.parent, page.key) << "too early";
        EXPECT_EQ(pages_.erase(page.key), 1u) << "removed without being there";
      }
    }
  }
  // The prefixes that end with its pages.
  std::set<std::vector<TokenId>> Prefixes() const {
    std::set<std::vector<TokenId>> all;
    for (const auto& [key, page] : pages_) all.insert(PrefixOf(page));
    return all;
  }

 private:
  std::vector<TokenId> PrefixOf(const CachedPage& page) const {
    std::vector<TokenId> tokens;
    if (page.parent != 0) tokens = PrefixOf(pages_.at(page.parent));
    tokens.insert(tokens.end(), page.tokens.begin(), page.tokens.end());
    return tokens;
  }

  const std::shared_ptr<PrefixQueue> queue_ = std::make_shared<PrefixQueue>([] {}, [] {});
  std::map<uint64_t, CachedPage> pages_;
};

class World {
 public:
  World(const Shape& shape, uint64_t seed) : shape_(shape), random_(seed) {
    PrefixIndexOptions options;
    options.page_tokens = kPageTokens;
    for (const int64_t window : shape.windows) {
      pools_.push_back(std::make_unique<PagePool>("page", 100000));
      options.groups.push_back({pools_.back().get(), window});
    }
    if (shape.slots) options.slots = &slots_;
    index_ = std::make_unique<PrefixIndex>(options);
  }

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void Step() {
    const int64_t what = Below(10);
    if (what < 6) return Insert();
    EvictionWish wish;
    for (size_t g = 0; g < shape_.windows.size(); ++g) wish.pages.push_back(Below(3));
    wish.slots = shape_.slots ? Below(2) : 0;
    if (what < 8) {
      index_->EvictLru(wish);
    } else if (what == 8 && !inserted_.empty()) {
      index_->ForgetCheckpoint(Domain(),
                               inserted_[static_cast<size_t>(Below(std::ssize(inserted_)))].second);
    } else if (Below(20) == 0) {
      index_->Clear();
    }
  }

  // In small pieces.
  void TellAll() {
    while (index_->TellWatched(3)) continue;
  }
  // A page is told exactly if a session can start at its end or further on. So if a reader knows a
  // whole prefix, a session can start there.
  void Check(const std::string& domain, const Reader& reader) {
    std::set<std::vector<TokenId>> startable;
    for (const auto& [owner, tokens] : inserted_) {
      if (owner != domain) continue;
      const int64_t n = index_->MatchLength(domain, tokens, std::ssize(tokens));
      for (int64_t end = kPageTokens; end <= n; end += kPageTokens) {
        startable.emplace(tokens.begin(), tokens.begin() + end);
      }
    }
    EXPECT_EQ(reader.Prefixes(), startable);
    EXPECT_EQ(Message(index_->CheckIntegrity()), "");
  }

  std::string Domain() { return Below(2) == 0 ? "a" : "b"; }
  PrefixIndex& index() { return *index_; }

 private:
  void Insert() {
    // Few different tokens, so that prefixes are shared.
    std::vector<TokenId> tokens;
    const int64_t n = 1 + Below(30);
    for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(Below(2)));
    const std::string domain = Domain();
    std::vector<PageTable> tables;
    for (size_t g = 0; g < shape_.windows.size(); ++g) {
      tables.emplace_back(pools_[g].get(), GroupShape{kPageTokens, shape_.windows[g]});
      ASSERT_TRUE(tables.back().Append(n).ok());
      if (Below(2) == 0) tables.back().DropBehindWindow();
    }
    std::vector<PageTable*> pointers;
    pointers.reserve(tables.size());
    for (PageTable& table : tables) pointers.push_back(&table);
    PoolRef slot;
    if (shape_.slots && Below(2) == 0) slot = PoolRef::Adopt(&slots_, *slots_.Allocate());
    index_->Insert(domain, tokens, n, pointers, /*adopt=*/true, slot.id());
    inserted_.emplace_back(domain, tokens);
    // Others may resume at any beginning of it.
    for (int64_t end = kPageTokens; end < n; end += kPageTokens) {
      inserted_.emplace_back(domain, std::vector<TokenId>(tokens.begin(), tokens.begin() + end));
    }
  }

  const Shape shape_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<PagePool>> pools_;
  SlotPool slots_{"slot", 10000};
  std::unique_ptr<PrefixIndex> index_;
  std::vector<std::pair<std::string, std::vector<TokenId>>> inserted_;
};

TEST(PrefixIndexWatch, ReadersKnowWhereSessionsCanStart) {
  const Shape shapes[] = {{{0}, false}, {{0, 7}, false}, {{9}, false}, {{0}, true}, {{0, 5}, true}};
  for (const Shape& shape : shapes) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      World world(shape, seed);
      PrefixLog log_a;
      std::optional<PrefixLog> log_b(std::in_place);
      world.index().Watch("a", &log_a);
      Reader a(&log_a), slow(&log_a);
      for (int i = 0; i < 200; ++i) {
        world.Step();
        // One domain is watched later, no longer, and again.
        if (i % 100 == 30) world.index().Watch("b", &*log_b);
        if (i % 100 == 75) {
          world.index().Watch("b", nullptr);
          log_b.emplace();
        }
        (void)world.index().TellWatched(world.Below(4));
        (void)log_a.Serve(2);
        a.Read();
        if (i % 10 != 9) continue;
        world.TellAll();
        Reader fresh(&log_a);
        while (log_a.Serve(5)) continue;
        for (Reader* const reader : {&a, &slow, &fresh}) {
          reader->Read();
          world.Check("a", *reader);
        }
        if (i % 100 >= 30 && i % 100 < 75) {
          Reader b(&*log_b);
          while (log_b->Serve(5)) continue;
          b.Read();
          world.Check("b", b);
        }
        if (::testing::Test::HasFailure()) return;
      }
      world.index().Watch("a", nullptr);
      world.index().Watch("b", nullptr);
    }
  }
}

CachedPage Page(uint64_t key, uint64_t parent = 0) {
  return {.key = key, .parent = parent, .tokens = {static_cast<int32_t>(key)}};
}

TEST(PrefixLog, TellsNobodyOfRemovalsThatHeDoesNotKnow) {
  PrefixLog log;
  const uint64_t memory = log.Store(Page(7), CacheTier::kMemory);
  const auto early = std::make_shared<PrefixQueue>([] {}, [] {});
  log.Add(early);
  EXPECT_FALSE(log.Serve(10));
  const uint64_t disk = log.Store(Page(7), CacheTier::kDisk);
  const auto late = std::make_shared<PrefixQueue>([] {}, [] {});
  log.Add(late);
  log.Remove(memory);
  EXPECT_FALSE(log.Serve(10));
  std::vector<PrefixEvent> events;
  ASSERT_TRUE(early->Take(&events).ok());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_FALSE(events[1].is_stored);
  EXPECT_EQ(events[1].tier, CacheTier::kMemory);
  EXPECT_EQ(events[2].tier, CacheTier::kDisk);
  events.clear();
  ASSERT_TRUE(late->Take(&events).ok());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tier, CacheTier::kDisk);
  log.Remove(disk);
  EXPECT_GE(log.memory_bytes(), 0);
}

TEST(PrefixLog, StoredPagesWaitForASlowReaderAndRemovalsEndIt) {
  PrefixLog log;
  int wanted = 0;
  const auto queue = std::make_shared<PrefixQueue>([] {}, [&] { ++wanted; });
  log.Add(queue);
  std::vector<uint64_t> numbers;
  for (uint64_t i = 1; i <= PrefixQueue::kMaxUnread + PrefixQueue::kFull; ++i) {
    numbers.push_back(log.Store(Page(i), CacheTier::kMemory));
  }
  EXPECT_TRUE(log.Serve(PrefixQueue::kFull - 1));
  EXPECT_FALSE(log.Serve(PrefixQueue::kFull));  // it is full
  std::vector<PrefixEvent> events;
  ASSERT_TRUE(queue->Take(&events).ok());
  EXPECT_EQ(events.size(), PrefixQueue::kFull);
  EXPECT_EQ(wanted, 1);
  while (events.size() < numbers.size()) {
    const int before = wanted;
    (void)log.Serve(PrefixQueue::kFull);
    ASSERT_TRUE(queue->Take(&events).ok());
    EXPECT_EQ(wanted > before, events.size() < numbers.size());
  }
  EXPECT_TRUE(log.has_readers());
  for (size_t i = 0; i <= PrefixQueue::kMaxUnread; ++i) log.Remove(numbers[i]);
  EXPECT_FALSE(log.Serve(1));
  EXPECT_THAT(std::string(Message(queue->Take(&events))), ::testing::HasSubstr("subscribe again"));
  log.Remove(numbers.back());
  EXPECT_FALSE(log.Serve(1));
  EXPECT_FALSE(log.has_readers());
}

TEST(PrefixLog, LetsGoOfReadersThatHaveLeft) {
  int wanted = 0;
  std::shared_ptr<PrefixQueue> stays = std::make_shared<PrefixQueue>([] {}, [] {});
  {
    PrefixLog log;
    auto leaves = std::make_shared<PrefixQueue>([] {}, [&] { ++wanted; });
    log.Add(leaves);
    leaves.reset();
    EXPECT_EQ(wanted, 1);
    EXPECT_FALSE(log.Serve(1));
    EXPECT_FALSE(log.has_readers());
    log.Add(stays);
  }
  std::vector<PrefixEvent> events;
  EXPECT_THAT(std::string(Message(stays->Take(&events))), ::testing::HasSubstr("shut down"));
}

}  // namespace
}  // namespace weft
