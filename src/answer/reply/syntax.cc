#include "answer/reply/syntax.h"

namespace weft {
namespace {

// DeepSeek's tags, which say which values are strings.
constexpr TagSyntax kDsmlTags = {.function_open = "<｜DSML｜invoke name=\"",
                                 .name_end = "\">",
                                 .parameter_open = "<｜DSML｜parameter name=\"",
                                 .key_end = "\"",
                                 .string_mark = "string=\"",
                                 .value_open = ">",
                                 .parameter_close = "</｜DSML｜parameter>",
                                 .function_close = "</｜DSML｜invoke>",
                                 .exact_values = true};
constexpr TagSyntax kGlmTags = {.function_open = "<tool_call>",
                                .name_end = "",
                                .parameter_open = "<arg_key>",
                                .key_end = "</arg_key>",
                                .value_open = "<arg_value>",
                                .parameter_close = "</arg_value>",
                                .function_close = "</tool_call>",
                                .exact_values = true};

constexpr TagSyntax kAtemTags = {.function_open = "<atem:invoke name=\"",
                                 .name_end = "\">",
                                 .parameter_open = "<atem:parameter name=\"",
                                 .key_end = "\">",
                                 .parameter_close = "</atem:parameter>",
                                 .function_close = "</atem:invoke>",
                                 .exact_values = true};
constexpr TagSyntax kHunyuanTags = {.function_open = "<tool_call:opensource>",
                                    .name_end = "<tool_sep:opensource>",
                                    .parameter_open = "<arg_key:opensource>",
                                    .key_end = "</arg_key:opensource>",
                                    .value_open = "<arg_value:opensource>",
                                    .parameter_close = "</arg_value:opensource>",
                                    .function_close = "</tool_call:opensource>",
                                    .exact_values = true};
constexpr TagSyntax kMiniCpmTags = {.function_open = "<function name=\"",
                                    .name_end = "\">",
                                    .parameter_open = "<param name=\"",
                                    .key_end = "\">",
                                    .parameter_close = "</param>",
                                    .function_close = "</function>",
                                    .quote_open = "<![CDATA[",
                                    .quote_close = "]]>",
                                    .exact_values = true};

// A marker precedes each tag; it is one token.
constexpr TagSyntax kMiniMax3Tags = {.function_open = "]<]minimax[>[<invoke name=\"",
                                     .name_end = "\">",
                                     .parameter_open = "]<]minimax[>[<",
                                     .key_end = ">",
                                     .parameter_close = "]<]minimax[>[</",
                                     .function_close = "]<]minimax[>[</invoke>",
                                     .exact_values = true,
                                     .nested = true};
constexpr TagSyntax kKimi3Tags = {.function_open = "<|open|>call tool=\"",
                                  .name_end = "\"",
                                  .index_open = " index=\"",
                                  .index_close = "\"<|sep|>",
                                  .parameter_open = "<|open|>argument key=\"",
                                  .key_end = "\"",
                                  .string_mark = "type=\"",
                                  .string_word = "string",
                                  .value_open = "<|sep|>",
                                  .parameter_close = "<|close|>argument<|sep|>",
                                  .function_close = "<|close|>call<|sep|>",
                                  .exact_values = true};

ReplySyntax Kimi3() {
  constexpr AnswerMarkers kAnswer = {.open = "<|open|>response<|sep|>",
                                     .close = "<|close|>response<|sep|>",
                                     .after = "<|close|>message<|sep|>"};
  return {.name = "kimi-xtml",
          .opens = {"<|open|>tools<|sep|>", kKimi3Tags.function_open},
          .closes = {"<|close|>tools<|sep|>"},
          .silent = {kAnswer.open, kAnswer.close, kAnswer.after},
          .tags = kKimi3Tags,
          .one_block = true,
          .reasoning = ReasoningMarkers{"<|open|>think<|sep|>", "<|close|>think<|sep|>"},
          .answer = kAnswer};
}

ReplySyntax MiniMax3() {
  return {.name = "minimax-nested",
          .opens = {"]<]minimax[>[<tool_call>", kMiniMax3Tags.function_open},
          .closes = {"]<]minimax[>[</tool_call>"},
          .silent = {"</mm:think>"},  // begins an answer without reasoning
          .tags = kMiniMax3Tags,
          .one_block = true,
          .reasoning = ReasoningMarkers{"<mm:think>", "</mm:think>"}};
}

ReplySyntax Json(std::string_view name, std::string_view open, std::string_view close) {
  return {.name = name, .opens = {open}, .closes = {close}};
}

struct Finder {
  std::string_view source;
  bool operator()(std::string_view text) const { return source.find(text) != source.npos; }
};

// Calls in a notation other than JSON, or with parts outside it.
std::optional<ReplySyntax> OtherNotation(std::string_view source) {
  const Finder has{source};
  if (has("<|channel|>") && has("<|message|>")) {
    return ReplySyntax{.name = "harmony", .form = CallForm::kHarmony};
  }
  if (has("｜DSML｜")) {
    const bool older = has("function_calls>");
    return ReplySyntax{.name = "deepseek-xml",
                       .opens = {older ? "<｜DSML｜function_calls>" : "<｜DSML｜tool_calls>",
                                 kDsmlTags.function_open},
                       .closes = {older ? "</｜DSML｜function_calls>" : "</｜DSML｜tool_calls>"},
                       .tags = kDsmlTags,
                       .one_block = true};
  }
  if (has("]<]minimax[>[")) return MiniMax3();
  if (has("<|open|>") && has("<|end_of_msg|>")) return Kimi3();
  if (has("<|tool_calls_section_begin|>")) {
    return ReplySyntax{.name = "kimi",
                       .form = CallForm::kKimi,
                       .opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
                       .closes = {"<|tool_call_end|>", "<|tool_calls_section_end|>"}};
  }
  if (has("<atem:function_calls>")) {
    return ReplySyntax{
        .name = "glimmer",
        .opens = {"<atem:function_calls>", kAtemTags.function_open},
        .closes = {"</atem:function_calls>"},
        .silent = {"<|eom|>", "<|start|>assistant"},
        .tags = kAtemTags,
        .reasoning = ReasoningMarkers{" to=self<|message|>", "<|eom|>"},
        .addresses = Addresses{.open = " to=", .close = "<|message|>", .self = "self"}};
  }
  if (has("<function name=\"") && has("<param name=\"")) {
    return ReplySyntax{.name = "minicpm-xml",
                       .form = CallForm::kTagged,
                       .opens = {kMiniCpmTags.function_open},
                       .tags = kMiniCpmTags};
  }
  // The template writes these tags with a suffix that it adds itself.
  if (has(":opensource") && has("<tool_sep{}>")) {
    return ReplySyntax{.name = "hunyuan-xml",
                       .opens = {"<tool_calls:opensource>"},
                       .closes = {"</tool_calls:opensource>"},
                       .tags = kHunyuanTags,
                       .one_block = true};
  }
  if (has("<tool_call>") && has("<arg_key>")) {
    return ReplySyntax{.name = "glm",
                       .form = CallForm::kTagged,
                       .opens = {kGlmTags.function_open},
                       .tags = kGlmTags};
  }
  if (has("<|tool_call>")) {
    return ReplySyntax{.name = "gemma4",
                       .form = CallForm::kGemma,
                       .opens = {"<|tool_call>"},
                       .closes = {"<tool_call|>"}};
  }
  // Some templates of this family never show the model how to write calls.
  if (has("<|tool_call_start|>") || (has("List of tools: [") && has("keep_past_thinking"))) {
    return ReplySyntax{.name = "lfm2",
                       .form = CallForm::kPython,
                       .opens = {"<|tool_call_start|>"},
                       .closes = {"<|tool_call_end|>"}};
  }
  return std::nullopt;
}

// Calls in JSON, but with more around it than two tags.
std::optional<ReplySyntax> JsonAmongMarkers(std::string_view source) {
  const Finder has{source};
  if (has("<|START_ACTION|>")) {
    return ReplySyntax{
        .name = "command-r7b",
        .opens = {"<|START_ACTION|>"},
        .closes = {"<|END_ACTION|>"},
        .silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}};
  }
  if (has("Action:") && has("\"tool_name\"") && has("<|CHATBOT_TOKEN|>")) {
    return ReplySyntax{
        .name = "command-r", .form = CallForm::kFenced, .opens = {"Action:"}, .closes = {"```"}};
  }
  if (has("<｜tool▁call▁begin｜>")) {
    return ReplySyntax{.name = "deepseek",
                       .form = CallForm::kDeepSeek,
                       .opens = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                       .closes = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}};
  }
  if (has("[TOOL_CALLS]")) {
    return ReplySyntax{.name = "mistral",
                       .form = CallForm::kMistral,
                       .opens = {"[TOOL_CALLS]"},
                       .call_id_length = 9};
  }
  return std::nullopt;
}

