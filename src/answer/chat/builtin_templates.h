// Built-in chat templates by name, for models without one.
#ifndef WEFT_ANSWER_CHAT_BUILTIN_TEMPLATES_H_
#define WEFT_ANSWER_CHAT_BUILTIN_TEMPLATES_H_

#include <span>
#include <string_view>

#include "base/status.h"

namespace weft {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;  // Jinja
};

// Templates generated from a table of formats; included in BuiltinTemplates.
std::span<const BuiltinTemplate> GeneratedTemplates();
// All of them, in the order in which they are listed to users. Lives forever; any thread.
std::span<const BuiltinTemplate> BuiltinTemplates();

// The source of the named template; an error lists the valid names.
StatusOr<std::string_view> FindBuiltinTemplate(std::string_view name);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_BUILTIN_TEMPLATES_H_
