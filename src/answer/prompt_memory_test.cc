#include "answer/prompt_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "weft/model.h"

namespace weft::serve {
namespace {

using ::testing::Not;

class PromptMemoryTest : public ::testing::Test {
 protected:
  std::vector<TokenId> Plain(std::string_view text) {
    return MakePromptEncoder(tokenizer_).encode(text, /*at_start=*/true);
  }
  // What a model may say: text as single bytes, which no encoder produces.
  std::vector<TokenId> Odd(std::string_view text) { return testing::Bytes(text); }

  const std::shared_ptr<const Tokenizer> tokenizer_ = testing::TinyModel("llama")->tokenizer();
  PromptMemory memory_{tokenizer_, {.contexts_per_domain = 3}};
};

TEST_F(PromptMemoryTest, WhatTheModelSaidKeepsItsTokens) {
  const std::string prompt = "user: hello there\nmodel: ";
  const std::string reply = "the answer is the loom";
  const auto first = memory_.Encode("d", prompt);
  EXPECT_EQ(first, Plain(prompt));
  memory_.Remember("d", prompt, first, Odd(reply));

  const auto second = memory_.Encode("d", prompt + reply);
  std::vector<TokenId> expected = first;
  for (const TokenId token : Odd(reply)) expected.push_back(token);
  EXPECT_EQ(second, expected);
  EXPECT_THAT(Plain(prompt + reply), Not(second)) << "or this test shows nothing";
}

TEST_F(PromptMemoryTest, WhatCannotFitIsNeitherReadToItsEndNorRemembered) {
  PromptMemory memory(tokenizer_, {.tokens = 1000});
  const std::string text(2'000'000, 'x');
  const size_t n_tokens = memory.Encode("d", text).size();
  EXPECT_GT(n_tokens, 1000u);
  EXPECT_LT(n_tokens, Plain(text).size() / 4);
  EXPECT_EQ(memory.size(), 0u);
  const std::string fits(2000, 'x');
  EXPECT_EQ(memory.Encode("d", fits), Plain(fits));
}

TEST_F(PromptMemoryTest, DomainsDoNotSeeEachOther) {
  const std::string prompt = "the prompt ", reply = "the reply";
  memory_.Remember("d", prompt, memory_.Encode("d", prompt), Odd(reply));
  EXPECT_EQ(memory_.Encode("other", prompt + reply), Plain(prompt + reply));
}

TEST_F(PromptMemoryTest, TheConversationThatSharesMostIsTaken) {
  const std::string prompt = "the prompt ";
  const auto tokens = memory_.Encode("d", prompt);
  memory_.Remember("d", prompt, tokens, Odd("the one"));
  memory_.Remember("d", prompt, tokens, Odd("the other"));
  std::vector<TokenId> expected = tokens;
  for (const TokenId token : Odd("the one")) expected.push_back(token);
  EXPECT_EQ(memory_.Encode("d", prompt + "the one"), expected);
}

TEST_F(PromptMemoryTest, TokensThatAreNotThePromptsAreNotRemembered) {
  const std::string prompt = "the prompt ";
  memory_.Remember("d", prompt, Odd(prompt), Odd("the reply"));
  EXPECT_EQ(memory_.size(), 0u);
}

TEST_F(PromptMemoryTest, AConversationIsHeldOnceHoweverLongItIs) {
  // Fills the memory with conversations, turn by turn.
  std::vector<std::string> texts = {"a: ", "b: ", "c: "};
  std::vector<std::vector<TokenId>> tokens(texts.size());
  for (int turn = 0; turn < 4; ++turn) {
    for (size_t i = 0; i < texts.size(); ++i) {
      // After a control token, as in every template: what follows is encoded separately.
      const std::string question = "</s>what then?\n";
      const std::vector<TokenId> prompt = memory_.Encode("d", texts[i] + question);
      ASSERT_GE(prompt.size(), tokens[i].size());
      EXPECT_TRUE(std::equal(tokens[i].begin(), tokens[i].end(), prompt.begin()))
          << "turn " << turn << " of " << i << " has other tokens for what was said";
      const std::string reply = "the answer is the loom\n";
      memory_.Remember("d", texts[i] + question, prompt, Odd(reply));
      texts[i] += question + reply;
      tokens[i] = prompt;
      for (const TokenId token : Odd(reply)) tokens[i].push_back(token);
      EXPECT_LE(memory_.size(), texts.size());
    }
  }
}

TEST_F(PromptMemoryTest, ItIsBounded) {
  for (int i = 0; i < 10; ++i) memory_.Encode("d", std::string(3, static_cast<char>('a' + i)));
  memory_.Encode("e", "y");
  EXPECT_EQ(memory_.size(), 4u) << "3 of d and 1 of e";
  PromptMemory small(tokenizer_, {.bytes = 1000});
  for (int i = 0; i < 10; ++i) small.Encode("d", std::string(300, static_cast<char>('a' + i)));
  EXPECT_LE(small.size(), 3u);
  small.Encode("d", std::string(5000, 'z'));
  EXPECT_EQ(small.size(), 0u) << "one alone may be too much";
}

}  // namespace
}  // namespace weft::serve
