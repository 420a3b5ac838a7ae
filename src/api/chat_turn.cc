#include "api/chat_turn.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "answer/answer_ends.h"
#include "answer/reply_mask.h"
#include "api/fields/cache_report.h"
#include "api/known_replies.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "constraint/constraint_cache.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

RequestTurns::RequestTurns(HttpResponder& responder)
    : responder_(responder), on_cancellation_(responder.cancellation(), [this] { CancelAll(); }) {}

RequestTurns::~RequestTurns() { CancelAll(); }

void RequestTurns::CancelAll() {
  std::vector<std::shared_ptr<Generation>> generations;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    generations = generations_;
  }
  for (const auto& generation : generations) generation->Cancel();
}

void RequestTurns::Add(std::shared_ptr<Generation> generation) {
  {
    MutexLock lock(&mutex_);
    std::erase_if(generations_, [](const auto& other) { return other->has_ended(); });
    generations_.push_back(generation);
    if (!cancelled_) return;
  }
  generation->Cancel();
}

Task<void> RequestTurns::End() {
  CancelAll();
  std::vector<std::shared_ptr<Generation>> generations;
  {
    MutexLock lock(&mutex_);
    generations.swap(generations_);
  }
  for (const auto& generation : generations) {
    bool has_more = true;
    while (has_more) {
      const std::optional<TurnEvent> event = co_await generation->Next();
      has_more = event.has_value();
    }
  }
}

namespace {

// What is known before the turn, whose answer begins before its session is written: that of the
// turn before, or of other sessions.
void NoteUnsaved(Host& host, const std::string& domain, const std::string& session,
                 HttpResponder& responder) {
  if (session.empty()) return;
  const auto id = host.engine().FindSession(domain, session);
  const auto info = id.ok() ? host.engine().Inspect(*id) : StatusOr<SessionInfo>(id.status());
  if (info.ok() && !info->unsaved.empty()) {
    return responder.NoteHeader(kWarningHeader,
                                StrCat("the session's last turn could not be saved (",
                                       HeaderText(info->unsaved), "): a restart would lose it"));
  }
  const EngineStats stats = host.engine().Stats();
  if (stats.sessions_unsaved == 0) return;
  responder.NoteHeader(kWarningHeader,
                       StrCat("other sessions cannot be saved (", HeaderText(stats.save_problem),
                              "): a restart may lose this turn"));
}

}  // namespace

Task<StatusOr<std::shared_ptr<Generation>>> StartGeneration(Host& host, RequestTurns& turns,
                                                            const SessionChoice& session,
                                                            GenerationRequest request) {
  const int64_t n_tokens = static_cast<int64_t>(request.turn.tokens.size());
  request.turn.tokens_are_whole_context = true;
  request.session = session.name;
  request.finished = [&responder = turns.responder()](const TurnUsage& usage) {
    responder.NoteTokens({.prompt = usage.prompt_tokens,
                          .cached = usage.cached_tokens,
                          .disk = usage.disk_tokens,
                          .computed = usage.computed_tokens,
                          .completion = usage.completion_tokens});
  };
  if (!session.required) {
    constexpr auto kAnonymous = NamedTurnPolicy::Otherwise::kAnonymous;
    request.policy = {.busy = kAnonymous, .unusable = kAnonymous, .full = kAnonymous};
  }
  NoteUnsaved(host, request.domain, request.session, turns.responder());
  auto generating = host.Generate(std::move(request));
  StatusOr<std::unique_ptr<Generation>> generation = co_await generating;
  if (!generation.ok()) {
    if (generation.status().code() != StatusCode::kOutOfRange) co_return generation.status();
    co_return WithContext(generation.status(), n_tokens, host.model().context_tokens());
  }
  std::shared_ptr<Generation> shared = *std::move(generation);
  turns.Add(shared);
  co_return shared;
}

Task<StatusOr<std::unique_ptr<ReplyStream>>> StartReply(Host& host, RequestTurns& turns,
                                                        const SessionChoice& session,
                                                        GenerationRequest request, ReplyPlan plan) {
  plan.to = &turns.responder();
  auto starting = StartGeneration(host, turns, session, std::move(request));
  StatusOr<std::shared_ptr<Generation>> generation = co_await starting;
  if (!generation.ok()) co_return generation.status();
  auto stream = std::make_unique<ReplyStream>(*std::move(generation), std::move(plan));
  const Status started = co_await stream->Start();
  if (!started.ok()) co_return started;
  NoteCacheReport(*stream, turns.responder());
  co_return stream;
}

