// Constrained calls: whatever a format's structure allows, its own parser reads as calls that fit
// their schemas, and whatever its template writes is allowed.
#include "answer/chat/call_grammar.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "answer/chat/chat_format.h"
#include "answer/chat/openai_form.h"
#include "answer/reply/syntax.h"
#include "base/strings.h"
#include "engine/loading/token_table_of.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using constraint::Constraint;
using constraint::ConstraintState;
using constraint::TokenTable;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// How many random answers to generate per case; set the variable to run more by hand.
int Walks() {
  const char* const chosen = std::getenv("WEFT_CALL_WALKS");
  return chosen != nullptr ? std::atoi(chosen) : 60;
}

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "ping", "description": "Whether it answers.",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}},
  {"type": "function", "function": {"name": "get_weather", "description": "The weather.",
    "parameters": {"type": "object", "properties": {
      "city": {"type": "string", "description": "Where."},
      "unit": {"type": "string", "enum": ["celsius", "fahren heit"], "description": "Of it."},
      "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": "How many."}},
      "required": ["city"]}}},
  {"type": "function", "function": {"name": "find.place", "description": "Finds a place.",
    "parameters": {"type": "object", "properties": {
      "where": {"type": "object", "description": "About there.", "properties": {
        "lat": {"type": "number"}, "lon": {"type": "number"}, "the name": {"type": "string"}},
        "required": ["lat"]},
      "tags": {"type": "array", "description": "Of it.", "items": {"type": "string"},
        "maxItems": 3}},
      "required": ["where"]}}},
  {"type": "function", "function": {"name": "write_file", "description": "Writes a file.",
    "parameters": {"type": "object", "properties": {
      "path": {"type": "string", "description": "Where."},
      "content": {"type": "string", "description": "All of it."},
      "overwrite": {"type": "boolean", "description": "Whether it may be there."}},
      "required": ["path", "content"]}}},
  {"type": "function", "function": {"name": "set", "description": "Sets a value.",
    "parameters": {"type": "object", "properties": {
      "value": {"type": ["string", "null", "integer"], "description": "The value."},
      "short": {"type": "string", "maxLength": 5, "description": "A few letters."},
      "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "description": "Its code."},
      "any": {"description": "Anything."},
      "either": {"anyOf": [{"type": "boolean"}, {"type": "string"}],
        "description": "One of two."}}}}},
  {"type": "function", "function": {"name": "draw", "description": "Draws lines.",
    "parameters": {"type": "object", "$defs": {"point": {"type": "object", "properties":
      {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}},
      "properties": {
        "from": {"$ref": "#/$defs/point", "description": "Where lines begin."},
        "through": {"type": "array", "description": "Where to.",
          "items": {"$ref": "#/$defs/point"}}},
      "required": ["from"]}}}
])";

Json Tools() { return Json::parse(kTools); }

ToolList ToolsOf(const Json& tools) { return *ReadOpenAiTools(tools); }

const Json* ToolNamed(const Json& tools, const std::string& name) {
  for (const Json& tool : tools) {
    if (tool["function"]["name"] == name) return &tool["function"]["parameters"];
  }
  return nullptr;
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  // Integers with too many digits are read as doubles here.
  if (type == "integer")
    return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "array" ? value.is_array() : value.is_object();
}

bool Fits(const Json& value, const Json& schema, const Json& root);

bool StringFits(const std::string& text, const Json& schema) {
  const auto chars =
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  if (schema.contains("maxLength") && chars > schema["maxLength"].get<int>()) return false;
  if (!schema.contains("pattern")) return true;
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  return text.size() >= 4 && upper(text[0]) && upper(text[1]) && text[2] == '-' &&
         text.find_first_not_of("0123456789", 3) == text.npos;
}

bool ArrayFits(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return false;
  return !schema.contains("items") || std::ranges::all_of(value, [&](const Json& item) {
    return Fits(item, schema["items"], root);
  });
}

bool ObjectFits(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("properties")) {
    for (const auto& [key, member] : value.items()) {
      if (!schema["properties"].contains(key) || !Fits(member, schema["properties"][key], root))
        return false;
    }
  }
  return !schema.contains("required") ||
         std::ranges::all_of(schema["required"], [&](const Json& name) {
           return value.contains(name.get<std::string>());
         });
}

