#include "engine/sampling/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sampling/random.h"
#include "model/formats/model_file.h"
#include "tests/support/engine_harness.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Every byte is a token of the vocabulary, so text can be split anywhere.
std::shared_ptr<const Tokenizer> ByteTokenizer() {
  return testing::TinyModel("llama")->tokenizer();
}

struct Said {
  std::vector<std::string> pieces;  // per token, then the result of Finish
  std::string text;
  std::optional<std::string> stopped;
};

Said Say(const std::vector<TokenId>& tokens, std::vector<std::string> stops,
         std::vector<TokenId> shown = {}) {
  TextStream stream(ByteTokenizer(), std::move(stops), std::move(shown));
  Said said;
  for (const TokenId token : tokens) {
    TextStream::Result result = stream.Push(token);
    said.pieces.push_back(result.text);
    said.text += result.text;
    said.stopped = result.stopped;
    if (said.stopped) return said;
  }
  said.pieces.push_back(stream.Finish());
  said.text += said.pieces.back();
  return said;
}

TEST(TextStreamTest, WithoutStopStringsEveryTokenGivesItsText) {
  const Said said = Say(testing::Bytes("abc"), {});
  EXPECT_THAT(said.pieces, ::testing::ElementsAre("a", "b", "c", ""));
  EXPECT_FALSE(said.stopped);
}

TEST(TextStreamTest, ACharacterIsGivenOutWhole) {
  const Said said = Say(testing::Bytes("\xE2\x82\xAC!"), {});
  EXPECT_THAT(said.pieces, ::testing::ElementsAre("", "", "\xE2\x82\xAC", "!", ""));
}

TEST(TextStreamTest, AStopStringAcrossTokensIsFoundAndNotGivenOut) {
  const Said said = Say(testing::Bytes("say STOP now"), {"STOP"});
  EXPECT_EQ(said.text, "say ");
  EXPECT_EQ(said.stopped, "STOP");
}

// Compares with a search of the whole text, for stop strings that overlap themselves and each
// other.
TEST(TextStreamTest, FindsWhatASearchFinds) {
  uint64_t state = 1;
  const auto random = [&state](uint64_t n) { return (state = MixBits(state)) % n; };
  const auto some = [&](uint64_t length) {
    std::string text;
    for (; length > 0; --length) text += static_cast<char>('a' + random(2));
    return text;
  };
  int n_stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> stops = {some(1 + random(7)), some(3 + random(7)),
                                            some(6 + random(4))};
    const std::string text = some(60);
    // Bytes arrive one at a time, so the first to complete wins.
    size_t end = std::string::npos, length = 0;
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == text.npos) continue;
      const size_t this_end = at + stop.size();
      if (this_end > end || (this_end == end && stop.size() < length)) continue;
      end = this_end;
      length = stop.size();
    }
    const Said said = Say(testing::Bytes(text), stops);
    const bool stopped = end != std::string::npos;
    EXPECT_EQ(said.text, stopped ? text.substr(0, end - length) : text);
    EXPECT_EQ(said.stopped.has_value(), stopped);
    n_stopped += stopped;
  }
  EXPECT_GT(n_stopped, 100);
  EXPECT_LT(n_stopped, 2000);
}

TEST(TextStreamTest, TextThatMightBeginAStopStringWaits) {
  const Said said = Say(testing::Bytes("xSTx"), {"STOP"});
  EXPECT_THAT(said.pieces, ::testing::ElementsAre("x", "", "", "STx", ""));
}

TEST(TextStreamTest, WhatIsHeldBackComesAtTheEnd) {
  const Said said = Say(testing::Bytes("go STO"), {"STOP"});
  EXPECT_EQ(said.pieces.back(), "STO");
  EXPECT_EQ(said.text, "go STO");
  EXPECT_FALSE(said.stopped);
}

