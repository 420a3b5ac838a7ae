// The load that gateways read, from an engine's figures.
#include "doors/grpc/engine_load.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft::serve {
namespace {

using smg::grpc::common::EngineLoad;

EngineStats Stats() {
  EngineStats stats;
  stats.turns_running = 2;
  stats.turns_queued = 1;
  // 30 pages are in use, 20 of them by the prefix cache alone, which would give them up.
  stats.pages_used = 30;
  stats.pages_in_index = 28;
  stats.pages_evictable = 20;
  stats.page_budget = 40;
  stats.token_budget = 640;
  stats.prompt_tokens = 25;
  stats.cached_tokens = 75;
  return stats;
}

TEST(EngineLoad, PagesThatCanBeEvictedAreNotInUse) {
  const EngineLoad load = LoadOf(Stats(), {});
  EXPECT_EQ(load.running_requests(), 2u);
  EXPECT_EQ(load.waiting_requests(), 1u);
  EXPECT_DOUBLE_EQ(load.token_usage(), 0.25);
  EXPECT_DOUBLE_EQ(load.active_token_usage(), 0.25);
  EXPECT_EQ(load.num_used_tokens(), 160);
  EXPECT_EQ(load.max_total_num_tokens(), 640);
  EXPECT_DOUBLE_EQ(load.cache_hit_rate(), 0.75);
  EXPECT_DOUBLE_EQ(LoadOf({}, {}).token_usage(), 0);
}

TEST(EngineLoad, PromptsWithoutAnAnswerArePending) {
  TurnInfo queued{.stage = TurnInfo::Stage::kQueued, .prompt_tokens = 100};
  TurnInfo reading{.stage = TurnInfo::Stage::kReading, .prompt_tokens = 50, .done_tokens = 20};
  TurnInfo writing{.stage = TurnInfo::Stage::kWriting, .prompt_tokens = 10, .done_tokens = 10};
  EXPECT_EQ(LoadOf(Stats(), {queued, reading, writing}).prefill_pending_tokens(), 130u);
}

TEST(EngineLoad, AskedAndToldLoadsAgree) {
  EngineLoad load = LoadOf(Stats(), {});
  load.set_max_running_requests(8);
  load.set_gen_throughput(12.5);
  const auto asked = SchedulerLoadOf(load);
  EXPECT_EQ(asked.num_total_reqs(), 3);
  EXPECT_EQ(asked.num_used_tokens(), load.num_used_tokens());
  EXPECT_EQ(asked.max_total_num_tokens(), load.max_total_num_tokens());
  EXPECT_DOUBLE_EQ(asked.token_usage(), load.token_usage());
  EXPECT_DOUBLE_EQ(asked.gen_throughput(), 12.5);
  EXPECT_DOUBLE_EQ(asked.utilization(), 0.25);
}

TEST(EngineLoad, SmallMovesAreNotSent) {
  const EngineLoad load = LoadOf(Stats(), {});
  EngineLoad other = load;
  EXPECT_FALSE(HasMoved(load, other));
  other.set_token_usage(load.token_usage() + 0.004);
  EXPECT_FALSE(HasMoved(load, other));
  other.set_token_usage(load.token_usage() + 0.006);
  EXPECT_TRUE(HasMoved(load, other));
  other = load;
  other.set_waiting_requests(0);
  EXPECT_TRUE(HasMoved(load, other));
  EngineLoad fast = load, faster = load;
  fast.set_gen_throughput(100);
  faster.set_gen_throughput(104);
  EXPECT_FALSE(HasMoved(fast, faster));
  faster.set_gen_throughput(106);
  EXPECT_TRUE(HasMoved(fast, faster));
}

TEST(EngineLoad, AKeyKnowsItsOwnTurnsOnly) {
  const std::vector<TurnInfo> turns = {
      {.domain = "a", .stage = TurnInfo::Stage::kQueued, .prompt_tokens = 50},
      {.domain = "a", .stage = TurnInfo::Stage::kReading, .prompt_tokens = 30, .done_tokens = 10},
      {.domain = "b", .stage = TurnInfo::Stage::kReading, .prompt_tokens = 900},
      {.domain = "b", .stage = TurnInfo::Stage::kQueued, .prompt_tokens = 900}};
  const EngineLoad load = OwnLoadOf(turns, "a");
  EXPECT_EQ(load.running_requests(), 1u);
  EXPECT_EQ(load.waiting_requests(), 1u);
  EXPECT_EQ(load.prefill_pending_tokens(), 70u);
  EXPECT_EQ(load.token_usage() + load.cache_hit_rate() + load.gen_throughput(), 0);
}

TEST(ThroughputMeter, CountsTheLastSeconds) {
  ThroughputMeter meter;
  constexpr int64_t kSecond = 1'000'000;
  EXPECT_DOUBLE_EQ(meter.PerSecond(1000, kSecond), 0);
  EXPECT_DOUBLE_EQ(meter.PerSecond(1050, kSecond + kSecond / 2), 100);
  EXPECT_DOUBLE_EQ(meter.PerSecond(1100, 2 * kSecond), 100);
  EXPECT_DOUBLE_EQ(meter.PerSecond(1100, 2 * kSecond + kSecond / 2), 100 / 1.5);
  EXPECT_DOUBLE_EQ(meter.PerSecond(1100, 3 * kSecond), 0);
}

}  // namespace
}  // namespace weft::serve