// Supports the keywords used by the tools above; objects have only the listed properties.
bool Fits(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("$ref")) return Fits(value, root["$defs"]["point"], root);
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Json types = type->is_array() ? *type : Json::array({*type});
    if (std::ranges::none_of(types,
                             [&](const Json& t) { return IsOfType(value, t.get<std::string>()); }))
      return false;
  }
  if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end())
    return false;
  if (schema.contains("anyOf") && std::ranges::none_of(schema["anyOf"], [&](const Json& part) {
        return Fits(value, part, root);
      }))
    return false;
  if (schema.contains("minimum") && value < schema["minimum"]) return false;
  if (schema.contains("maximum") && value > schema["maximum"]) return false;
  if (value.is_string()) return StringFits(value.get_ref<const std::string&>(), schema);
  if (value.is_array()) return ArrayFits(value, schema, root);
  return !value.is_object() || ObjectFits(value, schema, root);
}

// --- formats -----------------------------------------------------------------------------

std::string Golden(const std::string& name) {
  std::ifstream in(testing::GoldensDir() + "/chat/" + name + ".jinja", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool IsTag(std::string_view marker) {
  const auto bare = [](char c) {
    return c == ' ' || c == '\n' || c == '"' || c == '=' || c == '`';
  };
  return marker == "<|\"|>" || (marker.size() > 3 && !std::ranges::any_of(marker, bare) &&
                                (marker.front() == '<' || marker.front() == '['));
}

struct CallSetup {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenTable> table;
  std::shared_ptr<const ChatFormat> format;
  std::vector<TokenId> closing;  // tokens that complete an answer
};

// A vocabulary of bytes, the format's markers (as control tokens where possible) and some words.
CallSetup MakeSetup(const std::string& source, bool controls) {
  constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::set<std::string> known;
  const auto add = [&](const std::string& text, int32_t type) {
    if (!known.insert(text).second) return;
    tokens.push_back(text);
    types.push_back(type);
  };
  add("<unk>", kUnknown);
  add("<s>", kControl);
  add("</s>", kControl);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    add(StrCat("<0x", kHex[byte >> 4], kHex[byte & 15], ">"), kByte);
  }
  CallSetup setup;
  std::vector<std::string> markers;
  const ReplySyntax syntax = RecognizeReplySyntax(source);
  for (const std::string_view marker : MarkersOf(syntax)) {
    if (marker.size() > 1) markers.emplace_back(marker);
  }
  markers.insert(markers.end(), {"\n</parameter>", "\"}", "\"]", "'"});
  const TokenId first = static_cast<TokenId>(tokens.size());
  for (const std::string& marker : markers) {
    if (marker.find(' ') != marker.npos) continue;
    add(marker, controls && IsTag(marker) ? kControl : kNormal);
  }
  if (syntax.tags && syntax.tags->nested) {
    std::string_view mark = syntax.tags->parameter_open;
    mark.remove_suffix(1);
    add(std::string(controls ? mark : syntax.tags->parameter_close), controls ? kControl : kNormal);
  }
  for (TokenId id = first; id < static_cast<TokenId>(tokens.size()); ++id)
    setup.closing.push_back(id);
  for (const char c : std::string_view("\"'}])")) {
    setup.closing.push_back(3 + static_cast<unsigned char>(c));
  }
  for (const char* const word : {"true", "null", "None", "12", "hello", "é", "</", "\"name\""}) {
    add(word, kNormal);
  }
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStringArray("tokenizer.ggml.tokens", tokens);
  writer.AddFloat32Array("tokenizer.ggml.scores", std::vector<float>(tokens.size()));
  writer.AddInt32Array("tokenizer.ggml.token_type", types);
  const std::string bytes = writer.ToBytes();
  auto file = ModelFile::FromBytes("test.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status();
  auto tokenizer = Tokenizer::Load(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  setup.tokenizer = *tokenizer;
  setup.table = TokenTableOf(*setup.tokenizer);
  auto format = ChatFormat::Create(source, setup.tokenizer);
  EXPECT_TRUE(format.ok()) << format.status();
  setup.format = *format;
  return setup;
}

StatusOr<std::shared_ptr<const Constraint>> Calls(const CallSetup& setup, const Json& tools,
                                                  const CallPolicy& policy) {
  WEFT_ASSIGN_OR_RETURN(CallStructure calls, setup.format->CallsOf(ToolsOf(tools), policy));
  return Constraint::Structured(calls.structure, calls.options, setup.table);
}

// --- answers -----------------------------------------------------------------------------

struct Answer {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
};

Answer Parsed(const CallSetup& setup, const Json& tools, const std::string& text, bool open) {
  ChatPrompt prompt;
  prompt.tools = ToolsOf(tools);
  prompt.reasoning_is_open = open;
  const auto parser = setup.format->NewReplyParser(prompt, {.tools = true});
  Answer answer;
  const auto take = [&](const std::vector<ReplyDelta>& deltas) {
    for (const ReplyDelta& delta : deltas) {
      if (delta.kind == ReplyDelta::Kind::kContent) answer.content += delta.text;
      if (delta.kind == ReplyDelta::Kind::kReasoning) answer.reasoning += delta.text;
      if (delta.kind == ReplyDelta::Kind::kCallBegin) answer.calls.emplace_back(delta.name, "");
      if (delta.kind == ReplyDelta::Kind::kCallArguments) answer.calls.back().second += delta.text;
    }
  };
  take(parser->Push(text));
  take(parser->Finish(ReplyEnd::kWhole));
  return answer;
}

constexpr TokenId kLineBreak = 3 + '\n';

// A short random answer; nothing if it did not end.
std::optional<std::string> Walk(const CallSetup& setup, const Constraint& constraint,
                                std::mt19937* random) {
  ConstraintState state = constraint.Begin();
  const TokenTable& table = *setup.table;
  const auto chance = [&](int percent) { return static_cast<int>((*random)() % 100) < percent; };
  const int soon = 20 + static_cast<int>((*random)() % 120);
  std::vector<uint32_t> mask(table.mask_words());
  for (int step = 0; step < 3000; ++step) {
    // Like an engine: usually take forced text at once.
    if (const std::string forced = state.ForcedText(1000); !forced.empty() && chance(80)) {
      EXPECT_TRUE(state.AdvanceText(forced));
      continue;
    }
    state.FillMask(mask);
    const auto allowed = [&](TokenId id) {
      return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    };
    if (allowed(2) && (step > soon || chance(30))) {
      EXPECT_TRUE(state.Advance(2));
      return state.text();
    }
    std::vector<TokenId> choice;
    // A line break may precede what closes an answer or continues it.
    if (allowed(kLineBreak) && chance(step > soon ? 10 : 3)) {
      choice.push_back(kLineBreak);
    } else if (chance(step > soon ? 60 : 40)) {
      std::ranges::copy_if(setup.closing, std::back_inserter(choice), allowed);
    } else if (step <= soon && chance(70)) {
      for (int c = ' '; c < 0x7F; ++c) {
        if (std::isalnum(c) != 0 && allowed(3 + c)) choice.push_back(3 + c);
      }
    }
    if (choice.empty()) {
      for (TokenId id = 0; id < table.size(); ++id) {
        if (id != 2 && allowed(id)) choice.push_back(id);
      }
    }
    if (choice.empty() && allowed(2)) choice.push_back(2);
    if (choice.empty()) {
      ADD_FAILURE() << "no way on behind " << state.text() << ": " << state.LimitMet();
      return std::nullopt;
    }
    const TokenId token = choice[(*random)() % choice.size()];
    if (!state.Advance(token)) {
      ADD_FAILURE() << "token " << token << " is in the mask behind " << state.text();
      return std::nullopt;
    }
    if (table.IsEnd(token)) return state.text();
  }
  ADD_FAILURE() << "no end: " << state.text().substr(0, 300) << "\n...\n"
                << state.text().substr(state.text().size() - 300);
  return std::nullopt;
}

void ExpectGoodCalls(const Answer& answer, const Json& tools, const std::string& text) {
  for (const auto& [name, arguments] : answer.calls) {
    const Json* const schema = ToolNamed(tools, name);
    ASSERT_NE(schema, nullptr) << name << " in " << text;
    const Json value = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(value.is_object()) << arguments << "\n" << text;
    ASSERT_TRUE(Fits(value, *schema, *schema)) << arguments << "\n" << text;
  }
}

struct Case {
  std::string name, source;
  bool writes_calls = false;  // as the model's own template does
};

// Templates that write tools and calls as models with tags do: `call` of a name and arguments.
std::string TaggedTemplate(const std::string& call) {
  return StrCat(R"({%- set k = ':opensource' -%}
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor -%}
{%- for m in messages -%}
{{ m.role }}: {{ m.content }}
{%- for c in m.tool_calls or [] -%}{%- set f = c.function -%})",
                call, R"({%- endfor %}
{% endfor -%}
{%- if add_generation_prompt %}assistant: {% endif -%})");
}

std::string HunyuanTemplate() {
  return TaggedTemplate(R"({{ '<tool_calls{}>'.format(k) }}
{{ '<tool_call{}>'.format(k) ~ f.name ~ '<tool_sep{}>'.format(k) }}
{% for key, value in f.arguments.items() -%}
{{ '<arg_key{}>'.format(k) ~ key ~ '</arg_key{}>'.format(k) }}
{{ '<arg_value{}>'.format(k) ~ (value if value is string else value | tojson) ~ '</arg_value{}>'.format(k) }}
{% endfor -%}
{{ '</tool_call{}>'.format(k) }}
{{ '</tool_calls{}>'.format(k) }})");
}

std::string AtemTemplate(const std::string& before, const std::string& prefix,
                         const std::string& parameter, const std::string& after) {
  return TaggedTemplate(StrCat(
      before, "<", prefix, " name=\"{{ f.name }}\">{% for key, value in f.arguments.items() %}<",
      parameter, " name=\"{{ key }}\">{{ value if value is string else value | tojson }}</",
      parameter, ">{% endfor %}</", prefix, ">", after));
}

std::string MiniMax3Template() {
  return TaggedTemplate(R"({%- set mark = ']<]minimax[>[' -%}
{#- <mm:think> -#}
{%- macro inner(value) -%}
{%- if value is mapping -%}
{%- for key, part in value.items() %}{{ mark }}<{{ key }}>{{ inner(part) }}{{ mark }}</{{ key }}>{% endfor -%}
{%- elif value is string -%}
{{ value }}
{%- elif value is not iterable -%}
{{ value | tojson }}
{%- else -%}
{%- for part in value %}{{ mark }}<item>{{ inner(part) }}{{ mark }}</item>{% endfor -%}
{%- endif -%}
{%- endmacro -%}
{{ mark }}<tool_call>
{{ mark }}<invoke name="{{ f.name }}">{{ inner(f.arguments) }}{{ mark }}</invoke>
{{ mark }}</tool_call>)");
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"hermes", "<tool_call> <think> </think>"},
      {"nemotron", "<TOOLCALL>"},
      {"qwen", "<tool_call> <function= <think> </think>"},
      {"minimax", "<minimax:tool_call>"},
      {"seed", "<seed:tool_call> <seed:think>"},
      {"llama", "<|start_header_id|> <|python_tag|>"},
      {"mistral", "[TOOL_CALLS] [THINK] [/THINK]"},
      {"gemma", "<|tool_call> <|channel>thought <channel|>"},
      {"lfm", "<|tool_call_start|>"},
      {"deepseek", "<｜tool▁call▁begin｜> </think>"},
      {"harmony", "<|channel|> <|message|>"},
      {"glm", "<tool_call> <arg_key> <think>"},
      {"kimi", "<|tool_calls_section_begin|>"},
      {"command_r", "Action: \"tool_name\" <|CHATBOT_TOKEN|>"},
      {"command_r7b", "<|START_ACTION|> <|START_THINKING|>"},
      {"functools", "functools["},
      {"hunyuan", HunyuanTemplate()},
      {"minicpm", AtemTemplate("", "function", "param", "")},
      {"glimmer", AtemTemplate("<atem:function_calls>\n", "atem:invoke", "atem:parameter",
                               "</atem:function_calls>")},
      {"minimax3", MiniMax3Template(), true},
      {"generic", "plain"},
  };
  if (testing::GoldensDir().empty()) return cases;
  for (const char* const golden : {"Qwen-Qwen3-0.6B",
                                   "NVIDIA-Nemotron-Nano-v2",
                                   "Apriel-1.6-15b-Thinker-fixed",
                                   "Qwen3.5-4B",
                                   "StepFun3.5-Flash",
                                   "ByteDance-Seed-OSS",
                                   "MiniMax-M2",
                                   "meta-llama-Llama-3.1-8B-Instruct",
                                   "meta-llama-Llama-3.2-3B-Instruct",
                                   "Mistral-Small-3.2-24B-Instruct-2506",
                                   "mistralai-Mistral-Nemo-Instruct-2407",
                                   "google-gemma-4-31B-it",
                                   "LFM2.5-8B-A1B",
                                   "deepseek-ai-DeepSeek-V3.1",
                                   "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                                   "openai-gpt-oss-120b",
                                   "fireworks-ai-llama-3-firefunction-v2",
                                   "GLM-4.6",
                                   "deepseek-ai-DeepSeek-V4",
                                   "Kimi-K2-Instruct",
                                   "Kimi-K3",
                                   "CohereForAI-c4ai-command-r-plus-tool_use",
                                   "MiMo-VL",
                                   "ibm-granite-granite-4.1",
                                   "HuggingFaceTB-SmolLM3-3B"}) {
    cases.push_back({golden, Golden(golden), true});
  }
  return cases;
}

