// Masks depend on the constraint and the text only, not on what was asked before, even if a limit
// is reached.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "constraint/machine.h"
#include "constraint/masker.h"
#include "constraint/regex/pattern.h"
#include "constraint/schema/schema_compiler.h"
#include "gtest/gtest.h"
#include "tests/support/slow_build.h"

namespace weft::constraint {
namespace {

using Random = std::mt19937;

const TokenTable& Table() {
  static const TokenTable* const table = [] {
    static constexpr const char* kPieces[] = {"a",  "b", "ab", "key", "name", "x-", "0",
                                              "12", "7", ".",  "é",   " ",    "_"};
    std::vector<std::string> bytes{""};
    for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
    Random random(7);
    for (int i = 0; i < 120; ++i) {
      std::string token;
      for (size_t n = 1 + random() % 4; n > 0; --n) token += kPieces[random() % std::size(kPieces)];
      bytes.push_back(token);
      if (i % 6 == 0) bytes.push_back(token + "\"");
    }
    bytes.push_back(std::string(40, 'a'));
    return new TokenTable(std::move(bytes), {0});
  }();
  return *table;
}

// Complements, intersections, look-aheads, multiples, and `oneOf`.
constexpr const char* kHard[] = {
    R"({"type":"string","pattern":"^(?=.*[0-9])(?=.*[a-z])(?=.*_)(?!.*ab).{4,24}$"})",
    R"({"type":"string","pattern":"e$","maxLength":66,
        "oneOf":[{"pattern":"key"},{"pattern":"b$"},{"pattern":"hello"}]})",
    R"({"type":"string","pattern":"[0-9a-f]{4}","maxLength":90,
        "oneOf":[{"pattern":"name"},{"pattern":"aaaaaaaa"},{"pattern":"hello"}]})",
    R"({"type":"string","pattern":"^(a|b)*a(a|b){9}$","not":{"pattern":"^(a|b)*b(a|b){7}$"}})",
    R"({"type":"string","allOf":[{"pattern":"^(aaa)*$"},{"pattern":"^(aaaaa)*$"},
        {"pattern":"^(aaaaaaa)*$"},{"minLength":1}]})",
    R"({"type":"string","allOf":[{"pattern":"a.{5}b.{3}a"},{"not":{"pattern":"a.{3}b.{5}a"}},
        {"not":{"pattern":"b.{4}b"}}],"maxLength":40})",
    R"({"type":"integer","minimum":1,"allOf":[{"multipleOf":7},{"multipleOf":11},
        {"not":{"multipleOf":13}}]})",
    R"({"type":"number","allOf":[{"multipleOf":0.07},{"not":{"multipleOf":0.3}}],"maximum":5000})",
    R"({"type":"object","patternProperties":{"name":{"type":"integer"},
        "^.{1,99}$":{"type":["integer","null"]}}})",
    R"({"type":"object","properties":{"a":{"not":{"enum":["ab","aab",7,"key"]}},
        "b":{"oneOf":[{"type":"integer"},{"multipleOf":7},{"pattern":"a$"},{"maxLength":3}]}},
        "additionalProperties":false})"};

// Divisors of the usual limits.
constexpr int64_t kTighter[] = {1, 30, 300, 2000};
constexpr int kTexts = testing::kSlowBuild ? 12 : 40;

// The automata of a constraint, for asking in any order.
class Asked {
 public:
  Asked(const Grammar& grammar, int64_t tighter, const TokenTable& table = Table())
      : Asked(grammar, Tight(tighter), Masker::kMaxSteps / tighter, table) {}
  Asked(const Grammar& grammar, const MachineLimits& limits, int64_t max_steps,
        const TokenTable& table)
      : table_(table),
        machine_(&grammar, int64_t{1} << 28, limits),
        masker_(&machine_, &table, max_steps) {}

  // The state after the text, and the steps it took.
  std::pair<StateId, int64_t> Walk(std::string_view text) {
    machine_.BeginCount(INT64_MAX);
    StateId state = machine_.start();
    for (const char c : text) state = machine_.Step(state, static_cast<uint8_t>(c));
    return {state, machine_.spent()};
  }
  std::vector<uint32_t> MaskOf(StateId state) {
    std::vector<uint32_t> mask(table_.mask_words());
    masker_.Fill(state, mask);
    EXPECT_FALSE(machine_.exhausted());
    return mask;
  }

 private:
  static MachineLimits Tight(int64_t by) {
    const MachineLimits usual;
    return {.derivative = usual.derivative / by,
            .step = usual.step / by,
            .search = usual.search / by,
            .step_search = usual.step_search / by};
  }

  const TokenTable& table_;
  Machine machine_;
  Masker masker_;
};

std::vector<std::string> RandomTexts(Asked* walked, Random* random) {
  std::vector<std::string> texts{""};
  for (int i = 0; i < kTexts; ++i) {
    // Longer texts extend shorter ones.
    std::string text = texts[(*random)() % texts.size()];
    for (size_t n = 1 + (*random)() % 3; n > 0; --n) {
      const std::vector<uint32_t> mask = walked->MaskOf(walked->Walk(text).first);
      std::vector<TokenId> allowed;
      for (TokenId id = 1; id < Table().size(); ++id) {
        if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
      }
      if (allowed.empty()) break;
      text += Table().Bytes(allowed[(*random)() % allowed.size()]);
    }
    texts.push_back(text);
  }
  return texts;
}

