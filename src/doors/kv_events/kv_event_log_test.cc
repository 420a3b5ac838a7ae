// What clients learn from batches, snapshots and batches that they ask for again.
#include "doors/kv_events/kv_event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft::serve {
namespace {

using Json = nlohmann::json;

PrefixEvent Event(bool is_stored, uint64_t key, uint64_t parent,
                  CacheTier tier = CacheTier::kMemory) {
  CachedPage page{.key = key, .parent = parent, .tokens = {static_cast<int32_t>(key % 1000), 70}};
  return {is_stored, tier, std::make_shared<const CachedPage>(std::move(page))};
}

// Reads batches as a router does.
class Router {
 public:
  void Read(const KvEventBatch& batch) {
    const Json all = Json::from_msgpack(*batch.payload);
    ASSERT_EQ(all.size(), 3u);
    ASSERT_GT(all[0].get<double>(), 1.7e9);
    for (const Json& event : all[1]) ReadEvent(event);
    last_ = batch.number;
  }
  const std::map<std::pair<std::string, uint64_t>, uint64_t>& pages() const { return pages_; }
  uint64_t last() const { return last_; }

 private:
  void ReadEvent(const Json& event) {
    const std::string type = event.at("type");
    if (type == "AllBlocksCleared") return pages_.clear();
    const std::string medium = event.at("medium");
    if (type == "BlockRemoved") {
      for (const uint64_t key : event.at("block_hashes")) {
        EXPECT_EQ(pages_.erase({medium, key}), 1u);
      }
      return;
    }
    ASSERT_EQ(type, "BlockStored");
    ASSERT_TRUE(event.at("lora_id").is_null() && event.at("lora_name").is_null());
    uint64_t parent = 0;
    if (!event.at("parent_block_hash").is_null()) parent = event.at("parent_block_hash");
    size_t i = 0;
    for (const uint64_t key : event.at("block_hashes")) {
      EXPECT_EQ(event.at("token_ids")[2 * i++], key % 1000);
      EXPECT_TRUE(parent == 0 || pages_.contains({medium, parent}));
      EXPECT_TRUE((pages_.emplace(std::pair(medium, key), parent).second));
      parent = key;
    }
    EXPECT_EQ(event.at("block_size"), 2);
    EXPECT_EQ(event.at("token_ids").size(), 2 * i);
  }

  std::map<std::pair<std::string, uint64_t>, uint64_t> pages_;
  uint64_t last_ = 0;
};

TEST(KvEventLog, PagesThatFollowOneAnotherShareAnEvent) {
  KvEventLog log;
  EXPECT_EQ(log.latest().number, 0u);
  const KvEventBatch& batch = log.Add(
      /*begins=*/false, std::vector{Event(true, 1, 0), Event(true, 2, 1), Event(true, 9, 1),
                                    Event(true, 1, 0, CacheTier::kDisk), Event(false, 2, 1)});
  EXPECT_EQ(batch.number, 1u);
  const Json events = Json::from_msgpack(*batch.payload)[1];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].at("block_hashes"), Json({1, 2}));
  EXPECT_EQ(events[1].at("parent_block_hash"), 1);
  EXPECT_EQ(events[2].at("medium"), "DISK");
  EXPECT_EQ(events[3].at("block_hashes"), Json({2}));
}

TEST(KvEventLog, NumbersOfAllSizesSurvive) {
  KvEventLog log;
  std::vector<PrefixEvent> events;
  uint64_t parent = 0;
  for (const uint64_t key :
       {uint64_t{127}, uint64_t{128}, uint64_t{255}, uint64_t{256}, uint64_t{65535},
        uint64_t{65536}, uint64_t{0xffffffff}, uint64_t{0x100000000}, ~uint64_t{0}}) {
    events.push_back(Event(true, key, parent));
    parent = key;
  }
  Router router;
  router.Read(log.Add(/*begins=*/false, events));
  EXPECT_EQ(router.pages().size(), events.size());
  EXPECT_TRUE(router.pages().contains({"GPU", ~uint64_t{0}}));
}

// Random trees that grow and shrink. One router hears all, others come late, miss batches or ask
// for those that are gone.
TEST(KvEventLog, WhoeverComesLateOrMissesSomeLearnsTheSame) {
  std::mt19937 random(7);
  KvEventLog log({.batches = 20, .bytes = 1 << 20});
  Router first;
  std::map<std::pair<CacheTier, uint64_t>, uint64_t> index;  // to the parent
  uint64_t next = 1;
  for (int step = 0; step < 2000; ++step) {
    std::vector<PrefixEvent> events;
    const bool begins = random() % 200 == 0;
    if (begins) index.clear();
    for (unsigned n = random() % 6; n > 0; --n) {
      const auto tier = random() % 4 == 0 ? CacheTier::kDisk : CacheTier::kMemory;
      std::vector<std::pair<uint64_t, uint64_t>> leaves, all;
      for (const auto& [place, parent] : index) {
        if (place.first != tier) continue;
        all.emplace_back(place.second, parent);
      }
      for (const auto& [key, parent] : all) {
        const auto is_child = [of = key](const auto& other) { return other.second == of; };
        if (std::ranges::none_of(all, is_child)) leaves.emplace_back(key, parent);
      }
      if (!leaves.empty() && random() % 100 < 30 + all.size()) {
        const auto [key, parent] = leaves[random() % leaves.size()];
        events.push_back(Event(false, key, parent, tier));
        index.erase({tier, key});
      } else {
        const uint64_t parent =
            all.empty() || random() % 5 == 0 ? 0 : all[random() % all.size()].first;
        events.push_back(Event(true, next, parent, tier));
        index[{tier, next++}] = parent;
      }
    }
    first.Read(log.Add(begins, events));
    ASSERT_EQ(first.last(), static_cast<uint64_t>(step + 1));
    ASSERT_EQ(first.pages().size(), index.size());
    if (step % 50 != 49) continue;
    Router late, behind;
    late.Read(log.Snapshot());
    EXPECT_EQ(late.last(), first.last());
    EXPECT_EQ(late.pages(), first.pages());
    behind.Read(log.Get(random() % (log.latest().number - 20)));  // gone
    EXPECT_EQ(behind.last(), first.last());
    EXPECT_EQ(behind.pages(), first.pages());
  }
}

TEST(KvEventLog, ARouterThatMissedSomeCatchesUp) {
  KvEventLog log({.batches = 4, .bytes = 1 << 20});
  Router router;
  router.Read(log.Snapshot());
  for (uint64_t key = 1; key <= 3; ++key) log.Add(false, std::vector{Event(true, key, key - 1)});
  for (uint64_t number = 1; number <= 3; ++number) router.Read(log.Get(number));
  EXPECT_EQ(router.pages().size(), 3u);
  for (uint64_t key = 4; key <= 9; ++key) log.Add(false, std::vector{Event(true, key, key - 1)});
  router.Read(log.Get(4));  // gone
  EXPECT_EQ(router.last(), 9u);
  EXPECT_EQ(router.pages().size(), 9u);
}

}  // namespace
}  // namespace weft::serve
