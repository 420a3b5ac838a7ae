// Constrains replies that call tools or have an answer of a given form: a structure
// (constraint/structure.h) in which every call is to an offered tool, has arguments that its schema
// allows, and is written as the model's template writes calls.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_CHAT_CALL_GRAMMAR_H_
#define WEFT_ANSWER_CHAT_CALL_GRAMMAR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/chat/conversation.h"
#include "answer/reply/parameter_types.h"
#include "base/status.h"
#include "base/tokens.h"
#include "constraint/constraint.h"
#include "constraint/structure.h"

namespace weft {

struct ReplySyntax;

struct CallPolicy {
  enum class Choice : uint8_t {
    kAuto,      // text, or text and calls
    kRequired,  // calls; to require a certain tool, offer only that one
  };
  Choice choice = Choice::kAuto;
  bool parallel = true;  // false: at most one call
  // Tools whose one parameter is a text, by name: the grammar of that text.
  std::map<std::string, std::string> grammars = {};
  // Replaces free text; with kRequired, unused.
  std::optional<constraint::Structure> answer = {};
  // Free reasoning may come first, if the format has it.
  bool may_think = true;
  bool thinks_already = false;  // the prompt ends within reasoning
};

// Arguments for Constraint::Structured.
struct CallStructure {
  constraint::Structure structure;
  constraint::ConstraintOptions options;
};

// How calls are written: the reader's syntax, two example calls (of kProbedTool and kProbedOther)
// as written by the template or CallsText, and the control tokens in its markers.
struct CallWriting {
  const ReplySyntax& syntax;
  std::string_view example;
  std::vector<std::pair<TokenId, std::string>> controls;
};

// UNIMPLEMENTED names the tool that cannot be constrained, and why; Constraint::Structured does the
// same for the contents of schemas.
StatusOr<CallStructure> MakeCallStructure(const CallWriting& writing, const ToolList& tools,
                                          const CallPolicy& policy);
// For the parser of replies that call `tools`.
ParameterTypes TypesOfParameters(const ToolList& tools);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CALL_GRAMMAR_H_
