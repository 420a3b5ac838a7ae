// Variables given to templates besides messages and tools, and workarounds for templates that lack
// something.
#include "answer/chat/template_variables.h"

#include <array>
#include <string>

#include "answer/chat/chat_format.h"
#include "answer/chat/chat_format_test_util.h"
#include "answer/reply/reply_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHi[] = R"([{"role": "user", "content": "Hi"}])";

TEST(TemplateVariablesTest, ThinkingIsOnWhereATemplateReadsIt) {
  const auto format = Format(
      "{%- for m in messages -%}{{ m.content }}{%- endfor -%}"
      "{%- if enable_thinking is defined and enable_thinking -%}|thinks{%- endif -%}");
  ChatRequest request = Request(kHi);
  EXPECT_EQ(Rendered(*format, request).text, "Hi|thinks");
  request.variables["enable_thinking"] = false;
  EXPECT_EQ(Rendered(*format, request).text, "Hi");
  // The request's value also applies to templates that use another name.
  const auto other = Format(
      "{%- for m in messages -%}{{ m.content }}{%- endfor -%}"
      "{%- if thinking is not defined -%}|own{%- else -%}|{{ thinking }}{%- endif -%}");
  EXPECT_EQ(Rendered(*other, request).text, "Hi|False");
  EXPECT_EQ(Rendered(*other, Request(kHi)).text, "Hi|own");
}

TEST(TemplateVariablesTest, TheDateIsToday) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* const name :
       {"meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct"}) {
    ChatRequest request = Request(kHi);
    request.render.wall_clock_s = 1768480245;
    EXPECT_THAT(Rendered(*Format(GoldenSource(name)), request).text,
                HasSubstr("Today Date: 15 Jan 2026"))
        << name;
    request.variables["date_string"] = "1 April 1900";
    EXPECT_THAT(Rendered(*Format(GoldenSource(name)), request).text,
                HasSubstr("Today Date: 1 April 1900"))
        << name;
  }
}

TEST(TemplateVariablesTest, FirefunctionIsGivenItsFunctions) {
  WEFT_REQUIRE_GOLDENS();
  const auto format = Format(GoldenSource("fireworks-ai-llama-3-firefunction-v2"));
  ChatRequest request = Request(kHi, /*with_tools=*/true);
  request.render.wall_clock_s = 1768480245;
  const ChatPrompt prompt = Rendered(*format, request);
  EXPECT_THAT(prompt.text,
              HasSubstr("Available functions as JSON spec:\n[{\"type\": \"function\""));
  EXPECT_THAT(prompt.text, HasSubstr("Today is Jan 15 2026."));
  EXPECT_THAT(prompt.text, Not(HasSubstr("<tools>")));
  EXPECT_THAT(Rendered(*format, Request(kHi)).text, HasSubstr("JSON spec:\n\nToday is"));
  const auto parsed = [&](std::string_view reply) {
    return TakenApart(format->NewReplyParser(prompt, {.tools = true}).get(),
                      std::array<std::string_view, 1>{reply});
  };
  EXPECT_EQ(parsed(R"( functools[{"name": "get_weather", "arguments": {"city": "Oslo"}}])"),
            "<get_weather\na{\"city\": \"Oslo\"}\n>\n");
  EXPECT_EQ(parsed("Use functools.cache for it."), "CUse functools.cache for it.\n");
}

// As llama-server does.
TEST(ChatFormatTest, ASystemMessageThatATemplateRefusesIsTheUsers) {
  WEFT_REQUIRE_GOLDENS();
  const auto gemma = Format(GoldenSource("google-gemma-2-2b-it"));
  EXPECT_EQ(Rendered(*gemma, Request(R"([{"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
      {"role": "system", "content": "Be long."}, {"role": "developer", "content": "Be kind."},
      {"role": "user", "content": "Bye"}])"))
                .text,
            "<s><start_of_turn>user\nBe brief.\nHi<end_of_turn>\n<start_of_turn>model\nHello"
            "<end_of_turn>\n<start_of_turn>user\nBe long.\nBe kind.\nBye<end_of_turn>\n"
            "<start_of_turn>model\n");
  // It is shown even if no user message follows.
  EXPECT_THAT(Rendered(*gemma, Request(R"([{"role": "system", "content": "Be brief."}])")).text,
              HasSubstr("user\nBe brief.<end_of_turn>"));
  EXPECT_THAT(Rendered(*gemma, Request(R"([{"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Hi"}])",
                                       /*with_tools=*/true))
                  .text,
              HasSubstr("Be brief.\nHi"));
}

