#include "answer/answer.h"

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
using PieceKind = AnswerPiece::Kind;

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

AnswerPlan PlanWithParser(int n_choices = 1) {
  AnswerPlan plan{.n_choices = n_choices};
  for (int i = 0; i < n_choices; ++i) plan.parsers.push_back(std::make_unique<FakeParser>());
  return plan;
}

std::vector<AnswerPiece> All(Answer* stream) {
  std::vector<AnswerPiece> pieces;
  while (auto piece = Await(stream->Next())) pieces.push_back(std::move(*piece));
  return pieces;
}

std::shared_ptr<FakeGeneration> Events(std::deque<TurnEvent> events) {
  return std::make_shared<FakeGeneration>(std::move(events));
}

TEST(AnswerStream, TakesAReplyApart) {
  Answer stream(
      Events({Started(), Token("Ab"), Token("!x"), Token("!"), Done(FinishReason::kStop)}),
      PlanWithParser());
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(stream.started().cached_tokens, 3);
  const auto pieces = All(&stream);
  std::vector<PieceKind> kinds;
  kinds.reserve(pieces.size());
  for (const auto& piece : pieces) kinds.push_back(piece.kind);
  EXPECT_THAT(kinds, ElementsAre(PieceKind::kReasoning, PieceKind::kContent, PieceKind::kCallBegin,
                                 PieceKind::kCallArguments, PieceKind::kCallEnd,
                                 PieceKind::kContent, PieceKind::kEnd));
  EXPECT_EQ(pieces[2].name, "shout");
  EXPECT_TRUE(pieces[2].id.starts_with("call_"));
  EXPECT_EQ(pieces[2].id.size(), 5u + 24u);
  EXPECT_TRUE(pieces.back().end.by_calls);
  const AnswerUsage usage = stream.usage();
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.completion_tokens, 3);
  EXPECT_EQ(usage.queued_us, 5);
  EXPECT_EQ(usage.prompt_us, 11);
}

TEST(AnswerStream, AConversationGoesOnAfterItsCallsWhereTheyAreAnswered) {
  for (const auto& [text, expects, goes_on] :
       {std::tuple("!x!", true, true), std::tuple("!x!", false, false),
        std::tuple("yes", true, false)}) {
    auto generation = Events({Started(), Token(text), Done(FinishReason::kStop)});
    AnswerPlan plan = PlanWithParser();
    plan.expects_results = expects;
    Answer stream(generation, std::move(plan));
    ASSERT_TRUE(Await(stream.Start()).ok());
    All(&stream);
    EXPECT_EQ(generation->expects_more, goes_on) << text << expects;
  }
}

