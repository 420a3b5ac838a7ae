// What the grammars of calls in all formats are made of: the offered tools, the format's own
// markup, and the white space around it.
//
// A value; reading it, any thread.
#ifndef WEFT_ANSWER_CHAT_CALL_PARTS_H_
#define WEFT_ANSWER_CHAT_CALL_PARTS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/chat/call_grammar.h"
#include "answer/reply/syntax.h"
#include "base/status.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace weft {

struct CallTool {
  std::string name;
  nlohmann::ordered_json parameters;  // an object
  constraint::SchemaText schema;
  constraint::Structure arguments;  // as a JSON object
  std::string grammar;              // for the text that is its one parameter; may be empty
};

struct CallParameter {
  std::string key;
  bool required = false;
  unsigned types = ParameterTypes::kAny;
};

// A way for calls to begin, and what follows up to the end of the answer.
struct CallEntry {
  std::string marker;   // text
  std::string pattern;  // or a regular expression
  constraint::Structure rest;
  bool bare = false;  // at the start of the answer, without a marker
};

using StructureList = std::vector<constraint::Structure>;

struct CallParts {
  CallParts(const CallWriting& writing, const ToolList& offered, const CallPolicy& call_policy);
  // Fills `tools`. UNIMPLEMENTED names the one that cannot be called in this format.
  Status ReadTools(const ToolList& offered);

  bool ExampleHas(std::string_view text) const { return example.find(text) != example.npos; }
  bool required() const { return policy.choice == CallPolicy::Choice::kRequired; }

  // The format's own markup, with control tokens substituted.
  std::string Encoded(std::string_view text) const;
  template <typename... Pieces>
  constraint::Structure Markup(const Pieces&... pieces) const {
    return constraint::Structure::Literal(Encoded(StrCat(pieces...)));
  }
  // One or, if several calls are allowed, more, with `next` for each except the first.
  constraint::Structure OneOrMore(const constraint::Structure& first,
                                  const StructureList& next) const;
  // The parameters of a tool whose format writes them one by one; no key may contain a byte of
  // `unfit`.
  StatusOr<std::vector<CallParameter>> ParametersOf(const CallTool& tool,
                                                    std::string_view unfit) const;

  const ReplySyntax& syntax;
  const std::string_view example;
  const CallPolicy policy;
  const ParameterTypes types;
  const bool loose;  // ample white space, as in indented JSON
  const constraint::Structure gap, space;
  std::vector<CallTool> tools;

 private:
  Status ReadTool(const Tool& offered);
  constraint::ValueStyle StyleOfArguments() const;
  // The arguments of a tool that takes a text.
  constraint::Structure TextArguments(const CallTool& tool) const;

  std::vector<std::pair<TokenId, std::string>> controls_;
  size_t n_parameters_ = 0;  // in all tools
};

// The name of a tool or parameter, verbatim.
inline constraint::Structure Plain(std::string text) {
  return constraint::Structure::Literal(std::move(text));
}
// A regular expression that matches exactly this text.
std::string EscapedRegex(std::string_view text);
constraint::ValueStyle JsonCallStyle();
// What the tool's schema has at that path.
constraint::SchemaPart PartOf(const CallTool& tool, std::vector<std::string> path);

// The ways for calls to begin in the model's format. UNIMPLEMENTED as for ReadTools.
StatusOr<std::vector<CallEntry>> CallEntries(const CallParts& parts);
// The same for formats that write arguments as one JSON object.
std::vector<CallEntry> JsonCallEntries(const CallParts& parts);
// An array of such calls from after its opening bracket.
constraint::Structure JsonCallsAfterBracket(const CallParts& parts);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CALL_PARTS_H_