TEST(ChatFormatTest, ABegunAnswerKeepsTheSystemMessage) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* const name :
       {"mistralai-Mistral-Nemo-Instruct-2407", "Qwen-Qwen3-0.6B", "google-gemma-2-2b-it"}) {
    ChatRequest request = Request(R"([{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Name a city."}, {"role": "assistant", "content": "One is "}])");
    request.continuation = Continuation::kAuto;
    const std::string text = Rendered(*Format(GoldenSource(name)), request).text;
    EXPECT_THAT(text, HasSubstr("Be brief.")) << name;
    EXPECT_TRUE(text.ends_with("One is ")) << name << text;
  }
}

TEST(ChatFormatTest, ArgumentsAreWrittenOnce) {
  WEFT_REQUIRE_GOLDENS();
  const auto format = Format(GoldenSource("Apriel-1.6-15b-Thinker-fixed"));
  const std::string text = Rendered(*format, Request(R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function":
        {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "rain"}])",
                                                     /*with_tools=*/true))
                               .text;
  EXPECT_THAT(text, HasSubstr(R"("arguments": {"city": "Oslo"})"));
}

// Its template keeps the ids of calls in a list.
TEST(ChatFormatTest, KimiNumbersItsCalls) {
  WEFT_REQUIRE_GOLDENS();
  const auto format = Format(GoldenSource("Kimi-K2-Instruct"));
  const std::string text = Rendered(*format, Request(R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "function": {"name": "get_weather", "arguments": "{}"}},
        {"id": "b", "function": {"name": "get_time", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "a", "content": "rain"},
      {"role": "tool", "tool_call_id": "b", "content": "noon"}])",
                                                     /*with_tools=*/true))
                               .text;
  EXPECT_THAT(text, HasSubstr("functions.get_weather:0<|tool_call_argument_begin|>{}"));
  EXPECT_THAT(text, HasSubstr("## Return of functions.get_weather:0\nrain"));
  EXPECT_THAT(text, HasSubstr("## Return of functions.get_time:1\nnoon"));
}

TEST(ChatFormatTest, IntegersBeyond64BitsKeepTheirDigits) {
  constexpr char kCall[] = R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function":
        {"name": "get_weather", "arguments": "{\"id\": 123456789012345678901, \"u\": 18446744073709551615}"}}]}])";
  ChatRequest request = Request(kCall, /*with_tools=*/true);
  request.add_generation_prompt = false;
  Json tool = request.conversation.tools[0]->definition;
  tool["function"]["parameters"]["properties"]["city"]["maximum"] = UINT64_MAX;
  request.conversation.tools = ToolsOf(Json::array({tool}));
  for (const char* const source :
       {"",
        "{%- for t in tools or [] -%}{{ t|tojson }}{%- endfor -%}{%- for m in messages -%}"
        "{{ m.content or '' }}{%- for c in m.tool_calls or [] -%}{{ c.function.name }}"
        "{{ c.function.arguments|tojson }}{%- endfor -%}{%- endfor -%}"}) {
    const std::string text = Rendered(*Format(source), request).text;
    EXPECT_THAT(text, HasSubstr(R"({"id": 123456789012345678901, "u": 18446744073709551615})"));
    EXPECT_THAT(text, HasSubstr(R"("maximum": 18446744073709551615)"));
  }
}

TEST(ChatFormatTest, RefusalsOfTheAssistantAreRead) {
  const auto format = Format("");
  EXPECT_THAT(Rendered(*format, Request(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
      {"role": "user", "content": "b"}])"))
                  .text,
              HasSubstr("assistant\nI will not.<|im_end|>"));
  const auto refused = ReadOpenAiMessages(
      Json::parse(R"([{"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}])"));
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("messages[0].content[0]: refusal"));
  const auto empty = ReadOpenAiMessages(Json::parse(
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "refusal"}]}])"));
  EXPECT_THAT(std::string(Message(empty.status())), HasSubstr("messages[1].content[0].refusal"));
}

}  // namespace
}  // namespace weft
