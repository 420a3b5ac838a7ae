#include "api/reply_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "tests/support/await.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::Await;
using Kind = ReplyPiece::Kind;

// Returns its events, and a cancelled end once it is cancelled.
class FakeGeneration : public Generation {
 public:
  explicit FakeGeneration(std::deque<TurnEvent> events) : events_(std::move(events)) {}

  std::optional<TurnEvent> TryNext(bool* ended) override {
    if (dawdles_) return std::nullopt;
    *ended = events_.size() <= 1;
    if (events_.empty()) return std::nullopt;
    TurnEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  Signal& ready() override { return ready_; }
  void Cancel() override {
    ++cancels;
    events_ = {DoneEvent{.reason = FinishReason::kCancelled, .usage = {.prompt_tokens = 7}}};
  }
  void ExpectMore() override { expects_more = true; }
  int64_t prompt_tokens() const override { return 7; }

  // While it dawdles it has nothing.
  void Dawdle(bool dawdles) { dawdles_ = dawdles; }

  int cancels = 0;
  bool expects_more = false;

 private:
  bool dawdles_ = false;
  Signal ready_;
  std::deque<TurnEvent> events_;
};

// Upper-case text is reasoning; "!" begins and ends a call of the function "shout" with the text in
// between as arguments.
class FakeParser : public ReplyParser {
 public:
  std::vector<ReplyDelta> Push(std::string_view text) override {
    std::vector<ReplyDelta> out;
    for (const char c : text) {
      if (c == '!') {
        out.push_back({.kind = in_call_ ? ReplyDelta::Kind::kCallEnd : ReplyDelta::Kind::kCallBegin,
                       .call = call_,
                       .name = in_call_ ? "" : "shout"});
        if (in_call_) ++call_;
        in_call_ = !in_call_;
      } else if (in_call_) {
        out.push_back({.kind = ReplyDelta::Kind::kCallArguments, .text = {c}, .call = call_});
      } else {
        out.push_back({.kind = c >= 'A' && c <= 'Z' ? ReplyDelta::Kind::kReasoning
                                                    : ReplyDelta::Kind::kContent,
                       .text = {c}});
      }
    }
    return out;
  }
  std::vector<ReplyDelta> Finish(ReplyEnd) override {
    return {{.kind = ReplyDelta::Kind::kContent, .text = "."}};
  }

 private:
  bool in_call_ = false;
  int call_ = 0;
};

StartedEvent Started() { return {.prompt_tokens = 7, .cached_tokens = 3}; }

TokenEvent Token(std::string text, int choice = 0) {
  return {.choice = choice, .token = 5, .text = std::move(text), .logprob = -1};
}

DoneEvent Done(FinishReason reason, int choice = 0) {
  return {.choice = choice,
          .reason = reason,
          .usage = {.prompt_tokens = 7, .queued_us = 5, .prompt_us = 11}};
}

ReplyPlan PlanWithParser(int n_choices = 1) {
  ReplyPlan plan{.n_choices = n_choices};
  for (int i = 0; i < n_choices; ++i) plan.parsers.push_back(std::make_unique<FakeParser>());
  return plan;
}

std::vector<ReplyPiece> All(ReplyStream* stream) {
  std::vector<ReplyPiece> pieces;
  while (auto piece = Await(stream->Next())) pieces.push_back(std::move(*piece));
  return pieces;
}

std::shared_ptr<FakeGeneration> Events(std::deque<TurnEvent> events) {
  return std::make_shared<FakeGeneration>(std::move(events));
}

TEST(ReplyStream, TakesAReplyApart) {
  ReplyStream stream(
      Events({Started(), Token("Ab"), Token("!x"), Token("!"), Done(FinishReason::kStop)}),
      PlanWithParser());
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(stream.started().cached_tokens, 3);
  const auto pieces = All(&stream);
  std::vector<Kind> kinds;
  kinds.reserve(pieces.size());
  for (const auto& piece : pieces) kinds.push_back(piece.kind);
  EXPECT_THAT(kinds, ElementsAre(Kind::kReasoning, Kind::kContent, Kind::kCallBegin,
                                 Kind::kCallArguments, Kind::kCallEnd, Kind::kContent, Kind::kEnd));
  EXPECT_EQ(pieces[2].name, "shout");
  EXPECT_TRUE(pieces[2].call_id.starts_with("call_"));
  EXPECT_EQ(pieces[2].call_id.size(), 5u + 24u);
  EXPECT_EQ(pieces.back().finish, ReplyFinish::kToolCalls);
  const ReplyUsage usage = stream.usage();
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.completion_tokens, 3);
  EXPECT_EQ(usage.queued_us, 5);
  EXPECT_EQ(usage.prompt_us, 11);
}

