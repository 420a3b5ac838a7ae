#include "chat/call_grammar.h"

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "chat/call_text.h"
#include "chat/template_traits.h"
#include "reply/call_writer.h"
#include "reply/parameter_types.h"
#include "reply/syntax.h"

namespace weft {
namespace {

using constraint::FreeText;
using constraint::kUnlimited;
using constraint::RawStrings;
using constraint::SchemaPart;
using constraint::Structure;
using constraint::TextStyle;
using constraint::ValueKinds;
using constraint::ValueStyle;
using Json = nlohmann::ordered_json;
using Parts = std::vector<Structure>;

constexpr size_t kMostKeyBytes = 256;
// If parameters are written one by one: limits per tool, and for all tools of a request.
constexpr size_t kMostParameters = 500, kMostParametersOfAll = 10'000;
constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr char kSpaces[] = "[ \\t\\r\\n]*";
constexpr char kAnything[] = "[\\s\\S]*";

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A regular expression that matches exactly this text.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

struct HeldTool {
  std::string name;
  Json parameters;  // an object
  constraint::SchemaText schema;
  Structure arguments;  // as a JSON object
  std::string grammar;  // of the text that is its one parameter; may be empty
};

struct Parameter {
  std::string key;
  bool required = false;
  unsigned types = ParameterTypes::kAny;
};

// A way for calls to begin, and what follows up to the end of the answer.
struct Entry {
  std::string marker;   // text
  std::string pattern;  // or a regular expression
  Structure rest;
  bool bare = false;  // at the start of the answer, without a marker
};

class CallGrammar {
 public:
  CallGrammar(const CallWriting& writing, const ToolList& tools, const CallPolicy& policy)
      : syntax_(writing.syntax),
        example_(writing.example),
        controls_(writing.controls),
        policy_(policy),
        types_(TypesOfParameters(tools)) {
    // If a text begins with two of them, the longer one is meant.
    std::ranges::sort(
        controls_, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    loose_ = syntax_.form == CallForm::kFenced;
    gap_ = Structure::Pattern(loose_ ? "[ \\n]{0,40}" : "[ \\n]{0,4}");
    space_ = loose_ ? gap_ : Structure::Pattern(" ?");
  }

  StatusOr<CallStructure> Make(const ToolList& tools) {
    WEFT_RETURN_IF_ERROR(ReadTools(tools));
    CallStructure made;
    if (syntax_.form == CallForm::kHarmony) {
      made.structure = Harmony();
      return made;
    }
    if (syntax_.form == CallForm::kGemma) {
      made.options.white_space = constraint::WhiteSpace::kCompact;
    } else if (loose_) {
      made.options.white_space = constraint::WhiteSpace::kAny;
    }
    std::vector<Entry> entries;
    if (!tools_.empty()) {
      WEFT_ASSIGN_OR_RETURN(entries, Entries());
    }
    const bool is_held = required() || policy_.answer;
    made.structure = WithThought(is_held ? Held(entries) : Auto(entries));
    return made;
  }

 private:
  bool required() const { return policy_.choice == CallPolicy::Choice::kRequired; }

  // --- parts ---------------------------------------------------------------------------

  // The format's own markup, with control tokens substituted.
  std::string Encoded(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      const auto control = std::ranges::find_if(
          controls_, [&](const auto& c) { return text.starts_with(c.second); });
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
  template <typename... Pieces>
  Structure Markup(const Pieces&... pieces) const {
    return Structure::Literal(Encoded(StrCat(pieces...)));
  }
  // The name of a tool or parameter, verbatim.
  static Structure Plain(std::string text) { return Structure::Literal(std::move(text)); }

  // One or, if several calls are allowed, more, with `between` before each except the first.
  Structure OneOrMore(const Structure& first, const Parts& next) const {
    if (!policy_.parallel) return first;
    return Structure::Sequence(
        {first, Structure::Repeat(Structure::Sequence(next), 0, kUnlimited)});
  }

  static ValueStyle JsonStyle() { return {.short_numbers = true, .closed_objects = true}; }

  // --- tools ---------------------------------------------------------------------------

  Status ReadTools(const ToolList& tools) {
    for (const auto& tool : tools) {
      HeldTool read{.name = tool->name};
      const auto unfit = [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || Has("\"'<>{}()[]", {&c, 1});
      };
      if (read.name.size() > CallWriter::kMaxNameBytes || std::ranges::any_of(read.name, unfit)) {
        return Unimplemented("tool ", Printable(read.name), ": calls cannot have this name");
      }
      if (const Json* const parameters = tool->parameters()) {
        read.parameters = *parameters;
      } else {
        read.parameters = {{"type", "object"}, {"properties", Json::object()}};
      }
      if (const auto found = read.parameters.find("properties"); found != read.parameters.end()) {
        n_parameters_ += found->size();
      }
      read.schema = JsonText(read.parameters);
      read.arguments =
          Structure::Value(PartOf(read, {}), ValueStyleOfArguments(), ValueKinds::kObjects);
      if (const auto found = policy_.grammars.find(read.name); found != policy_.grammars.end()) {
        read.grammar = found->second;
        read.arguments = TextArguments(read);
      }
      tools_.push_back(std::move(read));
    }
    if (tools_.empty() && (required() || !policy_.answer)) {
      return InvalidArgument("there is no tool to call");
    }
    return OkStatus();
  }

  ValueStyle ValueStyleOfArguments() const {
    ValueStyle style = JsonStyle();
    if (syntax_.form == CallForm::kGemma) {
      style.any_order = true;  // templates sort them
      style.words = ValueStyle::Words::kPythonToo;
      style.strings = ValueStyle::Strings::kQuoted;
      style.quote = Encoded(kGemmaQuote);
      style.quote_text = kGemmaQuote;
    }
    return style;
  }

  static std::string KeyOfText(const HeldTool& tool) {
    return tool.parameters.at("properties").begin().key();
  }
  // The arguments of a tool that takes a text.
  Structure TextArguments(const HeldTool& tool) const {
    const std::string key = KeyOfText(tool);
    if (syntax_.form == CallForm::kGemma) {
      const Structure quote = Markup(kGemmaQuote);
      return Structure::Sequence(
          {Plain(StrCat("{", key, ":")), quote,
           Structure::FromGrammar(tool.grammar, {.without = std::string(kGemmaQuote)}), quote,
           Plain("}")});
    }
    const Structure around = loose_ ? gap_ : Plain("");
    return Structure::Sequence(
        {Plain("{"), around, Plain(StrCat(Json(key).dump(), ":")), space_, Plain("\""),
         Structure::FromGrammar(tool.grammar, {.escapes = TextStyle::Escapes::kJson}), Plain("\""),
         around, Plain("}")});
  }

  static SchemaPart PartOf(const HeldTool& tool, std::vector<std::string> path) {
    return {.schema = tool.schema, .path = std::move(path), .of = StrCat("tool ", tool.name)};
  }

  // The parameters of a tool whose format writes them one by one; no key may contain a byte of
  // `unfit`.
  StatusOr<std::vector<Parameter>> ParametersOf(const HeldTool& tool,
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
    std::vector<Parameter> parameters;
    if (properties != schema.end()) {
      if (!properties->is_object())
        return Unimplemented("tool ", tool.name, ": properties is not an object");
      if (properties->size() > kMostParameters) {
        return Unimplemented("tool ", tool.name, ": it has ", properties->size(),
                             " parameters; calls in this format can have ", kMostParameters);
      }
      if (n_parameters_ > kMostParametersOfAll) {
        return Unimplemented("the tools have ", n_parameters_,
                             " parameters in total; calls in this format can have ",
                             kMostParametersOfAll);
      }
      for (const auto& [key, value] : properties->items()) {
        const bool bad = std::ranges::any_of(
            key, [&](char c) { return unfit.find(c) != std::string_view::npos; });
        if (key.empty() || key.size() > kMostKeyBytes || bad) {
          return Unimplemented("tool ", tool.name, ": the parameter ", Printable(key),
                               " cannot be written in calls of this format");
        }
        parameters.push_back({.key = key, .types = types_.Of(tool.name, key)});
      }
    }
    const auto needed = schema.find("required");
    if (needed == schema.end()) return parameters;
    if (!needed->is_array()) return Unimplemented("tool ", tool.name, ": required is not a list");
    std::map<std::string_view, Parameter*> by_key;
    for (Parameter& parameter : parameters) by_key.emplace(parameter.key, &parameter);
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

  // --- calls in JSON -------------------------------------------------------------------

  // {"name": "f", "arguments": {...}}, with the members of the example.
  Structure JsonCall(const HeldTool& tool) const {
    const bool action = Has(example_, "\"tool_name\"");
    const bool parameters = Has(example_, "\"parameters\":");
    Parts parts{Plain("{")};
    if (loose_) parts.push_back(gap_);
    const auto member = [&](std::string_view key) {
      parts.push_back(Plain(StrCat("\"", key, "\":")));
      parts.push_back(space_);
    };
    const auto next = [&] {
      parts.push_back(Plain(","));
      parts.push_back(space_);
    };
    if (Has(example_, "\"tool_call_id\"")) {
      member("tool_call_id");
      parts.push_back(Structure::Pattern("\"[0-9A-Za-z_\\-]{1,32}\""));
      next();
    }
    if (Has(example_, "\"type\": \"function\"")) {
      member("type");
      parts.push_back(Plain("\"function\""));
      next();
    }
    member(action ? "tool_name" : "name");
    parts.push_back(Plain(Json(tool.name).dump()));
    next();
    member(parameters ? "parameters" : "arguments");
    parts.push_back(tool.arguments);
    if (Has(example_, "\"id\":")) {
      next();
      member("id");
      parts.push_back(Structure::Pattern(syntax_.form == CallForm::kMistral
                                             ? "\"[0-9A-Za-z]{9}\""
                                             : "\"[0-9A-Za-z_.:\\-]{1,64}\""));
    }
    if (loose_) parts.push_back(gap_);
    parts.push_back(Plain("}"));
    return Structure::Sequence(std::move(parts));
  }
  Structure JsonCalls() const {
    Parts calls;
    for (const HeldTool& tool : tools_) calls.push_back(JsonCall(tool));
    return Structure::OneOf(std::move(calls));
  }
  // What follows the opening bracket of an array of calls, including its end.
  Structure JsonListRest() const {
    const Structure call = JsonCalls();
    return Structure::Sequence(
        {gap_, OneOrMore(call, {gap_, Plain(","), gap_, call}), gap_, Plain("]")});
  }
  // Whether the example has an array after the marker.
  bool HasList() const {
    const size_t open = example_.find(syntax_.opens[0]);
    if (open == std::string_view::npos) return false;
    const size_t at = example_.find_first_not_of(" \n", open + syntax_.opens[0].size());
    return at != std::string_view::npos && example_[at] == '[';
  }

  std::vector<Entry> JsonEntries() const {
    const std::string open(syntax_.opens[0]);
    if (syntax_.bare_calls) {
      const Structure call = JsonCalls();
      const Structure calls = OneOrMore(call, {gap_, Plain(";"), gap_, call});
      return {{.rest = calls, .bare = true},
              {.marker = open, .rest = Structure::Sequence({gap_, calls})}};
    }
    if (syntax_.closes.empty()) {  // functools[...]
      return {{.marker = open + "[", .rest = JsonListRest()}};
    }
    const Structure close = Markup(syntax_.closes[0]);
    if (HasList()) {
      return {{.marker = open,
               .rest = Structure::Sequence({gap_, Plain("["), JsonListRest(), gap_, close})}};
    }
    const Structure call = Structure::Sequence({gap_, JsonCalls(), gap_, close});
    return {{.marker = open, .rest = OneOrMore(call, {gap_, Markup(open), call})}};
  }

  std::vector<Entry> MistralEntries() const {
    const std::string open(syntax_.opens[0]);
    if (HasList()) {
      return {{.marker = open, .rest = Structure::Sequence({gap_, Plain("["), JsonListRest()})}};
    }
    Parts calls;
    for (const HeldTool& tool : tools_) {
      Parts parts{Plain(tool.name)};
      if (Has(example_, "[CALL_ID]")) {
        parts.push_back(Markup("[CALL_ID]"));
        parts.push_back(Structure::Pattern("[0-9A-Za-z]{9}"));
      }
      if (Has(example_, "[ARGS]")) parts.push_back(Markup("[ARGS]"));
      parts.push_back(tool.arguments);
      calls.push_back(Structure::Sequence(std::move(parts)));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    return {{.marker = open, .rest = OneOrMore(call, {Markup(open), call})}};
  }

  std::vector<Entry> DeepSeekEntries() const {
    const bool fenced = Has(example_, "```json");
    constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
    Parts calls;
    for (const HeldTool& tool : tools_) {
      Parts parts{Markup(syntax_.opens[1])};
      if (fenced) {
        parts.push_back(Markup("function", kSeparator));
        parts.push_back(Plain(StrCat(tool.name, "\n```json\n")));
      } else {
        parts.push_back(Plain(tool.name));
        parts.push_back(Markup(kSeparator));
      }
      parts.push_back(tool.arguments);
      if (fenced) parts.push_back(Plain("\n```"));
      parts.push_back(Markup("<｜tool▁call▁end｜>"));
      calls.push_back(Structure::Sequence(std::move(parts)));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    return {{.marker = std::string(syntax_.opens[0]),
             .rest = Structure::Sequence(
                 {OneOrMore(call, {gap_, call}), Markup(syntax_.closes.back())})}};
  }

  std::vector<Entry> KimiEntries() const {
    Parts calls;
    for (const HeldTool& tool : tools_) {
      calls.push_back(Structure::Sequence(
          {Markup(syntax_.opens[1]), Plain(StrCat("functions.", tool.name, ":")),
           Structure::Pattern("0|[1-9][0-9]{0,3}"), Markup("<|tool_call_argument_begin|>"),
           tool.arguments, Markup(syntax_.closes[0])}));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    return {{.marker = std::string(syntax_.opens[0]),
             .rest = Structure::Sequence(
                 {gap_, OneOrMore(call, {gap_, call}), gap_, Markup(syntax_.closes[1])})}};
  }

  std::vector<Entry> FencedEntries() const {
    return {{.pattern = "Action:[ \\n]{0,4}```json[ \\n]{0,4}\\[",
             .rest = Structure::Sequence({JsonListRest(), gap_, Plain("```"), gap_})}};
  }

  std::vector<Entry> GemmaEntries() const {
    Parts calls;
    const Structure close = Markup(syntax_.closes[0]);
    for (const HeldTool& tool : tools_) {
      calls.push_back(
          Structure::Sequence({Plain(StrCat("call:", tool.name)), tool.arguments, close}));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    const std::string open(syntax_.opens[0]);
    return {{.marker = open, .rest = OneOrMore(call, {gap_, Markup(open), call})}};
  }

  // --- calls with separate parameters --------------------------------------------------

  // [f(a=1, b='x')]
  StatusOr<std::vector<Entry>> PythonEntries() const {
    const std::string open(syntax_.opens[0]);
    const Structure close = Markup(syntax_.closes[0]);
    if (Has(example_, "\"name\":")) {
      return std::vector<Entry>{
          {.marker = open,
           .rest = Structure::Sequence({gap_, Plain("["), JsonListRest(), gap_, close})}};
    }
    Parts calls;
    for (const HeldTool& tool : tools_) {
      WEFT_ASSIGN_OR_RETURN(const Structure arguments, PythonArguments(tool));
      calls.push_back(Structure::Sequence({Plain(tool.name + "("), arguments, Plain(")")}));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    return std::vector<Entry>{
        {.marker = open,
         .rest = Structure::Sequence({gap_, Plain("["), OneOrMore(call, {Plain(","), space_, call}),
                                      Plain("]"), gap_, close})}};
  }

  StatusOr<Structure> PythonArguments(const HeldTool& tool) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters,
                          ParametersOf(tool, "=,()[]{}'\" \n\t\r"));
    ValueStyle style = JsonStyle();
    style.words = ValueStyle::Words::kPythonToo;
    style.strings = ValueStyle::Strings::kPython;
    const Structure comma = Structure::Sequence({Plain(","), space_});
    Parts alone, behind;  // each as the first, and after others
    for (const Parameter& parameter : parameters) {
      const Structure value =
          tool.grammar.empty()
              ? Structure::Value(PartOf(tool, {"properties", parameter.key}), style)
              : Structure::Sequence(
                    {Plain("\""),
                     Structure::FromGrammar(tool.grammar, {.escapes = TextStyle::Escapes::kPython}),
                     Plain("\"")});
      alone.push_back(Structure::Sequence({Plain(parameter.key + "="), value}));
      const Structure next = Structure::Sequence({comma, alone.back()});
      behind.push_back(parameter.required ? next : Structure::Optional(next));
    }
    // Blocks keep the alternatives after each parameter few and the nesting shallow.
    constexpr size_t kBlock = 25;
    Parts blocks;
    for (size_t begin = 0; begin < behind.size(); begin += kBlock) {
      const auto first = behind.begin() + static_cast<ptrdiff_t>(begin);
      blocks.push_back(Structure::Sequence(
          {first, first + static_cast<ptrdiff_t>(std::min(kBlock, behind.size() - begin))}));
    }
    Parts ways;
    bool may_be_left_out = true;
    for (size_t i = 0; i < parameters.size() && may_be_left_out; ++i) {
      Parts way{alone[i]};
      for (size_t j = i + 1; j % kBlock != 0 && j < behind.size(); ++j) way.push_back(behind[j]);
      for (size_t b = i / kBlock + 1; b < blocks.size(); ++b) way.push_back(blocks[b]);
      ways.push_back(Structure::Sequence(std::move(way)));
      may_be_left_out = !parameters[i].required;
    }
    if (may_be_left_out) ways.push_back(Plain(""));
    return Structure::OneOf(std::move(ways));
  }

  // <function=f><parameter=a>1</parameter></function>, or with other tags.
  StatusOr<std::vector<Entry>> TaggedEntries() const {
    const TagSyntax& tags = *syntax_.tags;
    const std::string open(syntax_.opens[0]);
    Parts calls;
    for (const HeldTool& tool : tools_) {
      WEFT_ASSIGN_OR_RETURN(const Structure parameters, TaggedParameters(tool));
      Parts parts;
      // If the marker of calls is the function tag, it is already written.
      if (syntax_.form != CallForm::kTagged) parts.push_back(Markup(tags.function_open));
      parts.push_back(Plain(tool.name));
      parts.push_back(Markup(tags.name_end));
      parts.push_back(parameters);
      parts.push_back(gap_);
      parts.push_back(Markup(tags.function_close));
      calls.push_back(Structure::Sequence(std::move(parts)));
    }
    const Structure call = Structure::OneOf(std::move(calls));
    if (syntax_.form == CallForm::kTagged) {
      return std::vector<Entry>{
          {.marker = open, .rest = OneOrMore(call, {gap_, Markup(open), call})}};
    }
    const Structure close = Markup(syntax_.closes[0]);
    const bool together = syntax_.name == "minimax-xml" || syntax_.name == "deepseek-xml";
    if (together) {
      return std::vector<Entry>{
          {.marker = open,
           .rest = Structure::Sequence({gap_, OneOrMore(call, {gap_, call}), gap_, close})}};
    }
    const Structure block = Structure::Sequence({gap_, call, gap_, close});
    return std::vector<Entry>{
        {.marker = open, .rest = OneOrMore(block, {gap_, Markup(open), block})}};
  }

  StatusOr<Structure> TaggedParameters(const HeldTool& tool) const {
    const TagSyntax& tags = *syntax_.tags;
    WEFT_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters,
                          ParametersOf(tool, tags.key_end.substr(0, 1)));
    Parts all;
    for (const Parameter& parameter : parameters) {
      const Structure one = Structure::Sequence(
          {gap_, Markup(tags.parameter_open), Plain(parameter.key), TaggedValue(tool, parameter)});
      all.push_back(parameter.required ? one : Structure::Optional(one));
    }
    return Structure::Sequence(std::move(all));
  }

  // From after the parameter's name.
  Structure TaggedValue(const HeldTool& tool, const Parameter& parameter) const {
    const TagSyntax& tags = *syntax_.tags;
    const SchemaPart part = PartOf(tool, {"properties", parameter.key});
    const bool marked = !tags.string_mark.empty();
    const auto start = [&](std::string_view is_string) {
      Parts parts{Markup(tags.key_end)};
      if (marked) {
        parts = {Markup(tags.key_end, " ", tags.string_mark, is_string, "\"", tags.value_open)};
      } else if (!tags.value_open.empty()) {
        parts.push_back(gap_);
        parts.push_back(Markup(tags.value_open));
      }
      return parts;
    };
    const std::string close = Encoded(tags.parameter_close);
    if (!tool.grammar.empty()) {
      Parts parts = start("true");
      const Structure line = Plain(tags.exact_values ? "" : "\n");
      parts.insert(parts.end(), {line,
                                 Structure::FromGrammar(
                                     tool.grammar, {.without = std::string(tags.parameter_close)}),
                                 line, Structure::Literal(close)});
      return Structure::Sequence(std::move(parts));
    }
    RawStrings strings{
        .schema = part, .close = close, .close_text = std::string(tags.parameter_close)};
    const bool breaks = Has(example_, StrCat(tags.key_end, "\n", kProbedValue));
    if (!tags.exact_values) {
      strings.breaks = breaks ? RawStrings::Breaks::kAround : RawStrings::Breaks::kPossible;
    }
    if (!marked && parameter.types != ParameterTypes::kString)
      strings.unlike = NoStrings(parameter.types);
    Parts as_string = start("true");
    as_string.push_back(Structure::Strings(std::move(strings)));
    if (parameter.types == ParameterTypes::kString && !marked)
      return Structure::Sequence(std::move(as_string));
    ValueStyle style = JsonStyle();
    style.words = ValueStyle::Words::kPythonTooOutside;
    style.without = tags.parameter_close;
    Parts as_json = start("false");
    const bool lines = breaks && !tags.exact_values;
    if (lines) as_json.push_back(Plain("\n"));
    as_json.push_back(Structure::Value(part, style, ValueKinds::kNoStrings));
    if (lines) as_json.push_back(Plain("\n"));
    as_json.push_back(Structure::Literal(close));
    return Structure::OneOf(
        {Structure::Sequence(std::move(as_string)), Structure::Sequence(std::move(as_json))});
  }

  // Texts that a reader would take for a value of one of these types.
  static std::vector<std::string> NoStrings(unsigned types) {
    // Readers stop at a NUL.
    std::vector<std::string> patterns{StrCat(kAnything, "\\u0000", kAnything)};
    const auto add = [&](unsigned type, std::string_view pattern) {
      if ((types & type) != 0) patterns.push_back(StrCat(kSpaces, pattern, kSpaces));
    };
    add(ParameterTypes::kNumber | ParameterTypes::kInteger,
        "-?[0-9]+(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?");
    add(ParameterTypes::kBoolean, "(true|false|True|False)");
    add(ParameterTypes::kNull, "(null|None)");
    add(ParameterTypes::kObject, "\\{[\\s\\S]*");
    add(ParameterTypes::kArray, "\\[[\\s\\S]*");
    return patterns;
  }

  // --- answers -------------------------------------------------------------------------

  StatusOr<std::vector<Entry>> Entries() const {
    if (syntax_.tags &&
        (syntax_.form == CallForm::kTagged || Has(example_, syntax_.tags->function_open))) {
      return TaggedEntries();
    }
    switch (syntax_.form) {
      case CallForm::kMistral:
        return MistralEntries();
      case CallForm::kGemma:
        return GemmaEntries();
      case CallForm::kPython:
        return PythonEntries();
      case CallForm::kDeepSeek:
        return DeepSeekEntries();
      case CallForm::kKimi:
        return KimiEntries();
      case CallForm::kFenced:
        return FencedEntries();
      default:
        return JsonEntries();
    }
  }

  Structure Held(const std::vector<Entry>& entries) const {
    Parts ways;
    if (!required()) ways.push_back(*policy_.answer);
    for (const Entry& entry : entries) {
      Parts parts{gap_};
      if (!entry.pattern.empty()) {
        parts.push_back(Structure::Pattern(entry.pattern));
      } else if (!entry.bare) {
        parts.push_back(Markup(entry.marker));
      }
      parts.push_back(entry.rest);
      ways.push_back(Structure::Sequence(std::move(parts)));
    }
    return Structure::OneOf(std::move(ways));
  }

  Structure Auto(const std::vector<Entry>& entries) const {
    const FreeText text = TextWithoutCalls();
    Parts ways{Structure::Text(text)};
    for (const Entry& entry : entries) {
      if (entry.bare) {
        ways.push_back(Structure::Sequence({gap_, entry.rest}));
      } else if (!entry.pattern.empty()) {
        ways.push_back(
            Structure::Sequence({Structure::TextUntilPattern(text, entry.pattern), entry.rest}));
      } else {
        ways.push_back(
            Structure::Sequence({Structure::TextUntil(text, Encoded(entry.marker)), entry.rest}));
      }
    }
    // Texts between their own markers.
    for (size_t i = 0; i + 1 < syntax_.silent.size(); i += 2) {
      ways.push_back(Structure::Sequence(
          {gap_, Markup(syntax_.silent[i]),
           Structure::TextUntil({.without = text.without}, Encoded(syntax_.silent[i + 1]))}));
    }
    return Structure::OneOf(std::move(ways));
  }

  // All text that a reader takes for content.
  FreeText TextWithoutCalls() const {
    FreeText text;
    if (syntax_.form == CallForm::kFenced) {
      text.without_patterns.push_back(StrCat("Action:", kSpaces, "```json", kSpaces, "[\\[{]"));
    } else if (syntax_.form == CallForm::kJson && syntax_.closes.empty()) {
      text.without_patterns.push_back(StrCat(Escaped(syntax_.opens[0]), kSpaces, "[\\[{]"));
    } else {
      text.without.assign(syntax_.opens.begin(), syntax_.opens.end());
    }
    text.without.insert(text.without.end(), syntax_.silent.begin(), syntax_.silent.end());
    if (syntax_.reasoning) {
      text.unlike.push_back(StrCat(kSpaces, Escaped(syntax_.reasoning->open), kAnything));
    }
    if (syntax_.bare_calls) {
      for (const HeldTool& tool : tools_) {
        text.unlike.push_back(StrCat(kSpaces, "\\{", kSpaces, "\"name\"", kSpaces, ":", kSpaces,
                                     "\"", Escaped(tool.name), "\"", kAnything));
      }
      text.unlike.push_back(StrCat(kSpaces, "\\{(?=", kAnything, "\"(name|tool_name)\")(?=",
                                   kAnything, "\"(parameters|arguments)\")", kAnything));
    }
    return text;
  }

  Structure WithThought(const Structure& answer) const {
    if (!syntax_.reasoning) return answer;
    const std::string close(syntax_.reasoning->close);
    const Structure rest =
        Structure::Sequence({Structure::TextUntil({.without = {close}}, Encoded(close)), gap_});
    if (policy_.thinks_already) return Structure::Sequence({rest, answer});
    if (!policy_.may_think) return answer;
    return Structure::Sequence(
        {Structure::Optional(Structure::Sequence({gap_, Markup(syntax_.reasoning->open), rest})),
         answer});
  }

  // Messages in channels. A call ends the answer: what follows it belongs to another one.
  Structure Harmony() const {
    const FreeText text{
        .without = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"}};
    const auto message = [&](std::string_view channel) {
      return Structure::Sequence({Markup("<|channel|>", channel, "<|message|>"),
                                  Structure::TextUntil(text, Encoded("<|end|>")),
                                  Markup("<|start|>assistant")});
    };
    const Structure kind =
        Structure::Optional(Structure::OneOf({Plain(" json"), Markup(" <|constrain|>json")}));
    Parts last;
    for (const HeldTool& tool : tools_) {
      const std::string to = StrCat(" to=functions.", tool.name);
      last.push_back(Structure::Sequence(
          {Structure::OneOf({Structure::Sequence({Plain(to), Markup("<|channel|>commentary")}),
                             Structure::Sequence({Markup("<|channel|>commentary"), Plain(to)})}),
           kind, Markup("<|message|>"), tool.arguments}));
    }
    Parts before;
    if (policy_.may_think) before.push_back(message("analysis"));
    if (!required() && !tools_.empty()) before.push_back(message("commentary"));
    if (!required()) {
      last.push_back(Structure::Sequence(
          {Markup("<|channel|>final<|message|>"), policy_.answer.value_or(Structure::Text(text))}));
    }
    Structure end = Structure::OneOf(std::move(last));
    if (before.empty()) return end;
    constexpr int32_t kMostMessages = 16;
    return Structure::Sequence(
        {Structure::Repeat(Structure::OneOf(std::move(before)), 0, kMostMessages), std::move(end)});
  }

  const ReplySyntax& syntax_;
  const std::string_view example_;
  std::vector<std::pair<TokenId, std::string>> controls_;
  const CallPolicy policy_;
  const ParameterTypes types_;
  bool loose_ = false;  // ample white space, as in indented JSON
  Structure gap_, space_;
  std::vector<HeldTool> tools_;
  size_t n_parameters_ = 0;  // in all tools
};

}  // namespace

ParameterTypes TypesOfParameters(const ToolList& tools) {
  ParameterTypes types;
  for (const auto& tool : tools) types.Add(tool->name, tool->parameters());
  return types;
}

StatusOr<CallStructure> MakeCallStructure(const CallWriting& writing, const ToolList& tools,
                                          const CallPolicy& policy) {
  return CallGrammar(writing, tools, policy).Make(tools);
}

}  // namespace weft
