// Reply formats: how reasoning and calls are marked in generated text. Data only; recognised from
// the chat template, which contains the model's own markers because it renders earlier turns.
//
// Immutable; any thread.
#ifndef WEFT_ANSWER_REPLY_SYNTAX_H_
#define WEFT_ANSWER_REPLY_SYNTAX_H_

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "answer/reply/call_syntax.h"
#include "answer/reply/parameter_types.h"
#include "answer/reply/reply.h"

namespace weft {

// The text between the markers of calls.
enum class CallForm {
  kJson,      // objects, or an array of them; a tagged call if there is a TagSyntax
  kMistral,   // an array of objects, or NAME[CALL_ID]ID[ARGS]{...}
  kGemma,     // call:NAME{...}
  kPython,    // [NAME(a=1), ...]
  kDeepSeek,  // NAME, a separator and an object, which older models fence
  kHarmony,   // messages in channels
  kTagged,    // NAME and tagged parameters, directly after the marker
  kKimi,      // functions.NAME:INDEX, a separator and an object
  kFenced,    // an array of objects in a fence
};

struct ReasoningMarkers {
  std::string_view open, close;
};

// A reply of several messages, each of which says first whom it is for: `open`, a name, `close`.
struct Addresses {
  std::string_view open, close;
  std::string_view self;  // the name that reasoning is for
};

// What an answer's text is between, and what may follow it.
struct AnswerMarkers {
  std::string_view open, close, after;
};

struct ReplySyntax {
  std::string_view name;
  CallForm form = CallForm::kJson;
  // A call begins after any of these: the marker of calls, and the text that follows it, for models
  // that omit the marker.
  std::vector<std::string_view> opens;
  std::vector<std::string_view> closes;  // may follow a call
  std::vector<std::string_view> silent;  // markup around text that carries no meaning of its own
  // A call may also begin without a marker at the start of the reply.
  bool bare_calls = false;
  int call_id_length = 0;  // letters that the template requires of a call's id; 0: any id will do
  std::optional<TagSyntax> tags;
  // All tagged calls of a reply are between one pair of markers.
  bool one_block = false;
  std::optional<ReasoningMarkers> reasoning;
  std::optional<Addresses> addresses;
  std::optional<AnswerMarkers> answer;
};

// Recognises the markers in `template_source`.
ReplySyntax RecognizeReplySyntax(std::string_view template_source);

// The markers that a parser of `syntax` looks for.
std::vector<std::string_view> MarkersOf(const ReplySyntax& syntax);

// `reasoning_is_open`: the prompt ends within reasoning.
std::unique_ptr<ReplyParser> MakeReplyParser(std::shared_ptr<const ReplySyntax> syntax,
                                             ParameterTypes types, const ReplyOptions& options,
                                             bool reasoning_is_open);

// For CallForm::kHarmony, where every message has a header; see harmony.cc.
std::unique_ptr<ReplyParser> MakeHarmonyParser(const ReplyOptions& options);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_SYNTAX_H_
