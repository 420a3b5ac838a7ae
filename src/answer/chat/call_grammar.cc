#include "answer/chat/call_grammar.h"

#include <algorithm>
#include <utility>

#include "answer/chat/call_parts.h"

namespace weft {
namespace {

using constraint::FreeText;
using constraint::Structure;

constexpr char kSpaces[] = "[ \\t\\r\\n]*";
constexpr char kAnything[] = "[\\s\\S]*";

// The answer itself, with or without the format's markers around it.
Structure MarkedAnswer(const CallParts& p, const Structure& answer) {
  if (!p.syntax.answer) return answer;
  return Structure::OneOf(
      {answer, Structure::Sequence({p.Markup(p.syntax.answer->open), answer,
                                    Structure::Optional(p.Markup(p.syntax.answer->close))})});
}

Structure Held(const CallParts& p, const std::vector<CallEntry>& entries) {
  StructureList ways;
  if (!p.required()) ways.push_back(MarkedAnswer(p, *p.policy.answer));
  for (const CallEntry& entry : entries) {
    StructureList parts{p.gap};
    if (p.syntax.answer) {
      parts.push_back(Structure::Optional(
          Structure::Sequence({p.Markup(p.syntax.answer->open, p.syntax.answer->close), p.gap})));
    }
    if (!entry.pattern.empty()) {
      parts.push_back(Structure::Pattern(entry.pattern));
    } else if (!entry.bare) {
      parts.push_back(p.Markup(entry.marker));
    }
    parts.push_back(entry.rest);
    ways.push_back(Structure::Sequence(std::move(parts)));
  }
  return Structure::OneOf(std::move(ways));
}

// All text that a reader takes for content.
FreeText TextWithoutCalls(const CallParts& p) {
  FreeText text;
  if (p.syntax.form == CallForm::kFenced) {
    text.without_patterns.push_back(StrCat("Action:", kSpaces, "```json", kSpaces, "[\\[{]"));
  } else if (p.syntax.form == CallForm::kJson && p.syntax.closes.empty()) {
    text.without_patterns.push_back(StrCat(EscapedRegex(p.syntax.opens[0]), kSpaces, "[\\[{]"));
  } else {
    text.without.assign(p.syntax.opens.begin(), p.syntax.opens.end());
  }
  text.without.insert(text.without.end(), p.syntax.silent.begin(), p.syntax.silent.end());
  if (p.syntax.reasoning) {
    text.unlike.push_back(StrCat(kSpaces, EscapedRegex(p.syntax.reasoning->open), kAnything));
  }
  if (p.syntax.bare_calls) {
    for (const CallTool& tool : p.tools) {
      text.unlike.push_back(StrCat(kSpaces, "\\{", kSpaces, "\"name\"", kSpaces, ":", kSpaces, "\"",
                                   EscapedRegex(tool.name), "\"", kAnything));
    }
    text.unlike.push_back(StrCat(kSpaces, "\\{(?=", kAnything, "\"(name|tool_name)\")(?=",
                                 kAnything, "\"(parameters|arguments)\")", kAnything));
  }
  return text;
}

Structure Auto(const CallParts& p, const std::vector<CallEntry>& entries) {
  const FreeText text = TextWithoutCalls(p);
  StructureList ways{Structure::Text(text)};
  for (const CallEntry& entry : entries) {
    if (entry.bare) {
      ways.push_back(Structure::Sequence({p.gap, entry.rest}));
    } else if (!entry.pattern.empty()) {
      ways.push_back(
          Structure::Sequence({Structure::TextUntilPattern(text, entry.pattern), entry.rest}));
    } else {
      ways.push_back(
          Structure::Sequence({Structure::TextUntil(text, p.Encoded(entry.marker)), entry.rest}));
    }
  }
  // Texts between their own markers.
  for (size_t i = 0; i + 1 < p.syntax.silent.size(); i += 2) {
    const Structure marked = Structure::Sequence(
        {p.gap, p.Markup(p.syntax.silent[i]),
         Structure::TextUntil({.without = text.without}, p.Encoded(p.syntax.silent[i + 1]))});
    ways.push_back(marked);
    if (!p.syntax.answer) continue;
    for (const CallEntry& entry : entries) {
      ways.push_back(Structure::Sequence({marked, p.gap, p.Markup(entry.marker), entry.rest}));
    }
  }
  return Structure::OneOf(std::move(ways));
}

Structure WithThought(const CallParts& p, const Structure& answer) {
  if (!p.syntax.reasoning) return answer;
  const std::string close(p.syntax.reasoning->close);
  const Structure rest =
      Structure::Sequence({Structure::TextUntil({.without = {close}}, p.Encoded(close)), p.gap});
  if (p.policy.thinks_already) return Structure::Sequence({rest, answer});
  if (!p.policy.may_think) return answer;
  StructureList thoughts{Structure::Sequence({p.gap, p.Markup(p.syntax.reasoning->open), rest})};
  if (std::ranges::find(p.syntax.silent, p.syntax.reasoning->close) != p.syntax.silent.end()) {
    thoughts.push_back(Structure::Sequence({p.Markup(close), p.gap}));
  }
  return Structure::Sequence({Structure::Optional(Structure::OneOf(std::move(thoughts))), answer});
}

// Messages in channels. A call ends the answer: what follows it belongs to another one.
Structure Harmony(const CallParts& p) {
  const FreeText text{.without = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"}};
  const auto message = [&](std::string_view channel) {
    return Structure::Sequence({p.Markup("<|channel|>", channel, "<|message|>"),
                                Structure::TextUntil(text, p.Encoded("<|end|>")),
                                p.Markup("<|start|>assistant")});
  };
  const Structure kind =
      Structure::Optional(Structure::OneOf({Plain(" json"), p.Markup(" <|constrain|>json")}));
  StructureList last;
  for (const CallTool& tool : p.tools) {
    const std::string to = StrCat(" to=functions.", tool.name);
    last.push_back(Structure::Sequence(
        {Structure::OneOf({Structure::Sequence({Plain(to), p.Markup("<|channel|>commentary")}),
                           Structure::Sequence({p.Markup("<|channel|>commentary"), Plain(to)})}),
         kind, p.Markup("<|message|>"), tool.arguments}));
  }
  StructureList before;
  if (p.policy.may_think) before.push_back(message("analysis"));
  if (!p.required() && !p.tools.empty()) before.push_back(message("commentary"));
  if (!p.required()) {
    last.push_back(Structure::Sequence({p.Markup("<|channel|>final<|message|>"),
                                        p.policy.answer.value_or(Structure::Text(text))}));
  }
  Structure end = Structure::OneOf(std::move(last));
  if (before.empty()) return end;
  constexpr int32_t kMaxMessages = 16;
  return Structure::Sequence(
      {Structure::Repeat(Structure::OneOf(std::move(before)), 0, kMaxMessages), std::move(end)});
}

}  // namespace

ParameterTypes TypesOfParameters(const ToolList& tools) {
  ParameterTypes types;
  for (const auto& tool : tools) types.Add(tool->name, tool->parameters());
  return types;
}

StatusOr<CallStructure> MakeCallStructure(const CallWriting& writing, const ToolList& tools,
                                          const CallPolicy& policy) {
  CallParts parts(writing, tools, policy);
  WEFT_RETURN_IF_ERROR(parts.ReadTools(tools));
  CallStructure made;
  if (parts.syntax.form == CallForm::kHarmony) {
    made.structure = Harmony(parts);
    return made;
  }
  if (parts.syntax.form == CallForm::kGemma) {
    made.options.white_space = constraint::WhiteSpace::kCompact;
  } else if (parts.loose) {
    made.options.white_space = constraint::WhiteSpace::kAny;
  }
  std::vector<CallEntry> entries;
  if (!parts.tools.empty()) {
    WEFT_ASSIGN_OR_RETURN(entries, CallEntries(parts));
  }
  const bool is_held = parts.required() || policy.answer;
  made.structure = WithThought(parts, is_held ? Held(parts, entries) : Auto(parts, entries));
  return made;
}

}  // namespace weft