ReplySyntax Calls(std::string_view source) {
  const Finder has{source};
  if (std::optional<ReplySyntax> other = OtherNotation(source)) return *std::move(other);
  if (std::optional<ReplySyntax> json = JsonAmongMarkers(source)) return *std::move(json);
  if (has("<seed:tool_call>")) {
    ReplySyntax seed = Json("seed-xml", "<seed:tool_call>", "</seed:tool_call>");
    seed.tags = kFunctionTags;
    return seed;
  }
  if (has("<minimax:tool_call>")) {
    ReplySyntax minimax = Json("minimax-xml", "<minimax:tool_call>", "</minimax:tool_call>");
    minimax.tags = kInvokeTags;
    minimax.one_block = true;
    return minimax;
  }
  if (has("<tool_call>") && has("<function=")) {
    ReplySyntax qwen = Json("qwen-xml", "<tool_call>", "</tool_call>");
    qwen.opens.push_back(kFunctionTags.function_open);
    qwen.tags = kFunctionTags;
    return qwen;
  }
  if (has("functools[")) return {.name = "functools", .opens = {"functools"}};
  if (has("<TOOLCALL>")) return Json("hermes", "<TOOLCALL>", "</TOOLCALL>");
  if (has("<tool_calls>")) return Json("hermes", "<tool_calls>", "</tool_calls>");
  if (has("<tool_call>")) return Json("hermes", "<tool_call>", "</tool_call>");
  if (has("<|start_header_id|>") && (has("<|python_tag|>") || has("\"parameters\""))) {
    return {.name = "llama3", .opens = {"<|python_tag|>"}, .closes = {";"}, .bare_calls = true};
  }
  return Json("generic", "<tool_call>", "</tool_call>");
}

