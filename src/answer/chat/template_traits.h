// A chat template's capabilities, found by rendering small conversations with it.
//
// Real templates differ in what they accept (arguments as an object or as text, null content) and
// in what they silently drop (tools, calls, results, the system message). Dropped items have to be
// expressed in another way.
//
// Pure functions; any thread with the stack size given in answer/chat/template.h.
#ifndef WEFT_ANSWER_CHAT_TEMPLATE_TRAITS_H_
#define WEFT_ANSWER_CHAT_TEMPLATE_TRAITS_H_

#include <optional>
#include <string>

#include "answer/chat/past_thoughts.h"
#include "answer/reply/syntax.h"
#include "jinja/template.h"

namespace weft {

struct TemplateTraits {
  bool system = false;  // shows system messages
  // Also if the last message is the assistant's; some templates show them only if the last message
  // is the user's.
  bool system_before_answer = false;
  bool developer = false;  // accepts the role "developer"
  bool parts = false;      // accepts content only as a list of parts
  // Its output for a part {"type": "image"} between two texts of a user; may be empty.
  std::string picture = {};
  bool tools = false;             // shows the offered tools
  bool omits_no_tools = false;    // without tools, the variable must be absent
  bool calls = false;             // shows earlier calls
  bool results = false;           // shows results of tools
  bool several_calls = false;     // shows more than one call of a message
  bool string_arguments = false;  // wants arguments as text
  bool null_content = false;      // accepts null beside calls; otherwise ""
  bool short_ids = false;         // accepts only call ids of 9 letters and digits
  enum class Reasoning {
    kDropped,
    kReasoningContent,  // message.reasoning_content
    kThinking,          // message.thinking
    kInline,            // in the content, between the reply format's markers
  };
  Reasoning reasoning = Reasoning::kDropped;
  // The variable with which reasoning before the last user message is shown, and without which it
  // is not.
  std::optional<PastThoughtsVariable> past_thoughts;
  // It is shown, with that variable or because the template always shows it.
  bool shows_past_thoughts = false;
  // The text between an answer and the next question; empty if unknown.
  std::string after_answer;
  // How the template writes two calls (one if it shows no more), of kProbedTool and kProbedOther
  // with the single argument kProbedValue, including the text around them. Empty if it shows none.
  std::string two_calls;
};

inline constexpr char kProbedTool[] = "weft_probe_tool";
inline constexpr char kProbedOther[] = "weft_probe_other";
inline constexpr char kProbedKey[] = "weft_probe_key";
inline constexpr char kProbedValue[] = "weft-probe-value";

// FAILED_PRECONDITION for a template that needs more than a hundredth of RenderLimits for a
// conversation of two short messages: with longer ones every request would be an expensive failure.
// A template that rejects them is no error here; it tells each request what it wants.
Status CheckRenderCost(const ChatTemplate& chat_template, const std::string& bos,
                       const std::string& eos);

// `bos` and `eos` are the values the template receives for them.
TemplateTraits ProbeTemplate(const ChatTemplate& chat_template, const ReplySyntax& syntax,
                             const std::string& bos, const std::string& eos);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_TEMPLATE_TRAITS_H_
