#include "constraint/structure.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "constraint/constraint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::constraint {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr TokenId kEnd = 0, kOpen = 1, kClose = 2, kOther = 3, kFirstByte = 4;

// An end token, the control tokens [CALL], [/CALL] and [OTHER], every byte, and some words.
std::shared_ptr<const TokenTable> Table() {
  static const auto* const table = new std::shared_ptr<const TokenTable>([] {
    std::vector<std::string> bytes(4);
    for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
    for (const char* text : {"<end>", "<e", "nd>", "[CALL]", "\"}", "hello", " world", "é", "true",
                             "True", "\n</v>", "</v>", "</", "\":", "{\"a\"", "12"}) {
      bytes.push_back(text);
    }
    return std::make_shared<const TokenTable>(
        std::move(bytes), std::vector<TokenId>{kEnd},
        std::vector<std::pair<TokenId, std::string>>{
            {kOpen, "[CALL]"}, {kClose, "[/CALL]"}, {kOther, "[OTHER]"}});
  }());
  return *table;
}

std::shared_ptr<const Constraint> Made(const Structure& structure,
                                       const ConstraintOptions& options = {}) {
  auto made = Constraint::Structured(structure, options, Table());
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : nullptr;
}

std::vector<TokenId> Allowed(const ConstraintState& state) {
  std::vector<uint32_t> mask(Table()->mask_words(), 0xDEADBEEF);
  state.FillMask(mask);
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < Table()->size(); ++id) {
    if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
  }
  return allowed;
}

bool Allows(const ConstraintState& state, TokenId token) {
  return std::ranges::count(Allowed(state), token) > 0;
}

bool Accepts(const std::shared_ptr<const Constraint>& constraint, std::string_view text) {
  ConstraintState state = constraint->Begin();
  return state.AdvanceText(text) && state.CanEnd() && state.text() == text;
}

// Text with calls between control tokens: [CALL]{"a":1}[/CALL].
Structure TextWithCalls() {
  const FreeText text{.without = {"[CALL]"}};
  const Structure value = Structure::Value(
      {.schema = R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"},
      {.short_numbers = true, .closed_objects = true}, ValueKinds::kObjects);
  const Structure rest = Structure::Sequence({value, Structure::Literal(ControlBytes(kClose))});
  const Structure more =
      Structure::Repeat(Structure::Sequence({Structure::Literal(ControlBytes(kOpen)), rest}), 0, 2);
  return Structure::OneOf(
      {Structure::Text(text),
       Structure::Sequence({Structure::TextUntil(text, ControlBytes(kOpen)), rest, more})});
}

TEST(StructureTest, ControlTokensAreReachedWhereTheyAreNamedAndAsNothingElse) {
  const auto constraint = Made(TextWithCalls());
  ConstraintState state = constraint->Begin();
  EXPECT_TRUE(Allows(state, kEnd));
  EXPECT_TRUE(Allows(state, kOpen));
  EXPECT_FALSE(Allows(state, kClose));
  EXPECT_FALSE(Allows(state, kOther));
  EXPECT_FALSE(Allows(state, kFirstByte + 0xFF));
  ASSERT_TRUE(state.AdvanceText("Hello [CAL"));
  // The marker's text is not allowed as free text.
  EXPECT_FALSE(Allows(state, kFirstByte + 'L') && [&] {
    ConstraintState copy = state;
    return copy.Advance(kFirstByte + 'L') && copy.Advance(kFirstByte + ']');
  }());
  ASSERT_TRUE(state.Advance(kOpen));
  EXPECT_THAT(Allowed(state), UnorderedElementsAre(kFirstByte + '{', 4 + 256 + 14));
  EXPECT_EQ(state.ForcedText(100), "{\"a\":");
  ASSERT_TRUE(state.AdvanceText("{\"a\": 12}"));
  EXPECT_THAT(Allowed(state), UnorderedElementsAre(kClose));
  EXPECT_EQ(state.ForcedText(100), "");
  ASSERT_TRUE(state.Advance(kClose));
  EXPECT_THAT(Allowed(state), UnorderedElementsAre(kEnd, kOpen));
  EXPECT_EQ(state.text(), "Hello [CAL[CALL]{\"a\": 12}[/CALL]");
}

TEST(StructureTest, ControlTokensMayBeWrittenOut) {
  const auto constraint = Made(TextWithCalls());
  EXPECT_TRUE(Accepts(constraint, "a [CALL]{\"a\": 1}[/CALL][CALL]{\"a\":-2}[/CALL]"));
  EXPECT_TRUE(Accepts(constraint, "[OTHER] [CAL [/CALL] is text"));
  EXPECT_FALSE(Accepts(constraint, "[CALL]"));
  EXPECT_FALSE(Accepts(constraint, "[CALL]{\"b\": 1}[/CALL]"));
  EXPECT_FALSE(Accepts(constraint, "[CALL]{\"a\": 1}[/CALL] text"));
  ConstraintState state = constraint->Begin();
  EXPECT_EQ(state.AllowedPrefix("x[CALL]{\"a\": 1}[/CALL]x"), 22u);
  ASSERT_TRUE(state.AdvanceText("x[CALL]{\"a"));
  const auto restored = constraint->Restore(state.Serialize());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->text(), "x[CALL]{\"a");
  EXPECT_EQ(Allowed(*restored), Allowed(state));
  state.Rollback(1);
  EXPECT_EQ(state.text(), "");
  // The bytes of a control token are not allowed as text.
  EXPECT_FALSE(state.AdvanceText(ControlBytes(kOpen)));
}

