// How much of a vocabulary a mask walks if most text is allowed, in steps, which are the same on
// any machine.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/machine.h"
#include "constraint/masker.h"
#include "constraint/regex/analysis.h"
#include "constraint/schema/schema_compiler.h"
#include "constraint/text_ways.h"
#include "gtest/gtest.h"

namespace weft::constraint {
namespace {

// Lowercase words, some after a space, some in capitals, some with an accent.
const TokenTable& Words() {
  static const TokenTable* const table = [] {
    std::mt19937 random(7);
    std::vector<std::string> bytes{""};
    for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
    for (int i = 0; i < 40'000; ++i) {
      std::string word(random() % 2, ' ');
      const char first = i % 5 == 0 ? 'A' : 'a';
      for (size_t n = 2 + random() % 8; n > 0; --n) {
        word += i % 7 == 0 && random() % 4 == 0
                    ? "é"
                    : std::string(1, static_cast<char>(first + random() % 26));
      }
      bytes.push_back(std::move(word));
    }
    for (const char* text : {"\"", "\",", "\": ", "{\"", "a\"", ".com", "://", "\n\n", "\\n"})
      bytes.push_back(text);
    return new TokenTable(std::move(bytes), {0});
  }();
  return *table;
}

// The steps for the mask after `text`, with nothing cached.
int64_t StepsOfMask(std::string_view schema, std::string_view text) {
  Grammar grammar;
  EXPECT_TRUE(CompileSchema(schema, {}, &grammar).ok()) << schema;
  Machine machine(&grammar, int64_t{1} << 30);
  Masker masker(&machine, &Words());
  StateId state = machine.start();
  for (const char c : text) state = machine.Step(state, static_cast<uint8_t>(c));
  EXPECT_NE(state, kDeadState) << schema;
  std::vector<uint32_t> mask(Words().mask_words());
  masker.Fill(state, mask);
  return machine.spent();
}

TEST(TextWays, MasksThatTakeMostTextLookAtLittleOfTheVocabulary) {
  const struct {
    std::string_view schema, text;
  } cases[] = {
      {R"({"type":"string","not":{"pattern":"customer"}})", "\"ab"},
      {R"({"type":"string","oneOf":[{"pattern":"customer"},{"pattern":"maker"}]})", "\""},
      {R"({"patternProperties":{"ab":{},"netdrv_[a-z]+":{},"c[0-9]":{}}})", "{\""},
      {R"({"properties":{"name":{},"number":{}},"patternProperties":{"Red|Blue|Green":{}}})",
       "{\""},
      {R"x({"type":"string","pattern":"^$|(^(?:\\S+\\s+){0,99}\\S+$)","maxLength":5000})x", "\"ab"},
      {R"x({"type":"string","pattern":"^([0-9A-Za-z]{6})|([0-9A-Za-z]{9})$"})x", "\"12345"},
      {
          R"x({"type":"string",
           "pattern":"^(?!.*://)(?=.{1,255}$)((.{1,63}\\.){1,127}(?![0-9]*$)[a-z0-9-]+\\.?)$"})x",
          "\"abc.def"}};
  const auto entries = static_cast<int64_t>(Words().all().size());
  ASSERT_GT(entries, 100'000);
  for (const auto& [schema, text] : cases) {
    EXPECT_LT(StepsOfMask(schema, text), entries / 8) << schema;
  }
}

TEST(TextWays, RoomIsWhatMayComeWhateverItIs) {
  Grammar grammar;
  ASSERT_TRUE(CompileSchema(R"({"type":"string","not":{"pattern":"abcdef"}})", {}, &grammar).ok());
  Machine machine(&grammar, int64_t{1} << 30);
  const auto behind = [&](std::string_view text) {
    StateId state = machine.start();
    for (const char c : text) state = machine.Step(state, static_cast<uint8_t>(c));
    return machine.Threads(state)[0].regex;
  };
  TextWays ways(&machine, INT64_MAX, false);
  TextWays::Rooms rooms;
  const RegexId begin = behind("\"");
  EXPECT_EQ(ways.Explore(begin, Words().text(), &rooms), 5);
  EXPECT_EQ(TextWays::RoomOf(rooms, behind("\"abc")), 2);
  EXPECT_EQ(TextWays::RoomOf(rooms, behind("\"abcde")), 0);
  EXPECT_EQ(TextWays::RoomOf(rooms, behind("\"abcdx")), 5);
  // Here digits are a slice of their own.
  TokenTable::Slice digits{.bytes = ByteSet::Range('0', '9'), .utf8 = false, .masks = {}};
  rooms.clear();
  EXPECT_EQ(ways.Explore(begin, digits, &rooms), TokenTable::kSliceLength);
  TextWays::Loops* const loops = ways.LoopsOf(begin);
  for (const TextKinds kind : {KindOf('b'), KindOf('Z'), KindOf('7'), KindOf(0xE4, 0xB8)}) {
    EXPECT_TRUE(ways.Contains(loops, kind));
  }
  EXPECT_FALSE(ways.Contains(loops, KindOf('a')));
  EXPECT_TRUE(ways.Contains(ways.LoopsOf(behind("\"a")), KindOf('a')));
}

TEST(TextWays, SpacesThatAreNotAsciiAreKindsOfTheirOwn) {
  Grammar grammar;
  ASSERT_TRUE(
      CompileSchema(R"({"type":"string","pattern":"^(?:\\S+\\s+)*\\S+$"})", {}, &grammar).ok());
  Machine machine(&grammar, int64_t{1} << 30);
  StateId state = machine.Step(machine.Step(machine.start(), '"'), 'x');
  const RegexId word = machine.Threads(state)[0].regex;
  TextWays ways(&machine, INT64_MAX, false);
  TextWays::Loops* const loops = ways.LoopsOf(word);
  for (const auto& [first, second] :
       {std::pair(0xE4, 0xB8), std::pair(0xE3, 0x81), std::pair(0xD0, 0xB6)}) {
    EXPECT_TRUE(
        ways.Contains(loops, KindOf(static_cast<uint8_t>(first), static_cast<uint8_t>(second))));
  }
  for (const auto& [first, second] :
       {std::pair(0xE3, 0x80), std::pair(0xE2, 0x80), std::pair(0xC2, 0xA0)}) {
    EXPECT_FALSE(
        ways.Contains(loops, KindOf(static_cast<uint8_t>(first), static_cast<uint8_t>(second))));
  }
  // An ideograph is part of the word, whatever its remaining bytes are.
  state = machine.Step(state, 0xE4);
  EXPECT_EQ(ways.BehindCharacter(machine.Threads(state)[0].regex, 0xE4, 2, 12), word);
  state = machine.Step(machine.Step(machine.Step(machine.start(), '"'), 'x'), 0xE3);
  EXPECT_EQ(ways.BehindCharacter(machine.Threads(state)[0].regex, 0xE3, 2, 12), kNothing);
}

TEST(TextWays, CountsAreLooseWhereAWayToTheEndIsKnown) {
  Grammar grammar;
  ASSERT_TRUE(
      CompileSchema(
          R"({"type":"string","pattern":"^(?!.*ab)(?=.{1,200}$)(.{1,63}\\.){1,99}[a-z]+$"})", {},
          &grammar)
          .ok());
  Machine machine(&grammar, int64_t{1} << 30);
  RegexPool& pool = machine.pool();
  StateId state = machine.Step(machine.Step(machine.start(), '"'), 'x');
  const RegexId first = machine.Threads(state)[0].regex;
  state = machine.Step(state, 'x');
  const RegexId second = machine.Threads(state)[0].regex;
  EXPECT_NE(first, second);
  EXPECT_EQ(pool.analysis().Loosened(first), pool.analysis().Loosened(second));
  // The shortest way: a dot, a letter and the quotation mark.
  EXPECT_EQ(pool.analysis().WayToEnd(second), 3);
  EXPECT_TRUE(TextWays::Loosens(&pool, second));
}

}  // namespace
}  // namespace weft::constraint
