// The templates for models that bring none, by name.
#include "answer/chat/builtin_templates.h"

#include <map>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jinja/template.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

StatusOr<std::string> Render(const std::string& source, const Json& context) {
  WEFT_ASSIGN_OR_RETURN(const auto parsed, ChatTemplate::Parse(source));
  return parsed->Render(context, {});
}

const Json kConversation = {{"messages",
                             {{{"role", "system"}, {"content", "Be brief."}},
                              {{"role", "user"}, {"content", "Hi"}},
                              {{"role", "assistant"}, {"content", "Hello"}},
                              {{"role", "user"}, {"content", "Bye"}}}},
                            {"add_generation_prompt", true},
                            {"bos_token", "<s>"},
                            {"eos_token", "</s>"}};

std::string RenderBuiltin(std::string_view name) {
  return *Render(std::string(*FindBuiltinTemplate(name)), kConversation);
}

TEST(BuiltinTemplates, Formats) {
  EXPECT_EQ(RenderBuiltin("chatml"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(RenderBuiltin("llama3"),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(RenderBuiltin("llama2"),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]");
  EXPECT_EQ(RenderBuiltin("mistral"),
            "<s>[INST] Be brief.\n\nHi [/INST] Hello</s>[INST] Bye [/INST]");
  EXPECT_EQ(RenderBuiltin("gemma"),
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello"
            "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(RenderBuiltin("phi3"),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n"
            "<|user|>\nBye<|end|>\n<|assistant|>\n");
  EXPECT_EQ(RenderBuiltin("deepseek"),
            "<s>Be brief.<｜User｜>Hi<｜Assistant｜>Hello<｜end▁of▁sentence｜><｜User｜>Bye"
            "<｜Assistant｜>");
  EXPECT_EQ(RenderBuiltin("zephyr"),
            "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye"
            "</s>\n<|assistant|>\n");
  EXPECT_EQ(RenderBuiltin("vicuna"),
            "Be brief.\n\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:");
  EXPECT_THAT(std::string(Message(FindBuiltinTemplate("zork").status())), HasSubstr("chatml, "));
}

TEST(BuiltinTemplates, FormatsOfTheTable) {
  const std::map<std::string_view, std::string_view> kExpected = {
      {"mistral-v1", "<s> [INST] Be brief.\n\nHi [/INST] Hello</s> [INST] Bye [/INST]"},
      {"mistral-v3-tekken", "<s>[INST]Be brief.\n\nHi[/INST]Hello</s>[INST]Bye[/INST]"},
      {"mistral-v7",
       "<s>[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hi[/INST] Hello</s>[INST] Bye[/INST]"},
      {"llama2-sys-bos",
       "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]Hello</s><s>[INST] Bye [/INST]"},
      {"phi4",
       "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hi<|im_end|>"
       "<|im_start|>assistant<|im_sep|>Hello<|im_end|><|im_start|>user<|im_sep|>Bye<|im_end|>"
       "<|im_start|>assistant<|im_sep|>"},
      {"monarch",
       "<s>system\nBe brief.</s>\n<s>user\nHi</s>\n<s>assistant\nHello</s>\n<s>user\nBye</s>\n"
       "<s>assistant\n"},
      {"openchat",
       "<s>Be brief.<|end_of_turn|>GPT4 Correct User: Hi<|end_of_turn|>GPT4 Correct Assistant: "
       "Hello<|end_of_turn|>GPT4 Correct User: Bye<|end_of_turn|>GPT4 Correct Assistant:"},
      {"minicpm", "<s>Be brief.<用户>Hi<AI>Hello<用户>Bye<AI>"},
      {"gigachat",
       "<s>Be brief.<|message_sep|>user<|role_sep|>Hi<|message_sep|>available functions<|role_sep|>"
       "[]<|message_sep|>assistant<|role_sep|>Hello<|message_sep|>user<|role_sep|>Bye<|message_sep|"
       ">"
       "available functions<|role_sep|>[]<|message_sep|>assistant<|role_sep|>"},
      {"rwkv-world",
       "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"},
      {"bailing2",
       "<role>SYSTEM</role>Be brief.<|role_end|><role>HUMAN</role>Hi<|role_end|>"
       "<role>ASSISTANT</role>Hello<|role_end|><role>HUMAN</role>Bye<|role_end|>"
       "<role>ASSISTANT</role>"}};
  for (const auto& [name, text] : kExpected) EXPECT_EQ(RenderBuiltin(name), text) << name;
  Json without = kConversation;
  without["messages"].erase(0);
  EXPECT_THAT(*Render(std::string(*FindBuiltinTemplate("bailing2")), without),
              ::testing::StartsWith("<role>SYSTEM</role>detailed thinking off<|role_end|>"));
}

// Each shows all messages, and names are unique.
TEST(BuiltinTemplates, AllShowTheConversation) {
  std::map<std::string_view, int> names;
  for (const BuiltinTemplate& t : BuiltinTemplates()) {
    EXPECT_EQ(++names[t.name], 1) << t.name;
    const std::string text = RenderBuiltin(t.name);
    for (const char* const said : {"Be brief.", "Hi", "Hello", "Bye"}) {
      EXPECT_THAT(text, HasSubstr(said)) << t.name;
    }
  }
  EXPECT_GT(names.size(), 50u);
}

}  // namespace
}  // namespace weft
