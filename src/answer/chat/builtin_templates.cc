#include "answer/chat/builtin_templates.h"

#include <algorithm>
#include <string>
#include <vector>

namespace weft {
namespace {

constexpr std::string_view kChatMl = R"({%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif %})";

constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' -%}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' ~ (message.content or '')|trim ~ ' ' ~ eos_token }}
  {%- else -%}
    {{ bos_token ~ '[INST] ' ~ ns.system ~ message.content|trim ~ ' [/INST]' }}
    {%- set ns.system = '' -%}
  {%- endif -%}
{%- endfor -%})";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' -}}
{{ (message.content or '')|trim ~ '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%})";

constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content ~ '\n\n' -%}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' ~ (message.content or '')|trim ~ eos_token }}
  {%- else -%}
    {{ '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' }}
    {%- set ns.system = '' -%}
  {%- endif -%}
{%- endfor -%})";

// Gemma has no system role: its text goes before the first user message.
constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content|trim ~ '\n\n' -%}
  {%- else -%}
    {%- set role = 'model' if message.role == 'assistant' else message.role -%}
    {{ '<start_of_turn>' ~ role ~ '\n' ~ ns.system ~ (message.content or '')|trim }}
    {{- '<end_of_turn>\n' }}
    {%- set ns.system = '' -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\n' }}
{%- endif -%})";

constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
{{ '<|' ~ message.role ~ '|>\n' ~ (message.content or '') ~ '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%})";

constexpr std::string_view kDeepSeek = R"({{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{ message.content }}
  {%- elif message.role == 'assistant' -%}
    {{ '<｜Assistant｜>' ~ (message.content or '') ~ '<｜end▁of▁sentence｜>' }}
  {%- else -%}
    {{ '<｜User｜>' ~ message.content }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<｜Assistant｜>' }}
{%- endif -%})";

constexpr std::string_view kZephyr = R"({%- for message in messages -%}
{{ '<|' ~ message.role ~ '|>\n' ~ (message.content or '') ~ eos_token ~ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%})";

constexpr std::string_view kVicuna = R"({%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{ message.content ~ '\n\n' }}
  {%- elif message.role == 'assistant' -%}
    {{ 'ASSISTANT: ' ~ (message.content or '') ~ eos_token ~ '\n' }}
  {%- else -%}
    {{ 'USER: ' ~ message.content ~ '\n' }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ 'ASSISTANT:' }}
{%- endif -%})";

constexpr BuiltinTemplate kTemplates[] = {
    {"chatml", kChatMl},     {"llama2", kLlama2}, {"llama3", kLlama3},
    {"mistral", kMistral},   {"gemma", kGemma},   {"phi3", kPhi3},
    {"deepseek", kDeepSeek}, {"zephyr", kZephyr}, {"vicuna", kVicuna},
};

}  // namespace

std::span<const BuiltinTemplate> BuiltinTemplates() {
  static const auto* const all = new std::vector<BuiltinTemplate>([] {
    std::vector<BuiltinTemplate> made(std::begin(kTemplates), std::end(kTemplates));
    const auto more = GeneratedTemplates();
    made.insert(made.end(), more.begin(), more.end());
    return made;
  }());
  return *all;
}

StatusOr<std::string_view> FindBuiltinTemplate(std::string_view name) {
  const auto all = BuiltinTemplates();
  const auto it = std::ranges::find(all, name, &BuiltinTemplate::name);
  if (it != all.end()) return it->source;
  std::vector<std::string_view> names;
  for (const BuiltinTemplate& t : all) names.push_back(t.name);
  return NotFound("there is no chat template '", Printable(name), "'; there are ",
                  StrJoin(names, ", "));
}

}  // namespace weft
