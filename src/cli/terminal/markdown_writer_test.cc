#include "cli/terminal/markdown_writer.h"

#include <random>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

std::string Shown(std::string_view text, size_t columns, bool colours) {
  MarkdownWriter writer(columns, colours);
  std::string shown = writer.Write(text);
  return shown + writer.End();
}

// Removes the terminal's control sequences.
std::string Plain(std::string text) {
  for (size_t at; (at = text.find('\033')) != text.npos;) {
    text.erase(at, text.find('m', at) - at + 1);
  }
  return text;
}

TEST(MarkdownWriterTest, BreaksLinesBetweenWords) {
  EXPECT_EQ(Shown("one two three four", 9, false), "one two\nthree\nfour");
  EXPECT_EQ(Shown("- one two three\n\n10. four five", 9, false),
            "- one two\n  three\n\n10. four\n    five");
  // A word that fits nowhere stays whole.
  EXPECT_EQ(Shown("a incomprehensible b", 6, false), "a\nincomprehensible\nb");
  EXPECT_EQ(Shown("日本語の本", 4, false), "日本\n語の\n本");
}

TEST(MarkdownWriterTest, CodeAndTablesAreNotBroken) {
  const std::string code = "```sh\nfor i in 1 2 3; do  echo $i; done\n```\n";
  EXPECT_EQ(Shown(code, 10, false), code);
  const std::string table = "| a long | line |\n|---|---|\n";
  EXPECT_EQ(Shown(table, 10, false), table);
  EXPECT_EQ(Plain(Shown(code, 10, true)), code);
  EXPECT_EQ(Shown("    four blanks are code too", 10, false), "    four blanks are code too");
}

TEST(MarkdownWriterTest, ShowsStylesInPlaceOfMarks) {
  EXPECT_EQ(Shown("a **bold b** c", 80, true), "\033[0ma \033[0m\033[1mbold b\033[0m c");
  EXPECT_EQ(Shown("use `x ** y`.", 80, true), "\033[0muse \033[0m\033[36mx ** y\033[0m.");
  EXPECT_EQ(Shown("# Title\nx", 80, true), "\033[0m\033[1m# Title\033[0m\n\033[0mx");
  // Whatever is open ends with the line, and 2 ** 3 is no mark.
  EXPECT_EQ(Plain(Shown("**a\nb 2 ** 3", 80, true)), "a\nb 2 ** 3");
  EXPECT_EQ(Shown("a **bold** `c`", 80, false), "a **bold** `c`");
}

TEST(MarkdownWriterTest, PiecesDoNotMatterAndNothingIsLost) {
  std::mt19937 random(48);
  const std::vector<std::string> kParts = {"word", " ",  "\n", "**", "`",   "```", "é", "日",
                                           "- ",   "# ", "|",  "  ", "12.", "x_y", "\t"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    MarkdownWriter writer(12, true), plain(12, false);
    std::string shown, shown_plain;
    for (int i = 0; i < 20; ++i) {
      const std::string& part = kParts[random() % kParts.size()];
      text += part;
      shown += writer.Write(part);
      shown_plain += plain.Write(part);
    }
    EXPECT_EQ(shown + writer.End(), Shown(text, 12, true)) << text;
    // Only blanks change.
    const auto without_blanks = [](std::string all) {
      std::erase_if(all, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
      return all;
    };
    EXPECT_EQ(without_blanks(shown_plain + plain.End()), without_blanks(text));
  }
}

}  // namespace
}  // namespace weft::cli
