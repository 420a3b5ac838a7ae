// Renders a conversation so that the model's own replies stand in it as they were generated.
//
// Where a template writes a reply, and where that ends, differs from one to the next, and with the
// messages around it. So the conversation is rendered with a mark in place of each reply's text.
// Then the text from where the reply's prompt ended to where the message ends, found by the marks,
// gives way to the reply. A reply stays only if everything before it is the prompt that it
// continued, to the byte: a prompt never contains what was not computed in that place.
//
//   OwnPrompt own(request, rules);
//   while (own.has_marks()) {
//     ... render own.messages() ...
//     if (own.Place(&text, &spans)) return text;  // otherwise there are fewer marks now
//   }
//   ... render own.messages() ...
//
// One thread. The request must outlive it.
#ifndef WEFT_ANSWER_CHAT_OWN_PROMPT_H_
#define WEFT_ANSWER_CHAT_OWN_PROMPT_H_

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_context.h"
#include "answer/chat/conversation.h"
#include "answer/chat/own_reply.h"

namespace weft {

struct OwnPromptRules {
  // What the template may write after an answer.
  std::vector<std::string> ends;
  // Those of them that cannot be part of a message.
  std::vector<std::string> control_ends;
  // The marks around reasoning; empty if there are none.
  std::string_view open, close;
  // A reply keeps its reasoning in conversations in which the template would drop it.
  bool keep_hidden_reasoning = false;
};

class OwnPrompt {
 public:
  // Each of `messages` with words in `own` that it may be given; `n_fixed` messages at the end stay
  // as they are.
  OwnPrompt(const std::vector<const ChatMessage*>& messages, const std::vector<OwnWords>& own,
            size_t n_fixed, OwnPromptRules rules);

  bool has_marks() const { return !marked_.empty(); }
  // All marked messages say what the client sent, in the replies' own words.
  void DropMarks();
  const std::vector<const ChatMessage*>& messages() const { return messages_; }

  // `text` is the rendering of messages(). True: it is now the prompt, and `spans` say where the
  // replies are. False: it is unchanged, and messages() must be rendered again.
  bool Place(std::string* text, std::vector<TokenSpan>* spans);

 private:
  struct Marked {
    size_t message;
    const OwnReply* reply;
    std::string mark;            // in place of content and arguments
    std::string reasoning_mark;  // empty if there is no reasoning
  };
  // Part of a rendering: a reply's first mark, and the end of its message.
  struct Region {
    size_t first = 0, end = 0;
  };

  void Mark(size_t message, const OwnReply& reply);
  void Unmark(size_t i);
  bool Find(const Marked& marked, std::string_view text, size_t from, Region* region) const;
  bool IsBare(std::string_view text) const;
  // Lets `out`, the text before a message's mark, become the prompt that the reply continued.
  bool EndAtPrompt(const PromptEnd& prompt, std::string* out) const;

  const OwnPromptRules rules_;
  std::vector<const ChatMessage*> messages_;
  std::vector<const ChatMessage*> plain_;  // the same without marks
  std::deque<ChatMessage> made_;           // those of them that are not the request's
  std::vector<Marked> marked_;             // ascending
  int attempts_ = 0;
};

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_OWN_PROMPT_H_
