// What a reply may be that calls tools or has an answer of a given form: a structure
// (constraint/structure.h) in which every call is one of an offered tool, with arguments that its
// schema allows, as the model's own template writes calls; see docs/CHAT.md.
//
// Pure functions; any thread.
#ifndef WEFT_CHAT_CALL_GRAMMAR_H_
#define WEFT_CHAT_CALL_GRAMMAR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "constraint/constraint.h"
#include "constraint/structure.h"
#include "nlohmann/json.hpp"

namespace weft {

struct ReplySyntax;

struct CallPolicy {
  enum class Choice : uint8_t {
    kAuto,      // text, or text and calls
    kRequired,  // calls; offer one tool alone where a certain one must be called
  };
  Choice choice = Choice::kAuto;
  bool parallel = true;  // else at most one call
  // What stands in the place of free text; with kRequired, nowhere.
  std::optional<constraint::Structure> answer = {};
  // Reasoning may come first, where the format has it. It is free.
  bool may_think = true;
  bool thinks_already = false;  // the prompt ends within it
};

// For Constraint::Structured.
struct CallStructure {
  constraint::Structure structure;
  constraint::ConstraintOptions options;
};

// How calls are written: the reader's syntax, two calls as the template (or CallsText) writes
// them, of kProbedTool and kProbedOther, and the control tokens that stand in its markers.
struct CallWriting {
  const ReplySyntax& syntax;
  std::string_view example;
  std::vector<std::pair<TokenId, std::string>> controls;
};

// `tools` are those of a request, checked. UNIMPLEMENTED says which tool cannot be called so,
// and what of it; so does Constraint::Structured of what schemas say.
StatusOr<CallStructure> MakeCallStructure(const CallWriting& writing,
                                          const nlohmann::ordered_json& tools,
                                          const CallPolicy& policy);

}  // namespace weft

#endif  // WEFT_CHAT_CALL_GRAMMAR_H_