TEST(StructureTest, TextEndsAtItsMarker) {
  const auto constraint = Made(Structure::Sequence(
      {Structure::TextUntil({.unlike = {"\\s*#[\\s\\S]*"}}, "<end>"), Structure::Literal("!")}));
  EXPECT_TRUE(Accepts(constraint, "<end>!"));
  EXPECT_TRUE(Accepts(constraint, "a <en<end <<end>!"));
  EXPECT_FALSE(Accepts(constraint, "a<end>b<end>!"));
  EXPECT_FALSE(Accepts(constraint, "a"));
  EXPECT_FALSE(Accepts(constraint, " #a<end>!"));
  const auto pattern = Made(
      Structure::Sequence({Structure::TextUntilPattern({}, "Act: *\\["), Structure::Literal("]")}));
  EXPECT_TRUE(Accepts(pattern, "Act: now. Act:  []"));
  EXPECT_FALSE(Accepts(pattern, "Act: [] Act: []"));
}

TEST(StructureTest, StringsAsTheyRead) {
  const auto strings = [](std::string schema, RawStrings::Breaks breaks,
                          std::vector<std::string> unlike = {}) {
    return Made(Structure::Strings({.schema = {.schema = std::move(schema)},
                                    .unlike = std::move(unlike),
                                    .breaks = breaks,
                                    .close = "</v>",
                                    .close_text = "</v>"}));
  };
  using Breaks = RawStrings::Breaks;
  const auto any = strings(R"({"type":"string"})", Breaks::kExact);
  EXPECT_TRUE(Accepts(any, "</v>"));
  EXPECT_TRUE(Accepts(any, "a \"b\"\n\\n\t<</v</v>"));
  EXPECT_FALSE(Accepts(any, "a</v>b</v>"));
  const auto bounded =
      strings(R"({"type":"string","maxLength":2,"pattern":"^[a\"\n]"})", Breaks::kExact);
  EXPECT_TRUE(Accepts(bounded, "\"é</v>"));
  EXPECT_TRUE(Accepts(bounded, "\n\\</v>"));
  EXPECT_FALSE(Accepts(bounded, "aaa</v>"));
  EXPECT_FALSE(Accepts(bounded, "b</v>"));
  const auto words = strings(R"({"enum":["a","b c",5]})", Breaks::kAround);
  EXPECT_TRUE(Accepts(words, "\nb c\n</v>"));
  EXPECT_FALSE(Accepts(words, "b c</v>"));
  EXPECT_FALSE(Accepts(words, "\n5\n</v>"));
  const auto possible = strings(R"({"enum":["a","b\n"]})", Breaks::kPossible);
  EXPECT_TRUE(Accepts(possible, "a</v>"));
  EXPECT_TRUE(Accepts(possible, "\na\n</v>"));
  EXPECT_TRUE(Accepts(possible, "b\n\n</v>"));
  EXPECT_FALSE(Accepts(possible, "b\n</v>"));  // is read as b
  const auto not_null = strings(R"({"type":["string","null"]})", Breaks::kExact, {"null"});
  EXPECT_TRUE(Accepts(not_null, "nulls</v>"));
  EXPECT_FALSE(Accepts(not_null, "null</v>"));
}

