#include "constraint/constraint.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "constraint/constraint_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::constraint {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Every byte, and longer tokens as in real vocabularies: words, and punctuation that ends one part
// of a JSON text and begins another.
std::shared_ptr<const TokenTable> SmallTable() {
  std::vector<std::string> bytes{"", ""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  for (const char* text : {"abc",    "ab",
                           "name",   " name",
                           "true",   "false",
                           "null",   "\": ",
                           "\", \"", "\":\"",
                           "{\"",    "\"}",
                           "\"]",    "}, {",
                           "], [",   "[{\"",
                           "\"a\"",  "\"a\":",
                           "12",     "123",
                           ".5",     "-1",
                           "e10",    ", ",
                           ": ",     "\xC3\xA9",
                           "\xC3",   "\xE2\x82\xAC",
                           "\\n",    "\\u00",
                           "\\\"",   "a b",
                           "Ab1",    "hello world and more words",
                           "hello",  "\"}, {\"",
                           "  ",     "\n"}) {
    bytes.push_back(text);
  }
  bytes.push_back("abc");  // a duplicate
  return std::make_shared<const TokenTable>(std::move(bytes), std::vector<TokenId>{1});
}

StatusOr<std::shared_ptr<const Constraint>> Schema(std::string_view schema,
                                                   ConstraintOptions options = {}) {
  static const auto table = SmallTable();
  return Constraint::JsonSchema(schema, options, table);
}

bool Accepts(const Constraint& constraint, std::string_view text) {
  ConstraintState state = constraint.Begin();
  return state.AdvanceText(text) && state.CanEnd();
}

// The texts that the schema accepts.
std::vector<std::string> Taken(std::string_view schema, const std::vector<std::string>& texts,
                               ConstraintOptions options = {}) {
  const auto made = Schema(schema, options);
  EXPECT_TRUE(made.ok()) << schema << ": " << made.status();
  std::vector<std::string> taken;
  for (const std::string& text : texts) {
    if (made.ok() && Accepts(**made, text)) taken.push_back(text);
  }
  return taken;
}

std::string Refusal(std::string_view schema) {
  const auto made = Schema(schema);
  return made.ok() ? "" : std::string(made.status().message());
}

using Texts = std::vector<std::string>;

TEST(SchemaTest, TypesAllowTheirValuesOnly) {
  const Texts all{"null", "true",  "false", "1",  "-2.5",
                  "1e5",  "\"x\"", "[]",    "{}", "[1, {\"a\": null}]"};
  EXPECT_EQ(Taken("true", all), all);
  EXPECT_EQ(Taken("{}", all), all);
  EXPECT_EQ(Taken(R"({"type":"null"})", all), Texts{"null"});
  EXPECT_EQ(Taken(R"({"type":"integer"})", all), Texts{"1"});
  EXPECT_EQ(Taken(R"({"type":["boolean","array"]})", all),
            (Texts{"true", "false", "[]", "[1, {\"a\": null}]"}));
  EXPECT_EQ(Taken(R"({"not":{"type":["object","array","string"]}})", all),
            (Texts{"null", "true", "false", "1", "-2.5", "1e5"}));
}

TEST(SchemaTest, BoundsAreExact) {
  const Texts all{"-11",   "-10",  "-9.99", "-0", "0",    "0.5",   "2.49", "2.5",
                  "2.500", "2.51", "9",     "10", "10.0", "10.01", "11",   "100"};
  EXPECT_EQ(Taken(R"({"minimum":2.5,"maximum":10})", all),
            (Texts{"2.5", "2.500", "2.51", "9", "10", "10.0"}));
  EXPECT_EQ(Taken(R"({"exclusiveMinimum":2.5,"exclusiveMaximum":10})", all), (Texts{"2.51", "9"}));
  EXPECT_EQ(Taken(R"({"minimum":-10,"maximum":-0.5})", all), (Texts{"-10", "-9.99"}));
  EXPECT_EQ(Taken(R"({"not":{"minimum":0}})", all), (Texts{"-11", "-10", "-9.99"}));
  EXPECT_EQ(Taken(R"({"minimum":0,"type":"integer","maximum":9})", all), (Texts{"-0", "0", "9"}));
  EXPECT_EQ(
      Taken(
          R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":9,"exclusiveMinimum":true})",
          all),
      (Texts{"10", "10.0", "10.01", "11", "100"}));
}

TEST(SchemaTest, MultiplesAreExact) {
  const Texts all{"0",    "1",    "3",     "7",    "-7",   "14",
                  "21.0", "0.01", "0.015", "0.25", "1.10", "700000000000000000000000"};
  EXPECT_EQ(Taken(R"({"multipleOf":7})", all),
            (Texts{"0", "7", "-7", "14", "21.0", "700000000000000000000000"}));
  EXPECT_EQ(Taken(R"({"multipleOf":0.25})", all),
            (Texts{"0", "1", "3", "7", "-7", "14", "21.0", "0.25", "700000000000000000000000"}));
  EXPECT_EQ(Taken(R"({"multipleOf":0.01,"maximum":0.5,"exclusiveMinimum":0})", all),
            (Texts{"0.01", "0.25"}));
}

TEST(SchemaTest, StringsMeetPatternLengthFormatAndNegationAtOnce) {
  EXPECT_EQ(
      Taken(
          R"({"type":"string","pattern":"^a+b?$","minLength":2,"maxLength":3,"not":{"const":"aab"}})",
          {"\"a\"", "\"aa\"", "\"ab\"", "\"aab\"", "\"aaa\"", "\"aaaa\"", "\"b\""}),
      (Texts{"\"aa\"", "\"ab\"", "\"aaa\""}));
  // Lengths count characters, not bytes or escapes.
  EXPECT_EQ(Taken(R"({"minLength":2,"maxLength":2})",
                  {"\"\xC3\xA9\xE2\x82\xAC\"", "\"\\n\\\"\"", "\"a\"", "\"abc\""}),
            (Texts{"\"\xC3\xA9\xE2\x82\xAC\"", "\"\\n\\\"\""}));
  // A pattern may match anywhere, but not inside an escape.
  EXPECT_EQ(Taken(R"({"type":"string","pattern":"n"})", {"\"xny\"", "\"\\n\"", "\"\""}),
            Texts{"\"xny\""});
  EXPECT_EQ(Taken(R"({"type":"string","pattern":"^(?!foo)[a-z]+$"})",
                  {"\"foo\"", "\"foob\"", "\"fob\"", "\"\""}),
            Texts{"\"fob\""});
  EXPECT_EQ(Taken(R"({"type":"string","format":"date"})",
                  {"\"2024-02-29\"", "\"2023-02-29\"", "\"2023-4-01\""}),
            Texts{"\"2024-02-29\""});
  EXPECT_EQ(Taken(R"({"type":"string","format":"ipv6"})",
                  {"\"::1\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8\"", "\"12345::\""}),
            (Texts{"\"::1\"", "\"1:2:3:4:5:6:7:8\""}));
}

TEST(SchemaTest, ObjectsKnowNamesPatternsAndTheRest) {
  constexpr char kSchema[] =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},
    "patternProperties":{"^x_":{"type":"boolean"}},"additionalProperties":{"type":"null"},"required":["a"]})";
  const Texts all{R"({"a": 1})",
                  R"({"a":1,"b":"s"})",
                  R"({"b": "s", "a": 1})",
                  R"({"b": "s"})",
                  R"({"a": 1, "x_1": true})",
                  R"({"a": 1, "x_1": null})",
                  R"({"a": 1, "y": null})",
                  R"({"a": 1, "y": 2})",
                  R"({"a": 1, "a": 2})",
                  R"({"a": "1"})",
                  R"({"x_1": true, "a": 1})"};
  EXPECT_EQ(Taken(kSchema, all), (Texts{all[0], all[1], all[4], all[6]}));
  EXPECT_EQ(Taken(kSchema, all, {.property_order = PropertyOrder::kAny}),
            (Texts{all[0], all[1], all[2], all[4], all[6], all[10]}));
}