void NoteCacheReport(const ReplyStream& stream, HttpResponder& responder) {
  if (const auto report = stream.cache_report()) {
    responder.NoteHeader(kCacheHeader, CacheHeader(*report));
  }
}

namespace {

// Concatenates; a start token remains only at the very beginning.
std::vector<int32_t> Behind(std::vector<int32_t> before, std::span<const int32_t> tokens,
                            const Tokenizer& tokenizer) {
  if (!tokens.empty() && tokens[0] == tokenizer.bos()) tokens = tokens.subspan(1);
  before.insert(before.end(), tokens.begin(), tokens.end());
  return before;
}

// The part of the answer that the client has begun.
std::string BegunContent(const ChatRequest& chat) {
  const bool is_begun =
      chat.continuation == Continuation::kAuto || chat.continuation == Continuation::kContent;
  const std::vector<ChatMessage>& messages = chat.conversation.messages;
  return is_begun && !messages.empty() ? TextOf(messages.back()) : "";
}

using Began = StatusOr<std::optional<constraint::ConstraintState>>;

Status RefuseForHeld(const TurnOptions& turn) {
  const char* const field = turn.ignore_eos ? "ignore_eos" : "min_tokens";
  return WithParam(InvalidArgument(field,
                                   " cannot be combined with a reply of a required form, which "
                                   "ends when the form is complete"),
                   field);
}

// A reply that may call tools or has a required form: every call that begins is one of an offered
// tool, with arguments that fit its schema. If the schemas cannot be enforced and enforcement is
// not required, the reply is free.
Began BeginReply(Host& host, const ChatCall& call, const ChatPrompt& prompt,
                 const TurnOptions& turn) {
  const ToolChoice& choice = call.tool_choice;
  const ToolList tools = choice.calls_allowed ? prompt.tools : ToolList();
  const bool must_hold = (!tools.empty() && choice.insists()) || call.answer;
  if (!must_hold && (tools.empty() || !host.defaults().server.hold_calls))
    return Began(std::nullopt);
  if (turn.ignore_eos || turn.min_tokens > 0) {
    if (must_hold) return RefuseForHeld(turn);
    return Began(std::nullopt);
  }
  if (call.answer) {
    // Report its errors as errors of the answer.
    WEFT_RETURN_IF_ERROR(BeginAnswer(host.model(), *call.answer, "", turn.tenant).status());
  }
  const CallPolicy policy{
      .choice = choice.must_call ? CallPolicy::Choice::kRequired : CallPolicy::Choice::kAuto,
      .parallel = !choice.single_call,
      .grammars = choice.grammars,
      .may_think = host.chat().has_reasoning(),
      .thinks_already = prompt.reasoning_is_open};
  const auto compiled = CompileReply(host.model(), host.chat(), tools, policy,
                                     call.answer ? &call.answer->spec : nullptr, turn.tenant);
  if (!compiled.ok()) {
    if (!must_hold) return Began(std::nullopt);
    const std::string field = choice.must_call ? "tool_choice"
                              : tools.empty()  ? call.answer->field
                                               : "tools";
    return WithCode(WithParam(InvalidArgument(field, ": ", Message(compiled.status())), field),
                    "invalid_value");
  }
  constraint::ConstraintState state = (*compiled)->Begin();
  const std::string begun = BegunContent(call.chat);
  if (begun.empty() || state.AdvanceText(begun)) return Began(std::move(state));
  if (call.answer && !choice.must_call) {
    // The prompt already has the marks that precede an answer.
    auto answer = BeginAnswer(host.model(), *call.answer, begun, turn.tenant);
    if (!answer.ok()) return answer.status();
    return Began(*std::move(answer));
  }
  if (!must_hold) return Began(std::nullopt);
  return WithParam(InvalidArgument("the begun answer does not have the required form"), "messages");
}

}  // namespace

SignsOfLife MakeSigns(const Host& host, SendSign send) {
  return {.send = std::move(send),
          .begin = host.defaults().stream_begin,
          .interval = host.defaults().server.ping_interval};
}

