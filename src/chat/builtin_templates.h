// Chat templates by name, for models that bring none.
#ifndef WEFT_CHAT_BUILTIN_TEMPLATES_H_
#define WEFT_CHAT_BUILTIN_TEMPLATES_H_

#include <span>
#include <string_view>

#include "base/status.h"

namespace weft {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;  // Jinja
};

// Those that are made from a table of formats; a part of the next.
std::span<const BuiltinTemplate> GeneratedTemplates();
// All of them, in the order they are listed to a user. Lives forever; any thread.
std::span<const BuiltinTemplate> BuiltinTemplates();

// The source of the template of this name; the error lists the names there are.
StatusOr<std::string_view> FindBuiltinTemplate(std::string_view name);

}  // namespace weft

#endif  // WEFT_CHAT_BUILTIN_TEMPLATES_H_
