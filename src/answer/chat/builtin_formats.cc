// Templates generated from the text that a format writes around each role's messages.
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/builtin_templates.h"
#include "base/strings.h"

namespace weft {
namespace {

// The text before and after a message. {bos} and {eos} are the model's own tokens.
struct Around {
  std::string_view before, behind;
};

struct Format {
  std::string_view name;
  std::string_view begin;  // starts the conversation
  Around system, user, assistant;
  std::string_view reply;  // the beginning of the next answer
  bool trims = false;
  // A system message goes into the user's message that follows it.
  bool system_in_user = false;
  // Used if the first message is not a system message.
  std::string_view without_system = {};
};

constexpr Format kFormats[] = {
    {.name = "llama2-sys",
     .begin = "{bos}",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", "{eos}"},
     .system_in_user = true},
    {.name = "llama2-sys-bos",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"{bos}[INST] ", " [/INST]"},
     .assistant = {"", "{eos}"},
     .system_in_user = true},
    {.name = "llama2-sys-strip",
     .begin = "{bos}",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", "{eos}"},
     .trims = true,
     .system_in_user = true},
    {.name = "mistral-v1",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {" [INST] ", " [/INST]"},
     .assistant = {" ", "{eos}"},
     .system_in_user = true},
    {.name = "mistral-v3",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", "{eos}"},
     .system_in_user = true},
    {.name = "mistral-v3-tekken",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"[INST]", "[/INST]"},
     .assistant = {"", "{eos}"},
     .system_in_user = true},
    {.name = "mistral-v7",
     .begin = "{bos}",
     .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", "{eos}"}},
    {.name = "mistral-v7-tekken",
     .begin = "{bos}",
     .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
     .user = {"[INST]", "[/INST]"},
     .assistant = {"", "{eos}"}},
    {.name = "phi4",
     .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
     .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
     .assistant = {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"},
     .reply = "<|im_start|>assistant<|im_sep|>"},
    {.name = "falcon3",
     .system = {"<|system|>\n", "\n"},
     .user = {"<|user|>\n", "\n"},
     .assistant = {"<|assistant|>\n", "\n"},
     .reply = "<|assistant|>\n"},
    {.name = "monarch",
     .system = {"{bos}system\n", "{eos}\n"},
     .user = {"{bos}user\n", "{eos}\n"},
     .assistant = {"{bos}assistant\n", "{eos}\n"},
     .reply = "{bos}assistant\n"},
    {.name = "orion",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"Human: ", "\n\nAssistant: {eos}"},
     .assistant = {"", "{eos}"},
     .system_in_user = true},
    {.name = "openchat",
     .begin = "{bos}",
     .system = {"", "<|end_of_turn|>"},
     .user = {"GPT4 Correct User: ", "<|end_of_turn|>"},
     .assistant = {"GPT4 Correct Assistant: ", "<|end_of_turn|>"},
     .reply = "GPT4 Correct Assistant:"},
    {.name = "vicuna-orca",
     .begin = "{bos}",
     .system = {"SYSTEM: ", "\n"},
     .user = {"USER: ", "\n"},
     .assistant = {"ASSISTANT: ", "{eos}\n"},
     .reply = "ASSISTANT:"},
    {.name = "deepseek-coder",
     .begin = "{bos}",
     .user = {"### Instruction:\n", "\n"},
     .assistant = {"### Response:\n", "\n<|EOT|>\n"},
     .reply = "### Response:\n"},
    {.name = "deepseek2",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"User: ", "\n\n"},
     .assistant = {"Assistant: ", "<｜end▁of▁sentence｜>"},
     .reply = "Assistant:"},
    {.name = "deepseek3",
     .begin = "{bos}",
     .system = {"", "\n\n"},
     .user = {"<｜User｜>", ""},
     .assistant = {"<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
     .reply = "<｜Assistant｜>"},
    {.name = "deepseek-ocr", .begin = "{bos}"},
    {.name = "command-r",
     .begin = "{bos}",
     .system = {"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
     .user = {"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
     .assistant = {"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
     .reply = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     .trims = true},
    {.name = "chatglm3",
     .begin = "[gMASK]sop",
     .system = {"<|system|>\n ", ""},
     .user = {"<|user|>\n ", ""},
     .assistant = {"<|assistant|>\n ", ""},
     .reply = "<|assistant|>"},
    {.name = "chatglm4",
     .begin = "[gMASK]<sop>",
     .system = {"<|system|>\n", ""},
     .user = {"<|user|>\n", ""},
     .assistant = {"<|assistant|>\n", ""},
     .reply = "<|assistant|>\n"},
    {.name = "glmedge",
     .system = {"<|system|>\n", ""},
     .user = {"<|user|>\n", ""},
     .assistant = {"<|assistant|>\n", ""},
     .reply = "<|assistant|>"},
    {.name = "minicpm", .begin = "{bos}", .user = {"<用户>", "<AI>"}, .trims = true},
    {.name = "exaone3",
     .begin = "{bos}",
     .system = {"[|system|]", "[|endofturn|]\n"},
     .user = {"[|user|]", "\n"},
     .assistant = {"[|assistant|]", "[|endofturn|]\n"},
     .reply = "[|assistant|]",
     .trims = true},
    {.name = "exaone4",
     .system = {"[|system|]\n", "[|endofturn|]\n"},
     .user = {"[|user|]\n", "[|endofturn|]\n"},
     .assistant = {"[|assistant|]\n", "[|endofturn|]\n"},
     .reply = "[|assistant|]\n",
     .trims = true},
    {.name = "exaone-moe",
     .system = {"<|system|>\n", "<|endofturn|>\n"},
     .user = {"<|user|>\n", "<|endofturn|>\n"},
     .assistant = {"<|assistant|>\n", "<|endofturn|>\n"},
     .reply = "<|assistant|>\n",
     .trims = true},
    {.name = "rwkv-world",
     .system = {"System: ", "\n\n"},
     .user = {"User: ", "\n\n"},
     .assistant = {"Assistant: ", "\n\n"},
     .reply = "Assistant:",
     .trims = true},
    {.name = "granite",
     .system = {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
     .user = {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
     .assistant = {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"},
     .reply = "<|start_of_role|>assistant<|end_of_role|>"},
    {.name = "granite-4.0",
     .system = {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
     .user = {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
     .assistant = {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"},
     .reply = "<|start_of_role|>assistant<|end_of_role|>"},
    {.name = "gigachat",
     .begin = "{bos}",
     .system = {"", "<|message_sep|>"},
     .user = {"user<|role_sep|>",
              "<|message_sep|>available functions<|role_sep|>[]<|message_sep|>"},
     .assistant = {"assistant<|role_sep|>", "<|message_sep|>"},
     .reply = "assistant<|role_sep|>"},
    {.name = "megrez",
     .system = {"<|role_start|>system<|role_end|>", "<|turn_end|>"},
     .user = {"<|role_start|>user<|role_end|>", "<|turn_end|>"},
     .assistant = {"<|role_start|>assistant<|role_end|>", "<|turn_end|>"},
     .reply = "<|role_start|>assistant<|role_end|>"},
    {.name = "yandex",
     .begin = "{bos}",
     .system = {"", "\n"},
     .user = {" Пользователь: ", "\n\n"},
     .assistant = {" Ассистент: ", "\n\n"},
     .reply = " Ассистент:[SEP]",
     .system_in_user = true},
    {.name = "bailing",
     .system = {"<role>SYSTEM</role>", ""},
     .user = {"<role>HUMAN</role>", ""},
     .assistant = {"<role>ASSISTANT</role>", ""},
     .reply = "<role>ASSISTANT</role>"},
    {.name = "bailing-think",
     .system = {"<role>SYSTEM</role>", ""},
     .user = {"<role>HUMAN</role>", ""},
     .assistant = {"<role>ASSISTANT</role>", ""},
     .reply = "<role>ASSISTANT</role><think>"},
    {.name = "bailing2",
     .system = {"<role>SYSTEM</role>", "<|role_end|>"},
     .user = {"<role>HUMAN</role>", "<|role_end|>"},
     .assistant = {"<role>ASSISTANT</role>", "<|role_end|>"},
     .reply = "<role>ASSISTANT</role>",
     .without_system = "<role>SYSTEM</role>detailed thinking off<|role_end|>"},
    {.name = "llama4",
     .begin = "{bos}",
     .system = {"<|header_start|>system<|header_end|>\n\n", "<|eot|>"},
     .user = {"<|header_start|>user<|header_end|>\n\n", "<|eot|>"},
     .assistant = {"<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"},
     .reply = "<|header_start|>assistant<|header_end|>\n\n",
     .trims = true},
    {.name = "smolvlm",
     .begin = "<|im_start|>",
     .system = {"", "\n\n"},
     .user = {"User: ", "<end_of_utterance>\n"},
     .assistant = {"Assistant: ", "<end_of_utterance>\n"},
     .reply = "Assistant:"},
    {.name = "hunyuan-moe",
     .system = {"<|startoftext|>", "<|extra_4|>"},
     .user = {"<|startoftext|>", "<|extra_0|>"},
     .assistant = {"", "<|eos|>"}},
    {.name = "hunyuan-dense",
     .begin = "<｜hy_begin▁of▁sentence｜>",
     .system = {"", "<｜hy_place▁holder▁no▁3｜>"},
     .user = {"<｜hy_User｜>", ""},
     .assistant = {"<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁2｜>"},
     .reply = "<｜hy_Assistant｜>"},
    {.name = "kimi-k2",
     .system = {"<|im_system|>system<|im_middle|>", "<|im_end|>"},
     .user = {"<|im_user|>user<|im_middle|>", "<|im_end|>"},
     .assistant = {"<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"},
     .reply = "<|im_assistant|>assistant<|im_middle|>"},
    {.name = "gpt-oss",
     .system = {"<|start|>system<|message|>", "<|end|>"},
     .user = {"<|start|>user<|message|>", "<|end|>"},
     .assistant = {"<|start|>assistant<|channel|>final<|message|>", "<|end|>"},
     .reply = "<|start|>assistant"},
    {.name = "seed_oss",
     .system = {"<seed:bos>system\n", "<seed:eos>"},
     .user = {"<seed:bos>user\n", "<seed:eos>"},
     .assistant = {"<seed:bos>assistant\n", "<seed:eos>"},
     .reply = "<seed:bos>assistant\n",
     .trims = true},
    {.name = "grok-2",
     .system = {"System: ", "<|separator|>\n\n"},
     .user = {"Human: ", "<|separator|>\n\n"},
     .assistant = {"Assistant: ", "<|separator|>\n\n"},
     .reply = "Assistant:",
     .trims = true},
    {.name = "pangu-embedded",
     .system = {"[unused9]系统：", "[unused10]"},
     .user = {"[unused9]用户：", "[unused10]"},
     .assistant = {"[unused9]助手：", "[unused10]"},
     .reply = "[unused9]助手：",
     .without_system = "[unused9]系统：[unused10]"},
    {.name = "solar-open",
     .system = {"<|begin|>system<|content|>", "<|end|>"},
     .user = {"<|begin|>user<|content|>", "<|end|>"},
     .assistant = {"<|begin|>assistant<|content|>", "<|end|>"},
     .reply = "<|begin|>assistant"},
};

// As an expression: 'text', with the tokens substituted.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  while (!text.empty()) {
    if (text.starts_with("{bos}") || text.starts_with("{eos}")) {
      StrAppend(&quoted, "' ~ ", text.substr(1, 3), "_token ~ '");
      text.remove_prefix(5);
      continue;
    }
    if (text.front() == '\n') {
      quoted += "\\n";
    } else {
      quoted += text.front();
    }
    text.remove_prefix(1);
  }
  return quoted + "'";
}

std::string SourceOf(const Format& format) {
  const std::string content =
      format.trims ? "(message.content or '')|trim" : "(message.content or '')";
  const auto wrapped = [&](const Around& around) {
    return StrCat(Quoted(around.before), " ~ ", content, " ~ ", Quoted(around.behind));
  };
  std::string source =
      StrCat("{%- set ns = namespace(system='') -%}\n{{- ", Quoted(format.begin), " -}}\n");
  if (!format.without_system.empty()) {
    StrAppend(&source, "{%- if messages[0].role != 'system' -%}\n{{- ",
              Quoted(format.without_system), " -}}\n{%- endif -%}\n");
  }
  StrAppend(&source, "{%- for message in messages -%}\n{%- if message.role == 'system' -%}\n",
            format.system_in_user ? "{%- set ns.system = " : "{{- ", wrapped(format.system),
            format.system_in_user ? " -%}\n" : " -}}\n");
  StrAppend(&source, "{%- elif message.role == 'assistant' -%}\n{{- ", wrapped(format.assistant),
            " -}}\n{%- else -%}\n{{- ", Quoted(format.user.before), " ~ ns.system ~ ", content,
            " ~ ", Quoted(format.user.behind), " -}}\n{%- set ns.system = '' -%}\n",
            "{%- endif -%}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n{{- ",
            Quoted(format.reply), " -}}\n{%- endif -%}");
  return source;
}

}  // namespace

std::span<const BuiltinTemplate> GeneratedTemplates() {
  static const auto* const sources = new std::deque<std::string>([] {
    std::deque<std::string> made;
    for (const Format& format : kFormats) made.push_back(SourceOf(format));
    return made;
  }());
  static const auto* const templates = new std::vector<BuiltinTemplate>([] {
    std::vector<BuiltinTemplate> made;
    for (const Format& format : kFormats) {
      made.push_back({.name = format.name, .source = (*sources)[made.size()]});
    }
    return made;
  }());
  return *templates;
}

}  // namespace weft
