#include "answer/chat/call_parts.h"

#include <algorithm>
#include <map>

#include "answer/chat/call_text.h"
#include "answer/reply/call_writer.h"

namespace weft {
namespace {

using constraint::kUnlimited;
using constraint::SchemaPart;
using constraint::Structure;
using constraint::TextStyle;
using constraint::ValueKinds;
using constraint::ValueStyle;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxKeyBytes = 256;
// If parameters are written one by one: limits per tool, and for all tools of a request.
constexpr size_t kMaxParameters = 500, kMaxParametersOfAll = 10'000;
constexpr std::string_view kGemmaQuote = "<|\"|>";

bool IsLoose(const ReplySyntax& syntax) { return syntax.form == CallForm::kFenced; }

}  // namespace

std::string EscapedRegex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

CallParts::CallParts(const CallWriting& writing, const ToolList& offered,
                     const CallPolicy& call_policy)
    : syntax(writing.syntax),
      example(writing.example),
      policy(call_policy),
      types(TypesOfParameters(offered)),
      loose(IsLoose(writing.syntax)),
      gap(Structure::Pattern(loose ? "[ \\n]{0,40}" : "[ \\n]{0,4}")),
      space(loose ? gap : Structure::Pattern(" ?")),
      controls_(writing.controls) {
  // If a text begins with two of them, the longer one is meant.
  std::ranges::sort(controls_,
                    [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
}

std::string CallParts::Encoded(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const auto control =
        std::ranges::find_if(controls_, [&](const auto& c) { return text.starts_with(c.second); });
    if (control != controls_.end()) {
      out += constraint::ControlBytes(control->first);
      text.remove_prefix(control->second.size());
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

Structure CallParts::OneOrMore(const Structure& first, const StructureList& next) const {
  if (!policy.parallel) return first;
  return Structure::Sequence({first, Structure::Repeat(Structure::Sequence(next), 0, kUnlimited)});
}

ValueStyle JsonCallStyle() { return {.short_numbers = true, .closed_objects = true}; }

Status CallParts::ReadTools(const ToolList& offered) {
  for (const auto& tool : offered) WEFT_RETURN_IF_ERROR(ReadTool(*tool));
  if (tools.empty() && (required() || !policy.answer)) {
    return InvalidArgument("there is no tool to call");
  }
  return OkStatus();
}

Status CallParts::ReadTool(const Tool& offered) {
  CallTool read{.name = offered.name};
  const auto unfit = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' ||
           std::string_view("\"'<>{}()[]").find(c) != std::string_view::npos;
  };
  if (read.name.size() > CallWriter::kMaxNameBytes || std::ranges::any_of(read.name, unfit)) {
    return Unimplemented("tool ", Printable(read.name), ": calls cannot have this name");
  }
  if (const Json* const parameters = offered.parameters()) {
    read.parameters = *parameters;
  } else {
    read.parameters = {{"type", "object"}, {"properties", Json::object()}};
  }
  if (const auto found = read.parameters.find("properties"); found != read.parameters.end()) {
    n_parameters_ += found->size();
  }
  read.schema = JsonText(read.parameters);
  read.arguments = Structure::Value(PartOf(read, {}), StyleOfArguments(), ValueKinds::kObjects);
  if (const auto found = policy.grammars.find(read.name); found != policy.grammars.end()) {
    read.grammar = found->second;
    read.arguments = TextArguments(read);
  }
  tools.push_back(std::move(read));
  return OkStatus();
}

ValueStyle CallParts::StyleOfArguments() const {
  ValueStyle style = JsonCallStyle();
  if (syntax.form == CallForm::kGemma) {
    style.any_order = true;  // templates sort them
    style.words = ValueStyle::Words::kPythonToo;
    style.strings = ValueStyle::Strings::kQuoted;
    style.quote = Encoded(kGemmaQuote);
    style.quote_text = kGemmaQuote;
  }
  return style;
}

Structure CallParts::TextArguments(const CallTool& tool) const {
  const std::string key = tool.parameters.at("properties").begin().key();
  if (syntax.form == CallForm::kGemma) {
    const Structure quote = Markup(kGemmaQuote);
    return Structure::Sequence(
        {Plain(StrCat("{", key, ":")), quote,
         Structure::FromGrammar(tool.grammar, {.without = std::string(kGemmaQuote)}), quote,
         Plain("}")});
  }
  const Structure around = loose ? gap : Plain("");
  return Structure::Sequence(
      {Plain("{"), around, Plain(StrCat(Json(key).dump(), ":")), space, Plain("\""),
       Structure::FromGrammar(tool.grammar, {.escapes = TextStyle::Escapes::kJson}), Plain("\""),
       around, Plain("}")});
}

SchemaPart PartOf(const CallTool& tool, std::vector<std::string> path) {
  return {.schema = tool.schema, .path = std::move(path), .of = StrCat("tool ", tool.name)};
}

StatusOr<std::vector<CallParameter>> CallParts::ParametersOf(const CallTool& tool,
                                                             std::string_view unfit) const {
  const Json& schema = tool.parameters;
  for (const char* const keyword :
       {"allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "$ref", "$dynamicRef",
        "$recursiveRef", "dependentRequired", "dependentSchemas", "dependencies",
        "patternProperties", "propertyNames", "minProperties", "maxProperties"}) {
    if (schema.contains(keyword)) {
      return Unimplemented(
          "tool ", tool.name, ": ", keyword,
          " of all parameters cannot be enforced in a format that writes them one by one");
    }
  }
  const auto properties = schema.find("properties");
  std::vector<CallParameter> parameters;
  if (properties != schema.end()) {
    if (!properties->is_object())
      return Unimplemented("tool ", tool.name, ": properties is not an object");
    if (properties->size() > kMaxParameters) {
      return Unimplemented("tool ", tool.name, ": it has ", properties->size(),
                           " parameters; calls in this format can have ", kMaxParameters);
    }
    if (n_parameters_ > kMaxParametersOfAll) {
      return Unimplemented("the tools have ", n_parameters_,
                           " parameters in total; calls in this format can have ",
                           kMaxParametersOfAll);
    }
    for (const auto& [key, value] : properties->items()) {
      const bool bad =
          std::ranges::any_of(key, [&](char c) { return unfit.find(c) != std::string_view::npos; });
      if (key.empty() || key.size() > kMaxKeyBytes || bad) {
        return Unimplemented("tool ", tool.name, ": the parameter ", Printable(key),
                             " cannot be written in calls of this format");
      }
      parameters.push_back({.key = key, .types = types.Of(tool.name, key)});
    }
  }
  const auto needed = schema.find("required");
  if (needed == schema.end()) return parameters;
  if (!needed->is_array()) return Unimplemented("tool ", tool.name, ": required is not a list");
  std::map<std::string_view, CallParameter*> by_key;
  for (CallParameter& parameter : parameters) by_key.emplace(parameter.key, &parameter);
  for (const Json& name : *needed) {
    const auto found =
        name.is_string() ? by_key.find(name.get_ref<const std::string&>()) : by_key.end();
    if (found == by_key.end()) {
      return Unimplemented("tool ", tool.name,
                           ": required names a parameter that properties does not describe");
    }
    found->second->required = true;
  }
  return parameters;
}

}  // namespace weft
