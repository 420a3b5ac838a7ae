#include "host/prompt_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000;

TurnInfo Reading(uint64_t id, int64_t prompt, int64_t cached, int64_t done, int64_t us) {
  return {.id = id,
          .label = "r1",
          .stage = TurnInfo::Stage::kReading,
          .prompt_tokens = prompt,
          .cached_tokens = cached,
          .done_tokens = done,
          .prompt_us = us};
}

class PromptLogTest : public ::testing::Test {
 protected:
  std::vector<std::string> Look(std::vector<TurnInfo> turns, int64_t second) {
    lines_.clear();
    log_.Look(turns, second * kSecond);
    return lines_;
  }
  std::vector<std::string> lines_;
  PromptLog log_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(PromptLogTest, TellsTheBeginningAndThenEveryTenSeconds) {
  EXPECT_THAT(Look({Reading(7, 16000, 1000, 1000, 0)}, 5),
              ElementsAre("prompt: begins, 15000 of 16000 tokens to compute id=r1"));
  EXPECT_THAT(Look({Reading(7, 16000, 1000, 2000, 9 * kSecond)}, 14), IsEmpty());
  TurnInfo named = Reading(7, 16000, 1000, 3000, 10 * kSecond);
  named.session_name = "kitchen";
  EXPECT_THAT(Look({named}, 15), ElementsAre("prompt: 3000 of 16000 tokens, 200.0 tokens/s, 65 s "
                                             "left session=kitchen id=r1"));
  named.stage = TurnInfo::Stage::kWaiting;
  EXPECT_EQ(Look({named}, 25).size(), 1u) << "it waits for memory, and is told of";
  named.stage = TurnInfo::Stage::kWriting;
  EXPECT_THAT(Look({named}, 35), IsEmpty()) << "it is in";
}

TEST_F(PromptLogTest, SaysNothingOfShortPromptsAndOfThoseThatWait) {
  TurnInfo queued = Reading(1, 16000, 0, 0, 0);
  queued.stage = TurnInfo::Stage::kQueued;
  TurnInfo sibling = Reading(2, 16000, 0, 0, 0);
  sibling.stage = TurnInfo::Stage::kWaiting;
  EXPECT_THAT(Look({queued, sibling, Reading(3, 16000, 14000, 14000, 0)}, 1), IsEmpty());
  EXPECT_EQ(Look({Reading(1, 16000, 0, 0, 0), Reading(4, 2001, 0, 0, 0)}, 2).size(), 2u);
}

}  // namespace
}  // namespace weft::serve
