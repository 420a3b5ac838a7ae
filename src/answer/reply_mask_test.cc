// Allowed tokens of a reply that first thinks, up to a limit, and then answers in a required form.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/reply_mask.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

const ThoughtMarks kMarks = {.open = "<t>", .close = "</t>", .answer = "</t>"};

class ReplyMaskTest : public ::testing::Test {
 protected:
  void Begin(ReplyRules rules, const std::string& pattern) {
    generated_.clear();
    const auto compiled =
        CompileConstraint(*model_, {.kind = ConstraintSpec::Kind::kRegex, .text = pattern});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    rules.reply = (*compiled)->Begin();
    mask_ = MaskOf(model_->tokenizer(), std::move(rules))(0);
  }
  void Say(std::string_view text) {
    for (const int32_t token : testing::Bytes(text)) generated_.push_back(token);
  }
  bool May(int32_t token) {
    const auto n_vocab = static_cast<size_t>(model_->n_vocab());
    std::vector<uint32_t> allowed((n_vocab + 31) / 32, ~uint32_t{0});
    mask_->Apply(generated_, allowed);
    const auto at = static_cast<size_t>(token);
    return (allowed[at / 32] >> (at % 32) & 1) != 0;
  }
  bool MaySay(char byte) { return May(testing::Bytes(std::string(1, byte))[0]); }
  bool MayEnd() { return May(model_->tokenizer()->eos()); }
  // Takes tokens as long as only one is allowed.
  std::string TakeWhatMustCome() {
    std::string said;
    for (int i = 0; i < 20; ++i) {
      std::vector<int32_t> may;
      for (int32_t token = 0; token < model_->n_vocab(); ++token) {
        if (May(token)) may.push_back(token);
      }
      if (may.size() != 1) break;
      generated_.push_back(may[0]);
      said += model_->tokenizer()->Piece(may[0], /*render_special=*/true);
    }
    return said;
  }

  const std::shared_ptr<const Model> model_ = testing::TinyModel("llama");
  std::unique_ptr<TokenMask> mask_;
  std::vector<int32_t> generated_;
};

// An optional thought, then yes or no.
constexpr const char* kReply = "(<t>[^<]*</t>)?(yes|no)";
constexpr const char* kOpenThought = "[^<]*</t>(yes|no)";

TEST_F(ReplyMaskTest, AReplyIsHeldToItsFormWithItsThought) {
  Begin({.marks = kMarks, .thought = {.tokens = 100}}, kReply);
  EXPECT_TRUE(MaySay('y'));
  EXPECT_TRUE(MaySay('<'));
  EXPECT_FALSE(MaySay('x'));
  EXPECT_FALSE(MayEnd());
  Say("<t>x");
  EXPECT_TRUE(MaySay('y'));
  EXPECT_FALSE(MayEnd());
  Say("</t>no");
  EXPECT_TRUE(MayEnd());
  EXPECT_FALSE(MaySay('o'));
}

TEST_F(ReplyMaskTest, AThoughtThatIsTooLongIsEndedAndTheAnswerFollows) {
  for (const bool in_prompt : {true, false}) {
    Begin({.marks = kMarks, .thinks_already = in_prompt, .thought = {.tokens = 3}},
          in_prompt ? kOpenThought : kReply);
    if (!in_prompt) Say("<t>");
    Say("ab");
    EXPECT_TRUE(MaySay('x'));
    Say("c");
    EXPECT_FALSE(MaySay('x'));
    EXPECT_EQ(TakeWhatMustCome(), "</t>");
    EXPECT_TRUE(MaySay('y'));
    EXPECT_TRUE(MaySay('n'));
    Say("no");
    EXPECT_TRUE(MayEnd());
  }
}

TEST_F(ReplyMaskTest, AThoughtThatMayNotEndYetGoesOn) {
  Begin({.marks = kMarks, .thinks_already = true, .thought = {.tokens = 2}}, "a{5}</t>(yes|no)");
  Say("aaa");
  EXPECT_TRUE(MaySay('a'));
  EXPECT_FALSE(MaySay('<'));
  Say("aa");
  EXPECT_EQ(TakeWhatMustCome(), "</t>");
}

TEST_F(ReplyMaskTest, ThoughtsAreEndedWhereRepliesAreFree) {
  mask_ = MaskOf(model_->tokenizer(), {.marks = kMarks, .thought = {.tokens = 2}})(0);
  EXPECT_TRUE(MaySay('x'));
  Say("<t>ab");
  EXPECT_EQ(TakeWhatMustCome(), "</t>");
  EXPECT_TRUE(MaySay('x'));
  EXPECT_TRUE(MayEnd());
  EXPECT_EQ(MaskOf(model_->tokenizer(), {.marks = kMarks}), nullptr) << "nothing to restrict";
}

TEST_F(ReplyMaskTest, TheLastWordsOfAThoughtComeBeforeItsEnd) {
  const ThoughtLimit limit{.tokens = 2, .message = " So."};
  mask_ = MaskOf(model_->tokenizer(), {.marks = kMarks, .thought = limit})(0);
  Say("<t>ab");
  EXPECT_EQ(TakeWhatMustCome(), " So.</t>");
  EXPECT_TRUE(MaySay('x'));

  Begin({.marks = kMarks, .thought = limit}, kReply);
  Say("<t>ab");
  EXPECT_FALSE(MaySay('x'));
  // They are known, and are taken together.
  std::string rest;
  for (const int32_t token : mask_->Forced(generated_)) {
    EXPECT_TRUE(May(token));
    generated_.push_back(token);
    rest += model_->tokenizer()->Piece(token, /*render_special=*/true);
  }
  EXPECT_EQ(rest, " So.</t>");
  EXPECT_TRUE(MaySay('y'));

  // A form that does not allow them has only the end.
  Begin({.marks = kMarks, .thinks_already = true, .thought = limit}, "[a-z]*</t>(yes|no)");
  Say("ab");
  EXPECT_EQ(TakeWhatMustCome(), "</t>");
  // A thought that is not wanted at all says nothing.
  mask_ = MaskOf(
      model_->tokenizer(),
      {.marks = kMarks, .thinks_already = true, .thought = {.tokens = 0, .message = " So."}})(0);
  generated_.clear();
  EXPECT_EQ(TakeWhatMustCome(), "</t>");
}

TEST_F(ReplyMaskTest, AReplyMayEndWithACallInItsThought) {
  Begin({.marks = kMarks, .thinks_already = true, .call_end = "</c>"}, "[\\s\\S]*</t>(yes|no)");
  Say("hm <c>f</c");
  EXPECT_FALSE(MayEnd());
  Say(">\n");
  EXPECT_TRUE(MayEnd());
  EXPECT_TRUE(MaySay('x'));
  Say("x");
  EXPECT_FALSE(MayEnd());
  Say("</t></c>");
  EXPECT_FALSE(MayEnd()) << "the thought has ended";
}

TEST_F(ReplyMaskTest, WhatIsForcedIsOfTheReply) {
  Begin({.marks = kMarks, .thinks_already = true}, kOpenThought);
  Say("hm</t>");
  EXPECT_TRUE(mask_->Forced(generated_).empty());  // yes or no
  Say("y");
  for (const int32_t token : mask_->Forced(generated_)) {
    EXPECT_TRUE(May(token));
    generated_.push_back(token);
  }
  EXPECT_TRUE(MaySay('s') || MaySay('e'));
}

}  // namespace
}  // namespace weft::serve
