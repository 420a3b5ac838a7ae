// Chat formats: which templates are recognised as which format, and how requests are rendered.
#include "answer/chat/chat_format.h"

#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "answer/chat/builtin_templates.h"
#include "answer/chat/chat_format_test_util.h"
#include "answer/reply/reply_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Refusal(const char* messages, const char* tools = "null") {
  const Status status = ReadOpenAiMessages(Json::parse(messages)).status();
  const Status of_tools = ReadOpenAiTools(Json::parse(tools)).status();
  EXPECT_NE(status.ok(), of_tools.ok());
  return std::string(Message(status.ok() ? of_tools : status));
}

constexpr char kToolTurn[] = R"([
  {"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
    "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
  {"role": "tool", "tool_call_id": "call_1", "content": "rain"}])";

constexpr char kToolCallAtEnd[] = R"([
  {"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": "Let me see. ", "tool_calls": [{"id": "call_1",
    "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]}])";

TEST(ChatFormatTest, TemplatesOfTheFieldAreRecognised) {
  WEFT_REQUIRE_GOLDENS();
  struct Expected {
    const char* format;
    bool tools;
    bool reasoning;
  };
  const std::map<std::string, Expected> kExpected = {
      {"Apriel-1.6-15b-Thinker-fixed", {"hermes", true, false}},
      {"ByteDance-Seed-OSS", {"seed-xml", true, true}},
      {"CohereForAI-c4ai-command-r-plus-tool_use", {"command-r", true, false}},
      {"GLM-4.6", {"glm", true, true}},
      {"GigaChat3-10B-A1.8B", {"generic", true, false}},
      {"HuggingFaceTB-SmolLM3-3B", {"generic", false, true}},
      {"Kimi-K2-Instruct", {"kimi", true, false}},
      {"Kimi-K3", {"kimi-xtml", true, true}},
      {"LFM2.5-8B-A1B", {"lfm2", true, true}},
      {"LFM2.5-Instruct", {"lfm2", true, true}},
      {"MiMo-VL", {"hermes", true, false}},
      {"MiniMax-M2", {"minimax-xml", true, true}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {"mistral", true, false}},
      {"NVIDIA-Nemotron-Nano-v2", {"hermes", true, true}},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", {"hermes", true, false}},
      {"Qwen-QwQ-32B", {"hermes", true, true}},
      {"Qwen-Qwen2.5-7B-Instruct", {"hermes", true, false}},
      {"Qwen-Qwen3-0.6B", {"hermes", true, true}},
      {"Qwen3.5-4B", {"qwen-xml", true, true}},
      {"StepFun3.5-Flash", {"qwen-xml", true, true}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek", false, true}},
      {"deepseek-ai-DeepSeek-V3.1", {"deepseek", false, true}},
      {"deepseek-ai-DeepSeek-V4", {"deepseek-xml", true, true}},
      {"fireworks-ai-llama-3-firefunction-v2", {"functools", true, false}},
      {"google-gemma-2-2b-it", {"generic", false, false}},
      {"google-gemma-4-31B-it", {"gemma4", true, true}},
      {"ibm-granite-granite-3.3-2B-Instruct", {"generic", true, true}},
      {"ibm-granite-granite-4.1", {"hermes", true, false}},
      {"llama-cpp-rwkv-world", {"generic", false, true}},
      {"meta-llama-Llama-3.1-8B-Instruct", {"llama3", true, false}},
      {"meta-llama-Llama-3.2-3B-Instruct", {"llama3", true, false}},
      {"microsoft-Phi-3.5-mini-instruct", {"generic", false, false}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral", true, false}},
      {"openai-gpt-oss-120b", {"harmony", true, true}},
  };
  for (const auto& [name, expected] : kExpected) {
    const std::string source = GoldenSource(name);
    ASSERT_FALSE(source.empty()) << name;
    const auto format = Format(source);
    EXPECT_EQ(format->reply_format(), expected.format) << name;
    EXPECT_EQ(format->template_has_tools(), expected.tools) << name;
    EXPECT_EQ(format->has_reasoning(), expected.reasoning) << name;
  }
}

// A call in the history is rendered in the form its parser reads.
TEST(ChatFormatTest, CallsOfTheHistoryAreReadBack) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* name : {"Qwen-Qwen2.5-7B-Instruct",
                           "Qwen-Qwen3-0.6B",
                           "Qwen3.5-4B",
                           "ByteDance-Seed-OSS",
                           "MiniMax-M2",
                           "NVIDIA-Nemotron-Nano-v2",
                           "meta-llama-Llama-3.1-8B-Instruct",
                           "mistralai-Mistral-Nemo-Instruct-2407",
                           "Mistral-Small-3.2-24B-Instruct-2506",
                           "google-gemma-4-31B-it",
                           "LFM2.5-8B-A1B",
                           "LFM2.5-Instruct",
                           "openai-gpt-oss-120b",
                           "deepseek-ai-DeepSeek-V3.1",
                           "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                           "google-gemma-2-2b-it",
                           "microsoft-Phi-3.5-mini-instruct",
                           "HuggingFaceTB-SmolLM3-3B",
                           "deepseek-ai-DeepSeek-V4",
                           "GLM-4.6",
                           "Kimi-K2-Instruct",
                           "CohereForAI-c4ai-command-r-plus-tool_use"}) {
    const auto format = Format(GoldenSource(name));
    ChatRequest request = Request(kToolTurn, /*with_tools=*/true);
    std::vector<ChatMessage>& messages = request.conversation.messages;
    messages.push_back({.role = Role::kAssistant, .parts = {"It rains."}});
    messages.push_back({.parts = {"And tomorrow?"}});
    const std::string after = Rendered(*format, request).text;
    EXPECT_THAT(after, HasSubstr("rain")) << name;
    messages.erase(messages.begin() + 1, messages.end());
    ChatPrompt before = Rendered(*format, request);
    EXPECT_THAT(before.text, HasSubstr("get_weather")) << name;
    // The model's reply begins after the question, or after a header.
    const size_t argument = after.rfind("Oslo");
    ASSERT_NE(argument, std::string::npos) << name;
    size_t at = after.rfind("Weather?", argument);
    const size_t header = after.rfind("<|end_header_id|>", argument);
    if (header != std::string::npos) at = header + std::string_view("<|end_header_id|>").size();
    ASSERT_NE(at, std::string::npos) << name;
    const std::string reply = after.substr(at);
    before.reasoning_is_open = false;
    const std::string said = TakenApart(format->NewReplyParser(before, {.tools = true}).get(),
                                        std::array<std::string_view, 1>{reply});
    EXPECT_THAT(said, HasSubstr("<get_weather")) << name << "\n" << after;
    EXPECT_THAT(said, HasSubstr("Oslo\"")) << name;
    EXPECT_THAT(said, HasSubstr("}\n>\nC")) << name << ": the call has not ended";
  }
}

TEST(ChatFormatTest, RefusalsNameThePlace) {
  EXPECT_THAT(Refusal("{}"), HasSubstr("messages: must be a list"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("messages: there must be at least one"));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("messages[0]: must be an object"));
  EXPECT_THAT(Refusal(R"([{"content": "x"}])"), HasSubstr("messages[0].role: must be a string"));
  EXPECT_THAT(Refusal(R"([{"role": "boss", "content": "x"}])"), HasSubstr("no role 'boss'"));
  EXPECT_THAT(Refusal(R"([{"role": "user", "content": "x"}, {"role": "user"}])"),
              HasSubstr("messages[1].content: a message of role 'user' needs content"));
  EXPECT_THAT(Refusal(R"([{"role": "user", "content": 5}])"),
              HasSubstr("messages[0].content: must be a string or a list"));
  EXPECT_THAT(Refusal(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                          {"type": "image_url", "image_url": {"url": "x"}}]}])"),
              HasSubstr("messages[0].content[1]: image input is not supported"));
  EXPECT_THAT(Refusal(R"([{"role": "user", "content": [{"type": "input_audio"}]}])"),
              HasSubstr("messages[0].content[0]: audio input is not supported"));
  EXPECT_THAT(Refusal(R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])"),
              HasSubstr("messages[0].tool_calls[0].function.name"));
  EXPECT_THAT(Refusal(R"([{"role": "user", "content": "x", "tool_calls": []}])"),
              HasSubstr("messages[0].tool_calls: only messages of role 'assistant'"));
  constexpr char kUser[] = R"([{"role": "user", "content": "x"}])";
  EXPECT_THAT(Refusal(kUser, "5"), HasSubstr("tools: must be a list"));
  EXPECT_THAT(Refusal(kUser, R"([{"type": "web_search"}])"), HasSubstr("tools[0].type"));
  EXPECT_THAT(Refusal(kUser, R"([{"type": "function", "function": {"name": "f",
                                  "parameters": 1}}])"),
              HasSubstr("tools[0].function.parameters"));
}