namespace {

// The prompt of a chat in which vectors stand for texts: nothing is known of it, as what the text
// says is not all of it.
StatusOr<KnownPrompt> RenderWithRows(Host& host, const ChatRequest& chat,
                                     std::vector<EmbeddedRows> rows, TurnOptions* turn) {
  KnownPrompt known{.chat = chat};
  WEFT_ASSIGN_OR_RETURN(known.prompt, RenderChat(host, chat));
  WEFT_RETURN_IF_ERROR(SetPrompt(host.model(), known.prompt.text, std::move(rows), turn));
  return known;
}

// Sets the turn's prompt, too.
StatusOr<KnownPrompt> RenderPrompt(Host& host, const HttpRequest& request, const ChatRequest& chat,
                                   std::vector<EmbeddedRows> rows, TurnOptions* turn) {
  if (!rows.empty()) return RenderWithRows(host, chat, std::move(rows), turn);
  WEFT_ASSIGN_OR_RETURN(KnownPrompt known, RenderKnown(host, request.domain, chat));
  turn->tokens = known.tokens;
  return known;
}

// A chat that is ready to be submitted.
struct PreparedChat {
  GenerationRequest request;
  ReplyPlan plan;
};

// The ends of answers that the model and its template have. Returns the texts it added.
std::vector<std::string> AddOwnEnds(Host& host, TurnOptions* turn) {
  // The model's texts only where the client sets none.
  std::vector<std::string> own;
  if (turn->stop_strings.empty()) own = host.defaults().ends.texts;
  if (!turn->ignore_eos) {
    const std::vector<std::string>& texts = host.chat().ends().texts;
    own.insert(own.end(), texts.begin(), texts.end());
  }
  std::vector<std::string> added;
  for (const std::string& stop : own) {
    // A stop string that the client also gave is reported as the client's.
    std::vector<std::string>& stops = turn->stop_strings;
    if (std::find(stops.begin(), stops.end(), stop) != stops.end()) continue;
    if (stops.size() == kMaxStopStrings) break;
    stops.push_back(stop);
    added.push_back(stop);
  }
  AddEndTokens(host.defaults().ends.tokens, turn);
  AddEndTokens(host.chat().ends().tokens, turn);
  return added;
}

StatusOr<PreparedChat> PrepareChat(Host& host, const HttpRequest& request, ChatCall call,
                                   SendSign send_sign) {
  GenerationRequest generation_request{.domain = request.domain, .turn = std::move(call.turn)};
  TurnOptions& turn = generation_request.turn;
  std::vector<std::string> format_stops = AddOwnEnds(host, &turn);
  WEFT_ASSIGN_OR_RETURN(KnownPrompt known,
                        RenderPrompt(host, request, call.chat, std::move(call.rows), &turn));
  ChatPrompt& prompt = known.prompt;
  prompt.tools = Callable(prompt.tools, call.tool_choice);
  ReplyPlan plan{.n_choices = turn.n_choices,
                 .reasoning_is_open = prompt.reasoning_is_open && call.separate_reasoning,
                 .show_reasoning = call.show_reasoning,
                 .wants_logprobs = turn.top_logprobs >= 0,
                 .single_call = call.tool_choice.single_call,
                 .call_id_prefix = call.call_id_prefix};
  // A reply that a client has begun is not all the model's.
  if (call.before.empty() && call.chat.continuation == Continuation::kNone) {
    plan.on_said = RecorderOf(host, request.domain, call.session.name, known);
  }
  // A call that the client named is often all that it wants: an answer of a given form.
  plan.expects_results = !call.tool_choice.must_call || call.tool_choice.only.size() != 1;
  if (call.before.empty()) PlaceMarks(host, request.domain, known.chat, call.marks, &turn);
  if (turn.parts != nullptr) {
    // Nothing is remembered: what the text says is not all of the prompt.
  } else if (call.before.empty()) {
    generation_request.trail =
        host.TrackPrompt(request.domain, prompt.text, known.chat, std::move(call.list));
    generation_request.prompt_text = std::move(prompt.text);
  } else {
    turn.tokens = Behind(std::move(call.before), turn.tokens, *host.model().tokenizer());
  }
  ChatFormat::ControlTokens control = host.chat().ControlTokensFor(turn.stop_strings);
  turn.shown_control_tokens = std::move(control.ids);
  SetOwner(request, &turn);

  ReplyRules rules{.thinks_already = prompt.reasoning_is_open, .thought = std::move(call.thought)};
  if (host.chat().has_reasoning()) rules.marks = host.chat().thought_marks();
  WEFT_ASSIGN_OR_RETURN(rules.reply, BeginReply(host, call, prompt, turn));
  const bool is_held = rules.reply.has_value();
  // A call that ends the reply within its thought is one, unless more is required of it.
  const bool may_call = call.tool_choice.calls_allowed && !prompt.tools.empty();
  if (may_call && !call.tool_choice.insists() && !call.answer) {
    rules.call_end = host.chat().call_end();
  }
  turn.token_mask = MaskOf(host.model().tokenizer(), std::move(rules));

  plan.ends_itself = plan.single_call && is_held;
  plan.ends_at_repeat = call.tool_choice.must_call;
  plan.format_stops = std::move(format_stops);
  // Signs of life tell for how much the turn waits.
  turn.report_progress = call.on_progress || send_sign;
  plan.on_progress = std::move(call.on_progress);
  plan.signs = MakeSigns(host, std::move(send_sign));
  if (call.keeps_context) plan.context = turn.tokens;
  plan.tells_cache_report = call.tells_cache_report;
  const ReplyOptions reply{.tools = may_call,
                           .lenient_calls = host.defaults().server.lenient_tool_calls,
                           .separate_reasoning = call.separate_reasoning,
                           .control_tokens = std::move(control.texts)};
  for (int i = 0; i < turn.n_choices; ++i) {
    plan.parsers.push_back(host.chat().NewReplyParser(prompt, reply));
  }
  if (const int length = host.chat().call_id_length(); length > 0) {
    plan.call_id_prefix.clear();
    plan.call_id_random = length;
  }
  return PreparedChat{std::move(generation_request), std::move(plan)};
}

}  // namespace

