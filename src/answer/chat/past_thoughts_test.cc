// Which variable of a template shows reasoning of earlier turns, and how requests set it.
#include "answer/chat/past_thoughts.h"

#include <map>
#include <string>

#include "answer/chat/chat_format.h"
#include "answer/chat/chat_format_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

// Two thoughts before the last user message, one after it.
constexpr char kLoop[] = R"([
  {"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": "", "reasoning_content": "look-it-up", "tool_calls": [
    {"id": "call_1", "type": "function",
     "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
  {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
  {"role": "assistant", "content": "It rains.", "reasoning_content": "tell-them"},
  {"role": "user", "content": "And in Rome?"},
  {"role": "assistant", "content": "", "reasoning_content": "look-again", "tool_calls": [
    {"id": "call_2", "type": "function",
     "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}]},
  {"role": "tool", "tool_call_id": "call_2", "content": "sun"}])";

constexpr char kTalk[] = R"([
  {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Hello.", "reasoning_content": "greet-them"},
  {"role": "user", "content": "Who are you?"},
  {"role": "assistant", "content": "A model.", "reasoning_content": "be-honest"},
  {"role": "user", "content": "Bye"}])";

// A template that shows thoughts after the last user message, and earlier ones if `condition`.
std::string TemplateWith(const std::string& condition) {
  return "{%- set ns = namespace(last=-1) -%}"
         "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}"
         "{%- endif -%}{%- endfor -%}"
         "{%- for m in messages -%}{{ m.role }}:"
         "{%- if m.reasoning_content and ((" +
         condition +
         ") or loop.index0 > ns.last) -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}"
         "{{ m.content }}|{%- endfor -%}";
}

TEST(PastThoughtsTest, TheVariableIsFoundByRendering) {
  struct Case {
    const char* condition;
    const char* name;  // null: none
    bool keep;
  };
  for (const Case& c :
       {Case{"preserve_thinking is defined and preserve_thinking is true", "preserve_thinking",
             true},
        // Kept by default.
        Case{"preserve_thinking | default(true)", "preserve_thinking", true},
        Case{"clear_thinking is defined and not clear_thinking", "clear_thinking", false},
        Case{"not (clear_thinking if clear_thinking is defined else false)", "clear_thinking",
             false},
        Case{"not (truncate_history_thinking | default(true))", "truncate_history_thinking", false},
        Case{"not (drop_thinking | default(true))", "drop_thinking", false},
        Case{"keep_past_thinking | default(false)", "keep_past_thinking", true},
        Case{"keep_all_reasoning | default(true)", "keep_all_reasoning", true},
        Case{"preserve_reasoning", "preserve_reasoning", true},
        // A name that decides nothing, and one beside it that does.
        Case{"preserve_thinking and false", nullptr, false},
        Case{"(preserve_thinking and false) or drop_thinking is false", "drop_thinking", false},
        Case{"true", nullptr, false}, Case{"false", nullptr, false},
        // Only where there are no tools.
        Case{"tools or drop_thinking is false", "drop_thinking", false}}) {
    const auto format = Format(TemplateWith(c.condition));
    const auto found = format->past_thoughts();
    ASSERT_EQ(found.has_value(), c.name != nullptr) << c.condition;
    EXPECT_EQ(format->shows_past_thoughts(),
              c.name != nullptr || std::string(c.condition) == "true")
        << c.condition;
    if (!found) continue;
    EXPECT_STREQ(found->name, c.name) << c.condition;
    EXPECT_EQ(found->keep, c.keep) << c.condition;
    // It is set unless the request clears it.
    ChatRequest request = Request(kTalk);
    EXPECT_THAT(Rendered(*format, request).text, HasSubstr("<think>be-honest")) << c.condition;
    request.past_thoughts = PastThoughts::kKeep;
    EXPECT_THAT(Rendered(*format, request).text, HasSubstr("<think>greet-them")) << c.condition;
    request.past_thoughts = PastThoughts::kClear;
    EXPECT_THAT(Rendered(*format, request).text, Not(HasSubstr("<think>"))) << c.condition;
    // The variable itself counts more.
    request.variables[c.name] = c.keep;
    EXPECT_THAT(Rendered(*format, request).text, HasSubstr("<think>greet-them")) << c.condition;
    request.past_thoughts = PastThoughts::kKeep;
    request.variables[c.name] = !c.keep;
    EXPECT_THAT(Rendered(*format, request).text, Not(HasSubstr("<think>"))) << c.condition;
  }
}

// Templates that take the reasoning out of the content, or read it under another name.
TEST(PastThoughtsTest, ThoughtsAreGivenAsTheTemplateReadsThem) {
  const auto inline_format = Format(
      "{%- for m in messages -%}{%- if not preserve_thinking and '</think>' in m.content -%}"
      "{{ m.content.split('</think>')[-1] }}{%- else -%}{{ m.content }}{%- endif -%}|"
      "{%- endfor -%}");
  ASSERT_TRUE(inline_format->past_thoughts());
  EXPECT_STREQ(inline_format->past_thoughts()->name, "preserve_thinking");
  EXPECT_THAT(Rendered(*inline_format, Request(kTalk)).text, HasSubstr("greet-them"));
  const auto harmony = Format(
      "{%- for m in messages -%}<|start|>{{ m.role }}"
      "{%- if m.thinking and not clear_thinking -%}<|channel|>analysis<|message|>{{ m.thinking }}"
      "<|end|>{%- endif -%}<|channel|>final<|message|>{{ m.content }}<|end|>{%- endfor -%}");
  ASSERT_TRUE(harmony->past_thoughts());
  EXPECT_STREQ(harmony->past_thoughts()->name, "clear_thinking");
  EXPECT_FALSE(harmony->past_thoughts()->keep);
}

TEST(PastThoughtsTest, TemplatesOfTheFieldHaveTheseVariables) {
  WEFT_REQUIRE_GOLDENS();
  struct Expected {
    const char* variable;  // "": none
    bool shows;
  };
  const std::map<std::string, Expected> kExpected = {
      {"Apriel-1.6-15b-Thinker-fixed", {"", false}},
      {"ByteDance-Seed-OSS", {"", true}},
      {"GLM-4.6", {"", false}},
      {"HuggingFaceTB-SmolLM3-3B", {"", true}},
      {"Kimi-K2-Instruct", {"", false}},
      {"Kimi-K3", {"", true}},
      {"LFM2.5-8B-A1B", {"preserve_thinking", true}},
      {"LFM2.5-Instruct", {"keep_past_thinking", true}},
      {"MiniMax-M2", {"", false}},
      {"NVIDIA-Nemotron-Nano-v2", {"", false}},
      {"Qwen-QwQ-32B", {"", false}},
      {"Qwen-Qwen3-0.6B", {"", false}},
      {"Qwen3.5-4B", {"", false}},
      {"StepFun3.5-Flash", {"", false}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"", false}},
      {"deepseek-ai-DeepSeek-V3.1", {"", false}},
      {"deepseek-ai-DeepSeek-V4", {"drop_thinking", true}},
      {"google-gemma-4-31B-it", {"", false}},
      {"ibm-granite-granite-3.3-2B-Instruct", {"", true}},
      {"meta-llama-Llama-3.1-8B-Instruct", {"", false}},
      {"openai-gpt-oss-120b", {"", false}},
  };
  for (const auto& [name, expected] : kExpected) {
    const auto format = Format(GoldenSource(name));
    const auto found = format->past_thoughts();
    EXPECT_EQ(found ? found->name : "", std::string(expected.variable)) << name;
    EXPECT_EQ(format->shows_past_thoughts(), expected.shows) << name;
    // The next user message changes nothing before it.
    if (!found) continue;
    const bool with_tools = std::string(expected.variable) != "keep_past_thinking";
    ChatRequest request = Request(with_tools ? kLoop : kTalk, with_tools);
    request.add_generation_prompt = false;
    std::vector<ChatMessage>& messages = request.conversation.messages;
    if (!with_tools) messages.pop_back();
    const std::string before = Rendered(*format, request).text;
    messages.push_back({.parts = {"And now?"}});
    EXPECT_TRUE(Rendered(*format, request).text.starts_with(before)) << name;
    for (const ChatMessage& message : messages) {
      EXPECT_THAT(before, HasSubstr(message.reasoning)) << name;
    }
    request.past_thoughts = PastThoughts::kClear;
    // DeepSeek's keeps them where there are tools.
    const bool still = std::string(expected.variable) == "drop_thinking";
    EXPECT_EQ(Rendered(*format, request).text.starts_with(before), still) << name;
  }
}

TEST(PastThoughtsTest, AnyOfTheNamesIsAWish) {
  const auto wish = [](const char* variables) { return PastThoughtsIn(Json::parse(variables)); };
  EXPECT_EQ(wish("{}"), PastThoughts::kDefault);
  EXPECT_EQ(wish(R"({"enable_thinking": false})"), PastThoughts::kDefault);
  EXPECT_EQ(wish(R"({"preserve_thinking": null, "clear_thinking": "no"})"), PastThoughts::kDefault);
  EXPECT_EQ(wish(R"({"preserve_thinking": true})"), PastThoughts::kKeep);
  EXPECT_EQ(wish(R"({"preserve_reasoning": false})"), PastThoughts::kClear);
  EXPECT_EQ(wish(R"({"clear_thinking": true})"), PastThoughts::kClear);
  EXPECT_EQ(wish(R"({"drop_thinking": false})"), PastThoughts::kKeep);
  EXPECT_TRUE(IsPastThoughtsVariable("truncate_history_thinking"));
  EXPECT_FALSE(IsPastThoughtsVariable("enable_thinking"));
}

TEST(PastThoughtsTest, TheyAreToldAsJson) {
  EXPECT_EQ(PastThoughtsJson(true, PastThoughtsVariable{"clear_thinking", false}).dump(),
            R"({"kept":true,"variable":"clear_thinking","keep":false,"clear":true})");
  EXPECT_EQ(PastThoughtsJson(false, std::nullopt).dump(), R"({"kept":false,"variable":null})");
}

}  // namespace
}  // namespace weft
