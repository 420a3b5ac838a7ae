// Calls whose arguments are one JSON object.
#include "answer/chat/call_parts.h"

namespace weft {
namespace {

using constraint::Structure;
using Json = nlohmann::ordered_json;

// {"name": "f", "arguments": {...}}, with the members of the example.
Structure JsonCall(const CallParts& p, const CallTool& tool) {
  const bool action = p.ExampleHas("\"tool_name\"");
  const bool parameters = p.ExampleHas("\"parameters\":");
  StructureList parts{Plain("{")};
  if (p.loose) parts.push_back(p.gap);
  const auto member = [&](std::string_view key) {
    parts.push_back(Plain(StrCat("\"", key, "\":")));
    parts.push_back(p.space);
  };
  const auto next = [&] {
    parts.push_back(Plain(","));
    parts.push_back(p.space);
  };
  if (p.ExampleHas("\"tool_call_id\"")) {
    member("tool_call_id");
    parts.push_back(Structure::Pattern("\"[0-9A-Za-z_\\-]{1,32}\""));
    next();
  }
  if (p.ExampleHas("\"type\": \"function\"")) {
    member("type");
    parts.push_back(Plain("\"function\""));
    next();
  }
  member(action ? "tool_name" : "name");
  parts.push_back(Plain(Json(tool.name).dump()));
  next();
  member(parameters ? "parameters" : "arguments");
  parts.push_back(tool.arguments);
  if (p.ExampleHas("\"id\":")) {
    next();
    member("id");
    parts.push_back(Structure::Pattern(p.syntax.form == CallForm::kMistral
                                           ? "\"[0-9A-Za-z]{9}\""
                                           : "\"[0-9A-Za-z_.:\\-]{1,64}\""));
  }
  if (p.loose) parts.push_back(p.gap);
  parts.push_back(Plain("}"));
  return Structure::Sequence(std::move(parts));
}
Structure JsonCalls(const CallParts& p) {
  StructureList calls;
  for (const CallTool& tool : p.tools) calls.push_back(JsonCall(p, tool));
  return Structure::OneOf(std::move(calls));
}
// What follows the opening bracket of an array of calls, including its end.
Structure JsonListRest(const CallParts& p) {
  const Structure call = JsonCalls(p);
  return Structure::Sequence(
      {p.gap, p.OneOrMore(call, {p.gap, Plain(","), p.gap, call}), p.gap, Plain("]")});
}
// Whether the example has an array after the marker.
bool HasList(const CallParts& p) {
  const size_t open = p.example.find(p.syntax.opens[0]);
  if (open == std::string_view::npos) return false;
  const size_t at = p.example.find_first_not_of(" \n", open + p.syntax.opens[0].size());
  return at != std::string_view::npos && p.example[at] == '[';
}

std::vector<CallEntry> JsonEntries(const CallParts& p) {
  const std::string open(p.syntax.opens[0]);
  if (p.syntax.bare_calls) {
    const Structure call = JsonCalls(p);
    const Structure calls = p.OneOrMore(call, {p.gap, Plain(";"), p.gap, call});
    return {{.rest = calls, .bare = true},
            {.marker = open, .rest = Structure::Sequence({p.gap, calls})}};
  }
  if (p.syntax.closes.empty()) {  // functools[...]
    return {{.marker = open + "[", .rest = JsonListRest(p)}};
  }
  const Structure close = p.Markup(p.syntax.closes[0]);
  if (HasList(p)) {
    return {{.marker = open,
             .rest = Structure::Sequence({p.gap, Plain("["), JsonListRest(p), p.gap, close})}};
  }
  const Structure call = Structure::Sequence({p.gap, JsonCalls(p), p.gap, close});
  return {{.marker = open, .rest = p.OneOrMore(call, {p.gap, p.Markup(open), call})}};
}

std::vector<CallEntry> MistralEntries(const CallParts& p) {
  const std::string open(p.syntax.opens[0]);
  if (HasList(p)) {
    return {{.marker = open, .rest = Structure::Sequence({p.gap, Plain("["), JsonListRest(p)})}};
  }
  StructureList calls;
  for (const CallTool& tool : p.tools) {
    StructureList parts{Plain(tool.name)};
    if (p.ExampleHas("[CALL_ID]")) {
      parts.push_back(p.Markup("[CALL_ID]"));
      parts.push_back(Structure::Pattern("[0-9A-Za-z]{9}"));
    }
    if (p.ExampleHas("[ARGS]")) parts.push_back(p.Markup("[ARGS]"));
    parts.push_back(tool.arguments);
    calls.push_back(Structure::Sequence(std::move(parts)));
  }
  const Structure call = Structure::OneOf(std::move(calls));
  return {{.marker = open, .rest = p.OneOrMore(call, {p.Markup(open), call})}};
}

std::vector<CallEntry> DeepSeekEntries(const CallParts& p) {
  const bool fenced = p.ExampleHas("```json");
  constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  StructureList calls;
  for (const CallTool& tool : p.tools) {
    StructureList parts{p.Markup(p.syntax.opens[1])};
    if (fenced) {
      parts.push_back(p.Markup("function", kSeparator));
      parts.push_back(Plain(StrCat(tool.name, "\n```json\n")));
    } else {
      parts.push_back(Plain(tool.name));
      parts.push_back(p.Markup(kSeparator));
    }
    parts.push_back(tool.arguments);
    if (fenced) parts.push_back(Plain("\n```"));
    parts.push_back(p.Markup("<｜tool▁call▁end｜>"));
    calls.push_back(Structure::Sequence(std::move(parts)));
  }
  const Structure call = Structure::OneOf(std::move(calls));
  return {{.marker = std::string(p.syntax.opens[0]),
           .rest = Structure::Sequence(
               {p.OneOrMore(call, {p.gap, call}), p.Markup(p.syntax.closes.back())})}};
}

std::vector<CallEntry> KimiEntries(const CallParts& p) {
  StructureList calls;
  for (const CallTool& tool : p.tools) {
    calls.push_back(Structure::Sequence(
        {p.Markup(p.syntax.opens[1]), Plain(StrCat("functions.", tool.name, ":")),
         Structure::Pattern("0|[1-9][0-9]{0,3}"), p.Markup("<|tool_call_argument_begin|>"),
         tool.arguments, p.Markup(p.syntax.closes[0])}));
  }
  const Structure call = Structure::OneOf(std::move(calls));
  return {{.marker = std::string(p.syntax.opens[0]),
           .rest = Structure::Sequence(
               {p.gap, p.OneOrMore(call, {p.gap, call}), p.gap, p.Markup(p.syntax.closes[1])})}};
}

std::vector<CallEntry> FencedEntries(const CallParts& p) {
  return {{.pattern = "Action:[ \\n]{0,4}```json[ \\n]{0,4}\\[",
           .rest = Structure::Sequence({JsonListRest(p), p.gap, Plain("```"), p.gap})}};
}

std::vector<CallEntry> GemmaEntries(const CallParts& p) {
  StructureList calls;
  const Structure close = p.Markup(p.syntax.closes[0]);
  for (const CallTool& tool : p.tools) {
    calls.push_back(
        Structure::Sequence({Plain(StrCat("call:", tool.name)), tool.arguments, close}));
  }
  const Structure call = Structure::OneOf(std::move(calls));
  const std::string open(p.syntax.opens[0]);
  return {{.marker = open, .rest = p.OneOrMore(call, {p.gap, p.Markup(open), call})}};
}

}  // namespace

std::vector<CallEntry> JsonCallEntries(const CallParts& parts) {
  switch (parts.syntax.form) {
    case CallForm::kMistral:
      return MistralEntries(parts);
    case CallForm::kGemma:
      return GemmaEntries(parts);
    case CallForm::kDeepSeek:
      return DeepSeekEntries(parts);
    case CallForm::kKimi:
      return KimiEntries(parts);
    case CallForm::kFenced:
      return FencedEntries(parts);
    default:
      return JsonEntries(parts);
  }
}

Structure JsonCallsAfterBracket(const CallParts& parts) { return JsonListRest(parts); }

}  // namespace weft
