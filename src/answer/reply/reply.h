// The parts of a model's reply (reasoning, content, tool calls), and the parser that splits
// generated text into them while it streams.
//
// A parser never loses or reorders text: text that does not parse as reasoning or as a call becomes
// content, unchanged. The result, after joining deltas of one kind, does not depend on how the text
// was cut into pieces.
//
//   auto parser = format->NewReplyParser(prompt, {.tools = true});
//   for (ReplyDelta& delta : parser->Push(text)) ...
//   for (ReplyDelta& delta : parser->Finish(ReplyEnd::kWhole)) ...
//
// One object per reply; one thread at a time.
#ifndef WEFT_ANSWER_REPLY_REPLY_H_
#define WEFT_ANSWER_REPLY_REPLY_H_

#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct ReplyDelta {
  enum class Kind {
    kReasoning,      // text
    kContent,        // text
    kCallBegin,      // call, name; arguments follow
    kCallArguments,  // call, text: the next piece of the arguments' JSON object
    kCallEnd,        // call; its arguments, joined, are one valid JSON object
    kEnd,            // the last piece of an answer (answer/answer.h); parsers give none
  };
  Kind kind = Kind::kContent;
  std::string text;  // never empty for kinds that have text
  int call = -1;     // 0 for the first call of the reply, and so on
  std::string name;  // the function
  // The id that the model gave the call, if its format has ids; otherwise empty, and the caller
  // makes one up.
  std::string id;
};

struct ReplyOptions {
  // False: no calls are recognised and their markup stays visible. Set it if the request offers
  // tools and does not forbid them.
  bool tools = false;
  // Also recognise calls of offered tools in other shapes than the format's own; see
  // lenient_parser.h.
  bool lenient_calls = false;
  // False: reasoning stays in the content, with its tags.
  bool separate_reasoning = true;
  // The texts of the control tokens that may occur in the reply. Those that turn out not to be
  // markup are removed: the model did not write them as text.
  std::vector<std::string> control_tokens;
};

// How the text of a reply ends.
enum class ReplyEnd {
  kWhole,  // where the model ended it
  kCut,    // before that, by a limit
};

class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  // The next generated text, including the text of control tokens.
  virtual std::vector<ReplyDelta> Push(std::string_view text) = 0;
  // Ends the reply and returns what was held back. A call that the model left incomplete becomes
  // visible text; if its beginning was already emitted, it is completed to valid JSON. A call that
  // was cut is neither text nor whole: it gets no kCallEnd, and what was not emitted is dropped.
  virtual std::vector<ReplyDelta> Finish(ReplyEnd end) = 0;
};

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_REPLY_H_