TEST(StructureTest, ValuesInOtherStyles) {
  const SchemaPart any{.schema = R"({"properties":{"k":true,"o":{"properties":{"p":true}}},
                                     "additionalProperties":false})"};
  const auto python = Made(Structure::Value(
      any, {.words = ValueStyle::Words::kPythonToo, .strings = ValueStyle::Strings::kPython}));
  EXPECT_TRUE(Accepts(python, "{'k': 'it\\'s \"x\"', \"o\": {'p': [True, None, false]}}"));
  EXPECT_TRUE(Accepts(python, "{\"k\": \"it's\\n\"}"));
  EXPECT_FALSE(Accepts(python, "{'k': 'it's'}"));
  EXPECT_FALSE(Accepts(python, "{'k\": 1}"));
  const auto quoted = Made(Structure::Value(any, {.strings = ValueStyle::Strings::kQuoted,
                                                  .quote = ControlBytes(kOther),
                                                  .quote_text = "[OTHER]"}),
                           {.white_space = WhiteSpace::kCompact});
  EXPECT_TRUE(Accepts(quoted, "{k:[OTHER]a \"b\"\n[OTHER],o:{p:[1,[OTHER][OTHER]]}}"));
  EXPECT_TRUE(Accepts(quoted, "{[OTHER]k[OTHER]:true}"));
  EXPECT_FALSE(Accepts(quoted, "{k:\"a\"}"));
  EXPECT_FALSE(Accepts(quoted, "{z:1}"));
  const auto numbers =
      Made(Structure::Value({.schema = R"({"type":"number"})"}, {.short_numbers = true}));
  EXPECT_TRUE(Accepts(numbers, "-12345678901234567890.5e-12"));
  EXPECT_FALSE(Accepts(numbers, "123456789012345678901"));
  EXPECT_FALSE(Accepts(numbers, "1e100"));
  const auto part = Made(Structure::Value(
      {.schema = R"({"$defs":{"t":{"enum":["x",1]}},"properties":{"a":{"$ref":"#/$defs/t"}}})",
       .path = {"properties", "a"}},
      {}, ValueKinds::kNoStrings));
  EXPECT_TRUE(Accepts(part, "1"));
  EXPECT_FALSE(Accepts(part, "\"x\""));
  const auto refused = Constraint::Structured(
      Structure::Value({.schema = R"({"type":"array","uniqueItems":true})", .of = "tool f"}), {},
      Table());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("tool f: uniqueItems"));
}

