#include "serve/chat_turn.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/strings.h"

namespace weft::serve {

// The server's thread adds nothing and only cancels; the handler's thread adds.
struct GoneWatch::Shared {
  Mutex mutex;
  bool gone WEFT_GUARDED_BY(mutex) = false;
  std::vector<std::weak_ptr<Generation>> generations WEFT_GUARDED_BY(mutex);

  void CancelAll() {
    std::vector<std::weak_ptr<Generation>> cancelled;
    {
      MutexLock lock(&mutex);
      gone = true;
      cancelled.swap(generations);
    }
    for (const auto& weak : cancelled) {
      if (const auto generation = weak.lock()) generation->Cancel();
    }
  }
};

GoneWatch::GoneWatch(HttpResponder& responder)
    : responder_(responder), shared_(std::make_shared<Shared>()) {
  responder.OnGone([shared = shared_] { shared->CancelAll(); });
}

void GoneWatch::Add(std::weak_ptr<Generation> generation) {
  {
    MutexLock lock(&shared_->mutex);
    shared_->generations.push_back(std::move(generation));
    if (!shared_->gone) return;
  }
  shared_->CancelAll();
}

StatusOr<std::shared_ptr<Generation>> StartGeneration(Host& host, GoneWatch& watch,
                                                      const SessionChoice& session,
                                                      GenerationRequest request) {
  const int64_t n_tokens = static_cast<int64_t>(request.turn.tokens.size());
  request.turn.tokens_are_whole_context = true;
  request.session = session.name;
  request.finished = [&responder = watch.responder()](const TurnUsage& usage) {
    responder.NoteTokens(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens);
  };
  StatusOr<std::unique_ptr<Generation>> generation;
  if (session.name.empty() || session.required) {
    generation = host.Generate(std::move(request));
  } else {
    generation = host.Generate(request);
    // Busy, poisoned, its file not to be read, or no more named sessions to be had.
    const StatusCode code = generation.status().code();
    if (code == StatusCode::kFailedPrecondition || code == StatusCode::kAlreadyExists ||
        code == StatusCode::kResourceExhausted) {
      request.session.clear();
      generation = host.Generate(std::move(request));
    }
  }
  if (!generation.ok()) {
    if (generation.status().code() != StatusCode::kOutOfRange) return generation.status();
    return WithContext(generation.status(), n_tokens, host.model().context_tokens());
  }
  std::shared_ptr<Generation> shared = *std::move(generation);
  watch.Add(shared);
  return shared;
}

namespace {

// "messages[2].content: ..." -> "messages[2].content".
Status WithPlace(const Status& status) {
  if (status.code() != StatusCode::kInvalidArgument) return status;
  const std::string_view message = Message(status);
  if (!message.starts_with("messages") && !message.starts_with("tools")) return status;
  return WithCode(WithParam(status, message.substr(0, message.find_first_of(": "))),
                  "invalid_value");
}

StatusOr<ChatPrompt> RenderChat(Host& host, const ChatCall& call) {
  auto prompt = host.chat().Render(call.chat);
  if (!prompt.ok()) return WithPlace(prompt.status());
  return prompt;
}

bool HasTools(const ChatRequest& chat) { return chat.tools.is_array() && !chat.tools.empty(); }

}  // namespace

StatusOr<std::unique_ptr<ReplyStream>> StartChat(Host& host, const HttpRequest& request,
                                                 GoneWatch& watch, ChatCall call, SseStream* sse) {
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, RenderChat(host, call));
  GenerationRequest generation_request{.domain = request.domain, .turn = std::move(call.turn)};
  TurnOptions& turn = generation_request.turn;
  turn.tokens = host.EncodeChat(request.domain, prompt.text);
  turn.show_control_tokens = true;
  generation_request.prompt_text = prompt.text;

  ReplyPlan plan{.n_choices = turn.n_choices,
                 .reasoning_is_open = prompt.reasoning_is_open && call.separate_reasoning,
                 .show_reasoning = call.show_reasoning,
                 .wants_logprobs = turn.top_logprobs >= 0,
                 .single_call = call.single_call,
                 .call_id_prefix = call.call_id_prefix};
  turn.report_progress = static_cast<bool>(call.on_progress);
  plan.on_progress = std::move(call.on_progress);
  if (sse != nullptr) plan.while_quiet = [sse] { sse->Comment(); };
  const ReplyOptions reply{.tools = call.calls_allowed && HasTools(call.chat),
                           .separate_reasoning = call.separate_reasoning};
  for (int i = 0; i < turn.n_choices; ++i) {
    plan.parsers.push_back(host.chat().NewReplyParser(prompt, reply));
  }
  for (const std::string& stop : prompt.stop_strings) {
    // One that the client gave too is reported as the client's.
    const auto& stops = turn.stop_strings;
    if (std::find(stops.begin(), stops.end(), stop) != stops.end()) continue;
    turn.stop_strings.push_back(stop);
    plan.format_stops.push_back(stop);
  }
  if (host.chat().reply_format() == "mistral") {  // its templates insist on nine letters
    plan.call_id_prefix.clear();
    plan.call_id_random = 9;
  }
  WEFT_ASSIGN_OR_RETURN(auto generation,
                        StartGeneration(host, watch, call.session, std::move(generation_request)));
  auto stream = std::make_unique<ReplyStream>(std::move(generation), std::move(plan));
  WEFT_RETURN_IF_ERROR(stream->Start());
  return stream;
}

StatusOr<int64_t> CountChatTokens(Host& host, const HttpRequest& request, const ChatCall& call) {
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, RenderChat(host, call));
  return static_cast<int64_t>(host.EncodeChat(request.domain, prompt.text).size());
}

void SetReasoningEffort(std::string_view effort, nlohmann::ordered_json* variables) {
  const auto set = [variables](const char* name, nlohmann::ordered_json value) {
    if (!variables->contains(name)) (*variables)[name] = std::move(value);
  };
  if (effort == "none") {
    set("enable_thinking", false);
  } else {
    set("reasoning_effort", effort);
  }
}

void ReadEnding(ApiFields* fields, ChatRequest* chat) {
  const auto begin = fields->Bool("add_generation_prompt");
  const auto go_on = fields->Bool("continue_final_message");
  if (begin.value_or(false) && go_on.value_or(false)) {
    return fields->Fail("continue_final_message", "and add_generation_prompt cannot both be true");
  }
  const nlohmann::ordered_json& messages = chat->messages;
  const bool is_list = messages.is_array() && !messages.empty() && messages.back().is_object();
  const bool is_begun = is_list &&
                        messages.back().value("role", nlohmann::ordered_json()) == "assistant" &&
                        messages.back().value("tool_calls", nlohmann::ordered_json()).empty();
  if (go_on.value_or(false) && !is_begun) {
    return fields->Fail("continue_final_message",
                        "needs a last message of the assistant's, without calls");
  }
  chat->continue_final_message = go_on.value_or(is_begun && !begin.has_value());
  chat->add_generation_prompt = begin.value_or(true);
}

Status CheckCounts(const ChatRequest& chat) {
  const auto check = [](const nlohmann::ordered_json& list, std::string_view name, size_t most) {
    if (list.size() <= most) return OkStatus();
    return WithCode(WithParam(InvalidArgument(name, " has ", list.size(), " entries, at most ",
                                              most, " are taken"),
                              name),
                    "invalid_value");
  };
  WEFT_RETURN_IF_ERROR(check(chat.messages, "messages", kMaxMessages));
  return check(chat.tools, "tools", kMaxTools);
}

}  // namespace weft::serve