TEST(AnswerStream, CountsTheTokensOfReasoning) {
  AnswerPlan plan = PlanWithParser();
  plan.reasoning_is_open = true;
  Answer stream(
      Events({Started(), Token(""), Token("A"), Token("b"), Token("c"), Done(FinishReason::kStop)}),
      std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  All(&stream);
  // The held-back token, the content token, and the one at the transition.
  EXPECT_EQ(stream.usage().reasoning_tokens, 3);
  EXPECT_EQ(stream.usage().completion_tokens, 4);
}

TEST(AnswerStream, HidesReasoningThatIsNotWanted) {
  AnswerPlan plan = PlanWithParser();
  plan.show_reasoning = false;
  plan.wants_logprobs = true;
  Answer stream(Events({Started(), Token("AB"), Token("c"), Done(FinishReason::kStop)}),
                std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  auto replies = Await(CollectReplies(&stream, 1));
  ASSERT_TRUE(replies.ok());
  EXPECT_EQ(replies->front().Joined(ReplyBlock::Kind::kReasoning), "");
  EXPECT_EQ(replies->front().Joined(ReplyBlock::Kind::kContent), "c.");
  EXPECT_EQ(replies->front().tokens.size(), 1u);
}

TEST(AnswerStream, EndsAfterTheFirstCallWhereOnlyOneIsWanted) {
  AnswerPlan plan = PlanWithParser();
  plan.single_call = true;
  auto generation =
      Events({Started(), Token("!x!ab!y!"), Token("more"), Done(FinishReason::kStop)});
  Answer stream(generation, std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  auto replies = Await(CollectReplies(&stream, 1));
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ(generation->cancels, 1);
  ASSERT_EQ(replies->front().blocks.size(), 1u);
  EXPECT_EQ(replies->front().blocks[0].text, "x");
  EXPECT_TRUE(replies->front().end.by_calls);
}

TEST(AnswerStream, TellsTheClientsStopStringsFromTheFormats) {
  for (const bool is_format : {false, true}) {
    AnswerPlan plan;
    if (is_format) plan.format_stops = {"END"};
    DoneEvent done = Done(FinishReason::kStopString);
    done.stop_string = "END";
    Answer stream(Events({Started(), Token("a"), done}), std::move(plan));
    ASSERT_TRUE(Await(stream.Start()).ok());
    const auto pieces = All(&stream);
    EXPECT_EQ(pieces.back().end.reason,
              is_format ? FinishReason::kStop : FinishReason::kStopString);
    EXPECT_EQ(pieces.back().end.stop_string, is_format ? "" : "END");
  }
}

TEST(AnswerStream, LengthIsToldThoughACallWasComplete) {
  Answer stream(Events({Started(), Token("!x!"), Done(FinishReason::kLength)}), PlanWithParser());
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(All(&stream).back().end.reason, FinishReason::kLength);
}

TEST(AnswerStream, GivesEveryTokenToOnePiece) {
  AnswerPlan plan;
  plan.wants_logprobs = true;
  Answer stream(
      Events({Started(), Token(""), Token("ab"), Token("c"), Token(""), Done(FinishReason::kStop)}),
      std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  const auto pieces = All(&stream);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].tokens.size(), 2u);
  EXPECT_EQ(pieces[1].tokens.size(), 1u);
  EXPECT_EQ(pieces[2].tokens.size(), 1u);
}

TEST(AnswerStream, TellsChoicesApart) {
  Answer stream(
      Events({Started(), Token("a", 0), Token("b", 1), Token("c", 1), Done(FinishReason::kStop, 1),
              Token("d", 0), Done(FinishReason::kLength, 0)}),
      {.n_choices = 2});
  ASSERT_TRUE(Await(stream.Start()).ok());
  auto replies = Await(CollectReplies(&stream, 2));
  ASSERT_TRUE(replies.ok());
  EXPECT_EQ((*replies)[0].Joined(ReplyBlock::Kind::kContent), "ad");
  EXPECT_EQ((*replies)[1].Joined(ReplyBlock::Kind::kContent), "bc");
  EXPECT_EQ((*replies)[0].end.reason, FinishReason::kLength);
}

TEST(AnswerStream, TellsWhenThereIsNothingToTell) {
  int quiet = 0;
  AnswerPlan plan;
  plan.reader.signs.begin = plan.reader.signs.interval = std::chrono::milliseconds(1);
  auto generation = Events({Started(), Token("a"), Done(FinishReason::kStop)});
  generation->Dawdle(true);
  plan.reader.signs.send = [&quiet, generation](const AnswerUsage&) {
    if (++quiet == 3) generation->Dawdle(false);
  };
  Answer stream(generation, std::move(plan));
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_GE(quiet, 3);
  EXPECT_EQ(All(&stream).size(), 2u);
}

TEST(AnswerStream, AFailureBeforeTheStartIsThatOfStart) {
  DoneEvent done = Done(FinishReason::kError);
  done.status = DeadlineExceeded("too late");
  Answer stream(Events({done}), {});
  EXPECT_EQ(Await(stream.Start()).code(), StatusCode::kDeadlineExceeded);
}

TEST(AnswerStream, AFailureInTheMiddleIsThatOfTheEnd) {
  DoneEvent done = Done(FinishReason::kError);
  done.status = Internal("the device was lost");
  Answer stream(Events({Started(), Token("a"), done}), {});
  ASSERT_TRUE(Await(stream.Start()).ok());
  const auto pieces = All(&stream);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_THAT(std::string(Message(pieces[1].status)), HasSubstr("lost"));
}

TEST(AnswerStream, ATurnCutFromOutsideIsAnError) {
  Answer stream(Events({Started(), Token("a"), Done(FinishReason::kCancelled)}), {});
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(Await(CollectReplies(&stream, 1)).status().code(), StatusCode::kUnavailable);
}

TEST(AnswerStream, EventsThatStopWithoutAnEndAreAnError) {
  Answer stream(Events({Started(), Token("a")}), {});
  ASSERT_TRUE(Await(stream.Start()).ok());
  EXPECT_EQ(Await(CollectReplies(&stream, 1)).status().code(), StatusCode::kInternal);
}

TEST(AnswerStream, CancelsWhatIsNotReadToItsEnd) {
  auto generation = Events({Started(), Token("a"), Token("b"), Done(FinishReason::kStop)});
  {
    Answer stream(generation, {});
    ASSERT_TRUE(Await(stream.Start()).ok());
    Await(stream.Next());
  }
  EXPECT_EQ(generation->cancels, 1);
  auto finished = Events({Started(), Done(FinishReason::kStop)});
  {
    Answer stream(finished, AnswerPlan());
    ASSERT_TRUE(Await(stream.Start()).ok());
    All(&stream);
  }
  EXPECT_EQ(finished->cancels, 0);
}

}  // namespace
}  // namespace weft::serve