TEST(ChatFormatTest, WithoutATemplateItIsChatMl) {
  const auto format = Format("");
  EXPECT_EQ(Rendered(*format, Request(R"([{"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}])"))
                .text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
            "<|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\nd<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatFormatTest, ToolsThatATemplateCannotShowAreDescribed) {
  const auto format = Format("");
  EXPECT_FALSE(format->template_has_tools());
  const std::string text = Rendered(*format, Request(kToolTurn, true)).text;
  EXPECT_THAT(text, HasSubstr("<|im_start|>system\nYou can call these functions"));
  EXPECT_THAT(text, HasSubstr("{\"name\": \"get_weather\", \"description\": \"The weather\""));
  EXPECT_THAT(text, HasSubstr("<|im_start|>assistant\n<tool_call>\n{\"name\": \"get_weather\", "
                              "\"arguments\": {\"city\": \"Oslo\"}}\n</tool_call><|im_end|>"));
  // If the template has no system role, the first user message carries it.
  StatusOr<std::string_view> phi = FindBuiltinTemplate("mistral");
  ASSERT_TRUE(phi.ok());
  EXPECT_THAT(Rendered(*Format(std::string(*phi)), Request(kToolTurn, true)).text,
              HasSubstr("You can call these functions"));
}

TEST(ChatFormatTest, ArgumentsHaveTheShapeThatTheTemplateTakes) {
  const std::string head =
      "{%- for t in tools or [] -%}{{ t.function.name }}{%- endfor -%}"
      "{%- for m in messages -%}{{ m.role }}:{{ m.content or '' }}"
      "{%- for c in m.tool_calls or [] -%}";
  const std::string tail = "{%- endfor -%}|{% endfor %}";
  const auto text = [&](const std::string& body) {
    return Rendered(*Format(head + body + tail), Request(kToolTurn, true)).text;
  };
  EXPECT_THAT(text("{{ c.function.name }}{% for k, v in c.function.arguments.items() %}"
                   "<{{ k }}={{ v }}>{% endfor %}"),
              HasSubstr("assistant:get_weather<city=Oslo>|"));
  EXPECT_THAT(text("{{ c.function.name ~ '(' ~ c.function.arguments ~ ')' }}"),
              HasSubstr("assistant:get_weather({\"city\": \"Oslo\"})|"));
  // Arguments that are not JSON stay as they are.
  ChatRequest request = Request(kToolTurn, true);
  request.conversation.messages[1].calls[0].arguments = "{oops";
  EXPECT_THAT(
      Rendered(*Format(head + "{{ c.function.name }}{{ c.function.arguments|tojson }}" + tail),
               request)
          .text,
      HasSubstr("get_weather\"{oops\"|"));
}

