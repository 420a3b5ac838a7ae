// What a chat template can express, found out by rendering small conversations with it.
//
// Templates of the field differ in what they take (arguments as an object or as text,
// null content) and in what they silently leave out (tools, calls, results, the system
// message). What is left out has to be said in another way.
//
// Pure functions; any thread with the stack that chat/template.h asks for.
#ifndef WEFT_CHAT_TEMPLATE_TRAITS_H_
#define WEFT_CHAT_TEMPLATE_TRAITS_H_

#include <string>

#include "chat/template.h"
#include "reply/syntax.h"

namespace weft {

struct TemplateTraits {
  bool system = false;  // shows system messages
  // Shows them also where the last message is the assistant's; some have them beside a last
  // message of the user's alone.
  bool system_before_answer = false;
  bool developer = false;         // knows the role "developer"
  bool parts = false;             // takes content as a list of parts alone
  bool tools = false;             // shows the tools that are offered
  bool omits_no_tools = false;    // without tools, the variable must not be there
  bool calls = false;             // shows earlier calls
  bool results = false;           // shows results of tools
  bool several_calls = false;     // shows more than one call of a message
  bool string_arguments = false;  // wants arguments as text
  bool null_content = false;      // takes null beside calls; else ""
  bool short_ids = false;         // refuses ids of calls but those of 9 letters and digits
  enum class Reasoning {
    kDropped,
    kReasoningContent,  // message.reasoning_content
    kThinking,          // message.thinking
    kInline,            // in the content, between the markers of the replies
  };
  Reasoning reasoning = Reasoning::kDropped;
  // What stands between an answer and the next question; empty where that cannot be told.
  std::string after_answer;
  // How the template writes two calls (one, where it shows no more), of kProbedTool and
  // kProbedOther with the one argument kProbedValue; with what stands around them. Empty where it
  // shows none.
  std::string two_calls;
};

inline constexpr char kProbedTool[] = "weft_probe_tool";
inline constexpr char kProbedOther[] = "weft_probe_other";
inline constexpr char kProbedKey[] = "weft_probe_key";
inline constexpr char kProbedValue[] = "weft-probe-value";

// `bos` and `eos` are what the template is given for them.
TemplateTraits ProbeTemplate(const ChatTemplate& chat_template, const ReplySyntax& syntax,
                             const std::string& bos, const std::string& eos);

}  // namespace weft

#endif  // WEFT_CHAT_TEMPLATE_TRAITS_H_
