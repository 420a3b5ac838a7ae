// From a request that an API has read to a reply that it can tell: renders, encodes,
// submits, watches for the client to leave.
//
// Functions are called on the handler's thread.
#ifndef WEFT_API_CHAT_TURN_H_
#define WEFT_API_CHAT_TURN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_rule.h"
#include "api/reply_stream.h"
#include "api/session_name.h"
#include "api/support.h"
#include "api/tool_choice.h"
#include "base/status.h"
#include "chat/chat_format.h"
#include "host/host.h"
#include "http/http.h"

namespace weft::serve {

// Cancels generations when the client of a request goes away, whenever that is. One per
// request, made and used on its handler's thread.
class GoneWatch {
 public:
  explicit GoneWatch(HttpResponder& responder);
  void Add(std::weak_ptr<Generation> generation);
  // As if the client were gone: at once, all that were added, and those that will be.
  void CancelAll();
  HttpResponder& responder() const { return responder_; }

 private:
  struct Shared;
  HttpResponder& responder_;
  const std::shared_ptr<Shared> shared_;
};

// Submits. A session that is only wished for and cannot be had is done without.
StatusOr<std::shared_ptr<Generation>> StartGeneration(Host& host, GoneWatch& watch,
                                                      const SessionChoice& session,
                                                      GenerationRequest request);

struct ChatCall {
  ChatRequest chat;
  TurnOptions turn;  // tokens come from the conversation
  SessionChoice session;
  ToolChoice tool_choice;
  bool separate_reasoning = true;
  bool show_reasoning = true;
  int64_t thought_tokens = -1;  // behind so many a thought is ended; -1: never
  std::string call_id_prefix = "call_";
  // What the answer must be, behind its thought.
  std::optional<AnswerRule> answer;
  // Tokens that come before the conversation, as an earlier answer's context.
  std::vector<int32_t> before;
  bool keeps_context = false;  // ReplyPlan::context
  // Called while StartChat waits for the prompt, on its thread. May be empty.
  std::function<void(const ProgressEvent&)> on_progress;
};

// How a streamed answer shows that it is alive. For one that is not streamed `send` is empty.
using SendSign = std::function<void(const ReplyUsage&)>;
SignsOfLife MakeSigns(const Host& host, SendSign send);

// The stream has started: its prompt is computed. Errors name `messages` or `tools` where
// the chat format does. With `send_sign` the answer may have begun when an error is returned.
StatusOr<std::unique_ptr<ReplyStream>> StartChat(Host& host, const HttpRequest& request,
                                                 GoneWatch& watch, ChatCall call,
                                                 SendSign send_sign);
// The text of its prompt, control tokens included, as the model is given it.
StatusOr<std::string> ChatPromptText(Host& host, const HttpRequest& request, const ChatCall& call);
StatusOr<int64_t> CountChatTokens(Host& host, const HttpRequest& request, const ChatCall& call);

// How hard to think, as a variable of the template; "none" turns thinking off. What the
// client has put into `variables` itself stays.
void SetReasoningEffort(std::string_view effort, nlohmann::ordered_json* variables);

// How long to think, in tokens, by llama-server's names for it; 0 turns thinking off where the
// template can. Where the request says nothing the operator's word counts. To be called when
// all variables of the request itself are set.
void ReadThoughtLimit(ApiFields* fields, const RequestDefaults& defaults, ChatCall* call);
void SetThinking(const RequestDefaults& defaults, ChatCall* call);

// Whether the reply begins anew or goes on where the last message ends: continue_final_message
// (a boolean, "content" or "reasoning_content") and add_generation_prompt. As in llama-server a
// last message of the assistant's is continued unless continue_final_message is false.
void ReadEnding(ApiFields* fields, ChatRequest* chat);

// More of either than any conversation has are refused: each costs a template its time.
inline constexpr size_t kMaxMessages = 20'000;
inline constexpr size_t kMaxTools = 1024;
Status CheckCounts(const ChatRequest& chat);

}  // namespace weft::serve

#endif  // WEFT_API_CHAT_TURN_H_
