// How events become messages.
#include "doors/grpc/kv_events_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace weft::serve {
namespace {

using ::testing::ElementsAre;

PrefixEvent Event(bool is_stored, uint64_t key, uint64_t parent,
                  CacheTier tier = CacheTier::kMemory) {
  CachedPage page{.key = key, .parent = parent, .tokens = {static_cast<int32_t>(key)}};
  return {is_stored, tier, std::make_shared<const CachedPage>(std::move(page))};
}

TEST(KvBatches, PagesThatFollowOneAnotherShareAnEvent) {
  const auto batches =
      BatchesOf({Event(true, 1, 0), Event(true, 2, 1), Event(true, 9, 1),
                 Event(true, 1, 0, CacheTier::kDisk), Event(false, 2, 1), Event(false, 9, 1)},
                100);
  ASSERT_EQ(batches.size(), 1u);
  ASSERT_EQ(batches[0].events_size(), 4);
  const auto& chain = batches[0].events(0).stored();
  ASSERT_EQ(chain.blocks_size(), 2);
  EXPECT_FALSE(chain.has_parent_block_hash());
  EXPECT_EQ(chain.blocks(1).block_hash(), 2);
  EXPECT_EQ(chain.blocks(1).block_size(), 1);
  EXPECT_THAT(chain.blocks(1).token_ids(), ElementsAre(2u));
  EXPECT_EQ(batches[0].events(1).stored().parent_block_hash(), 1);
  EXPECT_EQ(batches[0].events(2).stored().tier(), smg::grpc::common::KV_CACHE_TIER_DISK);
  EXPECT_EQ(batches[0].events(2).stored().blocks(0).cache_level(), 2);
  EXPECT_THAT(batches[0].events(3).removed().block_hashes(), ElementsAre(2, 9));
}

TEST(KvBatches, AreOfLimitedSize) {
  std::vector<PrefixEvent> events;
  for (uint64_t i = 1; i <= 7; ++i) events.push_back(Event(true, i, i - 1));
  const auto batches = BatchesOf(events, 3);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[1].events(0).stored().parent_block_hash(), 3);
  EXPECT_EQ(batches[2].events(0).stored().blocks_size(), 1);
  EXPECT_TRUE(BatchesOf({}, 3).empty());
}

}  // namespace
}  // namespace weft::serve