TEST(ChatFormatTest, ReasoningOfTheHistoryGoesWhereTheTemplateLooks) {
  ChatRequest request = Request(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "hm"}])");
  request.add_generation_prompt = false;
  const auto text = [&](const char* body) {
    return Rendered(*Format(StrCat("{%- for m in messages -%}", body, "|{% endfor %}")), request)
        .text;
  };
  EXPECT_EQ(text("{{ m.reasoning_content }}/{{ m.content }}"), "/a|hm/b|");
  EXPECT_EQ(text("{{ m.content.split('</think>')[-1] }}{{ '<think>' in m.content }}"),
            "aFalse|\n\nbTrue|");
  EXPECT_EQ(text("{{ m.content }}"), "a|b|");
}

TEST(ChatFormatTest, ReasoningThatThePromptOpensIsSeen) {
  const std::string source =
      "{%- for m in messages -%}{{ m.content }}{%- endfor -%}{%- if add_generation_prompt -%}"
      "<a>{{ '<think>\\n' }}{% if enable_thinking is false %}</think>{% endif %}{% endif %}";
  const auto format = Format(source);
  ChatRequest request = Request(R"([{"role": "user", "content": "x <think> y"}])");
  const ChatPrompt open = Rendered(*format, request);
  EXPECT_TRUE(open.reasoning_is_open);
  const auto parser = format->NewReplyParser(open, {});
  EXPECT_EQ(TakenApart(parser.get(), std::array<std::string_view, 1>{"hm</think>Hi"}),
            "Rhm\nCHi\n");
  request.variables["enable_thinking"] = false;
  EXPECT_FALSE(Rendered(*format, request).reasoning_is_open);
}

