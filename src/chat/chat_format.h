// How one model holds a conversation: its template, which renders messages and tools to
// the text of a prompt, and the format of its replies, recognised from the template.
//
//   WEFT_ASSIGN_OR_RETURN(auto format, ChatFormat::Create(source, tokenizer));
//   WEFT_ASSIGN_OR_RETURN(ChatPrompt prompt, format->Render(request));
//   auto parser = format->NewReplyParser(prompt, {.tools = true});
//
// Immutable; any thread, many at once. Create and Render need the stack that
// chat/template.h says.
#ifndef WEFT_CHAT_CHAT_FORMAT_H_
#define WEFT_CHAT_CHAT_FORMAT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/call_grammar.h"
#include "chat/template.h"
#include "nlohmann/json.hpp"
#include "reply/reply.h"
#include "tokenizer/tokenizer.h"

namespace weft {

// Whether the reply goes on where the last message ends, which is then the assistant's.
enum class Continuation {
  kNone,
  kAuto,       // in what that message ends with: its content, else its reasoning
  kContent,    // behind its reasoning, also where no content is begun
  kReasoning,  // in its reasoning, behind which there is no content
};

struct ChatRequest {
  // In the shape of OpenAI's chat completions: role, content (text, null or parts of
  // type text), reasoning_content, tool_calls, tool_call_id, name.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  // [{"type":"function","function":{"name","description","parameters"}}]; null or empty: none.
  nlohmann::ordered_json tools;
  bool add_generation_prompt = true;
  // But for kNone, add_generation_prompt is not looked at.
  Continuation continuation = Continuation::kNone;
  // Further variables of the template, e.g. enable_thinking, reasoning_effort.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  RenderOptions render;
};

struct ChatPrompt {
  std::string text;
  // The prompt ends inside a reasoning block: the reply begins, or goes on, with reasoning.
  bool reasoning_is_open = false;
  // Those of the request: a parser may need their schemas.
  nlohmann::ordered_json tools;
};

// What ends an answer beside the tokens of the vocabulary that are made for it.
struct AnswerEnds {
  std::vector<std::string> texts;
  std::vector<TokenId> tokens;
};

// What begins and ends a thought in the text of a reply, and what ends it so that the answer
// must follow.
struct ThoughtMarks {
  std::string open, close, answer;
};

class ChatFormat {
 public:
  // `template_source` empty: the builtin "chatml" template. What the template can express
  // is found out by rendering small conversations.
  static StatusOr<std::shared_ptr<const ChatFormat>> Create(
      std::string template_source, std::shared_ptr<const Tokenizer> tokenizer);
  virtual ~ChatFormat() = default;

  // INVALID_ARGUMENT says which message or tool is misshapen, or what the template
  // itself refuses. Tools that the template cannot express are put into the system
  // message in a documented generic form (docs/CHAT.md).
  virtual StatusOr<ChatPrompt> Render(const ChatRequest& request) const = 0;
  virtual std::unique_ptr<ReplyParser> NewReplyParser(const ChatPrompt& prompt,
                                                      const ReplyOptions& options) const = 0;

  // The control tokens that a parser needs to see in the text of a reply: those of this
  // format's markers, and those that the stop strings of a turn are to be found by. They go
  // into TurnOptions::shown_control_tokens, and their texts into ReplyOptions.
  struct ControlTokens {
    std::vector<TokenId> ids;
    std::vector<std::string> texts;
  };
  virtual ControlTokens ControlTokensFor(const std::vector<std::string>& stop_strings) const = 0;

  // What replies may be that call `tools` (those of the request) as `policy` wants: each call is
  // of one of them, in this format, with arguments that fit its schema. UNIMPLEMENTED, here or
  // from Constraint::Structured, says which tool cannot be held to its schema, and why.
  virtual StatusOr<CallStructure> CallsOf(const nlohmann::ordered_json& tools,
                                          const CallPolicy& policy) const = 0;

  // What the template puts between an answer and the next question, where that begins with no
  // token that ends answers anyway: at most one token or text.
  virtual const AnswerEnds& ends() const = 0;

  virtual const ChatTemplate& chat_template() const = 0;
  // "hermes", "qwen-xml", "seed-xml", "minimax-xml", "llama3", "mistral", "gemma4",
  // "lfm2", "harmony", "deepseek", "functools" or "generic"; for logs and /props.
  virtual std::string_view reply_format() const = 0;
  // The template itself renders tools; else the generic form is used.
  virtual bool template_has_tools() const = 0;
  // Replies can contain reasoning that is told apart.
  virtual bool has_reasoning() const = 0;
  // REQUIRES: has_reasoning()
  virtual ThoughtMarks thought_marks() const = 0;
};

}  // namespace weft

#endif  // WEFT_CHAT_CHAT_FORMAT_H_
