// Which tools an answer may call, and whether it must. Values and pure functions; any thread.
#ifndef WEFT_ANSWER_TOOL_CHOICE_H_
#define WEFT_ANSWER_TOOL_CHOICE_H_

#include <map>
#include <string>
#include <vector>

#include "chat/conversation.h"

namespace weft::serve {

struct ToolChoice {
  bool calls_allowed = true;  // false: call markup stays text
  bool must_call = false;
  bool strict = false;       // some tool requires its calls to fit its schema
  bool single_call = false;  // at most one call per answer
  // The grammars of texts that functions take, by the names the model knows.
  std::map<std::string, std::string> grammars = {};
  // The functions that may be called, by the names the model knows; empty: all offered ones.
  std::vector<std::string> only;

  // Whether calls must have a form, or must be there.
  bool insists() const { return must_call || strict || !only.empty(); }
};

// The subset of a request's tools that may be called.
ToolList Callable(const ToolList& tools, const ToolChoice& choice);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_TOOL_CHOICE_H_