TEST(ChatFormatTest, AMessageThatIsBegunIsContinued) {
  const auto format = Format("");
  ChatRequest request = Request(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "text", "text": "It "},
                                        {"type": "text", "text": "is "}]}])");
  request.continuation = Continuation::kAuto;
  const ChatPrompt prompt = Rendered(*format, request);
  EXPECT_EQ(prompt.text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nIt is ");
  EXPECT_FALSE(prompt.reasoning_is_open);
  std::vector<ChatMessage>& messages = request.conversation.messages;
  messages[1].parts.clear();
  EXPECT_EQ(Rendered(*format, request).text,
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  // Earlier text with the same words is not mistaken for the end.
  messages[0].parts = {"WeftGoesOnHere5d1f0c7e?"};
  messages[1].parts = {"Yes, "};
  EXPECT_TRUE(
      Rendered(*format, request).text.ends_with("7e?<|im_end|>\n<|im_start|>assistant\nYes, "));
}

TEST(ChatFormatTest, ReasoningThatIsBegunIsContinuedAsReasoning) {
  const auto format = Format(
      "{%- for m in messages -%}{{ m.role }}:{% if m.reasoning_content %}<think>"
      "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}|{%- endfor -%}");
  ChatRequest request = Request(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "reasoning_content": "Well, "}])");
  std::vector<ChatMessage>& messages = request.conversation.messages;
  request.continuation = Continuation::kAuto;
  const ChatPrompt open = Rendered(*format, request);
  EXPECT_EQ(open.text, "user:a|assistant:<think>Well, ");
  EXPECT_TRUE(open.reasoning_is_open);
  messages[1].parts = {"So "};
  const ChatPrompt closed = Rendered(*format, request);
  EXPECT_EQ(closed.text, "user:a|assistant:<think>Well, </think>So ");
  EXPECT_FALSE(closed.reasoning_is_open);
  // Given explicitly, and under other names.
  for (const char* const name : {"reasoning", "reasoning_text", "thinking"}) {
    messages[1] = MessageOf({{"role", "assistant"}, {"content", ""}, {name, "Well, "}});
    request.continuation = Continuation::kAuto;
    EXPECT_EQ(Rendered(*format, request).text, open.text) << name;
    request.continuation = Continuation::kReasoning;
    EXPECT_EQ(Rendered(*format, request).text, open.text) << name;
  }
  messages[1] = {.role = Role::kAssistant, .reasoning = "Well, "};
  request.continuation = Continuation::kReasoning;
  EXPECT_EQ(Rendered(*format, request).text, open.text);
  request.continuation = Continuation::kContent;
  EXPECT_EQ(Rendered(*format, request).text, "user:a|assistant:<think>Well, </think>");
  EXPECT_FALSE(Rendered(*format, request).reasoning_is_open);
  messages[1].reasoning.clear();
  request.continuation = Continuation::kReasoning;
  EXPECT_EQ(Rendered(*format, request).text, "user:a|assistant:<think>");
  EXPECT_TRUE(Rendered(*format, request).reasoning_is_open);
  messages[1].parts = {"So "};
  EXPECT_THAT(std::string(Message(format->Render(request).status())),
              HasSubstr("messages[1].content: reasoning that is followed by content is complete"));
  request.continuation = Continuation::kAuto;
  messages[1].parts = {"<think>Hm"};
  EXPECT_TRUE(Rendered(*format, request).reasoning_is_open);
  messages[1].parts = {"<think>Hm</think>"};
  EXPECT_FALSE(Rendered(*format, request).reasoning_is_open);
}