Task<StatusOr<std::unique_ptr<ReplyStream>>> StartChat(Host& host, const HttpRequest& request,
                                                       RequestTurns& turns, ChatCall call,
                                                       SendSign send_sign) {
  const SessionChoice session = call.session;
  StatusOr<PreparedChat> prepared =
      PrepareChat(host, request, std::move(call), std::move(send_sign));
  if (!prepared.ok()) co_return prepared.status();
  auto starting =
      StartReply(host, turns, session, std::move(prepared->request), std::move(prepared->plan));
  StatusOr<std::unique_ptr<ReplyStream>> stream = co_await starting;
  co_return stream;
}

namespace {

// With the prompt alone.
StatusOr<TurnOptions> ChatPromptOf(Host& host, const HttpRequest& request, const ChatCall& call) {
  TurnOptions turn;
  WEFT_RETURN_IF_ERROR(RenderPrompt(host, request, call.chat, call.rows, &turn).status());
  return turn;
}

}  // namespace

StatusOr<std::string> ChatPromptText(Host& host, const HttpRequest& request, const ChatCall& call) {
  WEFT_ASSIGN_OR_RETURN(const TurnOptions turn, ChatPromptOf(host, request, call));
  std::vector<int32_t> tokens = turn.tokens;
  if (turn.parts != nullptr) {
    for (const PromptPart& part : *turn.parts) {
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    }
  }
  return host.model().Decode(tokens, /*render_special=*/true);
}

StatusOr<int64_t> CountChatTokens(Host& host, const HttpRequest& request, const ChatCall& call) {
  WEFT_ASSIGN_OR_RETURN(const TurnOptions turn, ChatPromptOf(host, request, call));
  return turn.PromptSize(host.model().row_width());
}

Status CheckCounts(const Conversation& conversation) {
  const auto check = [](size_t n, std::string_view name, size_t most) {
    if (n <= most) return OkStatus();
    return WithCode(
        WithParam(InvalidArgument(name, " has ", n, " entries, at most ", most, " are taken"),
                  name),
        "invalid_value");
  };
  WEFT_RETURN_IF_ERROR(check(conversation.messages.size(), "messages", kMaxMessages));
  return check(conversation.tools.size(), "tools", kMaxTools);
}

}  // namespace weft::serve
