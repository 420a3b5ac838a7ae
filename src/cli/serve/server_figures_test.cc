#include "cli/serve/server_figures.h"

#include "doors/host/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

// A different number in every field that the figures use.
EngineStats SomeStats() {
  EngineStats stats;
  stats.turns_running = 2;
  stats.turns_queued = 1;
  stats.sessions_ready = 3;
  stats.sessions_running = 2;
  stats.sessions_parked = 7;
  stats.pages_used = 12;
  stats.page_budget = 100;
  stats.weight_bytes = 1'000'000;
  stats.draft_weight_bytes = 10'000;
  stats.page_bytes = 2'000;
  stats.slot_bytes = 300;
  stats.checkpoint_bytes = 40;
  stats.row_bytes = 5;
  stats.scratch_bytes = 7'000;
  stats.guess_bytes = 800;
  stats.disk_bytes = 90;
  stats.disk_budget_bytes = 900;
  stats.prompt_tokens = 290;
  stats.cached_tokens = 710;
  stats.generated_tokens = 333;
  stats.steps = 40;
  stats.step_us = 500'000;
  return stats;
}

TEST(ServerFiguresTest, MetricsTellWhatTheEngineTells) {
  const ServerFigures of_engine = FiguresOf(SomeStats());
  EXPECT_EQ(of_engine.sessions, 5);
  EXPECT_EQ(of_engine.weight_bytes, 1'010'000);
  EXPECT_EQ(of_engine.state_bytes, 2'345);
  EXPECT_EQ(of_engine.other_bytes, 7'800);
  EXPECT_EQ(FoundPercent(of_engine), 71);
  EXPECT_EQ(MemoryPercent(of_engine), 12);

  const EngineStats stats = SomeStats();
  const auto read = ParseFigures(serve::Metrics().Render(&stats));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, of_engine);
}

TEST(ServerFiguresTest, SeveralModelsAreAddedUp) {
  const auto read = ParseFigures(
      "weft_model_loaded{model=\"a\"} 1\nweft_model_loaded{model=\"c\"} 0\n"
      "weft_turns_running{model=\"a\"} 2\nweft_turns_running{model=\"b\\\"} 9\"\"} 3\n"
      "weft_bytes{model=\"a\",kind=\"weights\"} 10\nweft_bytes{model=\"b\",kind=\"weights\"} 30\n");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->turns_running, 5);
  EXPECT_EQ(read->weight_bytes, 40);
  // None of them is loaded.
  EXPECT_TRUE(ParseFigures("weft_model_loaded{model=\"a\"} 0\n").ok());
}

TEST(ServerFiguresTest, WhatIsNotAServersIsRefused) {
  EXPECT_FALSE(ParseFigures("").ok());
  EXPECT_FALSE(ParseFigures("<html>weft_pages</html>\nweft_pages{kind=\"budget\"} x\n").ok());
  // The metrics that a key other than the operator's may see.
  EXPECT_FALSE(ParseFigures(serve::Metrics().RenderOwn("", {})).ok());
}

TEST(ServerFiguresTest, RatesAreForASecond) {
  const ServerFigures before = FiguresOf(SomeStats());
  EngineStats later = SomeStats();
  later.prompt_tokens += 1080;
  later.generated_tokens += 336;
  later.steps += 20;
  later.step_us += 1'000'000;
  const ServerRates rates = RatesBetween(before, FiguresOf(later), 2);
  EXPECT_DOUBLE_EQ(rates.computed, 540);
  EXPECT_DOUBLE_EQ(rates.written, 168);
  EXPECT_DOUBLE_EQ(rates.step_ms, 50);
  // Nothing passed, or the server is another one.
  EXPECT_EQ(RatesBetween(before, before, 0).written, 0);
  EXPECT_EQ(RatesBetween(before, {}, 1).written, 0);
}

TEST(LiveLineTest, LeavesOutWhatDoesNotFit) {
  const ServerFigures now = FiguresOf(SomeStats());
  const ServerRates rates = {.computed = 540, .written = 4.24};
  EXPECT_EQ(LiveLine(now, rates, 200),
            "2 running, 1 waiting | 4.2 tokens/s written, 540 read | memory 12 % full | 71 % of "
            "prompts found");
  for (size_t columns = 0; columns < 120; ++columns) {
    EXPECT_LE(LiveLine(now, rates, columns).size(), columns);
  }
  EXPECT_EQ(LiveLine(now, rates, 60), "2 running, 1 waiting | 4.2 tokens/s written, 540 read");
  EXPECT_EQ(LiveLine({}, {}, 80), "idle | memory 0 % full");
}

}  // namespace
}  // namespace weft::cli