TEST(SchemaTest, NumbersOfPropertiesAreCounted) {
  const Texts all{"{}", R"({"a": 1})", R"({"a": 1, "b": 1})", R"({"a": 1, "b": 1, "c": 1})"};
  EXPECT_EQ(Taken(R"({"type":"object","minProperties":1,"maxProperties":2})", all),
            (Texts{all[1], all[2]}));
  EXPECT_EQ(
      Taken(
          R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2})",
          all),
      (Texts{all[2], all[3]}));
  // A duplicate name counts once, so minProperties cannot be enforced for free names.
  EXPECT_THAT(Refusal(R"({"type":"object","minProperties":2})"), HasSubstr("minProperties at #"));
}

TEST(SchemaTest, ArraysKnowPlacesLengthsAndWhatTheyContain) {
  const Texts all{
      "[]", "[1]", "[1, \"x\"]", "[1, \"x\", null]", "[\"x\"]", "[1, \"x\", null, null]"};
  EXPECT_EQ(
      Taken(
          R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1,"maxItems":3})",
          all),
      (Texts{all[1], all[2], all[3]}));
  EXPECT_EQ(Taken(R"({"type":"array","contains":{"type":"null"},"maxContains":1})", all),
            Texts{all[3]});
  EXPECT_EQ(Taken(R"({"type":"array","not":{"contains":{"type":"string"}}})", all),
            (Texts{all[0], all[1]}));
  EXPECT_EQ(Taken(R"({"type":"array","not":{"items":{"type":"integer"}}})", all),
            (Texts{all[2], all[3], all[4], all[5]}));
}

