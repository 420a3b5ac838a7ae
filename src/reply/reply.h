// What a model's reply is made of: reasoning, content, tool calls; and the parser that
// takes the generated text apart while it streams.
//
// A parser never loses or reorders text: what does not parse as reasoning or as a call
// becomes content, as it was written. The result, deltas of one kind joined, is the same
// however the text was cut into pieces.
//
//   auto parser = format->NewReplyParser(prompt, {.tools = true});
//   for (ReplyDelta& delta : parser->Push(text)) ...
//   for (ReplyDelta& delta : parser->Finish()) ...
//
// One object per reply; one thread at a time.
#ifndef WEFT_REPLY_REPLY_H_
#define WEFT_REPLY_REPLY_H_

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
  };
  Kind kind = Kind::kContent;
  std::string text;  // never empty for the kinds that have it
  int call = -1;     // 0 for the first call of the reply, and so on
  std::string name;  // of the function
  // The id that the model gave the call, where its format has ids; else empty and the
  // caller makes one up.
  std::string id;
};

struct ReplyOptions {
  // False: nothing is taken for a call, the markup stays visible. The caller sets it
  // when the request offers tools and does not forbid them.
  bool tools = false;
  // Calls of offered tools are also recognised in other shapes than the format's own; see
  // lenient_parser.h.
  bool lenient_calls = false;
  // False: reasoning is left in the content, with its tags.
  bool separate_reasoning = true;
  // What the control tokens read that stand in the text. Those that are no markup after all
  // are left out: nobody wrote them as text.
  std::vector<std::string> control_tokens;
};

class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  // The next generated text, control tokens written out.
  virtual std::vector<ReplyDelta> Push(std::string_view text) = 0;
  // The end of the reply: whatever was held back. A call that is not complete becomes
  // visible text; one whose beginning was already given out is completed as far as
  // valid JSON needs it.
  virtual std::vector<ReplyDelta> Finish() = 0;
};

}  // namespace weft

#endif  // WEFT_REPLY_REPLY_H_
