// For tests of reply parsers: parses a reply and prints the result.
#ifndef WEFT_ANSWER_REPLY_REPLY_TEST_UTIL_H_
#define WEFT_ANSWER_REPLY_REPLY_TEST_UTIL_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/reply/parameter_types.h"
#include "answer/reply/syntax.h"
#include "base/check.h"
#include "nlohmann/json.hpp"

namespace weft {

// Reads tools in OpenAI's form.
inline ParameterTypes TypesOf(const nlohmann::ordered_json& tools) {
  ParameterTypes types;
  for (const auto& tool : tools) {
    const auto& function = tool["function"];
    const auto parameters = function.find("parameters");
    types.Add(function["name"].get_ref<const std::string&>(),
              parameters == function.end() ? nullptr : &*parameters);
  }
  return types;
}

// A reply's deltas, consecutive ones of one kind joined, one per line: R reasoning, C content, <
// call with name and id, a arguments, > its end. Also checks that deltas are well-formed: non-empty
// texts, calls in order, with arguments that are JSON objects.
class ReplyListener {
 public:
  void Take(const std::vector<ReplyDelta>& deltas) {
    for (const ReplyDelta& delta : deltas) Take(delta);
  }
  // Only a reply that was cut may end within a call, which is then printed without its end.
  std::string Finish(ReplyEnd end = ReplyEnd::kWhole) {
    WEFT_CHECK(!in_call_ || end == ReplyEnd::kCut, "a call has not ended");
    FlushText();
    return in_call_ ? out_ + "a" + arguments_ + "\n" : out_;
  }
  int n_calls() const { return n_calls_; }

 private:
  void Take(const ReplyDelta& delta) {
    using Kind = ReplyDelta::Kind;
    switch (delta.kind) {
      case Kind::kReasoning:
      case Kind::kContent:
        WEFT_CHECK(!in_call_ && !delta.text.empty(), "a text within a call or empty");
        if (delta.kind != kind_) FlushText();
        kind_ = delta.kind;
        text_ += delta.text;
        break;
      case Kind::kCallBegin:
        WEFT_CHECK(!in_call_ && delta.call == n_calls_ && !delta.name.empty(),
                   "calls out of order");
        FlushText();
        in_call_ = true;
        ++n_calls_;
        out_ += "<" + delta.name + (delta.id.empty() ? "" : " #" + delta.id) + "\n";
        break;
      case Kind::kCallArguments:
        WEFT_CHECK(in_call_ && delta.call == n_calls_ - 1 && !delta.text.empty(),
                   "arguments outside a call or empty");
        arguments_ += delta.text;
        break;
      case Kind::kCallEnd: {
        WEFT_CHECK(in_call_ && delta.call == n_calls_ - 1, "an end without its call");
        in_call_ = false;
        const auto parsed = nlohmann::json::parse(arguments_, nullptr, false);
        WEFT_CHECK(parsed.is_object(), "arguments are no object");
        out_ += "a" + arguments_ + "\n>\n";
        arguments_.clear();
        break;
      }
      case Kind::kEnd:
        WEFT_CHECK(false, "a parser gives no end");
    }
  }
  void FlushText() {
    if (text_.empty()) return;
    out_ += (kind_ == ReplyDelta::Kind::kReasoning ? "R" : "C") + text_ + "\n";
    text_.clear();
  }

  ReplyDelta::Kind kind_ = ReplyDelta::Kind::kContent;
  std::string text_, arguments_, out_;
  bool in_call_ = false;
  int n_calls_ = 0;
};

// Parses the pieces and prints the result.
inline std::string TakenApart(ReplyParser* parser, std::span<const std::string_view> pieces,
                              ReplyEnd end = ReplyEnd::kWhole) {
  ReplyListener listener;
  for (const std::string_view piece : pieces) listener.Take(parser->Push(piece));
  listener.Take(parser->Finish(end));
  return listener.Finish(end);
}

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_REPLY_TEST_UTIL_H_
