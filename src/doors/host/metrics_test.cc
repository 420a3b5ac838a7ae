#include "doors/host/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/strings.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, CountsAndRenders) {
  Metrics metrics;
  metrics.CountRequest("/v1/sessions/{id}", 200);
  metrics.CountRequest("/v1/sessions/{id}", 200);
  metrics.ObserveFirstToken(0.03);
  metrics.ObserveNextToken(0.004);
  metrics.CountFinished(FinishReason::kLength,
                        {.prompt_tokens = 10, .completion_tokens = 5, .prompt_us = 2'000'000});
  EngineStats stats;
  stats.turns_running = 3;
  stats.prompt_tokens = 8;
  stats.pages_in_index = 7;
  stats.pages_evictable = 7;
  stats.guesses = 4;
  stats.guessed_tokens = 9;
  stats.accepted_guesses = 5;
  stats.accepted_guesses_at = {3, 2};
  stats.page_tokens = 16;
  stats.pages_used = 32;
  stats.page_budget = 100;
  const std::string text = metrics.Render(&stats);
  EXPECT_THAT(text,
              HasSubstr("weft_http_requests_total{route=\"/v1/sessions/{id}\",status=\"200\"} 2"));
  EXPECT_THAT(text, HasSubstr("weft_time_to_first_token_seconds_bucket{le=\"0.05\"} 1"));
  EXPECT_THAT(text, HasSubstr("weft_inter_token_seconds_count 1"));
  EXPECT_THAT(text, HasSubstr("weft_choices_finished_total{reason=\"length\"} 1"));
  EXPECT_THAT(text, HasSubstr("weft_choices_finished_total{reason=\"error\"} 0"));
  EXPECT_THAT(text, HasSubstr("weft_pages{kind=\"in_index\"} 7"));
  EXPECT_THAT(text, HasSubstr("llamacpp:requests_processing 3"));
  EXPECT_THAT(text, HasSubstr("llamacpp:prompt_tokens_seconds 4"));
  EXPECT_THAT(text, HasSubstr("llamacpp:n_tokens_max 15"));
  EXPECT_THAT(text, HasSubstr("llamacpp:spec_decode_num_drafts_total 4"));
  EXPECT_THAT(text, HasSubstr("llamacpp:spec_decode_num_draft_tokens_total 9"));
  EXPECT_THAT(text, HasSubstr("llamacpp:spec_decode_num_accepted_tokens_total 5"));
  EXPECT_THAT(text, HasSubstr("spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 2"));
  EXPECT_THAT(text, HasSubstr("\nvllm:num_requests_running 3"));
  EXPECT_THAT(text, HasSubstr("\nvllm:kv_cache_usage_perc 0.25"));
  EXPECT_THAT(text, HasSubstr("\nvllm:gpu_cache_usage_perc 0.25"));
  EXPECT_THAT(text,
              HasSubstr("\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1"));
}

TEST(Metrics, EveryMetricSaysOnceWhatItIs) {
  const EngineStats stats;
  std::set<std::string> described;
  std::set<std::string> typed;
  const std::string text = Metrics().Render(&stats);
  for (const std::string_view line : StrSplit(text, '\n')) {
    if (line.starts_with("# HELP ")) {
      const std::string name(StrSplit(line, ' ')[2]);
      EXPECT_TRUE(described.insert(name).second) << name << " is described twice";
    }
    if (line.starts_with("# TYPE ")) typed.insert(std::string(StrSplit(line, ' ')[2]));
  }
  EXPECT_EQ(described, typed);
  EXPECT_GT(described.size(), 30u);
}

TEST(Metrics, ADomainSeesOnlyItsOwn) {
  Metrics metrics;
  metrics.CountOwn("one", {.cached_tokens = 3, .computed_tokens = 7, .completion_tokens = 5});
  metrics.CountOwn("one", {.computed_tokens = 1, .completion_tokens = 2});
  metrics.CountOwn("two", {.computed_tokens = 100, .completion_tokens = 100});
  metrics.CountRequest("/v1/models", 200);
  const std::string own = metrics.RenderOwn("one", {{.state = SessionState::kParked}});
  EXPECT_THAT(own, HasSubstr("\nweft_generated_tokens_total 7\n"));
  EXPECT_THAT(own, HasSubstr("\nweft_prompt_tokens_total 8\n"));
  EXPECT_THAT(own, HasSubstr("\nweft_cached_tokens_total 3\n"));
  EXPECT_THAT(own, HasSubstr("\nweft_sessions{state=\"parked\"} 1\n"));
  EXPECT_THAT(own, Not(HasSubstr("http")));
  EXPECT_THAT(metrics.RenderOwn("three", {}), HasSubstr("\nweft_generated_tokens_total 0\n"));
}

TEST(Metrics, WithoutAnEngineThereAreOnlyOwnNumbers) {
  const std::string text = Metrics().Render(nullptr);
  EXPECT_THAT(text, HasSubstr("weft_http_connections"));
  EXPECT_THAT(text, Not(HasSubstr("llamacpp:")));
}

}  // namespace
}  // namespace weft::serve