TEST(StructureTest, PlainConstraintsAllowNoControlTokens) {
  for (const char* schema : {"true", R"({"type":"string"})", R"({"not":{"type":"null"}})"}) {
    const auto made = Constraint::JsonSchema(schema, {}, Table());
    ASSERT_TRUE(made.ok());
    ConstraintState state = (*made)->Begin();
    ASSERT_TRUE(state.AdvanceText("\"a"));
    for (const TokenId id : {kOpen, kClose, kOther, kEnd}) EXPECT_FALSE(Allows(state, id));
  }
  const auto free = Constraint::Regex("[\\s\\S]*", {}, Table());
  ASSERT_TRUE(free.ok());
  EXPECT_FALSE(Allows((*free)->Begin(), kOpen));
  EXPECT_TRUE(Allows((*free)->Begin(), kEnd));
}

TEST(StructureTest, MasksAreWhatTryingEveryTokenGives) {
  std::mt19937 random(11);
  const std::vector<std::shared_ptr<const Constraint>> all = {
      Made(TextWithCalls()),
      Made(Structure::Sequence(
          {Structure::Optional(Structure::TextUntil({}, "<end>")),
           Structure::Strings({.schema = {.schema = R"({"type":["string","integer"]})"},
                               .unlike = {"[0-9]*"},
                               .breaks = RawStrings::Breaks::kPossible,
                               .close = "</v>",
                               .close_text = "</v>"}),
           Structure::Text({.without = {"hello"}})})),
      Made(Structure::Value({.schema = R"({"type":"object"})"},
                            {.words = ValueStyle::Words::kPythonToo,
                             .strings = ValueStyle::Strings::kPython,
                             .without = "</v>"}))};
  for (const auto& constraint : all) {
    for (int walk = 0; walk < 20; ++walk) {
      ConstraintState state = constraint->Begin();
      for (int step = 0; step < 40; ++step) {
        const std::vector<TokenId> allowed = Allowed(state);
        std::vector<TokenId> tried;
        for (TokenId id = 0; id < Table()->size(); ++id) {
          ConstraintState copy = state;
          if (copy.Advance(id)) tried.push_back(id);
        }
        ASSERT_EQ(allowed, tried) << state.text();
        ASSERT_FALSE(allowed.empty()) << state.text();
        // Prefer words and markers to single bytes.
        std::vector<TokenId> marks;
        for (const TokenId id : allowed) {
          if (id < kFirstByte || id >= kFirstByte + 256) marks.push_back(id);
        }
        const auto& from = !marks.empty() && random() % 2 == 0 ? marks : allowed;
        const TokenId token = from[random() % from.size()];
        ASSERT_TRUE(state.Advance(token));
        if (token == kEnd) break;
      }
    }
  }
}

// Like a format that writes the parameters of a call one by one.
Structure PartsOf(const SchemaText& schema, int count) {
  std::vector<Structure> parts;
  for (int i = 0; i < count; ++i) {
    const SchemaPart part{.schema = schema, .path = {"properties", "p" + std::to_string(i)}};
    parts.push_back(Structure::OneOf(
        {Structure::Strings({.schema = part, .close = "</v>", .close_text = "</v>"}),
         Structure::Value(part, {}, ValueKinds::kNoStrings)}));
  }
  return Structure::Sequence(std::move(parts));
}

TEST(StructureTest, ASchemaIsReadOnceAndThatIsCounted) {
  std::string text = R"({"description":")" + std::string(200'000, 'x') + R"(","properties":{)";
  for (int i = 0; i < 300; ++i) {
    text += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + R"(":{"type":["string","integer"]})";
  }
  const SchemaText schema = text + "}}";
  const auto one = Made(PartsOf(schema, 1)), all = Made(PartsOf(schema, 300));
  const int64_t reading = (*schema).size() / 16;
  EXPECT_GE(one->work(), reading);
  EXPECT_LE(all->work() - one->work(), 10 * reading);
  EXPECT_LE(all->bytes(), 16 << 20);
  // Too long to read.
  std::string values = "{\"enum\":[0";
  for (int i = 0; i < 400'000; ++i) values += ",0";
  const auto refused =
      Constraint::Structured(Structure::Value({.schema = values + "]}"}), {}, Table());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weft::constraint
