// Turns a request that an API has read into a reply: renders, encodes, submits, and watches whether
// the client leaves.
#ifndef WEFT_API_CHAT_TURN_H_
#define WEFT_API_CHAT_TURN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_rule.h"
#include "answer/prompt_rows.h"
#include "answer/tool_choice.h"
#include "api/fields/session_name.h"
#include "api/fields/support.h"
#include "api/prompt_marks.h"
#include "api/reply_stream.h"
#include "async/task.h"
#include "base/mutex.h"
#include "base/status.h"
#include "chat/chat_format.h"
#include "host/host.h"
#include "http/http.h"

namespace weft::serve {

// The generations of one request, which are cancelled when its client leaves. Used by its handler.
class RequestTurns {
 public:
  explicit RequestTurns(HttpResponder& responder);
  ~RequestTurns();  // cancels

  void Add(std::shared_ptr<Generation> generation);
  // Call last, unless an exception ends the handler: cancels what was not read to its end, and
  // waits for that end, a step away, so that its cost is counted before the request is logged.
  Task<void> End();
  HttpResponder& responder() const { return responder_; }

 private:
  // Cancels all generations, and future ones too.
  void CancelAll() WEFT_EXCLUDES(mutex_);

  HttpResponder& responder_;
  Mutex mutex_;
  bool cancelled_ WEFT_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Generation>> generations_ WEFT_GUARDED_BY(mutex_);
  // Last, so that it is over before the rest goes.
  const std::stop_callback<std::function<void()>> on_cancellation_;
};

// Submits. If a session is optional and unavailable, does without it.
Task<StatusOr<std::shared_ptr<Generation>>> StartGeneration(Host& host, RequestTurns& turns,
                                                            const SessionChoice& session,
                                                            GenerationRequest request);
// The same, and waits until the prompt is computed and the stream has started.
Task<StatusOr<std::unique_ptr<ReplyStream>>> StartReply(Host& host, RequestTurns& turns,
                                                        const SessionChoice& session,
                                                        GenerationRequest request, ReplyPlan plan);

// Tells the client in a header what was found of the prompt, if the answer has not begun.
void NoteCacheReport(const ReplyStream& stream, HttpResponder& responder);

struct ChatCall {
  ChatRequest chat;
  TurnOptions turn;  // without tokens, which come from the conversation
  SessionChoice session;
  ToolChoice tool_choice;
  bool separate_reasoning = true;
  bool show_reasoning = true;
  ThoughtLimit thought;
  std::string call_id_prefix = "call_";
  // The required form of the answer, after its thought.
  std::optional<AnswerRule> answer;
  std::vector<PromptMark> marks;
  // Vectors in place of texts of the conversation.
  std::vector<EmbeddedRows> rows;
  // Tokens before the conversation, e.g. an earlier answer's context.
  std::vector<int32_t> before;
  bool keeps_context = false;  // see ReplyPlan::context
  bool tells_cache_report = false;
  ClientList list = {};  // where the client has the conversation's messages
  // Called while StartChat waits for the prompt. May be empty.
  std::function<void(const ProgressEvent&)> on_progress;
};

// How a streamed answer shows that it is alive. `send` is empty if the answer is not streamed.
using SendSign = std::function<void(const ReplyUsage&)>;
SignsOfLife MakeSigns(const Host& host, SendSign send);

// Returns once the prompt is computed and the stream has started. Errors name `messages` if the
// chat format does. With `send_sign`, the answer may already have begun when an error is
// returned.
Task<StatusOr<std::unique_ptr<ReplyStream>>> StartChat(Host& host, const HttpRequest& request,
                                                       RequestTurns& turns, ChatCall call,
                                                       SendSign send_sign);
// The text of its prompt as the model sees it, including control tokens.
StatusOr<std::string> ChatPromptText(Host& host, const HttpRequest& request, const ChatCall& call);
StatusOr<int64_t> CountChatTokens(Host& host, const HttpRequest& request, const ChatCall& call);

// Limits that no real conversation reaches: each item costs the template time.
inline constexpr size_t kMaxMessages = 20'000;
inline constexpr size_t kMaxTools = 1024;
Status CheckCounts(const Conversation& conversation);

}  // namespace weft::serve

#endif  // WEFT_API_CHAT_TURN_H_
