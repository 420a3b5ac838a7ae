// Calls whose format writes parameters one by one: as in Python, or between tags.
#include <algorithm>

#include "answer/chat/call_parts.h"
#include "answer/chat/nested_elements.h"
#include "answer/chat/template_traits.h"

namespace weft {
namespace {

using constraint::RawStrings;
using constraint::SchemaPart;
using constraint::Structure;
using constraint::TextStyle;
using constraint::ValueKinds;
using constraint::ValueStyle;

constexpr char kSpaces[] = "[ \\t\\r\\n]*";
constexpr char kAnything[] = "[\\s\\S]*";

StatusOr<Structure> PythonArguments(const CallParts& p, const CallTool& tool) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<CallParameter> parameters,
                        p.ParametersOf(tool, "=,()[]{}'\" \n\t\r"));
  ValueStyle style = JsonCallStyle();
  style.words = ValueStyle::Words::kPythonToo;
  style.strings = ValueStyle::Strings::kPython;
  const Structure comma = Structure::Sequence({Plain(","), p.space});
  StructureList alone, behind;  // each as the first, and after others
  for (const CallParameter& parameter : parameters) {
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
  StructureList blocks;
  for (size_t begin = 0; begin < behind.size(); begin += kBlock) {
    const auto first = behind.begin() + static_cast<ptrdiff_t>(begin);
    blocks.push_back(Structure::Sequence(
        {first, first + static_cast<ptrdiff_t>(std::min(kBlock, behind.size() - begin))}));
  }
  StructureList ways;
  bool may_be_left_out = true;
  for (size_t i = 0; i < parameters.size() && may_be_left_out; ++i) {
    StructureList way{alone[i]};
    for (size_t j = i + 1; j % kBlock != 0 && j < behind.size(); ++j) way.push_back(behind[j]);
    for (size_t b = i / kBlock + 1; b < blocks.size(); ++b) way.push_back(blocks[b]);
    ways.push_back(Structure::Sequence(std::move(way)));
    may_be_left_out = !parameters[i].required;
  }
  if (may_be_left_out) ways.push_back(Plain(""));
  return Structure::OneOf(std::move(ways));
}

// [f(a=1, b='x')]
StatusOr<std::vector<CallEntry>> PythonEntries(const CallParts& p) {
  const std::string open(p.syntax.opens[0]);
  const Structure close = p.Markup(p.syntax.closes[0]);
  if (p.ExampleHas("\"name\":")) {
    return std::vector<CallEntry>{
        {.marker = open,
         .rest = Structure::Sequence({p.gap, Plain("["), JsonCallsAfterBracket(p), p.gap, close})}};
  }
  StructureList calls;
  for (const CallTool& tool : p.tools) {
    WEFT_ASSIGN_OR_RETURN(const Structure arguments, PythonArguments(p, tool));
    calls.push_back(Structure::Sequence({Plain(tool.name + "("), arguments, Plain(")")}));
  }
  const Structure call = Structure::OneOf(std::move(calls));
  return std::vector<CallEntry>{
      {.marker = open,
       .rest =
           Structure::Sequence({p.gap, Plain("["), p.OneOrMore(call, {Plain(","), p.space, call}),
                                Plain("]"), p.gap, close})}};
}

// Texts that a reader would take for a value of one of these types.
std::vector<std::string> NoStrings(unsigned types) {
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

// The words for the types other than string, in a format that says them.
std::string OtherTypes(const TagSyntax& tags, unsigned types) {
  if (tags.string_word == "true") return "false";
  std::vector<std::string> words;
  const auto add = [&](unsigned type, const char* word) {
    if ((types & type) != 0) words.emplace_back(word);
  };
  add(ParameterTypes::kNumber | ParameterTypes::kInteger, "number");
  add(ParameterTypes::kBoolean, "boolean");
  add(ParameterTypes::kNull, "null");
  add(ParameterTypes::kObject, "object");
  add(ParameterTypes::kArray, "array");
  return StrJoin(words, "|");
}

// What is between a parameter's name and its value.
StructureList ValueStart(const CallParts& p, const std::string& type) {
  const TagSyntax& tags = *p.syntax.tags;
  if (!tags.string_mark.empty()) {
    return {p.Markup(tags.key_end, " ", tags.string_mark), Structure::Pattern(type),
            p.Markup("\"", tags.value_open)};
  }
  StructureList parts{p.Markup(tags.key_end)};
  if (!tags.value_open.empty()) {
    parts.push_back(p.gap);
    parts.push_back(p.Markup(tags.value_open));
  }
  return parts;
}

std::string CloseOf(const TagSyntax& tags, const std::string& key) {
  std::string close(tags.parameter_close);
  if (tags.nested) StrAppend(&close, key, tags.key_end);
  return close;
}

// What no text before the closing tag contains: the tag, or what all nested tags begin with.
std::string BarredText(const TagSyntax& tags) {
  return std::string(tags.nested ? tags.parameter_open : tags.parameter_close);
}

// The value as a string.
Structure TaggedText(const CallParts& p, const TaggedPart& part) {
  const TagSyntax& tags = *p.syntax.tags;
  const std::string close = CloseOf(tags, part.key);
  StructureList parts = ValueStart(p, std::string(tags.string_word));
  if (!part.grammar.empty()) {
    const Structure line = Plain(tags.exact_values ? "" : "\n");
    parts.insert(parts.end(),
                 {line, Structure::FromGrammar(part.grammar, {.without = BarredText(tags)}), line,
                  Structure::Literal(p.Encoded(close))});
    return Structure::Sequence(std::move(parts));
  }
  const std::string barred = BarredText(tags);
  RawStrings strings{.schema = part.schema, .close = p.Encoded(barred), .close_text = barred};
  if (!tags.exact_values) {
    const bool breaks = p.ExampleHas(StrCat(tags.key_end, "\n", kProbedValue));
    strings.breaks = breaks ? RawStrings::Breaks::kAround : RawStrings::Breaks::kPossible;
  }
  if (tags.string_mark.empty() && part.types != ParameterTypes::kString)
    strings.unlike = NoStrings(part.types);
  parts.push_back(Structure::Strings(std::move(strings)));
  parts.push_back(Plain(close.substr(barred.size())));
  return Structure::Sequence(std::move(parts));
}

// From after the parameter's name.
Structure TaggedValue(const CallParts& p, const TaggedPart& part) {
  const TagSyntax& tags = *p.syntax.tags;
  const Structure as_string = TaggedText(p, part);
  const std::string others = OtherTypes(tags, part.types);
  const bool marked = !tags.string_mark.empty();
  if (!part.grammar.empty() || others.empty()) return as_string;
  if (part.types == ParameterTypes::kString && !marked) return as_string;
  const std::string close = CloseOf(tags, part.key);
  ValueStyle style = JsonCallStyle();
  style.words = ValueStyle::Words::kPythonTooOutside;
  style.without = BarredText(tags);
  StructureList as_json = ValueStart(p, others);
  const bool lines = !tags.exact_values && p.ExampleHas(StrCat(tags.key_end, "\n", kProbedValue));
  if (lines) as_json.push_back(Plain("\n"));
  as_json.push_back(Structure::Value(part.schema, style, ValueKinds::kNoStrings));
  if (lines) as_json.push_back(Plain("\n"));
  as_json.push_back(Structure::Literal(p.Encoded(close)));
  return Structure::OneOf({as_string, Structure::Sequence(std::move(as_json))});
}

StatusOr<Structure> TaggedParameters(const CallParts& p, const CallTool& tool) {
  const TagSyntax& tags = *p.syntax.tags;
  const std::string unfit = StrCat(tags.key_end.substr(0, 1), tags.nested ? "</" : "");
  WEFT_ASSIGN_OR_RETURN(const std::vector<CallParameter> parameters, p.ParametersOf(tool, unfit));
  NestedElements nested(p, tool, TaggedValue);
  StructureList all;
  for (const CallParameter& parameter : parameters) {
    const TaggedPart part{.key = parameter.key,
                          .schema = PartOf(tool, {"properties", parameter.key}),
                          .types = parameter.types,
                          .grammar = tool.grammar};
    const Structure value = tags.nested ? nested.Of(part) : TaggedValue(p, part);
    const Structure one =
        Structure::Sequence({p.gap, p.Markup(tags.parameter_open), Plain(parameter.key), value});
    all.push_back(parameter.required ? one : Structure::Optional(one));
  }
  return Structure::Sequence(std::move(all));
}

// <function=f><parameter=a>1</parameter></function>, or with other tags.
StatusOr<std::vector<CallEntry>> TaggedEntries(const CallParts& p) {
  const TagSyntax& tags = *p.syntax.tags;
  const std::string open(p.syntax.opens[0]);
  StructureList calls;
  for (const CallTool& tool : p.tools) {
    WEFT_ASSIGN_OR_RETURN(const Structure parameters, TaggedParameters(p, tool));
    StructureList parts;
    // If the marker of calls is the function tag, it is already written.
    if (p.syntax.form != CallForm::kTagged) parts.push_back(p.Markup(tags.function_open));
    parts.push_back(Plain(tool.name));
    parts.push_back(p.Markup(tags.name_end, tags.index_open));
    if (!tags.index_open.empty()) {
      parts.push_back(Structure::Pattern("[1-9][0-9]{0,2}"));
      parts.push_back(p.Markup(tags.index_close));
    }
    parts.push_back(parameters);
    parts.push_back(p.gap);
    parts.push_back(p.Markup(tags.function_close));
    calls.push_back(Structure::Sequence(std::move(parts)));
  }
  const Structure call = Structure::OneOf(std::move(calls));
  if (p.syntax.form == CallForm::kTagged) {
    return std::vector<CallEntry>{
        {.marker = open, .rest = p.OneOrMore(call, {p.gap, p.Markup(open), call})}};
  }
  const Structure close = p.Markup(p.syntax.closes[0]);
  if (p.syntax.one_block) {
    return std::vector<CallEntry>{
        {.marker = open,
         .rest = Structure::Sequence({p.gap, p.OneOrMore(call, {p.gap, call}), p.gap, close})}};
  }
  const Structure block = Structure::Sequence({p.gap, call, p.gap, close});
  return std::vector<CallEntry>{
      {.marker = open, .rest = p.OneOrMore(block, {p.gap, p.Markup(open), block})}};
}

}  // namespace

StatusOr<std::vector<CallEntry>> CallEntries(const CallParts& parts) {
  const auto& tags = parts.syntax.tags;
  if (tags && (parts.syntax.form == CallForm::kTagged || parts.ExampleHas(tags->function_open))) {
    return TaggedEntries(parts);
  }
  if (parts.syntax.form == CallForm::kPython) return PythonEntries(parts);
  return JsonCallEntries(parts);
}

}  // namespace weft
