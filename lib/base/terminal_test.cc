#include "base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace weft {
namespace {

TEST(TerminalTest, AFileHasNoWindow) {
  const int fd = open("/dev/null", O_RDONLY);
  EXPECT_FALSE(WindowOf(fd).has_value());
  close(fd);
}

TEST(TerminalTest, FillsLinesBetweenWords) {
  EXPECT_EQ(Fill("one two three four", 9), "one two\nthree\nfour");
  EXPECT_EQ(Fill("one two three", 9, /*column=*/4, /*indent=*/2), "one\n  two\n  three");
  EXPECT_EQ(Fill("incomprehensible", 5), "incomprehensible");
  EXPECT_EQ(Fill("", 5), "");
}

TEST(TerminalTest, ExamplesStayAsTheyAre) {
  constexpr char kText[] = "\nA sentence\nin lines.\n\nExamples:\n  weft run  'a   b'\n  weft";
  EXPECT_EQ(FillParagraphs(kText, 80),
            "\nA sentence in lines.\n\nExamples:\n  weft run  'a   b'\n  weft");
  EXPECT_EQ(FillParagraphs(kText, 18),
            "\nA sentence in\nlines.\n\nExamples:\n  weft run  'a  \n      b'\n  weft");
  EXPECT_EQ(FillParagraphs("a\n", 5), "a\n");
  EXPECT_EQ(FillParagraphs("", 5), "");
}

}  // namespace
}  // namespace weft
