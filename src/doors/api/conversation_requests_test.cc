// Converts histories of Anthropic's API and OpenAI's newer one to messages for a template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "doors/api/anthropic/request.h"
#include "doors/api/responses/request.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

ordered_json ReadJson(std::string_view text) { return *ParseJson(text, {}); }

// Messages in OpenAI's form.
ordered_json Shown(const std::vector<ChatMessage>& messages) {
  ordered_json shown = ordered_json::array();
  for (const ChatMessage& message : messages) {
    EXPECT_LE(message.parts.size(), 1u);
    EXPECT_TRUE(message.fields.is_null());
    ordered_json& one = shown.emplace_back(ordered_json{{"role", NameOf(message.role)}});
    if (message.role == Role::kTool) one["tool_call_id"] = message.call_id;
    one["content"] = TextOf(message);
    if (!message.reasoning.empty()) one["reasoning_content"] = message.reasoning;
    for (const ToolCall& call : message.calls) {
      one["tool_calls"].push_back(
          {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    }
  }
  return shown;
}

std::string FromAnthropic(std::string_view system, std::string_view messages) {
  const ordered_json given = system.empty() ? ordered_json() : ReadJson(system);
  std::vector<std::string> warnings;
  ToolCatalog tools;
  auto converted =
      ToChatMessages(system.empty() ? nullptr : &given, ReadJson(messages), &tools, &warnings);
  if (!converted.ok()) return std::string(Message(converted.status()));
  return Shown(*converted).dump();
}

TEST(AnthropicMessages, StringsStayMessages) {
  EXPECT_EQ(FromAnthropic(R"("be kind")", R"([{"role":"user","content":"hi"}])"),
            R"([{"role":"system","content":"be kind"},{"role":"user","content":"hi"}])");
}

TEST(AnthropicMessages, ToolUseAndItsResults) {
  EXPECT_EQ(FromAnthropic("", R"([
      {"role":"user","content":[{"type":"text","text":"weather?"}]},
      {"role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"text","text":"let me see"},
        {"type":"tool_use","id":"t1","name":"get","input":{"city":"Bonn"}},
        {"type":"tool_use","id":"t2","name":"get","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t1","content":"rain"},
        {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"a"},
                                                            {"type":"text","text":"b"}]},
        {"type":"text","text":"and?"}]}])"),
            R"([{"role":"user","content":"weather?"},)"
            R"({"role":"assistant","content":"let me see","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"t1","name":"get","arguments":{"city":"Bonn"}},)"
            R"({"id":"t2","name":"get","arguments":{}}]},)"
            R"({"role":"tool","tool_call_id":"t1","content":"rain"},)"
            R"({"role":"tool","tool_call_id":"t2","content":"a\nb"},)"
            R"({"role":"user","content":"and?"}])");
}

TEST(AnthropicMessages, TheBillingHeaderDoesNotReachThePrompt) {
  const char* const user = R"([{"role":"user","content":"hi"}])";
  const std::string plain = FromAnthropic(R"([{"type":"text","text":"You are kind."}])", user);
  for (const char* changing :
       {"cc_version=2.1.4f3; cch=01a9e;", "cc_version=2.1.a00; cch=fffff;"}) {
    const std::string header = std::string("x-anthropic-billing-header: ") + changing;
    const ordered_json apart = {{{"type", "text"}, {"text", header}},
                                {{"type", "text"}, {"text", "You are kind."}}};
    EXPECT_EQ(FromAnthropic(apart.dump(), user), plain);
    EXPECT_EQ(FromAnthropic(ordered_json(header + "\nYou are kind.").dump(), user), plain);
  }
  EXPECT_EQ(WithoutBillingHeader("about x-anthropic-billing-header: 1"),
            "about x-anthropic-billing-header: 1");
}

TEST(AnthropicMessages, ErrorsNameThePlace) {
  EXPECT_THAT(FromAnthropic("", R"([{"role":"user","content":[{"type":"image","source":{}}]}])"),
              HasSubstr("messages[0].content[0]: "));
  EXPECT_THAT(FromAnthropic("", R"([{"role":"bot","content":"x"}])"),
              HasSubstr("messages[0].role"));
  EXPECT_THAT(FromAnthropic("", R"([{"role":"user","content":"x"},
                                    {"role":"assistant","content":[{"type":"tool_use","id":"a",
                                     "name":"b","input":"no object"}]}])"),
              HasSubstr("messages[1].content[0]: needs the object"));
  EXPECT_THAT(FromAnthropic("", R"([{"role":"assistant","content":[{"type":"tool_use","id":"a",
                                     "name":"","input":{}}]}])"),
              HasSubstr("messages[0].content[0].name: "));
  EXPECT_THAT(FromAnthropic(R"([{"type":"image"}])", R"([{"role":"user","content":"x"}])"),
              HasSubstr("system[0]"));
}

std::string FromItems(std::string_view input) {
  std::vector<std::string> warnings;
  ToolCatalog tools;
  auto converted = ItemsToChatMessages(nullptr, ReadJson(input), &tools, &warnings);
  if (!converted.ok()) return std::string(Message(converted.status()));
  return Shown(*converted).dump();
}

TEST(ResponsesItems, AnAnswerIsOneMessageAgain) {
  EXPECT_EQ(FromItems(R"([
      {"role":"user","content":[{"type":"input_text","text":"weather?"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"let me see"}]},
      {"type":"function_call","call_id":"c1","name":"get","arguments":"{}"},
      {"type":"function_call","call_id":"c2","name":"get","arguments":"{}"},
      {"type":"function_call_output","call_id":"c1","output":"rain"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"sun"}]},
      {"type":"message","role":"assistant","content":"done"}])"),
            R"([{"role":"user","content":"weather?"},)"
            R"({"role":"assistant","content":"let me see","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","name":"get","arguments":{}},)"
            R"({"id":"c2","name":"get","arguments":{}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"rain"},)"
            R"({"role":"tool","tool_call_id":"c2","content":"sun"},)"
            R"({"role":"assistant","content":"done"}])");
}

TEST(ResponsesItems, InstructionsComeFirst) {
  const ordered_json instructions = "be kind";
  std::vector<std::string> warnings;
  ToolCatalog tools;
  EXPECT_EQ(Shown(*ItemsToChatMessages(&instructions, "hi", &tools, &warnings)).dump(),
            R"([{"role":"system","content":"be kind"},{"role":"user","content":"hi"}])");
}

TEST(ResponsesItems, ErrorsNameThePlace) {
  EXPECT_THAT(FromItems("[]"), HasSubstr("input: "));
  EXPECT_THAT(FromItems(R"([{"type":"item_reference","id":"x"}])"), HasSubstr("input[0]: "));
  EXPECT_THAT(FromItems(R"([{"role":"user","content":[{"type":"input_image"}]}])"),
              HasSubstr("input[0].content[0]: "));
  EXPECT_THAT(FromItems(R"([{"type":"function_call","call_id":"a","name":"b"}])"),
              HasSubstr("arguments"));
  EXPECT_THAT(FromItems(R"([{"type":"function_call","call_id":"a","name":"","arguments":"{}"}])"),
              HasSubstr("input[0].name: "));
}

}  // namespace
}  // namespace weft::serve
