// How one model formats a conversation: its template, which renders messages and tools as prompt
// text, and the format of its replies, recognised from the template.
//
//   WEFT_ASSIGN_OR_RETURN(auto format, ChatFormat::Create(source, tokenizer));
//   WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, format->Render(request));
//   auto parser = format->NewReplyParser(prompt, {.tools = true});
//
// Immutable; safe for concurrent use. Create and Render need the stack size given in
// answer/chat/template.h.
#ifndef WEFT_ANSWER_CHAT_CHAT_FORMAT_H_
#define WEFT_ANSWER_CHAT_CHAT_FORMAT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/call_grammar.h"
#include "answer/chat/chat_context.h"
#include "answer/chat/conversation.h"
#include "answer/chat/own_reply.h"
#include "answer/chat/past_thoughts.h"
#include "answer/reply/reply.h"
#include "base/status.h"
#include "jinja/template.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weft {

// Whether the reply continues the last message, which must then be the assistant's.
enum class Continuation {
  kNone,
  kAuto,       // whatever that message ends with: its content, else its reasoning
  kContent,    // content, after its reasoning, even if content has not begun
  kReasoning,  // its reasoning; it has no content yet
};

struct ChatRequest {
  Conversation conversation;
  bool add_generation_prompt = true;
  // Unless this is kNone, add_generation_prompt is ignored.
  Continuation continuation = Continuation::kNone;
  // Further template variables, an object, e.g. enable_thinking, reasoning_effort.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // Counts where `variables` do not have the template's own variable for it.
  PastThoughts past_thoughts = PastThoughts::kDefault;
  RenderOptions render;
  // For the first messages: the replies that they are, as far as they are known.
  std::vector<OwnWords> own = {};
  // Replies keep their reasoning also where the template would drop it.
  bool keep_hidden_reasoning = false;
  // Texts that stand for pictures in the messages. Where the template writes its own text for a
  // picture, the prompt has this one instead.
  std::vector<std::string> pictures = {};
};

struct ChatPrompt {
  std::string text;
  // The prompt ends inside a reasoning block: the reply starts with reasoning, or continues it.
  bool reasoning_is_open = false;
  // The tools that the reply may call: a parser may need their schemas.
  ToolList tools;
  // Where `text` has replies as the model wrote them.
  std::vector<TokenSpan> own = {};
};

// What ends an answer, besides the vocabulary's own end tokens.
struct AnswerEnds {
  std::vector<std::string> texts;
  std::vector<TokenId> tokens;
};

// The texts that open and close a thought in a reply, and the text that closes it so that the
// answer must follow.
struct ThoughtMarks {
  std::string open, close, answer;
};

class ChatFormat {
 public:
  // If `template_source` is empty, uses the built-in "chatml" template. Probes the template's
  // capabilities by rendering small conversations.
  static StatusOr<std::shared_ptr<const ChatFormat>> Create(
      std::string template_source, std::shared_ptr<const Tokenizer> tokenizer);
  virtual ~ChatFormat() = default;

  // INVALID_ARGUMENT says which message cannot be continued, or what the template itself rejects.
  // Tools that the template cannot express are put into the system message in the
  // generic form of call_text.h.
  virtual StatusOr<ChatPrompt> Render(const ChatRequest& request) const = 0;
  virtual std::unique_ptr<ReplyParser> NewReplyParser(const ChatPrompt& prompt,
                                                      const ReplyOptions& options) const = 0;

  // The control tokens that a parser needs to see in a reply's text: those in this format's
  // markers, and those in the turn's stop strings. The ids go into
  // TurnOptions::shown_control_tokens, the texts into ReplyOptions.
  struct ControlTokens {
    std::vector<TokenId> ids;
    std::vector<std::string> texts;
  };
  virtual ControlTokens ControlTokensFor(const std::vector<std::string>& stop_strings) const = 0;

  // The replies allowed when calling `tools` under `policy`: each call is to one of them, in this
  // format, with arguments that fit its schema. UNIMPLEMENTED, here or from Constraint::Structured,
  // says which tool cannot be held to its schema, and why.
  virtual StatusOr<CallStructure> CallsOf(const ToolList& tools,
                                          const CallPolicy& policy) const = 0;

  // What the template writes between an answer and the next question, unless that begins with a
  // token that ends answers anyway: at most one token or text.
  virtual const AnswerEnds& ends() const = 0;

  virtual const ChatTemplate& chat_template() const = 0;
  // "hermes", "qwen-xml", "seed-xml", "minimax-xml", "hunyuan-xml", "minicpm-xml", "llama3",
  // "mistral", "gemma4", "lfm2", "harmony", "deepseek", "functools", "generic" or another name of
  // answer/reply/syntax.cc; for logs and /props.
  virtual std::string_view reply_format() const = 0;
  // How many letters the template requires of a call's id; 0: any id will do.
  virtual int call_id_length() const = 0;
  // The template itself renders tools; otherwise the generic form is used.
  virtual bool template_has_tools() const = 0;
  // Replies can contain separable reasoning.
  virtual bool has_reasoning() const = 0;
  // The template's variable for reasoning before the last user message, if it has one.
  virtual std::optional<PastThoughtsVariable> past_thoughts() const = 0;
  // Such reasoning is shown unless the variable clears it.
  virtual bool shows_past_thoughts() const = 0;
  // REQUIRES: has_reasoning().
  virtual ThoughtMarks thought_marks() const = 0;
  // The text that ends a call of the format's own; empty if nothing does.
  virtual std::string call_end() const = 0;
};

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CHAT_FORMAT_H_