TEST(ChatFormatTest, WhatCannotBeContinuedIsRefused) {
  const auto refusal = [](const char* source, const char* messages) {
    ChatRequest request = Request(messages);
    request.continuation = Continuation::kAuto;
    const auto prompt = Format(source)->Render(request);
    EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
    return std::string(Message(prompt.status()));
  };
  EXPECT_THAT(refusal("", R"([{"role": "user", "content": "a"}])"),
              HasSubstr("messages[0].role: only a message of role 'assistant'"));
  EXPECT_THAT(refusal("", kToolCallAtEnd),
              HasSubstr("messages[1].tool_calls: a message with calls"));
  constexpr char kReasoning[] = R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": null, "reasoning_content": "Hm"}])";
  EXPECT_THAT(refusal("{%- for m in messages -%}{{ m.content }}{%- endfor -%}", kReasoning),
              HasSubstr("messages[1].content: with this model only content"));
  EXPECT_THAT(
      refusal("{%- for m in messages -%}{% if m.role == 'user' %}{{ m.content }}{% endif %}"
              "{%- endfor -%}",
              R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])"),
      HasSubstr("messages[1]: the chat template does not show this text"));
}

// With real templates the prompt ends with the begun answer, and nothing of it is lost.
TEST(ChatFormatTest, TemplatesOfTheFieldLetAnAnswerBeContinued) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* name :
       {"Qwen-Qwen3-0.6B", "Qwen-QwQ-32B", "Qwen3.5-4B", "meta-llama-Llama-3.1-8B-Instruct",
        "mistralai-Mistral-Nemo-Instruct-2407", "google-gemma-2-2b-it", "google-gemma-4-31B-it",
        "LFM2.5-Instruct", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-V3.1", "GLM-4.6",
        "microsoft-Phi-3.5-mini-instruct", "HuggingFaceTB-SmolLM3-3B"}) {
    ChatRequest request = Request(R"([{"role": "user", "content": "Name a city."},
        {"role": "assistant", "content": "One is "}])");
    request.continuation = Continuation::kAuto;
    const auto format = Format(GoldenSource(name));
    const ChatPrompt prompt = Rendered(*format, request);
    EXPECT_THAT(prompt.text, HasSubstr("Name a city.")) << name;
    EXPECT_TRUE(prompt.text.ends_with("One is ")) << name << "\n" << prompt.text;
    EXPECT_EQ(TakenApart(format->NewReplyParser(prompt, {.tools = true}).get(),
                         std::array<std::string_view, 1>{"Oslo."}),
              "COslo.\n")
        << name;
  }
}

// Templates that show one call per message get one message per call, each followed by its result.
TEST(ChatFormatTest, SeveralCallsWhereOneIsShown) {
  const std::string source =
      "{%- for t in tools or [] -%}{{ t.function.name }}{%- endfor -%}"
      "{%- for m in messages -%}{{ m.role }}:{{ m.content or '' }}"
      "{%- if m.tool_calls -%}{%- set f = m.tool_calls[0].function -%}"
      "{{ f.name }}{{ f.arguments|tojson }}{%- endif -%}|{%- endfor -%}";
  const ChatRequest request = Request(R"([{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": "{}"}},
      {"id": "2", "function": {"name": "g", "arguments": "{\"k\": 1}"}}]},
    {"role": "tool", "tool_call_id": "2", "content": "second"},
    {"role": "tool", "tool_call_id": "1", "content": "first"}])");
  EXPECT_EQ(Rendered(*Format(source), request).text,
            "user:a|assistant:bg{\"k\": 1}|tool:second|assistant:f{}|tool:first|");
}

TEST(ChatFormatTest, MistralIdsAreMadeToFit) {
  WEFT_REQUIRE_GOLDENS();
  const auto format = Format(GoldenSource("mistralai-Mistral-Nemo-Instruct-2407"));
  const std::string text = Rendered(*format, Request(kToolTurn, true)).text;
  const size_t at = text.find("\"id\": \"");
  ASSERT_NE(at, std::string::npos);
  const std::string id = text.substr(at + 7, 9);
  EXPECT_THAT(text, HasSubstr("\"call_id\": \"" + id + "\""));
  EXPECT_THAT(text, Not(HasSubstr("call_1")));
}

TEST(ChatFormatTest, TheTemplatesOwnErrorsAreGivenOn) {
  const auto format = Format(
      "{%- for m in messages -%}{%- if m.content == 'y' -%}"
      "{{ raise_exception('y is not supported') }}{%- endif -%}{{ m.content }}{%- endfor -%}");
  const auto prompt = format->Render(Request(R"([{"role": "user", "content": "y"}])"));
  EXPECT_EQ(Message(prompt.status()), "y is not supported");
  EXPECT_FALSE(ChatFormat::Create("{% if %}", testing::TinyModel("llama")->tokenizer()).ok());
}

