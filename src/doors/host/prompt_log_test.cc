#include "doors/host/prompt_log.h"

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
              ElementsAre("prompt: prefill begins, 15000 of 16000 tokens to prefill id=r1"));
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

TEST_F(PromptLogTest, APromptThatWaitsForOthersIsSaidToWait) {
  TurnInfo waiting = Reading(7, 9000, 812, 812, 0);
  waiting.stage = TurnInfo::Stage::kWaiting;
  waiting.waits_behind_tokens = 5000;
  EXPECT_THAT(Look({waiting}, 5), ElementsAre("prompt: waits for 5000 tokens of others, 812 of "
                                              "9000 done id=r1"));
  EXPECT_THAT(Look({waiting}, 14), IsEmpty());
  EXPECT_THAT(Look({Reading(7, 9000, 812, 1812, 2 * kSecond)}, 15),
              ElementsAre("prompt: 1812 of 9000 tokens, 500.0 tokens/s, 14 s left id=r1"));
  // One that has begun and is overtaken.
  waiting.done_tokens = 1812;
  waiting.prompt_us = 2 * kSecond;
  EXPECT_THAT(Look({waiting}, 25), ElementsAre("prompt: waits for 5000 tokens of others, 1812 "
                                               "of 9000 done id=r1"));
  EXPECT_DOUBLE_EQ(waiting.PromptSecondsLeft(), (5000 + 9000 - 1812) / 500.0);
}

TEST_F(PromptLogTest, AShortPromptIsToldOfWhileItWaitsForLongOnes) {
  TurnInfo queued = {.id = 3, .session_name = "kitchen", .prompt_tokens = 40};
  queued.waits_behind_tokens = 2000;
  EXPECT_THAT(Look({queued}, 1), IsEmpty());
  queued.waits_behind_tokens = 2001;
  EXPECT_THAT(Look({queued}, 2), ElementsAre("prompt: waits for 2001 tokens of others, 0 of 40 "
                                             "done session=kitchen"));
  queued.waits_behind_tokens = 0;
  queued.stage = TurnInfo::Stage::kReading;
  EXPECT_THAT(Look({queued}, 15), IsEmpty());
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
