// Chat templates: the Jinja programs shipped with models, which turn a conversation into text in
// the form the model was trained on.
//
// A template is untrusted code. It runs sandboxed and bounded: it sees only what it is given,
// changes nothing but its own variables and lists (append, pop), reads no files, and fails if it
// takes too many steps, too much memory, or recurses too deep.
//
//   WEFT_ASSIGN_OR_RETURN(auto chat, ChatTemplate::Parse(source));
//   WEFT_ASSIGN_OR_RETURN(std::string prompt, chat->Render(context, {}));
//
// A ChatTemplate is immutable and safe for concurrent use; the calling thread needs 2 MiB of stack
// (8 MiB under a sanitizer).
#ifndef WEFT_JINJA_TEMPLATE_H_
#define WEFT_JINJA_TEMPLATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace weft {

namespace jinja {
struct DictObject;
class Meter;
struct Program;
}  // namespace jinja

struct RenderLimits {
  // A step is about one expression, or 32 bytes of text; a long conversation takes a few hundred
  // thousand.
  uint64_t max_steps = 50'000'000;
  // Held at one time: variables, strings, the output.
  size_t max_bytes = size_t{256} << 20;
};

struct RenderOptions {
  // What strftime_now() shows: seconds since 1970 on the local wall clock, i.e. with the time zone
  // applied. Absent: the current local time.
  std::optional<int64_t> wall_clock_s;
  RenderLimits limits;
};

// The wall clock time for a rendering.
int64_t WallClock(const RenderOptions& options);

class ChatTemplate {
 public:
  // Errors name line and column. Unknown filters and tests are errors only when a rendering reaches
  // them.
  static StatusOr<std::shared_ptr<const ChatTemplate>> Parse(std::string source);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // `context` is an object: messages, tools, add_generation_prompt, bos_token, eos_token and
  // whatever else the template may use. It must not change meanwhile. Errors that the template
  // raises (raise_exception) are INVALID_ARGUMENT with exactly the template's text; other errors
  // name their position in the template. Exceeding a limit: RESOURCE_EXHAUSTED.
  // `add` may set variables that are not JSON, which take precedence.
  using AddVariables = std::function<void(jinja::DictObject* variables, jinja::Meter* meter)>;
  StatusOr<std::string> Render(const nlohmann::ordered_json& context, const RenderOptions& options,
                               const AddVariables& add = nullptr) const;

  const std::string& source() const;
  // Whether the template mentions a variable of this name anywhere: a hint about what it can use
  // (tools, enable_thinking).
  bool Mentions(std::string_view name) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program);

  const std::shared_ptr<const jinja::Program> program_;
};

}  // namespace weft

#endif  // WEFT_JINJA_TEMPLATE_H_