TEST(ReplyStream, AConversationGoesOnAfterItsCallsWhereTheyAreAnswered) {
  for (const auto& [text, expects, goes_on] :
       {std::tuple("!x!", true, true), std::tuple("!x!", false, false),
        std::tuple("yes", true, false)}) {
    auto generation = Events({Started(), Token(text), Done(FinishReason::kStop)});
    ReplyPlan plan = PlanWithParser();
    plan.expects_results = expects;
    ReplyStream stream(generation, std::move(plan));
    ASSERT_TRUE(Await(stream.Start()).ok());
    All(&stream);
    EXPECT_EQ(generation->expects_more, goes_on) << text << expects;
  }
}

TEST(ReplyStream, CountsTheTokensOfReasoning) {
  ReplyPlan plan = PlanWithParser();
  plan.reasoning_is_open = true;
  ReplyStream stream(
      Events({Started(), Token(""), Token("A"), Token("b"), Token("c"), Done(FinishReason::kStop)}),
      std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  All(&stream);
  // The held-back token, the content token, and the one at the transition.
  EXPECT_EQ(stream.usage().reasoning_tokens, 3);
  EXPECT_EQ(stream.usage().completion_tokens, 4);
}

TEST(ReplyStream, HidesReasoningThatIsNotWanted) {
  ReplyPlan plan = PlanWithParser();
  plan.show_reasoning = false;
  plan.wants_logprobs = true;
  ReplyStream stream(Events({Started(), Token("AB"), Token("c"), Done(FinishReason::kStop)}),
                     std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  auto replies = Await(CollectReplies(&stream, 1));
  ASSERT_TRUE(replies.ok());
  EXPECT_EQ(replies->front().Joined(ReplyBlock::Kind::kReasoning), "");
  EXPECT_EQ(replies->front().Joined(ReplyBlock::Kind::kContent), "c.");
  EXPECT_EQ(replies->front().tokens.size(), 1u);
}

TEST(ReplyStream, EndsAfterTheFirstCallWhereOnlyOneIsWanted) {
  ReplyPlan plan = PlanWithParser();
  plan.single_call = true;
  auto generation =
      Events({Started(), Token("!x!ab!y!"), Token("more"), Done(FinishReason::kStop)});
  ReplyStream stream(generation, std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  auto replies = Await(CollectReplies(&stream, 1));
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ(generation->cancels, 1);
  ASSERT_EQ(replies->front().blocks.size(), 1u);
  EXPECT_EQ(replies->front().blocks[0].text, "x");
  EXPECT_EQ(replies->front().finish, ReplyFinish::kToolCalls);
}

TEST(ReplyStream, TellsTheClientsStopStringsFromTheFormats) {
  for (const bool is_format : {false, true}) {
    ReplyPlan plan;
    if (is_format) plan.format_stops = {"END"};
    DoneEvent done = Done(FinishReason::kStopString);
    done.stop_string = "END";
    ReplyStream stream(Events({Started(), Token("a"), done}), std::move(plan));
    ASSERT_TRUE(Await(stream.Start()).ok());
    const auto pieces = All(&stream);
    EXPECT_EQ(pieces.back().finish, is_format ? ReplyFinish::kStop : ReplyFinish::kStopString);
    EXPECT_EQ(pieces.back().stop_string, is_format ? "" : "END");
  }
}

TEST(ReplyStream, LengthIsToldThoughACallWasComplete) {
  ReplyStream stream(Events({Started(), Token("!x!"), Done(FinishReason::kLength)}),
                     PlanWithParser());
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(All(&stream).back().finish, ReplyFinish::kLength);
}

TEST(ReplyStream, GivesEveryTokenToOnePiece) {
  ReplyPlan plan;
  plan.wants_logprobs = true;
  ReplyStream stream(
      Events({Started(), Token(""), Token("ab"), Token("c"), Token(""), Done(FinishReason::kStop)}),
      std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  const auto pieces = All(&stream);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].tokens.size(), 2u);
  EXPECT_EQ(pieces[1].tokens.size(), 1u);
  EXPECT_EQ(pieces[2].tokens.size(), 1u);
}

TEST(ReplyStream, TellsChoicesApart) {
  ReplyStream stream(
      Events({Started(), Token("a", 0), Token("b", 1), Token("c", 1), Done(FinishReason::kStop, 1),
              Token("d", 0), Done(FinishReason::kLength, 0)}),
      {.n_choices = 2});
  ASSERT_TRUE(Await(stream.Start()).ok());
  auto replies = Await(CollectReplies(&stream, 2));
  ASSERT_TRUE(replies.ok());
  EXPECT_EQ((*replies)[0].Joined(ReplyBlock::Kind::kContent), "ad");
  EXPECT_EQ((*replies)[1].Joined(ReplyBlock::Kind::kContent), "bc");
  EXPECT_EQ((*replies)[0].finish, ReplyFinish::kLength);
}

TEST(ReplyStream, TellsWhenThereIsNothingToTell) {
  int quiet = 0;
  ReplyPlan plan;
  plan.signs.begin = plan.signs.interval = std::chrono::milliseconds(1);
  auto generation = Events({Started(), Token("a"), Done(FinishReason::kStop)});
  generation->Dawdle(true);
  plan.signs.send = [&quiet, generation](const ReplyUsage&) {
    if (++quiet == 3) generation->Dawdle(false);
  };
  ReplyStream stream(generation, std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_GE(quiet, 3);
  EXPECT_EQ(All(&stream).size(), 2u);
}

TEST(ReplyStream, AFailureBeforeTheStartIsThatOfStart) {
  DoneEvent done = Done(FinishReason::kError);
  done.status = DeadlineExceeded("too late");
  ReplyStream stream(Events({done}), {});
  EXPECT_EQ(Await(stream.Start()).code(), StatusCode::kDeadlineExceeded);
}

TEST(ReplyStream, AFailureInTheMiddleIsThatOfTheEnd) {
  DoneEvent done = Done(FinishReason::kError);
  done.status = Internal("the device was lost");
  ReplyStream stream(Events({Started(), Token("a"), done}), {});
  ASSERT_TRUE(Await(stream.Start()).ok());
  const auto pieces = All(&stream);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_THAT(std::string(Message(pieces[1].status)), HasSubstr("lost"));
}

TEST(ReplyStream, ATurnCutFromOutsideIsAnError) {
  ReplyStream stream(Events({Started(), Token("a"), Done(FinishReason::kCancelled)}), {});
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(Await(CollectReplies(&stream, 1)).status().code(), StatusCode::kUnavailable);
}

TEST(ReplyStream, EventsThatStopWithoutAnEndAreAnError) {
  ReplyStream stream(Events({Started(), Token("a")}), {});
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(Await(CollectReplies(&stream, 1)).status().code(), StatusCode::kInternal);
}

TEST(ReplyStream, CancelsWhatIsNotReadToItsEnd) {
  auto generation = Events({Started(), Token("a"), Token("b"), Done(FinishReason::kStop)});
  {
    ReplyStream stream(generation, {});
    ASSERT_TRUE(Await(stream.Start()).ok());
    Await(stream.Next());
  }
  EXPECT_EQ(generation->cancels, 1);
  auto finished = Events({Started(), Done(FinishReason::kStop)});
  {
    ReplyStream stream(finished, {});
    ASSERT_TRUE(Await(stream.Start()).ok());
    All(&stream);
  }
  EXPECT_EQ(finished->cancels, 0);
}

}  // namespace
}  // namespace weft::serve
