// What a structural tag lets through, on a small vocabulary with control tokens.
#include "answer/structural_tag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answer/masks/constraint_mask.h"
#include "base/tokens.h"
#include "tests/support/engine_harness.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class StructuralTag : public ::testing::Test {
 protected:
  // Whether the text may be a whole answer.
  bool Allows(const std::string& tag, const std::string& text) {
    const auto compiled = CompileStructuralTag(*model_, tag);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return false;
    constraint::ConstraintState state = (*compiled)->Begin();
    return state.AdvanceText(text) && state.CanEnd();
  }
  // Takes the token if a model could write it next.
  static bool Takes(TokenId token, constraint::ConstraintState* state) {
    std::vector<uint32_t> mask(state->constraint().tokens().mask_words());
    state->FillMask(mask);
    const auto id = static_cast<size_t>(token);
    return (mask[id / 32] >> (id % 32) & 1) != 0 && state->Advance(token);
  }
  std::string Refusal(const std::string& tag) {
    const auto read = ReadStructuralTag(tag, *model_->tokenizer());
    return read.ok() ? "" : std::string(Message(read.status()));
  }

  const std::shared_ptr<const Model> model_ = testing::TinyModel("llama");
};

constexpr char kTriggered[] = R"({"type": "structural_tag", "format": {
  "type": "triggered_tags", "triggers": ["<fn="], "tags": [
    {"begin": "<fn=add>", "content": {"type": "json_schema", "json_schema":
       {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": false}}, "end": "</fn>"},
    {"begin": "<fn=say>", "content": {"type": "regex", "pattern": "[a-z]+"}, "end": "</fn>"}]}})";

TEST_F(StructuralTag, TriggeredTags) {
  EXPECT_TRUE(Allows(kTriggered, "no call at all"));
  EXPECT_TRUE(Allows(kTriggered, "sum: <fn=add>{\"a\": 3}</fn> and <fn=say>hello</fn>."));
  EXPECT_FALSE(Allows(kTriggered, "<fn=add>{\"a\": \"three\"}</fn>"));
  EXPECT_FALSE(Allows(kTriggered, "<fn=sub>{\"a\": 3}</fn>"));
  EXPECT_FALSE(Allows(kTriggered, "<fn=say>hello"));
}

TEST_F(StructuralTag, AtLeastOneAndStopAfterFirst) {
  std::string tag = kTriggered;
  tag.insert(tag.find("\"triggers\""), R"("at_least_one": true, "stop_after_first": true, )");
  EXPECT_TRUE(Allows(tag, "<fn=say>hello</fn>"));
  EXPECT_FALSE(Allows(tag, "hello"));
  EXPECT_FALSE(Allows(tag, "<fn=say>hello</fn><fn=say>again</fn>"));
}

TEST_F(StructuralTag, OlderForm) {
  constexpr char kOlder[] = R"({"type": "structural_tag", "triggers": ["<f>"], "structures": [
    {"begin": "<f>", "schema": {"type": "boolean"}, "end": "</f>"}]})";
  EXPECT_TRUE(Allows(kOlder, "so <f>true</f>"));
  EXPECT_FALSE(Allows(kOlder, "so <f>1</f>"));
}

TEST_F(StructuralTag, Sequences) {
  constexpr char kSequence[] = R"({"format": {"type": "sequence", "elements": [
    {"type": "const_string", "value": "say "},
    {"type": "or", "elements": [{"type": "const_string", "value": "yes"},
                                {"type": "grammar", "grammar": "root ::= \"no\"+"}]},
    {"type": "tag", "begin": "[", "content": {"type": "any_text"}, "end": "]"}]}})";
  EXPECT_TRUE(Allows(kSequence, "say yes[for any reason]"));
  EXPECT_TRUE(Allows(kSequence, "say nono[]"));
  EXPECT_FALSE(Allows(kSequence, "say maybe[]"));
  EXPECT_FALSE(Allows(kSequence, "say yes"));
}

TEST_F(StructuralTag, Separated) {
  constexpr char kSeparated[] = R"json({"format": {"type": "tags_with_separator", "separator": ", ",
    "at_least_one": true, "tags": [
      {"begin": "(", "content": {"type": "regex", "pattern": "[0-9]"}, "end": ")"}]}})json";
  EXPECT_TRUE(Allows(kSeparated, "(1)"));
  EXPECT_TRUE(Allows(kSeparated, "(1), (2), (3)"));
  EXPECT_FALSE(Allows(kSeparated, ""));
  EXPECT_FALSE(Allows(kSeparated, "(1)(2)"));
}