TEST(CallGrammarTest, EveryRequiredAnswerIsCallsThatFit) {
  const Json tools = Tools();
  std::mt19937 random(3);
  for (const Case& c : Cases()) {
    for (const bool controls : {false, true}) {
      const CallSetup setup = MakeSetup(c.source, controls);
      for (const bool parallel : {true, false}) {
        SCOPED_TRACE(StrCat(c.name, controls ? ", control tokens" : "", parallel ? "" : ", one"));
        const bool open =
            setup.format->has_reasoning() && !parallel && setup.format->reply_format() != "harmony";
        const auto constraint = Calls(setup, tools,
                                      {.choice = CallPolicy::Choice::kRequired,
                                       .parallel = parallel,
                                       .thinks_already = open});
        ASSERT_TRUE(constraint.ok()) << constraint.status();
        for (int walk = 0; walk < Walks(); ++walk) {
          const auto text = Walk(setup, **constraint, &random);
          ASSERT_TRUE(text.has_value());
          const Answer answer = Parsed(setup, tools, *text, open);
          ASSERT_EQ(answer.content, "") << *text;
          ASSERT_FALSE(answer.calls.empty()) << *text;
          ASSERT_LE(answer.calls.size(), parallel ? 1000u : 1u) << *text;
          ExpectGoodCalls(answer, tools, *text);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CallGrammarTest, AutoLeavesTextAloneAndHoldsCallsToTheirSchemas) {
  const Json tools = Tools();
  std::mt19937 random(4);
  int with_calls = 0, without = 0;
  for (const Case& c : Cases()) {
    for (const bool controls : {false, true}) {
      const CallSetup setup = MakeSetup(c.source, controls);
      SCOPED_TRACE(StrCat(c.name, controls ? ", control tokens" : ""));
      const auto constraint = Calls(setup, tools, {.may_think = false});
      ASSERT_TRUE(constraint.ok()) << constraint.status();
      for (int walk = 0; walk < Walks(); ++walk) {
        const auto text = Walk(setup, **constraint, &random);
        ASSERT_TRUE(text.has_value());
        const Answer answer = Parsed(setup, tools, *text, false);
        ExpectGoodCalls(answer, tools, *text);
        if (HasFatalFailure()) return;
        with_calls += answer.calls.empty() ? 0 : 1;
        without += answer.calls.empty() ? 1 : 0;
        // Without a call everything is content, except a format's own markers: some are around it,
        // and those of messages may be anywhere.
        const std::string_view format = setup.format->reply_format();
        if (format == "harmony" || format == "glimmer") continue;
        if (!answer.calls.empty() || format == "command-r7b" || format == "kimi-xtml") {
          ASSERT_TRUE(text->find(answer.content) != text->npos) << *text;
          continue;
        }
        ASSERT_EQ(answer.content, *text);
      }
    }
  }
  EXPECT_GT(with_calls, 10);
  EXPECT_GT(without, 10);
}

// --- what templates write ----------------------------------------------------------------

struct Example {
  const char* name;
  const char* arguments;
};

constexpr Example kExamples[] = {
    {"ping", "{}"},
    {"get_weather", R"({"city": "Zürich", "unit": "fahren heit", "days": 3})"},
    {"get_weather", R"({"city": "a \"b\" c"})"},
    {"find.place", R"({"where": {"lat": -47.25, "the name": "x"}})"},
    {"write_file", R"({"path": "a.py", "content": "def f():\n    return {\"a\": [1, 2]}"})"},
    {"write_file", R"({"path": "/tmp/x y", "content": "", "overwrite": true})"},
    {"set", R"({"value": 5, "short": "abc"})"},
    {"draw", R"({"from": {"x": 1, "y": -2}, "through": [{"x": 0, "y": 10}]})"},
};

TEST(CallGrammarTest, WhatTemplatesWriteIsAllowed) {
  WEFT_REQUIRE_GOLDENS();
  const Json tools = Tools();
  for (const Case& c : Cases()) {
    if (!c.writes_calls) continue;
    const CallSetup setup = MakeSetup(c.source, true);
    const auto constraint = Calls(setup, tools, {.choice = CallPolicy::Choice::kRequired});
    ASSERT_TRUE(constraint.ok()) << c.name << ": " << constraint.status();
    for (const Example& example : kExamples) {
      const auto arguments = nlohmann::json::parse(example.arguments);
      // This template writes lists and objects the Python way, which its reader takes for text.
      const bool nested = std::any_of(arguments.begin(), arguments.end(),
                                      [](const auto& value) { return value.is_structured(); });
      if (c.name == "ByteDance-Seed-OSS" && nested) continue;
      ChatRequest request;
      request.add_generation_prompt = false;
      ToolList& offered = request.conversation.tools = ToolsOf(tools);
      // This template declares no types except objects with arbitrary properties.
      if (c.name == "CohereForAI-c4ai-command-r-plus-tool_use") {
        if (nested) continue;
        for (const int unreadable : {5, 4, 2}) offered.erase(offered.begin() + unreadable);
      }
      request.conversation.messages = {
          {.parts = {"the-user-asks"}},
          {.role = Role::kAssistant,
           .calls = {{.id = "abc123def",
                      .name = example.name,
                      .arguments = CallArguments(example.arguments)}}},
          {.role = Role::kTool, .parts = {"its result"}, .call_id = "abc123def"}};
      request.render.wall_clock_s = 0;
      const auto prompt = setup.format->Render(request);
      ASSERT_TRUE(prompt.ok()) << c.name << ": " << prompt.status();
      const size_t user = prompt->text.rfind("the-user-asks");
      ASSERT_NE(user, std::string::npos) << c.name;
      const std::string tail = prompt->text.substr(user + 13);
      // The answer begins somewhere after the turn's markers.
      bool found = false;
      std::string longest;
      for (size_t begin = 0; begin < std::min<size_t>(tail.size(), 200) && !found; ++begin) {
        ConstraintState state = (*constraint)->Begin();
        const size_t n = state.AllowedPrefix(std::string_view(tail).substr(begin));
        const std::string text = tail.substr(begin, n);
        if (n > longest.size()) longest = text;
        if (n < 4 || !state.AdvanceText(text) || !state.CanEnd()) continue;
        const Answer answer = Parsed(setup, tools, text, false);
        found = answer.calls.size() == 1 && answer.content.empty() &&
                answer.calls[0].first == example.name &&
                nlohmann::json::parse(answer.calls[0].second, nullptr, false) == arguments;
      }
      EXPECT_TRUE(found) << c.name << ": " << example.arguments << "\nas\n"
                         << tail << "\nof which is allowed\n"
                         << longest;
    }
  }
}

TEST(CallGrammarTest, ThoughtComesFirst) {
  const CallSetup setup = MakeSetup("<tool_call> <think> </think>", true);
  const Json tools = Tools();
  const std::string call = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
  const auto accepts = [&](const CallPolicy& policy, const std::string& text) {
    const auto constraint = Calls(setup, tools, policy);
    EXPECT_TRUE(constraint.ok()) << constraint.status();
    ConstraintState state = (*constraint)->Begin();
    return state.AdvanceText(text) && state.CanEnd() && state.text() == text;
  };
  const CallPolicy required = {.choice = CallPolicy::Choice::kRequired};
  EXPECT_TRUE(accepts(required, call));
  EXPECT_TRUE(accepts(required, "<think>\nI {\"could\" <x>\n</think>\n\n" + call));
  EXPECT_TRUE(accepts(required, call + "\n" + call));
  EXPECT_FALSE(accepts(required, "So. " + call));
  EXPECT_FALSE(accepts(required, "<think>so</think>"));
  EXPECT_FALSE(accepts(required, "so</think>" + call));
  CallPolicy open = required;
  open.thinks_already = true;
  EXPECT_TRUE(accepts(open, "so</think>" + call));
  EXPECT_FALSE(accepts(open, call));
  CallPolicy one = required;
  one.parallel = one.may_think = false;
  EXPECT_TRUE(accepts(one, call));
  EXPECT_FALSE(accepts(one, call + call));
  EXPECT_FALSE(accepts(one, "<think></think>" + call));
  const CallPolicy automatic;
  EXPECT_TRUE(accepts(automatic, ""));
  EXPECT_TRUE(accepts(automatic, "Hello <b> {\"name\": 1}"));
  EXPECT_TRUE(accepts(automatic, "<think>a</think>Hello"));
  EXPECT_TRUE(accepts(automatic, "So. " + call));
  EXPECT_FALSE(accepts(automatic, "So. <tool_call>"));
  EXPECT_FALSE(accepts(automatic, "So. <tool_call>{\"name\": \"pong\", \"arguments\": {}}"));
}

TEST(CallGrammarTest, AnAnswerOfAGivenFormStandsWhereTheFormatHasItsAnswer) {
  for (const Case& c : Cases()) {
    if (c.writes_calls && c.name != "minimax3") continue;
    SCOPED_TRACE(c.name);
    const CallSetup setup = MakeSetup(c.source, true);
    const CallPolicy policy = {.answer = constraint::Structure::Pattern("yes|no")};
    const auto alone = Calls(setup, Json::array(), policy);
    const auto beside = Calls(setup, Tools(), policy);
    ASSERT_TRUE(alone.ok()) << alone.status();
    ASSERT_TRUE(beside.ok()) << beside.status();
    const auto accepts = [](const Constraint& constraint, const std::string& text) {
      ConstraintState state = constraint.Begin();
      return state.AdvanceText(text) && state.CanEnd();
    };
    const bool in_channel = setup.format->reply_format() == "harmony";
    const std::string before = in_channel ? "<|channel|>final<|message|>" : "";
    for (const Constraint* const constraint : {alone->get(), beside->get()}) {
      EXPECT_TRUE(accepts(*constraint, before + "yes"));
      EXPECT_FALSE(accepts(*constraint, before + "\n" + "yes"));
      EXPECT_FALSE(accepts(*constraint, before + "maybe"));
      EXPECT_FALSE(accepts(*constraint, before + "yes, and more"));
      EXPECT_FALSE(accepts(*constraint, ""));
      if (!setup.format->has_reasoning()) continue;
      const ThoughtMarks marks = setup.format->thought_marks();
      const std::string thought = StrCat(marks.open, "hm", marks.answer);
      EXPECT_TRUE(accepts(*constraint, thought + "no")) << thought;
      EXPECT_FALSE(accepts(*constraint, thought + "hm"));
    }
  }
}

// Edits of files as a coding agent's custom tool takes them.
constexpr char kPatches[] = R"(start: begin hunk~1..2 end
begin: "*** Begin" LF
end: "*** End" LF?
hunk: "*** File: " filename LF line~1..3
filename: /(.{1,9})/
line: ("+" | "-" | " ") /(.{0,24})/ LF -> line
%import common.LF
)";

Json ToolOfText() {
  return Json::parse(R"([{"type": "function", "function": {"name": "patch", "parameters": {
    "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}}])");
}

TEST(CallGrammarTest, TextsOfToolsMatchTheirGrammars) {
  const Json tools = ToolOfText();
  const CallPolicy policy{.choice = CallPolicy::Choice::kRequired,
                          .parallel = false,
                          .grammars = {{"patch", kPatches}},
                          .may_think = false};
  std::mt19937 random(5);
  std::string seen;
  for (const Case& c : Cases()) {
    for (const bool controls : {false, true}) {
      SCOPED_TRACE(StrCat(c.name, controls ? ", control tokens" : ""));
      const CallSetup setup = MakeSetup(c.source, controls);
      const auto grammar = Constraint::FromGrammar(kPatches, {}, setup.table);
      ASSERT_TRUE(grammar.ok()) << grammar.status();
      const auto constraint = Calls(setup, tools, policy);
      ASSERT_TRUE(constraint.ok()) << constraint.status();
      for (int walk = 0; walk < Walks(); ++walk) {
        const auto text = Walk(setup, **constraint, &random);
        ASSERT_TRUE(text.has_value());
        const Answer answer = Parsed(setup, tools, *text, false);
        ASSERT_EQ(answer.calls.size(), 1u) << *text;
        const Json arguments = Json::parse(answer.calls[0].second, nullptr, false);
        ASSERT_TRUE(arguments.is_object() && arguments.contains("input")) << *text;
        ASSERT_TRUE(arguments["input"].is_string()) << *text;
        const auto input = arguments["input"].get<std::string>();
        ConstraintState state = (*grammar)->Begin();
        ASSERT_TRUE(state.AdvanceText(input) && state.CanEnd()) << input << "\nof\n" << *text;
        seen += input;
      }
    }
  }
  for (const char* const special : {"\"", "\\", "'", "<", "\t"})
    EXPECT_THAT(seen, HasSubstr(special));
}

TEST(CallGrammarTest, AGrammarThatCouldContainWhatEndsItsTextIsRefused) {
  const auto made = [](const char* grammar) {
    return Calls(MakeSetup("<tool_call> <arg_key> <think>", true), ToolOfText(),
                 {.grammars = {{"patch", grammar}}});
  };
  const auto refused = made("start: word+\nword: /[a-z<\\/_>]+/");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("might contain </arg_value>"));
  // Within one terminal it is left out.
  const auto left_out = made("start: /[a-z<\\/_>]+/");
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  const std::string before = "<tool_call>patch<arg_key>input</arg_key><arg_value>";
  ConstraintState state = (*left_out)->Begin();
  ASSERT_TRUE(state.AdvanceText(before + "</arg_valu</b")) << state.AllowedPrefix(before);
  ASSERT_TRUE(state.AdvanceText("</arg_value></tool_call>"));
  EXPECT_TRUE(state.CanEnd());
}

TEST(CallGrammarTest, AnAnswerBesideGemmasCallsKeepsTheOrderOfItsSchema) {
  const CallSetup setup = MakeSetup("<|tool_call> <|channel>thought <channel|>", true);
  const auto made = Calls(setup, Tools(),
                          {.answer = constraint::Structure::Value(
                               {.schema = R"({"properties": {"b": {"const": 1}, "a": {"const": 2}},
                          "required": ["a", "b"], "additionalProperties": false})"})});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto accepts = [&](const char* text) {
    ConstraintState state = (*made)->Begin();
    return state.AdvanceText(text) && state.CanEnd();
  };
  EXPECT_TRUE(accepts(R"({"b":1,"a":2})"));
  EXPECT_FALSE(accepts(R"({"a":2,"b":1})"));
  constexpr char kCall[] = "<|tool_call>call:get_weather{%s}<tool_call|>";
  for (const std::string order : {"days:3,city:<|\"|>x<|\"|>", "city:<|\"|>x<|\"|>,days:3"}) {
    std::string call = kCall;
    call.replace(call.find("%s"), 2, order);
    EXPECT_TRUE(accepts(call.c_str())) << call;
  }
}

TEST(CallGrammarTest, WhatCannotBeEnforcedIsRefusedByName) {
  const CallSetup tagged = MakeSetup("<tool_call> <arg_key> <think>", true);
  const auto refusal = [&](const char* name, const char* parameters) {
    Json tools = Json::array();
    tools.push_back({{"type", "function"},
                     {"function", {{"name", name}, {"parameters", Json::parse(parameters)}}}});
    const auto made = Calls(tagged, tools, {});
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : std::string(made.status().message());
  };
  EXPECT_THAT(refusal("f", R"({"type": "object", "anyOf": [{"required": ["a"]}],
                               "properties": {"a": {}}})"),
              HasSubstr("tool f: anyOf"));
  EXPECT_THAT(refusal("f", R"({"properties": {"a<b": {}}})"), HasSubstr("a<b"));
  EXPECT_THAT(refusal("f", R"({"properties": {"a": {"type": "array", "uniqueItems": true}}})"),
              HasSubstr("tool f: uniqueItems"));
  EXPECT_THAT(refusal("f g", "{}"), HasSubstr("f g"));
}

Json ToolWithParameters(int count, int n_required) {
  Json properties = Json::object(), required = Json::array();
  for (int i = 0; i < count; ++i) {
    properties[StrCat("p", i)] = {{"type", "integer"}};
    if (i >= count - n_required) required.push_back(StrCat("p", i));
  }
  Json tools = Json::array();
  tools.push_back({{"type", "function"},
                   {"function",
                    {{"name", "f"},
                     {"parameters",
                      {{"type", "object"}, {"properties", properties}, {"required", required}}}}}});
  return tools;
}

TEST(CallGrammarTest, ManyParametersOneByOne) {
  const CallPolicy policy{.choice = CallPolicy::Choice::kRequired};
  struct {
    const char *source, *begin, *open, *next, *close, *end;
  } const kFormats[] = {
      {"<|tool_call_start|>", "<|tool_call_start|>[f(", "=", ", ", "", ")]<|tool_call_end|>"},
      {"<tool_call> <arg_key> <think>", "<tool_call>f", "</arg_key><arg_value>", "", "</arg_value>",
       "</tool_call>"},
  };
  for (const auto& format : kFormats) {
    SCOPED_TRACE(format.source);
    const CallSetup setup = MakeSetup(format.source, false);
    const bool tagged = *format.close != 0;
    for (const int n_required : {0, 1, 500}) {
      const auto made = Calls(setup, ToolWithParameters(500, n_required), policy);
      ASSERT_TRUE(made.ok()) << made.status();
      const auto accepts = [&](const std::vector<int>& parameters) {
        std::string text = format.begin;
        for (size_t i = 0; i < parameters.size(); ++i) {
          StrAppend(&text, i == 0 ? "" : format.next, tagged ? "<arg_key>p" : "p", parameters[i],
                    format.open, i, format.close);
        }
        ConstraintState state = (*made)->Begin();
        return state.AdvanceText(text + format.end) && state.CanEnd();
      };
      std::vector<int> all;
      for (int i = 0; i < 500; ++i) all.push_back(i);
      EXPECT_TRUE(accepts(all)) << n_required;
      EXPECT_EQ(accepts({}), n_required == 0);
      EXPECT_EQ(accepts({24, 25, 26, 60, 499}), n_required <= 1) << n_required;
      EXPECT_EQ(accepts({0, 49, 498}), n_required == 0);
      EXPECT_FALSE(accepts({25, 24, 499}));
      EXPECT_FALSE(accepts({24, 24, 499}));
    }
    const auto refused = Calls(setup, ToolWithParameters(5'000, 0), policy);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("5000 parameters"));
  }
}

}  // namespace
}  // namespace weft