TEST(ConstraintHistory, MasksAreTheSameWhateverWasAskedBefore) {
  int compared = 0, limited = 0;
  for (const char* const schema : kHard) {
    Grammar grammar;
    ASSERT_TRUE(CompileSchema(schema, {}, &grammar).ok()) << schema;
    for (const int64_t tighter : kTighter) {
      Random random(static_cast<uint32_t>(tighter));
      Asked loose(grammar, 1), asked(grammar, tighter);
      std::vector<std::string> texts = RandomTexts(&loose, &random);
      std::ranges::shuffle(texts, random);
      // Some masks are computed on the way, others never.
      for (const std::string& text : texts) {
        const StateId state = asked.Walk(text).first;
        if (random() % 2 == 0) asked.MaskOf(state);
      }
      for (size_t i = 0; i < texts.size(); i += 4) {
        const std::string& text = texts[i];
        Asked fresh(grammar, tighter);
        const auto [state, steps] = fresh.Walk(text);
        const auto [again, steps_again] = asked.Walk(text);
        ASSERT_EQ(state == kDeadState, again == kDeadState) << schema << "\n" << text;
        ASSERT_EQ(steps, steps_again) << schema << "\n" << text << " under limits / " << tighter;
        const std::vector<uint32_t> mask = fresh.MaskOf(state);
        ASSERT_EQ(mask, asked.MaskOf(again)) << schema << "\n" << text << "\nlimits / " << tighter;
        ++compared;
        limited += mask != loose.MaskOf(loose.Walk(text).first) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(compared, 10 * kTexts);
  EXPECT_GT(limited, kTexts / 2);
}

// All texts over the letters a and b of up to 8 characters.
const TokenTable& FewLettersTable() {
  static const TokenTable* const table = [] {
    std::vector<std::string> bytes{""};
    for (size_t i = 0; bytes.size() < (1u << 9) - 1; ++i) {
      bytes.push_back(bytes[i] + "a");
      bytes.push_back(bytes[i] + "b");
    }
    return new TokenTable(std::move(bytes), {0});
  }();
  return *table;
}

// Every token leads to a different state, with up to 300 parts: masks of longer texts cost more.
TEST(ConstraintHistory, MasksThatTakeTooMuchAreEmptyWhateverIsKnown) {
  constexpr int64_t kTimesTighter = 30;
  Grammar grammar;
  const auto regex = WholeTextsMatching(&grammar.pool(), "(a|b)*a(a|b){300}");
  ASSERT_TRUE(regex.ok()) << regex.status();
  const RuleId start = grammar.AddRule();
  grammar.AddAlternative(start, {grammar.Terminal(*regex)});
  ASSERT_TRUE(grammar.Finish(start).ok());
  Asked asked(grammar, kTimesTighter, FewLettersTable());
  std::string text;
  int empty = 0, filled = 0;
  for (int i = 0; i < 20; ++i, text += "aabaab") {
    Asked fresh(grammar, kTimesTighter, FewLettersTable());
    const std::vector<uint32_t> mask = fresh.MaskOf(fresh.Walk(text).first);
    // Computed after walks further ahead, and then once more.
    for (const char* const ahead : {"aab", "b"}) asked.MaskOf(asked.Walk(text + ahead).first);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(mask, asked.MaskOf(asked.Walk(text).first)) << text;
    }
    const bool none = std::ranges::count(mask, 0u) == std::ssize(mask);
    (none ? empty : filled) += 1;
  }
  EXPECT_GT(empty, 0);
  EXPECT_GT(filled, 0);
}

// A quotation mark, followed by all texts over the letters a and b of up to 10 characters.
const TokenTable& EndsOfStringsTable() {
  static const TokenTable* const table = [] {
    std::vector<std::string> bytes{"", "\"", "a", "b", "x"};
    for (size_t i = 1; bytes.size() < 2000; ++i) {
      if (bytes[i][0] != '"') continue;
      bytes.push_back(bytes[i] + "a");
      bytes.push_back(bytes[i] + "b");
    }
    return new TokenTable(std::move(bytes), {0});
  }();
  return *table;
}

// A string followed by something expensive; or a word that begins like the string. Within the
// string, what may follow it is the same everywhere, and must cost the same everywhere.
TEST(ConstraintHistory, WhatFollowsATerminalCountsWhereverItWasFound) {
  Grammar grammar;
  const RuleId start = grammar.AddRule();
  const auto terminal = [&](std::string_view pattern) {
    const auto regex = WholeTextsMatching(&grammar.pool(), pattern);
    EXPECT_TRUE(regex.ok()) << regex.status();
    return grammar.Terminal(regex.ok() ? *regex : kNothing);
  };
  grammar.AddAlternative(start, {terminal("\"[^\"]*\""), terminal("(a|b)*a(a|b){300}")});
  grammar.AddAlternative(start, {terminal("\"x"), terminal("a")});
  ASSERT_TRUE(grammar.Finish(start).ok());
  int empty = 0, filled = 0;
  for (int64_t max_steps = 500; max_steps < 200'000; max_steps += max_steps / 4) {
    Asked fresh(grammar, {}, max_steps, EndsOfStringsTable());
    Asked asked(grammar, {}, max_steps, EndsOfStringsTable());
    asked.MaskOf(asked.Walk("\"a").first);
    const std::vector<uint32_t> mask = fresh.MaskOf(fresh.Walk("\"").first);
    EXPECT_EQ(mask, asked.MaskOf(asked.Walk("\"").first)) << max_steps;
    const bool none = std::ranges::count(mask, 0u) == std::ssize(mask);
    (none ? empty : filled) += 1;
  }
  EXPECT_GT(empty, 0);
  EXPECT_GT(filled, 0);
}

}  // namespace
}  // namespace weft::constraint
