#include "answer/tool_choice.h"

#include <algorithm>

namespace weft::serve {

ToolList Callable(const ToolList& tools, const ToolChoice& choice) {
  if (choice.only.empty()) return tools;
  ToolList callable;
  for (const auto& tool : tools) {
    if (std::ranges::count(choice.only, tool->name) > 0) callable.push_back(tool);
  }
  return callable;
}

}  // namespace weft::serve
