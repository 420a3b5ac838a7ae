#include "engine/sampling/loop_watch.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// After how many tokens a loop is detected; -1: never.
int64_t EndOf(const std::vector<TokenId>& text) {
  LoopWatch watch;
  for (size_t n = 1; n <= text.size(); ++n) {
    if (watch.EndsInLoop(std::span(text).first(n))) return static_cast<int64_t>(n);
  }
  return -1;
}

// `before` distinct tokens, then a repeating block.
std::vector<TokenId> Looping(size_t before, size_t block, size_t repeated_tokens) {
  std::vector<TokenId> text(before);
  std::iota(text.begin(), text.end(), 1000);
  for (size_t i = 0; i < repeated_tokens; ++i) text.push_back(static_cast<TokenId>(i % block));
  return text;
}

TEST(LoopWatchTest, EndsWhenABlockFillsEnoughOfTheEnd) {
  EXPECT_EQ(EndOf(Looping(0, 10, 4000)), 256);
  EXPECT_EQ(EndOf(Looping(1000, 10, 4000)), 1280);  // 280 tokens into the loop: it checks every 32
  EXPECT_EQ(EndOf(Looping(0, 100, 4000)), 800);     // 8 times
  EXPECT_EQ(EndOf(Looping(0, 512, 4096)), 4096);
}

TEST(LoopWatchTest, ShortBlocksMustLastLonger) {
  EXPECT_EQ(EndOf(Looping(0, 1, 4096)), 512);
  EXPECT_EQ(EndOf(Looping(0, 7, 511)), -1);
  EXPECT_EQ(EndOf(Looping(0, 8, 511)), 256);
}

TEST(LoopWatchTest, OneOtherTokenBeginsAnew) {
  std::vector<TokenId> text = Looping(0, 10, 250);
  text.push_back(99);
  const std::vector<TokenId> again = Looping(0, 10, 250);
  text.insert(text.end(), again.begin(), again.end());
  EXPECT_EQ(EndOf(text), -1);
}

TEST(LoopWatchTest, TooFewOrTooLongBlocksAreNoLoop) {
  EXPECT_EQ(EndOf(Looping(0, 100, 799)), -1);
  EXPECT_EQ(EndOf(Looping(0, 600, 20000)), -1);
}

// Lists and tables have a counter in the block.
TEST(LoopWatchTest, NumberedLinesAreNoLoop) {
  std::vector<TokenId> text;
  for (TokenId line = 0; line < 1000; ++line) {
    for (TokenId i = 0; i < 12; ++i) text.push_back(i);
    text.push_back(100 + line % 10);
    text.push_back(200 + line / 10);
  }
  EXPECT_EQ(EndOf(text), -1);
}

}  // namespace
}  // namespace weft
