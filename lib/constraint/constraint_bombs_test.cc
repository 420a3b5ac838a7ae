// Small schemas, patterns and grammars that would take forever: they are refused, or served within
// the limits. The limits count steps of work and memory, so the tests give the same result on any
// machine.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "constraint/constraint.h"
#include "constraint/grammar/lark.h"
#include "constraint/machine.h"
#include "constraint/masker.h"
#include "constraint/regex/pattern.h"
#include "constraint/schema/schema_compiler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::constraint {
namespace {

// Compiling may exceed its limit by this: a single step may cost some hundreds.
constexpr int64_t kCompileSlack = 20'000;
// The limit for a mask in the middle of an answer, in steps.
constexpr int64_t kMaxMaskWork = 200'000;

const TokenTable& BombTable() {
  static const TokenTable* const table = [] {
    std::vector<std::string> bytes{""};
    for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
    for (const char* text : {"aaaa", "aaaaaaaaaaaaaaaa", "ab", "abab", "\"a", "a\"", "{\"",
                             "\": ", "[[[[", "]]]]", "[[", "xxxxxxxx", "\", \"", "12", " a"}) {
      bytes.push_back(text);
    }
    return new TokenTable(std::move(bytes), {0});
  }();
  return *table;
}

enum class Source { kSchema, kRegex, kGrammar };

// Whether the constraint is served. If so, walks `answer` and computes a mask before each byte.
bool Serves(Source source, std::string_view text, std::string_view answer) {
  const ConstraintOptions options;
  Grammar grammar;
  grammar.pool().budget().SetLimits(options.max_work, options.max_bytes);
  Status status = OkStatus();
  if (source == Source::kSchema) {
    status = CompileSchema(text, options, &grammar);
  } else if (source == Source::kGrammar) {
    const auto root = AddGrammar(text, &grammar);
    status = root.ok() ? grammar.Finish(*root) : root.status();
  } else {
    const auto regex = WholeTextsMatching(&grammar.pool(), text);
    status = regex.status();
    if (regex.ok()) {
      const RuleId start = grammar.AddRule();
      grammar.AddAlternative(start, {grammar.Terminal(*regex)});
      status = grammar.Finish(start);
    }
  }
  EXPECT_LE(grammar.pool().budget().work(), options.max_work + kCompileSlack);
  EXPECT_LE(grammar.bytes(), options.max_bytes + (1 << 20));
  if (!status.ok() || grammar.pool().budget().exhausted()) return false;
  Machine machine(&grammar, 4 * options.max_walk_bytes + grammar.bytes());
  if (machine.exhausted()) return false;
  Masker masker(&machine, &BombTable());
  std::vector<uint32_t> mask(BombTable().mask_words());
  StateId state = machine.start();
  int64_t work = machine.pool().budget().work();
  for (const char c : answer) {
    masker.Fill(state, mask);
    EXPECT_LE(machine.pool().budget().work() - work, kMaxMaskWork) << "at " << c;
    EXPECT_FALSE(machine.exhausted());
    work = machine.pool().budget().work();
    state = machine.Step(state, static_cast<uint8_t>(c));
    EXPECT_NE(state, kDeadState) << "at " << c << " of " << answer.substr(0, 100);
    if (state == kDeadState) break;
  }
  return true;
}

std::string Times(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string Listed(int count, std::string_view separator, const auto& one) {
  std::string all;
  for (int i = 0; i < count; ++i) StrAppend(&all, i == 0 ? "" : separator, one(i));
  return all;
}

std::string PatternSchema(std::string_view pattern) {
  return StrCat("{\"type\":\"string\",\"pattern\":\"", pattern, "\"}");
}

TEST(ConstraintBombs, PatternsThatCount) {
  const std::string as(60, 'a');
  for (const std::string_view pattern :
       {"((a{1,1000}){1,1000}){1,1000}", "(((a{0,99}){0,99}){0,99}){0,99}", "(a|a)*", "(a*)*",
        "(a|aa)*", "((a*)*|(a*)*)*", "(a+)+", "(a?){500}a{10}", "(.*a){12}", "a{0,1000000}",
        "(a{1,9}|a{2,8}|a{3,7}){1,99}", "(a|b|ab)*"}) {
    EXPECT_TRUE(Serves(Source::kRegex, pattern, as)) << pattern;
    EXPECT_TRUE(Serves(Source::kSchema, PatternSchema(StrCat("^(", pattern, ")$")), "\"" + as))
        << pattern;
  }
  // The state has a bit for each of the last characters: whether it was an `a`.
  EXPECT_TRUE(Serves(Source::kRegex, "(a|b)*a(a|b){40}", as));
  // Two of them: the search for a common text ends at its limit.
  Serves(Source::kSchema,
         R"({"allOf":[{"pattern":"^(a|b)*a(a|b){18}$"},{"pattern":"^(a|b)*b(a|b){17}$"}]})",
         "\"ab");
  Serves(Source::kSchema,
         R"({"allOf":[{"pattern":"^(aaa)*$"},{"pattern":"^(aaaaa)*$"},{"pattern":"^(aaaaaaa)*$"},)"
         R"({"pattern":"^(aaaaaaaaaaa)*$"},{"pattern":"^(aaaaaaaaaaaaa)*a$"}]})",
         "\"a");
}

TEST(ConstraintBombs, LongPatterns) {
  EXPECT_FALSE(Serves(Source::kRegex, std::string(100'000, 'a'), "a"));
  EXPECT_FALSE(Serves(Source::kSchema, PatternSchema(Times("(a|b)", 20'000)), "\""));
  EXPECT_FALSE(Serves(Source::kRegex, Times("(", 50'000) + Times(")", 50'000), "a"));
  EXPECT_TRUE(Serves(Source::kRegex, std::string(10'000, 'a'), std::string(50, 'a')));
  // Each class is a large set of characters.
  Serves(Source::kSchema, PatternSchema(Times("[^a-cé€]", 1500)), "\"");
  Serves(Source::kSchema, PatternSchema(Times("\\\\p{L}", 100)), "\"");
}

TEST(ConstraintBombs, LargeLists) {
  const auto word = [](int i) { return StrCat("\"value ", i * 7919 % 100'003, "\""); };
  EXPECT_TRUE(
      Serves(Source::kSchema, StrCat("{\"enum\":[", Listed(5'000, ",", word), "]}"), "\"value 1"));
  Serves(Source::kSchema, StrCat("{\"enum\":[", Listed(100'000, ",", word), "]}"), "\"value 1");
  const auto property = [&](int i) { return StrCat(word(i), ":{\"type\":\"integer\"}"); };
  EXPECT_TRUE(
      Serves(Source::kSchema,
             StrCat("{\"type\":\"object\",\"properties\":{", Listed(500, ",", property), "}}"),
             "{\"value 1"));
  Serves(Source::kSchema,
         StrCat("{\"type\":\"object\",\"properties\":{", Listed(50'000, ",", property),
                "},\"required\":[", Listed(50'000, ",", word), "]}"),
         "{\"value 1");
  Serves(Source::kSchema,
         StrCat("{\"enum\":[", Listed(3'000, ",", [](int i) { return StrCat("{\"a\":", i, "}"); }),
                "]}"),
         "{\"a\": 1");
}

TEST(ConstraintBombs, References) {
  const auto chain = [](int length) {
    return StrCat(
        "{\"$ref\":\"#/$defs/a0\",\"$defs\":{",
        Listed(length, ",",
               [](int i) { return StrCat("\"a", i, "\":{\"$ref\":\"#/$defs/a", i + 1, "\"}"); }),
        ",\"a", length, "\":{\"type\":\"integer\"}}}");
  };
  EXPECT_TRUE(Serves(Source::kSchema, chain(90), "12"));
  Serves(Source::kSchema, chain(20'000), "12");
  EXPECT_FALSE(Serves(Source::kSchema, R"({"$ref":"#"})", ""));
  EXPECT_FALSE(Serves(Source::kSchema, R"({"allOf":[{"$ref":"#"}]})", ""));
  EXPECT_FALSE(Serves(Source::kSchema, R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", ""));
  // Each definition names the next one twice: exponentially many combinations.
  Serves(Source::kSchema,
         StrCat("{\"$ref\":\"#/$defs/a0\",\"$defs\":{",
                Listed(60, ",",
                       [](int i) {
                         return StrCat("\"a", i, "\":{\"anyOf\":[{\"$ref\":\"#/$defs/a", i + 1,
                                       "\"},{\"allOf\":[{\"$ref\":\"#/$defs/a", i + 1,
                                       "\"},{\"required\":[\"x", i, "\"]}]}]}");
                       }),
                ",\"a60\":{\"type\":\"object\"}}}"),
         "{");
}

TEST(ConstraintBombs, Combinations) {
  const auto any_of = [](int i) {
    return StrCat("{\"anyOf\":[{\"required\":[\"a", i, "\"]},{\"required\":[\"b", i,
                  "\"]},{\"properties\":{\"c", i, "\":false}}]}");
  };
  for (const int count : {12, 60, 400}) {
    const std::string all =
        StrCat("{\"type\":\"object\",\"allOf\":[", Listed(count, ",", any_of), "]}");
    EXPECT_FALSE(Serves(Source::kSchema, all, "{")) << count;
  }
  Serves(Source::kSchema, StrCat("{\"type\":\"object\",\"oneOf\":[", Listed(40, ",", any_of), "]}"),
         "{");
  Serves(Source::kSchema,
         StrCat("{\"type\":\"object\",\"patternProperties\":{",
                Listed(26, ",",
                       [](int i) {
                         return StrCat("\"", std::string(1, static_cast<char>('a' + i)),
                                       "\":{\"minimum\":", i, "}");
                       }),
                "}}"),
         "{\"");
  Serves(Source::kSchema, Times("{\"not\":", 200) + "{\"type\":\"object\"}" + Times("}", 200), "{");
  EXPECT_FALSE(
      Serves(Source::kSchema, Times("{\"items\":", 100'000) + "{}" + Times("}", 100'000), "["));
  Serves(Source::kSchema, R"({"multipleOf":99999999977,"minimum":1,"maximum":99999999976})", "");
}

TEST(ConstraintBombs, Grammars) {
  EXPECT_TRUE(
      Serves(Source::kGrammar, "root ::= (\"a\" | \"a\")* (\"a\"*)*", std::string(60, 'a')));
  EXPECT_TRUE(Serves(Source::kGrammar, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
                     std::string(60, 'a')));
  EXPECT_TRUE(Serves(Source::kGrammar,
                     "root ::= x x x x\nx ::= (\"a\" x? | y)\ny ::= \"a\" (x | y)?",
                     std::string(40, 'a')));
  Serves(Source::kGrammar, "root ::= (((\"a\"{1,999}){1,999}){1,999}){1,999}",
         std::string(40, 'a'));
  EXPECT_FALSE(Serves(Source::kGrammar, "root ::= root root | \"a\"", "a"));
  // Each rule calls the next one twice.
  Serves(Source::kGrammar,
         Listed(60, "\n",
                [](int i) {
                  return StrCat(i == 0 ? "root" : StrCat("r", i), " ::= r", i + 1, " r", i + 1);
                }) +
             "\nr60 ::= \"a\"?",
         "");
  Serves(Source::kGrammar, "root ::= " + Times("(", 20'000) + "\"a\"" + Times(")", 20'000), "a");
}

// The same token table, for whole constraints.
std::shared_ptr<const TokenTable> SharedTable() {
  return {std::shared_ptr<const TokenTable>(), &BombTable()};
}

bool Allows(const std::vector<uint32_t>& mask, TokenId id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

TEST(ConstraintBombs, BehindTooManyCallsNothingMayCome) {
  const auto made = Constraint::FromGrammar("root ::= \"\\n\" root \"\\n\"? | [^\\n]+",
                                            ConstraintOptions{}, SharedTable());
  ASSERT_TRUE(made.ok()) << made.status();
  ConstraintState state = (*made)->Begin();
  std::vector<uint32_t> mask(BombTable().mask_words());
  bool ended = false;
  for (int i = 0; i < 1200; ++i) {
    ASSERT_TRUE(i == 0 || state.AdvanceText("\n")) << i;
    if (i % 90 != 0 && (i < 985 || i > 1005)) continue;
    state.FillMask(mask);
    ended = true;
    for (TokenId id = 0; id < BombTable().size(); ++id) {
      if (!Allows(mask, id)) continue;
      ended = false;
      ASSERT_TRUE(state.Advance(id)) << "token " << id << " behind " << i << " line ends";
      state.Rollback(1);
    }
    if (ended) break;
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(state.ForcedText(10), "");
}

TEST(ConstraintBombs, LongAnswersAreNotWalkedAgainAndAgain) {
  const auto made = Constraint::Regex(".{200000}", {.max_walk_bytes = 1 << 20}, SharedTable());
  ASSERT_TRUE(made.ok()) << made.status();
  ConstraintState state = (*made)->Begin();
  std::vector<uint32_t> mask(BombTable().mask_words());
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(state.AdvanceText(std::string(100, 'x')));
  const int64_t before = (*made)->work();
  constexpr int kTokens = 400;
  for (int i = 0; i < kTokens; ++i) {
    state.FillMask(mask);
    ASSERT_TRUE(Allows(mask, 1 + 'y'));
    ASSERT_TRUE(state.AdvanceText("y"));
  }
  EXPECT_LE(((*made)->work() - before) / kTokens, 2'000);
  // The answer continues until its memory is used up; then nothing is allowed.
  while (state.AdvanceText(std::string(1000, 'z'))) ASSERT_LT(state.length(), 1000u);
  EXPECT_GE(state.text().size(), 60'000u);
  state.FillMask(mask);
  EXPECT_THAT(mask, ::testing::Each(0u));
  EXPECT_FALSE(state.CanEnd());
}

// All texts over the letters a and b of up to 13 characters.
std::shared_ptr<const TokenTable> LettersTable() {
  static const auto table = [] {
    std::vector<std::string> bytes{""};
    for (size_t i = 0; bytes.size() < (1u << 14) - 1; ++i) {
      bytes.push_back(bytes[i] + "a");
      bytes.push_back(bytes[i] + "b");
    }
    bytes.push_back("");
    const auto end = static_cast<TokenId>(bytes.size()) - 1;
    return std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{end});
  }();
  return table;
}

// constraint_history_test.cc tests that this does not depend on what is cached.
TEST(ConstraintBombs, MasksThatTakeTooMuchAreEmpty) {
  // Every token leads to a different state, with up to 900 parts.
  const auto made = Constraint::Regex("(a|b)*a(a|b){900}", {}, LettersTable());
  ASSERT_TRUE(made.ok()) << made.status();
  ConstraintState state = (*made)->Begin();
  ASSERT_TRUE(state.AdvanceText(Times("aab", 200)));
  std::vector<uint32_t> mask(LettersTable()->mask_words());
  const int64_t before = (*made)->work();
  state.FillMask(mask);
  EXPECT_LE((*made)->work() - before, 5 * Masker::kMaxSteps);
  EXPECT_THAT(mask, ::testing::Each(0u));
  EXPECT_EQ(state.LimitMet().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(state.LimitMet()),
              ::testing::AllOf(::testing::HasSubstr("the regular expression"),
                               ::testing::HasSubstr(StrCat(Masker::kMaxSteps, " steps"))));
  const auto parked = (*made)->Restore(state.Serialize());
  ASSERT_TRUE(parked.ok()) << parked.status();
  std::ranges::fill(mask, 1u);
  parked->FillMask(mask);
  EXPECT_THAT(mask, ::testing::Each(0u));
  // Taking a token may still work: it searches less than a mask does.
  EXPECT_TRUE(state.AdvanceText("a"));
}

TEST(ConstraintBombs, TextsThatTakeTooMuchEnd) {
  // After every letter, the other rules may come in any order.
  const auto option = [](int i) { return StrCat("(r", i % 30, ")?"); };
  const auto rule = [](int i) { return StrCat("r", i, " ::= [a-c]+ [b-d]? r", (i + 1) % 30, "?"); };
  const auto made = Constraint::FromGrammar(
      StrCat("root ::= ", Listed(600, " ", option), "\n", Listed(30, "\n", rule)), {},
      SharedTable());
  if (!made.ok()) return;
  ConstraintState state = (*made)->Begin();
  std::vector<uint32_t> mask(BombTable().mask_words());
  for (int i = 0; i < 200; ++i) {
    const int64_t before = (*made)->work();
    state.FillMask(mask);
    const bool taken = state.AdvanceText("bc");
    EXPECT_LE((*made)->work() - before, 5 * Masker::kMaxSteps);
    if (taken) continue;
    EXPECT_THAT(Message(state.LimitMet()), ::testing::HasSubstr("the grammar takes more"));
    break;
  }
}

TEST(ConstraintBombs, WhatIsNotAllowedMeetsNoLimit) {
  const auto made = Constraint::Regex("ab*", {}, SharedTable());
  ASSERT_TRUE(made.ok()) << made.status();
  ConstraintState state = (*made)->Begin();
  EXPECT_FALSE(state.AdvanceText("c"));
  EXPECT_TRUE(state.AdvanceText("abb"));
  EXPECT_FALSE(state.AdvanceText("a"));
  EXPECT_EQ(state.LimitMet(), OkStatus());
}

TEST(ConstraintBombs, ManyRules) {
  for (const int count : {1'000, 10'000, 100'000}) {
    const auto gbnf = [](int i) { return StrCat(i == 0 ? "root" : StrCat("r", i), " ::= \"a\""); };
    const auto lark = [](int i) { return StrCat(i == 0 ? "start" : StrCat("r", i), ": \"a\""); };
    EXPECT_EQ(Serves(Source::kGrammar, Listed(count, "\n", gbnf), "a"), count < 10'000);
    EXPECT_EQ(Serves(Source::kGrammar, Listed(count, "\n", lark), "a"), count < 10'000);
  }
  EXPECT_FALSE(Serves(Source::kGrammar, "start: " + Times("\"a\" ", 100'000), "a"));
}

TEST(ConstraintBombs, NumbersOfSeveralMultiples) {
  // Few enough states.
  EXPECT_TRUE(Serves(Source::kSchema,
                     R"({"type":"integer","allOf":[{"multipleOf":6},)"
                     R"({"multipleOf":10}],"not":{"multipleOf":7}})",
                     "90"));
  const auto many = [](std::string_view bounds) {
    return StrCat(R"({"type":"integer","multipleOf":13.5,"not":{"anyOf":[)",
                  R"({"multipleOf":2},{"multipleOf":13},{"multipleOf":5},{"multipleOf":7},)",
                  R"({"multipleOf":11},{"multipleOf":37}]})", bounds, "}");
  };
  EXPECT_FALSE(Serves(Source::kSchema, many(""), "27"));
  EXPECT_FALSE(Serves(Source::kSchema, many(R"(,"minimum":1)"), "27"));
  // A single multiple can always be reached, however large.
  EXPECT_TRUE(Serves(Source::kSchema, R"({"type":"integer","multipleOf":1000000007})", "1000"));
}

TEST(ConstraintBombs, NothingIsFollowedDownTheStackTooFar) {
  for (const int count : {1'000, 10'000, 100'000}) {
    Serves(Source::kRegex, Times("a?b?", count), "ab");
    Serves(Source::kRegex, Times("a*b*", count), "ab");
    Serves(Source::kSchema, PatternSchema(Times("a?[b-d]?", count)), "\"ab");
    Serves(Source::kGrammar, "root ::= " + Times("\"a\"? \"b\"? ", count), "ab");
    Serves(Source::kGrammar, "root ::= " + Times("[a-z]? ", count), "ab");
    const auto rule = [](int i) {
      return StrCat(i == 0 ? "root" : StrCat("r", i), " ::= r", i + 1);
    };
    Serves(Source::kGrammar, StrCat(Listed(count, "\n", rule), "\nr", count, " ::= \"a\""), "a");
    const auto behind = [](int i) {
      return StrCat(i == 0 ? "root" : StrCat("r", i), " ::= \"a\" r", i + 1, " \"b\"?");
    };
    Serves(Source::kGrammar, StrCat(Listed(count, "\n", behind), "\nr", count, " ::= \"a\""), "a");
  }
}

}  // namespace
}  // namespace weft::constraint