TEST_F(StructuralTag, FreeTextWithoutTexts) {
  constexpr char kWithout[] = R"({"format": {"type": "any_text", "excludes": ["no", "never"]}})";
  EXPECT_TRUE(Allows(kWithout, "yes, ever"));
  EXPECT_FALSE(Allows(kWithout, "yes, never"));
  constexpr char kTag[] = R"({"format": {"type": "tag", "begin": "<t>", "end": "</t>",
    "content": {"type": "any_text", "excludes": ["no"]}}})";
  EXPECT_TRUE(Allows(kTag, "<t>yes</t>"));
  EXPECT_FALSE(Allows(kTag, "<t>no</t>"));
}

TEST_F(StructuralTag, MarksOfTextAndControlTokens) {
  constexpr char kTag[] = R"({"format": {"type": "triggered_tags",
    "triggers": ["<|im_start|>call", "a <|im_start|>"], "tags": [
      {"begin": "<|im_start|>call ", "content": {"type": "any_text"}, "end": "\n<|im_start|>!"},
      {"begin": "a <|im_start|>b", "content": {"type": "regex", "pattern": "[0-9]"}, "end": ""}]}})";
  const auto compiled = CompileStructuralTag(*model_, kTag);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const TokenId start = model_->tokenizer()->Find("<|im_start|>");
  ASSERT_TRUE(start != kNoToken && model_->tokenizer()->IsControl(start));
  constraint::ConstraintState state = (*compiled)->Begin();
  ASSERT_TRUE(state.AdvanceText("so "));
  ASSERT_TRUE(Takes(start, &state)) << "the trigger begins with a control token";
  EXPECT_FALSE(state.AdvanceText("other"));
  EXPECT_FALSE(state.CanEnd());
  ASSERT_TRUE(state.AdvanceText("call what"));
  EXPECT_FALSE(Takes(start, &state)) << "the end mark begins with a line break";
  ASSERT_TRUE(state.AdvanceText("\n"));
  ASSERT_TRUE(Takes(start, &state)) << "the end mark has a control token in its middle";
  EXPECT_FALSE(state.CanEnd());
  ASSERT_TRUE(state.AdvanceText("!"));
  EXPECT_TRUE(state.CanEnd());
  ASSERT_TRUE(state.AdvanceText(" and a "));
  ASSERT_TRUE(Takes(start, &state)) << "the trigger ends with a control token";
  EXPECT_FALSE(state.CanEnd());
  ASSERT_TRUE(state.AdvanceText("b1"));
  EXPECT_TRUE(state.CanEnd());
}

TEST_F(StructuralTag, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal("{"), HasSubstr("is no JSON"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "qwen_xml_parameter"}})"),
              HasSubstr("'qwen_xml_parameter', which is not supported"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "regex", "pattern": "a", "excludes": ["b"]}})"),
              HasSubstr("format.excludes is not supported"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "any_text"}, "more": 1})"),
              HasSubstr("more is not supported"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "tag", "begin": "<a>", "end": "", "token": 3,
                                     "content": {"type": "any_text"}}})"),
              HasSubstr("format.token is not supported"));
  EXPECT_THAT(Refusal(R"({"triggers": ["<"], "structures": [
                {"begin": "<a>", "schema": {}, "end": "", "style": "x"}]})"),
              HasSubstr("structures[0].style is not supported"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "json_schema", "json_schema": {}, "style": "xml"}})"),
              HasSubstr("format.style must be json"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "triggered_tags", "triggers": ["<"],
                "at_least_one": "yes", "tags": [
                {"begin": "<a>", "content": {"type": "any_text"}, "end": ""}]}})"),
              HasSubstr("format.at_least_one must be true or false"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "any_text", "excludes": [""]}})"),
              HasSubstr("format.excludes must be a list of strings"));
  EXPECT_THAT(Refusal(R"({"format": {"type": 5}})"), HasSubstr("'', which is not supported"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "sequence", "elements": [{"type": "regex"}]}})"),
              HasSubstr("format.elements[0].pattern must be a string"));
  EXPECT_THAT(Refusal(R"({"format": {"type": "triggered_tags", "triggers": ["<a>"], "tags": [
                {"begin": "<b>", "content": {"type": "any_text"}, "end": ""}]}})"),
              HasSubstr("format.tags[0].begin starts with none of the triggers"));
}

}  // namespace
}  // namespace weft
