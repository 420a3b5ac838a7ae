#include "base/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "base/status.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(StrCat, JoinsEveryKindOfPiece) {
  EXPECT_EQ(StrCat("page ", 7, ' ', std::string("of"), ' ', uint8_t{9}, " ", true),
            "page 7 of 9 true");
  EXPECT_EQ(StrCat(std::numeric_limits<int64_t>::min(), "|", std::numeric_limits<uint64_t>::max()),
            "-9223372036854775808|18446744073709551615");
  EXPECT_EQ(StrCat(0.1, " ", -1.5f, " ", std::numeric_limits<double>::lowest()),
            "0.1 -1.5 -1.7976931348623157e+308");
  EXPECT_EQ(StrCat(DType::kMXFP4), "39");
}

TEST(StrJoin, PutsTheSeparatorBetween) {
  EXPECT_EQ(StrJoin(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(StrJoin(std::vector<std::string>{"one"}, ", "), "one");
  EXPECT_EQ(StrJoin(std::vector<int>{}, ", "), "");
}

TEST(StrSplit, KeepsEmptyParts) {
  EXPECT_THAT(StrSplit("a,b", ','), ElementsAre("a", "b"));
  EXPECT_THAT(StrSplit(",a,,", ','), ElementsAre("", "a", "", ""));
  EXPECT_THAT(StrSplit("", ','), ElementsAre(""));
}

TEST(AsciiLower, TouchesNothingButTheLettersOfAscii) {
  EXPECT_EQ(AsciiLower("Content-TYPE @[`{ \xC3\x84"), "content-type @[`{ \xC3\x84");
  EXPECT_EQ(AsciiLower(""), "");
  static_assert(AsciiLower('Z') == 'z' && AsciiLower('[') == '[');
}

TEST(EqualIgnoringCase, ComparesTheWholeOfBoth) {
  EXPECT_TRUE(EqualIgnoringCase("X-Request-Id", "x-request-ID"));
  EXPECT_TRUE(EqualIgnoringCase("", ""));
  EXPECT_FALSE(EqualIgnoringCase("Host", "Hosts"));
  EXPECT_FALSE(EqualIgnoringCase("Hosts", "Host"));
  EXPECT_FALSE(EqualIgnoringCase("@", "`")) << "32 apart, and no letters";
  EXPECT_FALSE(EqualIgnoringCase("\xC4", "\xE4")) << "letters of Latin-1";
}

TEST(Printable, EscapesWhatIsNotText) {
  EXPECT_EQ(Printable("plain, häßlich, 日本, 🧵"), "plain, häßlich, 日本, 🧵");
  EXPECT_EQ(Printable(std::string_view("a\0b\n\x7f", 5)), "a\\x00b\\x0a\\x7f");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf") << "an overlong form";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
}

// Terminals also treat C1 controls (U+0080..U+009F) as escape sequences.
TEST(Printable, EscapesC1Controls) {
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "31m"),
            "a\\xc2\\x9b31m");
  EXPECT_EQ(Printable("\xc2\xa0"), "\xc2\xa0") << "the first character after them";
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdefg", 6), "abcdef...");
  EXPECT_LE(Printable(std::string(1 << 20, '\n'), 80).size(), 90u);
}

TEST(HumanBytes, ChoosesTheUnit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(uint64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<uint64_t>::max()), "16777216.0 TiB");
}

TEST(ParseInt64, TakesWholeNumbersOnly) {
  int64_t value = 0;
  EXPECT_TRUE(ParseInt64("-42", &value));
  EXPECT_EQ(value, -42);
  EXPECT_TRUE(ParseInt64("9223372036854775807", &value));
  EXPECT_EQ(value, std::numeric_limits<int64_t>::max());
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x10", "9223372036854775808", "one"}) {
    EXPECT_FALSE(ParseInt64(text, &value)) << text;
  }
}

TEST(ParseDouble, TakesWholeNumbersOnly) {
  double value = 0;
  EXPECT_TRUE(ParseDouble("-2.5e-3", &value));
  EXPECT_EQ(value, -2.5e-3);
  for (const char* text : {"", "1.0 ", " 1.0", "+1", "-+1", "1.0f", "0x1p3", "1,0", "1e999"}) {
    EXPECT_FALSE(ParseDouble(text, &value)) << text;
  }
}

TEST(Status, CarriesTheJoinedMessage) {
  const Status status = InvalidArgument("tensor ", "x", " has ", 3, " values");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "tensor x has 3 values");
  EXPECT_EQ(Message(Annotate(status, "file: ")), "file: tensor x has 3 values");
  EXPECT_TRUE(Annotate(OkStatus(), "file: ").ok());
  EXPECT_EQ(ErrnoStatus(ENOENT, "cannot open x").code(), StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(ENOSPC, "cannot write x").code(), StatusCode::kResourceExhausted);
}

TEST(DType, IsFoundByNumberAndName) {
  EXPECT_EQ(FindDTypeByName("q4_k"), &InfoOf(DType::kQ4_K));
  EXPECT_EQ(FindDType(39), &InfoOf(DType::kMXFP4));
  EXPECT_EQ(FindDTypeByName("Q4_K_M"), nullptr);
  EXPECT_EQ(FindDType(4), nullptr);
  EXPECT_EQ(FindDType(0xFFFFFFFF), nullptr);
  EXPECT_EQ(RowBytes(DType::kQ4_K, 512), 288);
  EXPECT_EQ(RowBytes(DType::kBF16, 3), 6);
}

}  // namespace
}  // namespace weft
