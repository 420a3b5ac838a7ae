#include "cli/chat/text.h"

#include "gtest/gtest.h"

namespace weft::cli {
namespace {

TEST(ChatTextTest, NothingReachesATerminalThatItWouldObey) {
  EXPECT_EQ(ForTerminal("\x1b[2J\x1b]0;title\x07"), "\\x1B[2J\\x1B]0;title\\x07");
  EXPECT_EQ(ForTerminal("a\bb\x7f"), "a\\x08b\\x7F");
  EXPECT_EQ(ForTerminal(std::string_view("\0", 1)), "\\x00");
  // The control sequence introducer as one character, and as one byte.
  EXPECT_EQ(ForTerminal("\xC2\x9B"
                        "31m"),
            "\\xC2\\x9B31m");
  EXPECT_EQ(ForTerminal("\x9B"
                        "31m"),
            "\\x9B31m");
}

TEST(ChatTextTest, TextStaysAsItIs) {
  const std::string text = "tab\tline\nna\xC3\xAFve \xE6\xBC\xA2 \xF0\x9F\xA7\xB5 \xC2\xA0.";
  EXPECT_EQ(ForTerminal(text), text);
  EXPECT_EQ(ValidUtf8(text), text);
  EXPECT_EQ(ForTerminal("a\r\nb"), "a\nb");
  EXPECT_EQ(ForTerminal(""), "");
}

TEST(ChatTextTest, BytesThatAreNoCharactersAreReplaced) {
  EXPECT_EQ(ValidUtf8("a\xFF\xC3"), "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(ValidUtf8("\xC3\xA4\x80z"), "\xC3\xA4\xEF\xBF\xBDz");
  EXPECT_EQ(ValidUtf8("\x1b"), "\x1b");
}

}  // namespace
}  // namespace weft::cli