TEST(SchemaTest, CombinationsAreExact) {
  const Texts all{R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 1})", "{}", "5", "15", "30"};
  EXPECT_EQ(Taken(R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})", all),
            (Texts{all[0], all[1]}));
  EXPECT_EQ(
      Taken(
          R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,"not":{"required":["a","b"]}})",
          all),
      (Texts{all[0], all[1], all[3]}));
  EXPECT_EQ(Taken(R"({"type":"integer","oneOf":[{"multipleOf":3},{"multipleOf":5}]})", all),
            Texts{"5"});
  EXPECT_EQ(Taken(R"({"type":"object","if":{"required":["a"]},"then":{"required":["b"]}})", all),
            (Texts{all[1], all[2], all[3]}));
  EXPECT_EQ(Taken(R"({"type":"object","dependentRequired":{"a":["b"]}})", all),
            (Texts{all[1], all[2], all[3]}));
  EXPECT_EQ(Taken(R"({"enum":[{"a":1},[5],5]})", {R"({"a": 1})", "[5]", "5", "[6]", "{}"}),
            (Texts{R"({"a": 1})", "[5]", "5"}));
  EXPECT_EQ(
      Taken(
          R"({"allOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"maximum":5}}}],"type":"object"})",
          {R"({"a": 2})", R"({"a": 4})", R"({"a": 6})"}),
      Texts{R"({"a": 4})"});
}

TEST(SchemaTest, ReferencesAreFollowedAlsoInCircles) {
  const Texts all{R"({"v": 1})", R"({"v": 1, "next": {"v": 2, "next": {"v": 3}}})",
                  R"({"v": 1, "next": {"v": "x"}})"};
  EXPECT_EQ(
      Taken(
          R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","required":["v"],"additionalProperties":false,
    "properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/node"}}}}})",
          all),
      (Texts{all[0], all[1]}));
  EXPECT_EQ(
      Taken(R"({"$defs":{"x":{"$anchor":"here","type":"null"}},"$ref":"#here"})", {"null", "1"}),
      Texts{"null"});
  EXPECT_THAT(Refusal(R"({"$ref":"other.json"})"), HasSubstr("other.json"));
  EXPECT_THAT(Refusal(R"({"allOf":[{"$ref":"#"}]})"), HasSubstr("leads back to itself"));
}

TEST(SchemaTest, WhatCannotBeEnforcedIsRefusedByNameAndPlace) {
  EXPECT_THAT(Refusal(R"({"properties":{"l":{"type":"array","uniqueItems":true}}})"),
              HasSubstr("uniqueItems at #/properties/l"));
  EXPECT_THAT(Refusal(R"({"properties":{"s":{"pattern":"(a)\\1"}}})"),
              HasSubstr("pattern at #/properties/s"));
  EXPECT_THAT(Refusal(R"({"type":"string","minLength":3,"maxLength":2})"),
              HasSubstr("nothing can ever satisfy it"));
  EXPECT_THAT(Refusal("{"), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal(R"({"type":"text"})"), HasSubstr("there is no type text"));
  EXPECT_THAT(Refusal(R"({"anyOf":[{}],"unevaluatedProperties":false})"),
              HasSubstr("unevaluatedProperties at #"));
}

TEST(SchemaTest, WhatBlowsUpIsRefused) {
  std::string many = R"({"type":"object","allOf":[)";
  for (int i = 0; i < 40; ++i) {
    many += (i == 0 ? "" : ",") + std::string(R"({"anyOf":[{"required":["a)") + std::to_string(i) +
            R"("]},{"required":["b)" + std::to_string(i) + R"("]}]})";
  }
  EXPECT_THAT(Refusal(many + "]}"), HasSubstr("make it simpler"));
  EXPECT_THAT(
      Refusal(
          R"({"type":"string","allOf":[{"pattern":"^(a|b)*a(a|b){30}$"},{"pattern":"^(a|b)*b(a|b){29}$"},
    {"not":{"pattern":"(a|b){40}"}},{"pattern":"(bb|aa){50}"}]})"),
      ::testing::Not(IsEmpty()));
}