TEST(ChatFormatTest, TemplatesThatCostTooMuchAreRefusedAtOnce) {
  const auto create = [](const char* source) {
    return ChatFormat::Create(source, testing::TinyModel("llama")->tokenizer()).status();
  };
  for (const char* const source :
       {"{% for i in range(1000000) %}{% set x = i %}{% endfor %}",
        "{% for m in messages %}{% for i in range(300000) %}{{ i }}{% endfor %}{% endfor %}",
        "{{ 'x' * 3000000 }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"}) {
    const Status status = create(source);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << source;
    EXPECT_THAT(Message(status), HasSubstr("--template")) << source;
  }
  // A template may reject the trial prompt.
  EXPECT_EQ(create("{{ raise_exception('never') }}"), OkStatus());
  EXPECT_EQ(create("{% for m in messages %}{{ m.content }}{% endfor %}"), OkStatus());
}

TEST(ChatFormatTest, TheTemplatesOfModelsAreCheapEnough) {
  WEFT_REQUIRE_GOLDENS();
  int n_templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::GoldensDir() + "/chat")) {
    if (entry.path().extension() != ".jinja") continue;
    ++n_templates;
    Format(GoldenSource(entry.path().stem()));
  }
  EXPECT_GT(n_templates, 10);
}

// The vocabulary has "<s>", which is in no marker.
TEST(ChatFormatTest, ControlTokensAreShownWhereSomethingIsFoundByThem) {
  const auto format = Format("<tool_call> <function=");
  EXPECT_TRUE(format->ControlTokensFor({}).ids.empty());
  EXPECT_TRUE(format->ControlTokensFor({">", "s", "", "</s>"}).ids.empty());
  const auto found = format->ControlTokensFor({"end", "x<s>y"});
  EXPECT_THAT(found.texts, ::testing::ElementsAre("<s>"));
  EXPECT_THAT(found.ids, ::testing::ElementsAre(testing::TinyModel("llama")->tokenizer()->bos()));
}

// The vocabulary has the control token "<s>" and the end "</s>".
TEST(ChatFormatTest, AnAnswerEndsWhereTheTemplateEndsOne) {
  const auto ends = [](const std::string& behind, const std::string& before = "") {
    return Format("{%- for m in messages -%}{{- '" + before +
                  "' if m.role == 'user' else '' }}{{- m.content }}{{- '" + behind +
                  "' if m.role == 'assistant' else '' }}{%- endfor -%}")
        ->ends();
  };
  // A text that is not a token of this vocabulary.
  EXPECT_THAT(ends("<|turn_end|>\\n").texts, ::testing::ElementsAre("<|turn_end|>"));
  EXPECT_THAT(ends("<|turn_end|>\\n").tokens, ::testing::IsEmpty());
  // The beginning of the next question, which within a line does not count.
  EXPECT_THAT(ends("", "\\n\\nUser: ").texts, ::testing::ElementsAre("\nUser:"));
  // A control token that the vocabulary does not know as an end token.
  EXPECT_THAT(ends(" <s>[x]").tokens,
              ::testing::ElementsAre(testing::TinyModel("llama")->tokenizer()->bos()));
  EXPECT_THAT(ends(" <s>[x]").texts, ::testing::IsEmpty());
  for (const char* const nothing : {"", "\\n", "</s>more", " </s>\\nUser: ", "#\\n"}) {
    EXPECT_THAT(ends(nothing).texts, ::testing::IsEmpty()) << nothing;
    EXPECT_THAT(ends(nothing).tokens, ::testing::IsEmpty()) << nothing;
  }
  EXPECT_THAT(ends("### End</s>").texts, ::testing::ElementsAre("### End"));
}

TEST(ChatFormatTest, MessagesOfHarmonyDoNotEndAnAnswer) {
  const auto format = Format(
      "{# <|channel|>analysis<|message|> #}{%- for m in messages -%}"
      "<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}<|end|>{%- endfor -%}");
  ASSERT_EQ(format->reply_format(), "harmony");
  EXPECT_THAT(format->ends().texts, ::testing::IsEmpty());
}

}  // namespace
}  // namespace weft