TEST(TextStreamTest, AnOverlappingBeginningIsNotLost) {
  // After "aab" fails to become "aaac", its tail may still begin the stop string.
  EXPECT_EQ(Say(testing::Bytes("aaaab|"), {"aaab"}).text, "a");
  EXPECT_EQ(Say(testing::Bytes("ababac|"), {"abac"}).text, "ab");
}

TEST(TextStreamTest, TheFirstStopStringInTheTextCounts) {
  EXPECT_EQ(Say(testing::Bytes("one two"), {"two", "one"}).stopped, "one");
  const Said same_start =
      Say({testing::TinyModel("llama")->Encode("stopping", false, false)}, {"stop", "stopp"});
  EXPECT_TRUE(same_start.stopped);
  EXPECT_EQ(same_start.text.find("stop"), std::string::npos);
}

TEST(TextStreamTest, AStopStringOfManyBytesPerCharacterIsFound) {
  const Said said = Say(testing::Bytes("a\xE2\x82\xAC\xE2\x82\xAC"), {"\xE2\x82\xAC\xE2\x82\xAC"});
  EXPECT_EQ(said.text, "a");
  EXPECT_TRUE(said.stopped);
}

TEST(TextStreamTest, ControlTokensAreWrittenOutWhenAskedFor) {
  const TokenId bos = ByteTokenizer()->bos(), eos = ByteTokenizer()->eos();
  ASSERT_TRUE(ByteTokenizer()->IsControl(bos));
  ASSERT_FALSE(ByteTokenizer()->IsEndOfGeneration(bos));
  ASSERT_TRUE(ByteTokenizer()->IsEndOfGeneration(eos));
  std::vector<TokenId> tokens = testing::Bytes("ab");
  tokens.insert(tokens.begin() + 1, {bos, eos});
  const std::string bos_text(ByteTokenizer()->RawText(bos));
  EXPECT_EQ(Say(tokens, {}).text, "ab");
  EXPECT_EQ(Say(tokens, {}, {bos, eos}).text, "a" + bos_text + "b");
  EXPECT_EQ(Say(tokens, {"a" + bos_text}, {bos}).stopped, "a" + bos_text);
  EXPECT_EQ(Say(tokens, {}, {ByteTokenizer()->unknown()}).text, "ab");
}

TEST(TextStreamTest, RandomTextsAreCutAtTheFirstStopStringAndNowhereElse) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::string text;
    uint64_t drawn = 0;
    const auto draw = [&](uint64_t below) { return RandomBits(seed, drawn++) % below; };
    for (uint64_t i = 0, n = draw(30); i < n; ++i) text += static_cast<char>('a' + draw(2));
    std::vector<std::string> stops;
    for (uint64_t i = 0, n = 1 + draw(3); i < n; ++i) {
      std::string stop;
      for (uint64_t j = 0, m = 1 + draw(5); j < m; ++j) stop += static_cast<char>('a' + draw(2));
      stops.push_back(stop);
    }
    // Text that arrives byte by byte stops at whichever is complete first.
    size_t end = text.size(), begin = text.size();
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos || at + stop.size() > end) continue;
      begin = at + stop.size() < end ? at : std::min(begin, at);
      end = at + stop.size();
    }
    const Said said = Say(testing::Bytes(text), stops);
    EXPECT_EQ(said.text, text.substr(0, begin)) << text;
    EXPECT_EQ(said.stopped.has_value(), begin < text.size()) << text;
  }
}

TEST(TextStreamTest, StopStringsAreValidated) {
  EXPECT_TRUE(ValidateStopStrings({}).ok());
  EXPECT_TRUE(ValidateStopStrings({std::string(kMaxStopStringBytes, 'x')}).ok());
  EXPECT_THAT(std::string(Message(ValidateStopStrings({""}))), HasSubstr("empty"));
  EXPECT_FALSE(ValidateStopStrings({std::string(kMaxStopStringBytes + 1, 'x')}).ok());
  EXPECT_FALSE(ValidateStopStrings(std::vector<std::string>(kMaxStopStrings + 1, "x")).ok());
}

}  // namespace
}  // namespace weft