std::optional<ReasoningMarkers> Reasoning(std::string_view source) {
  if (source.find("<think{}>") != source.npos && source.find(":opensource") != source.npos) {
    return ReasoningMarkers{"<think:opensource>", "</think:opensource>"};
  }
  constexpr ReasoningMarkers kMarkers[] = {{"[THINK]", "[/THINK]"},
                                           {"<|channel>thought", "<channel|>"},
                                           {"<seed:think>", "</seed:think>"},
                                           {"<|START_THINKING|>", "<|END_THINKING|>"},
                                           {"<think>", "</think>"}};
  for (const ReasoningMarkers& markers : kMarkers) {
    if (source.find(markers.open) != source.npos || source.find(markers.close) != source.npos) {
      return markers;
    }
  }
  return std::nullopt;
}

// Markers that occur inside calls.
std::vector<std::string_view> InnerMarkers(CallForm form) {
  switch (form) {
    case CallForm::kMistral:
      return {"[CALL_ID]", "[ARGS]"};
    case CallForm::kGemma:
      return {"<|\"|>"};
    case CallForm::kDeepSeek:
      return {"<｜tool▁sep｜>"};
    case CallForm::kKimi:
      return {"<|tool_call_argument_begin|>"};
    case CallForm::kHarmony:
      return {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
              "<|end|>",   "<|call|>",    "<|return|>"};
    default:
      return {};
  }
}

}  // namespace

std::vector<std::string_view> MarkersOf(const ReplySyntax& syntax) {
  std::vector<std::string_view> markers = InnerMarkers(syntax.form);
  for (const auto* const texts : {&syntax.opens, &syntax.closes, &syntax.silent}) {
    markers.insert(markers.end(), texts->begin(), texts->end());
  }
  if (syntax.tags) {
    const TagSyntax& tags = *syntax.tags;
    markers.insert(markers.end(),
                   {tags.function_open, tags.name_end, tags.parameter_open, tags.key_end,
                    tags.string_mark, tags.value_open, tags.parameter_close, tags.function_close,
                    tags.quote_open, tags.quote_close, tags.index_open, tags.index_close});
  }
  if (syntax.addresses) {
    markers.insert(markers.end(), {syntax.addresses->open, syntax.addresses->close});
  }
  if (syntax.reasoning) {
    markers.insert(markers.end(), {syntax.reasoning->open, syntax.reasoning->close});
  }
  return markers;
}

ReplySyntax RecognizeReplySyntax(std::string_view template_source) {
  ReplySyntax syntax = Calls(template_source);
  if (syntax.form != CallForm::kHarmony && !syntax.reasoning) {
    syntax.reasoning = Reasoning(template_source);
  }
  return syntax;
}

}  // namespace weft