TEST(SchemaTest, WhiteSpaceIsAsAsked) {
  const Texts all{R"([1,{"a":2}])", R"([1, {"a": 2}])", "[ 1,\n{\"a\" : 2} ]"};
  EXPECT_EQ(Taken("true", all), (Texts{all[0], all[1]}));
  EXPECT_EQ(Taken("true", all, {.white_space = WhiteSpace::kCompact}), Texts{all[0]});
  EXPECT_EQ(Taken("true", all, {.white_space = WhiteSpace::kSpaced}), Texts{all[1]});
  EXPECT_EQ(Taken("true", all, {.white_space = WhiteSpace::kAny}), all);
}

TEST(SchemaTest, FormatsTakeNothingElse) {
  // After xn--, the label encodes other characters. It is not known whether that is a valid name,
  // so neither the format nor its complement accepts it.
  const Texts hosts{R"("a-b.com")", R"("x.xn")",        R"("xn-a.x-n")",  R"("XNa--b.x--n")",
                    R"("a--b")",    R"("xn--9n2bp8q")", R"("a.Xn--X.b")", R"("-a")",
                    R"("xn-")",     R"("a..b")"};
  EXPECT_EQ(Taken(R"({"type":"string","format":"hostname"})", hosts),
            (Texts(hosts.begin(), hosts.begin() + 5)));
  EXPECT_EQ(Taken(R"({"type":"string","not":{"format":"hostname"}})", hosts),
            (Texts(hosts.begin() + 7, hosts.end())));
  for (const size_t length : {63, 64}) {
    for (const std::string& begin : {std::string("a"), std::string("x"), std::string("x-"),
                                     std::string("xn"), std::string("xn-")}) {
      const std::string name = StrCat("\"", begin, std::string(length - begin.size(), 'b'), "\"");
      EXPECT_EQ(Taken(R"({"type":"string","format":"hostname"})", {name}).size(), 64 - length);
    }
  }
  EXPECT_EQ(Taken(R"({"type":"string","format":"uri-template"})",
                  {R"("a'b{x}%20")", R"("%41")", "\"\xC3\xA9\"", R"("%4")", "\"a\x7F\"", R"("{")"}),
            (Texts{R"("a'b{x}%20")", R"("%41")", "\"\xC3\xA9\""}));
  EXPECT_EQ(Taken(R"({"type":"string","format":"iri"})",
                  {R"("http://[V1.fe]")", "\"http://a/?q=\xF3\xB0\x80\x80\"",
                   "\"http://a/\xF3\xB0\x80\x80\"", "\"http://a/\xF0\x9F\xBF\xBF\""}),
            (Texts{R"("http://[V1.fe]")", "\"http://a/?q=\xF3\xB0\x80\x80\""}));
}

TEST(SchemaTest, WhatStringsContainCountsInDraft7) {
  constexpr char kDraft7[] = R"({"$schema":"http://json-schema.org/draft-07/schema#",)";
  const Texts all{R"("eyJmb28iOiAiYmFyIn0K")", R"("ab==")", R"("a===")", R"("x%yz")", "7"};
  EXPECT_EQ(Taken(StrCat(kDraft7, R"("contentEncoding":"base64"})"), all),
            (Texts{all[0], all[1], all[4]}));
  EXPECT_EQ(Taken(R"({"contentEncoding":"base64"})", all), all);
  const auto refused = Schema(StrCat(kDraft7, R"("contentMediaType":"application/json"})"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("contentMediaType at #"));
}

TEST(RegexTest, TheWholeTextMatches) {
  const auto made = Constraint::Regex("^(a|bc){2,3}\\d?$", {}, SmallTable());
  ASSERT_TRUE(made.ok()) << made.status();
  for (const char* text : {"aa", "abc", "bcbca7"}) EXPECT_TRUE(Accepts(**made, text)) << text;
  for (const char* text : {"a", "aaaa", "aa77", "xaa"}) EXPECT_FALSE(Accepts(**made, text)) << text;
  EXPECT_FALSE(Constraint::Regex("a(", {}, SmallTable()).ok());
  EXPECT_FALSE(Constraint::Regex("a\\bb", {}, SmallTable()).ok());
}

TEST(GbnfTest, RulesCallEachOtherAndRepeat) {
  const auto made = Constraint::FromGrammar(R"gbnf(
    # sums
    root ::= sum "\n"
    sum ::= term ("+" term){0,2}
    term ::= [0-9]+ | "(" sum ")" | name?
    name ::= [a-z\x41] )gbnf",
                                            {}, SmallTable());
  ASSERT_TRUE(made.ok()) << made.status();
  for (const char* text : {"1\n", "1+22+(a+A)\n", "((7))\n", "\n", "+\n"})
    EXPECT_TRUE(Accepts(**made, text)) << text;
  for (const char* text : {"1", "1+2+3+4\n", "(1\n", "ab\n"})
    EXPECT_FALSE(Accepts(**made, text)) << text;
}

TEST(GbnfTest, WhatIsNoGrammarIsASentence) {
  const auto refusal = [](std::string_view text) {
    return std::string(Constraint::FromGrammar(text, {}, SmallTable()).status().message());
  };
  EXPECT_THAT(refusal("root ::= a"), HasSubstr("a is used but not defined"));
  EXPECT_THAT(refusal("root ::= root \"a\" | \"b\""), HasSubstr("root calls itself"));
  EXPECT_THAT(refusal("root ::= e root \"a\" | \"b\"\ne ::= \"\""), HasSubstr("calls itself"));
  EXPECT_THAT(refusal("root ::= \"a"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("a ::= \"a\""), HasSubstr("no rule root"));
}

TEST(ChoiceTest, OneOfTheTexts) {
  const Texts texts{"yes", "no", "not sure"};
  const auto made = Constraint::Choice(texts, {}, SmallTable());
  ASSERT_TRUE(made.ok());
  for (const std::string& text : texts) EXPECT_TRUE(Accepts(**made, text));
  EXPECT_FALSE(Accepts(**made, "nots"));
  ConstraintState state = (*made)->Begin();
  EXPECT_EQ(state.ForcedText(10), "");
  ASSERT_TRUE(state.AdvanceText("not"));
  EXPECT_EQ(state.ForcedText(3), " su");
  EXPECT_EQ(state.ForcedText(100), " sure");
  ASSERT_TRUE(state.AdvanceText(" sure"));
  EXPECT_TRUE(state.IsComplete());
}

constexpr const char* kWalked[] = {
    R"({"type":"object","properties":{"name":{"type":"string"},"a":{"type":"integer","minimum":-3,"maximum":123},
      "ab":{"enum":["abc","a b","hello"]},"l":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string","maxLength":5}},
      "required":["a"]}}},"required":["name"]})",
    R"({"type":"array","items":{"anyOf":[{"type":"string","pattern":"^[a-z]+( [a-z]+)*$"},{"type":"number"},{"type":"boolean"}]}})",
    "true",
    R"({"type":"string","minLength":3,"maxLength":12,"not":{"pattern":"ab"}})",
    R"({"type":"object","additionalProperties":{"type":"string","format":"date-time"}})",
};

std::vector<std::shared_ptr<const Constraint>> Walked() {
  std::vector<std::shared_ptr<const Constraint>> all;
  for (const char* schema : kWalked) {
    auto made =
        Schema(schema, {.property_order = PropertyOrder::kAny, .white_space = WhiteSpace::kAny});
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) all.push_back(*made);
  }
  auto grammar =
      Constraint::FromGrammar("root ::= ([^<] | \"<\" [a-z]+ \">\")* \"</end>\"", {}, SmallTable());
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  if (grammar.ok()) all.push_back(*grammar);
  return all;
}

// The definition of a mask: every token is tried.
std::vector<TokenId> Tried(const ConstraintState& state, const TokenTable& table) {
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < table.size(); ++id) {
    ConstraintState copy = state;
    if (copy.Advance(id)) allowed.push_back(id);
  }
  return allowed;
}

TEST(MaskTest, MasksAreWhatTryingEveryTokenGives) {
  std::mt19937 random(7);
  for (const auto& constraint : Walked()) {
    const TokenTable& table = constraint->tokens();
    for (int walk = 0; walk < 12; ++walk) {
      ConstraintState state = constraint->Begin();
      for (int step = 0; step < 40; ++step) {
        const std::vector<TokenId> allowed = AllowedTokens(state, table);
        ASSERT_EQ(allowed, Tried(state, table)) << state.text();
        // Every allowed token can be completed, so there is always another one.
        ASSERT_FALSE(allowed.empty()) << state.text();
        const TokenId token = allowed[random() % allowed.size()];
        ASSERT_TRUE(state.Advance(token));
        if (table.IsEnd(token)) break;
      }
    }
  }
}

TEST(StateTest, CopiesRollbacksAndParkedStatesEqualAFreshWalk) {
  std::mt19937 random(11);
  for (const auto& constraint : Walked()) {
    const TokenTable& table = constraint->tokens();
    ConstraintState state = constraint->Begin();
    std::vector<TokenId> taken;
    for (int step = 0; step < 150; ++step) {
      if (!taken.empty() && random() % 4 == 0) {
        const size_t back = 1 + random() % std::min<size_t>(taken.size(), 8);
        state.Rollback(back);
        taken.resize(taken.size() - back);
      } else {
        const std::vector<TokenId> allowed = AllowedTokens(state, table);
        if (allowed.empty()) {  // the answer has ended
          state.Rollback(1);
          taken.pop_back();
          continue;
        }
        taken.push_back(allowed[random() % allowed.size()]);
        ConstraintState copy = state;
        ASSERT_TRUE(copy.Advance(taken.back()));
        state = copy;
      }
      ConstraintState fresh = constraint->Begin();
      for (const TokenId token : taken) ASSERT_TRUE(fresh.Advance(token));
      const auto restored = constraint->Restore(state.Serialize());
      ASSERT_TRUE(restored.ok()) << restored.status();
      for (const ConstraintState* other : {&std::as_const(fresh), &*restored}) {
        ASSERT_EQ(state.text(), other->text());
        ASSERT_EQ(state.CanEnd(), other->CanEnd());
        ASSERT_EQ(AllowedTokens(state, table), AllowedTokens(*other, table));
      }
    }
  }
}

TEST(StateTest, AnswersOutliveAutomataThatAreThrownAway) {
  // Far too little memory for one walk, so the automata are rebuilt again and again.
  auto made = Schema(kWalked[0], {.max_walk_bytes = 200'000});
  ASSERT_TRUE(made.ok());
  const TokenTable& table = (*made)->tokens();
  ConstraintState small = (*made)->Begin();
  ConstraintState roomy = (*Schema(kWalked[0]))->Begin();
  std::mt19937 random(3);
  for (int step = 0; step < 300; ++step) {
    std::vector<TokenId> allowed = AllowedTokens(roomy, table);
    ASSERT_EQ(allowed, AllowedTokens(small, table)) << roomy.text();
    std::erase(allowed, 1);
    if (allowed.empty()) break;
    const TokenId token = allowed[random() % allowed.size()];
    ASSERT_TRUE(roomy.Advance(token) && small.Advance(token));
  }
}

TEST(StateTest, ATokenThatEndsIsTheLast) {
  const auto made = Schema(R"({"type":"integer"})");
  ASSERT_TRUE(made.ok());
  ConstraintState state = (*made)->Begin();
  EXPECT_FALSE(state.Advance(1));
  ASSERT_TRUE(state.AdvanceText("12"));
  EXPECT_FALSE(state.IsComplete());
  EXPECT_TRUE(state.Advance(1));
  EXPECT_TRUE(state.IsComplete());
  EXPECT_THAT(AllowedTokens(state, (*made)->tokens()), IsEmpty());
  EXPECT_TRUE((*made)->Restore(state.Serialize())->IsComplete());
  state.Rollback(1);
  EXPECT_TRUE(state.AdvanceText("3"));
  EXPECT_FALSE((*made)->Restore("what nobody wrote").ok());
}

}  // namespace
}  // namespace weft::constraint
