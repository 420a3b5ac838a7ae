#include "answer/answerer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "answer/agent_prompts.h"
#include "answer/answer_ends.h"
#include "answer/error_details.h"
#include "answer/picture_encoding.h"
#include "answer/pictures.h"
#include "answer/reply_mask.h"
#include "async/signal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "constraint/constraint_cache.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {

StatusOr<std::unique_ptr<Answerer>> Answerer::ForCommand(std::shared_ptr<const Model> model,
                                                         Engine* engine, std::string chat_template,
                                                         std::shared_ptr<Pictures> pictures) {
  if (chat_template.empty()) chat_template = std::string(model->chat_template());
  auto chat = ChatFormat::Create(std::move(chat_template), model->tokenizer());
  if (!chat.ok()) {
    return Annotate(chat.status(), "the chat template of ", Printable(model->path(), 300), ": ");
  }
  auto prompts =
      std::make_shared<PromptMaker>(model, *chat, PromptMaker::Options{.restore_reasoning = false});
  return std::make_unique<Answerer>(Parts{.model = std::move(model),
                                          .chat = *std::move(chat),
                                          .prompts = std::move(prompts),
                                          .engine = engine,
                                          .pictures = std::move(pictures)});
}

namespace {

// Without rows.
std::vector<int32_t> TokensOf(const TurnOptions& turn) {
  std::vector<int32_t> tokens = turn.tokens;
  if (turn.parts == nullptr) return tokens;
  for (const PromptPart& part : *turn.parts) {
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  return tokens;
}

}  // namespace

// --- submitting -----------------------------------------------------------------------

class Answerer::CountedGeneration : public Generation {
 public:
  // What outlives the submission.
  struct Origin {
    std::string domain, session, label;
    std::vector<int32_t> tokens;
    int64_t prompt_tokens = 0;
    int n_choices = 1;
    PromptRecord record;
    TurnListener listener;
  };

  CountedGeneration(const Parts& parts, NamedTurn named, Origin origin, int64_t submitted_us)
      : parts_(parts),
        active_(parts.activity),
        turn_(std::move(named.turn)),
        is_anonymous_(named.is_anonymous),
        origin_(std::move(origin)),
        choices_(static_cast<size_t>(origin_.n_choices), {.last_us = submitted_us}) {
    ready_ =
        origin_.listener.ready != nullptr ? origin_.listener.ready : std::make_shared<Signal>();
    // Runs on the engine thread, which may outlive this object.
    turn_->SetReadyCallback(ready_->Notifier());
  }

  void Cancel() override { turn_->Cancel(); }
  void ExpectMore() override { turn_->ExpectMore(); }
  int64_t prompt_tokens() const override { return origin_.prompt_tokens; }
  std::shared_ptr<const CacheReport> cache_report() const override { return cache_report_; }
  Signal& ready() override { return *ready_; }
  std::optional<TurnEvent> TryNext(bool* ended) override {
    std::optional<TurnEvent> event = turn_->TryNext(ended);
    if (!event.has_value()) return event;
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      Count(*token);
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      Count(*done);
    } else if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      // The prompt is computed.
      if (origin_.record.agent != 0) parts_.agents->SetReady(origin_.record.agent);
      Report(*started);
    }
    return event;
  }

 private:
  struct Choice {
    int64_t last_us = 0;  // time of its last token, or of the submission
    std::vector<int32_t> tokens;
  };

  void Count(const TokenEvent& token) {
    Choice& choice = choices_[static_cast<size_t>(token.choice)];
    const int64_t now_us = NowMicros();
    const double seconds = static_cast<double>(now_us - choice.last_us) * 1e-6;
    if (TurnObserver* const observer = parts_.observer; observer != nullptr) {
      choice.tokens.empty() ? observer->ObserveFirstToken(seconds)
                            : observer->ObserveNextToken(seconds);
    }
    choice.last_us = now_us;
    choice.tokens.push_back(token.token);
  }

  void Report(const StartedEvent& started) {
    if (parts_.reports == nullptr) return;
    CacheReport report = MakeCacheReport({.trail = origin_.record.trail.get(),
                                          .tokens = origin_.tokens,
                                          .started = &started,
                                          .has_foreign_state = parts_.has_foreign_state});
    if (IsCostly(report)) {
      const std::string label = origin_.label.empty() ? "" : " id=" + origin_.label;
      LogLine(StrCat("prompt: ", Printable(report.brief, 1000), Printable(label, 200)));
    }
    const std::string& session = is_anonymous_ ? std::string() : origin_.session;
    cache_report_ = parts_.reports->Add(origin_.domain, session, std::move(report));
  }

  void Count(const DoneEvent& done) {
    if (parts_.observer != nullptr) parts_.observer->CountFinished(done.reason, done.usage);
    completion_tokens_ += done.usage.completion_tokens;
    if (++n_done_ == choices_.size()) {
      TurnUsage usage = done.usage;
      usage.completion_tokens = completion_tokens_;
      if (parts_.observer != nullptr) parts_.observer->CountOwn(origin_.domain, usage);
      if (origin_.listener.finished) origin_.listener.finished(usage);
    }
    parts_.prompts->Remember(origin_.domain, origin_.record, origin_.tokens,
                             choices_[static_cast<size_t>(done.choice)].tokens);
  }

  const Parts& parts_;  // the answerer's
  const TurnActivity::Turn active_;
  const std::shared_ptr<Turn> turn_;
  const bool is_anonymous_;
  const Origin origin_;
  std::shared_ptr<Signal> ready_;
  std::shared_ptr<const CacheReport> cache_report_;
  std::vector<Choice> choices_;
  size_t n_done_ = 0;
  int64_t completion_tokens_ = 0;
};

Task<StatusOr<std::unique_ptr<Generation>>> Answerer::Submit(Ask ask, PromptRecord record,
                                                             TurnListener listener) {
  const Status may_run = parts_.may_run ? parts_.may_run(ask.is_begun) : OkStatus();
  if (!may_run.ok()) co_return may_run;
  if (!ask.pictures.empty()) {
    auto setting = SetPicturedPrompt(ask, listener.left);
    const Status set = co_await setting;
    if (!set.ok()) co_return set;
  }
  const int64_t submitted_us = NowMicros();
  TurnOptions& turn = ask.turn;
  turn.tokens_are_whole_context = true;
  if (turn.adapters_are_default && parts_.default_adapters) {
    turn.adapters = parts_.default_adapters();
  }
  CountedGeneration::Origin origin{.domain = ask.domain,
                                   .session = ask.session.name,
                                   .label = turn.label,
                                   .tokens = turn.tokens,
                                   .prompt_tokens = turn.PromptSize(model().row_width()),
                                   .n_choices = turn.n_choices,
                                   .record = std::move(record),
                                   .listener = std::move(listener)};
  NamedTurnRequest request{.session = {.name = ask.session.name, .domain = ask.domain},
                           .turn = std::move(turn)};
  if (!ask.session.required) {
    constexpr auto kAnonymous = NamedTurnPolicy::Otherwise::kAnonymous;
    request.policy = {.busy = kAnonymous, .unusable = kAnonymous, .full = kAnonymous};
  }
  const auto submit = [&](std::function<void(StatusOr<NamedTurn>)> done) {
    engine().SubmitNamed(std::move(request), std::move(done));
  };
  StatusOr<NamedTurn> named = co_await AnswerOf<StatusOr<NamedTurn>>(submit);
  if (named.status().code() == StatusCode::kOutOfRange) {
    co_return WithContext(named.status(), origin.prompt_tokens, model().context_tokens());
  }
  if (!named.ok()) co_return named.status();
  co_return std::make_unique<CountedGeneration>(parts_, *std::move(named), std::move(origin),
                                                submitted_us);
}

// The turn's prompt is the ask's text with its pictures.
Task<Status> Answerer::SetPicturedPrompt(Ask& ask, std::stop_token left) const {
  const SignsOfLife none;
  auto encoding = EncodePicturesOf(ask, {none, nullptr, std::move(left)});
  const Status encoded = co_await encoding;
  if (!encoded.ok()) co_return encoded;
  auto parts = PartsOfPrompt(model(), ask.text, /*known=*/{}, std::move(ask.rows));
  if (!parts.ok()) co_return parts.status();
  ask.turn.parts = std::make_shared<const std::vector<PromptPart>>(*std::move(parts));
  co_return OkStatus();
}

// --- conversations ----------------------------------------------------------------------

namespace {

// Concatenates; a start token remains only at the very beginning.
std::vector<int32_t> Behind(std::vector<int32_t> before, std::span<const int32_t> tokens,
                            const Tokenizer& tokenizer) {
  if (!tokens.empty() && tokens[0] == tokenizer.bos()) tokens = tokens.subspan(1);
  before.insert(before.end(), tokens.begin(), tokens.end());
  return before;
}

// The tools that may be called.
ToolList Callable(const ToolList& tools, const ToolChoice& choice) {
  if (choice.only.empty()) return tools;
  ToolList callable;
  for (const auto& tool : tools) {
    if (std::ranges::count(choice.only, tool->name) > 0) callable.push_back(tool);
  }
  return callable;
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

}  // namespace

// A reply that may call tools or has a required form: every call that begins is one of an offered
// tool, with arguments that fit its schema. If the schemas cannot be enforced and enforcement is
// not required, the reply is free.
Began Answerer::BeginReply(const Ask& ask, const ChatPrompt& prompt) const {
  const TurnOptions& turn = ask.turn;
  const ToolChoice& choice = ask.tool_choice;
  const ToolList tools = choice.calls_allowed ? prompt.tools : ToolList();
  const bool must_hold = (!tools.empty() && choice.insists()) || ask.answer;
  if (!must_hold && (tools.empty() || !parts_.policy.hold_calls)) return Began(std::nullopt);
  if (turn.ignore_eos || turn.min_tokens > 0) {
    if (must_hold) return RefuseForHeld(turn);
    return Began(std::nullopt);
  }
  if (ask.answer) {
    // Report its errors as errors of the answer.
    WEFT_RETURN_IF_ERROR(BeginAnswer(model(), *ask.answer, "", turn.tenant).status());
  }
  const CallPolicy policy{
      .choice = choice.must_call ? CallPolicy::Choice::kRequired : CallPolicy::Choice::kAuto,
      .parallel = !choice.single_call,
      .grammars = choice.grammars,
      .may_think = chat().has_reasoning(),
      .thinks_already = prompt.reasoning_is_open};
  const auto compiled = CompileReply(model(), chat(), tools, policy,
                                     ask.answer ? &ask.answer->spec : nullptr, turn.tenant);
  if (!compiled.ok()) {
    if (!must_hold) return Began(std::nullopt);
    const std::string field = choice.must_call ? "tool_choice"
                              : tools.empty()  ? ask.answer->field
                                               : "tools";
    return WithCode(WithParam(InvalidArgument(field, ": ", Message(compiled.status())), field),
                    "invalid_value");
  }
  constraint::ConstraintState state = (*compiled)->Begin();
  const std::string begun = BegunContent(ask.chat);
  if (begun.empty() || state.AdvanceText(begun)) return Began(std::move(state));
  if (ask.answer && !choice.must_call) {
    // The prompt already has the marks that precede an answer.
    auto answer = BeginAnswer(model(), *ask.answer, begun, turn.tenant);
    if (!answer.ok()) return answer.status();
    return Began(*std::move(answer));
  }
  if (!must_hold) return Began(std::nullopt);
  return WithParam(InvalidArgument("the begun answer does not have the required form"), "messages");
}

// The ends of answers that the model and its template have. Returns the texts it added.
std::vector<std::string> Answerer::AddOwnEnds(TurnOptions* turn) const {
  // The model's texts only where the client sets none.
  std::vector<std::string> own;
  if (turn->stop_strings.empty()) own = parts_.policy.ends.texts;
  if (!turn->ignore_eos) {
    const std::vector<std::string>& texts = chat().ends().texts;
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
  AddEndTokens(parts_.policy.ends.tokens, turn);
  AddEndTokens(chat().ends().tokens, turn);
  return added;
}

// Also sets the turn's prompt.
StatusOr<KnownPrompt> Answerer::SetPromptOf(const Ask& ask, std::vector<EmbeddedRows> rows,
                                            int64_t row_width, TurnOptions* turn) const {
  WEFT_ASSIGN_OR_RETURN(KnownPrompt known,
                        prompts().Make(ask.domain, ask.chat, std::move(rows), row_width));
  turn->tokens = std::move(known.tokens);
  turn->parts = known.parts;
  return known;
}

// Which tokens may come, and what ends the answer for that.
Status Answerer::Restrict(const Ask& ask, const ChatPrompt& prompt, bool may_call,
                          TurnOptions* turn, AnswerPlan* plan) const {
  ReplyRules rules{.thinks_already = prompt.reasoning_is_open, .thought = ask.thought};
  if (chat().has_reasoning()) rules.marks = chat().thought_marks();
  WEFT_ASSIGN_OR_RETURN(rules.reply, BeginReply(ask, prompt));
  plan->ends_itself = plan->single_call && rules.reply.has_value();
  // A call that ends the reply within its thought is one, unless more is required of it.
  if (may_call && !ask.tool_choice.insists() && !ask.answer) rules.call_end = chat().call_end();
  turn->token_mask = MaskOf(model().tokenizer(), std::move(rules));
  return OkStatus();
}

void Answerer::SetParsers(const Ask& ask, const ChatPrompt& prompt, bool may_call,
                          TurnOptions* turn, AnswerPlan* plan) const {
  ChatFormat::ControlTokens control = chat().ControlTokensFor(turn->stop_strings);
  turn->shown_control_tokens = std::move(control.ids);
  const ReplyOptions reply{.tools = may_call,
                           .lenient_calls = parts_.policy.lenient_tool_calls,
                           .separate_reasoning = ask.separate_reasoning,
                           .control_tokens = std::move(control.texts)};
  for (int i = 0; i < turn->n_choices; ++i) {
    plan->parsers.push_back(chat().NewReplyParser(prompt, reply));
  }
}

Status Answerer::PrepareChat(Ask* ask, PromptRecord* record, AnswerPlan* plan) const {
  TurnOptions& turn = ask->turn;
  const ToolChoice& choice = ask->tool_choice;
  plan->format_stops = AddOwnEnds(&turn);
  WEFT_ASSIGN_OR_RETURN(KnownPrompt known,
                        SetPromptOf(*ask, std::move(ask->rows), model().row_width(), &turn));
  ChatPrompt& prompt = known.prompt;
  prompt.tools = Callable(prompt.tools, choice);
  plan->reasoning_is_open = prompt.reasoning_is_open && ask->separate_reasoning;
  plan->show_reasoning = ask->show_reasoning;
  plan->single_call = choice.single_call;
  plan->ends_at_repeat = choice.must_call;
  plan->call_id_prefix = ask->call_id_prefix;
  // A reply that a client has begun is not all the model's.
  if (ask->before.empty() && ask->chat.continuation == Continuation::kNone) {
    plan->on_said = prompts().RecorderOf(ask->domain, ask->session.name, known);
  }
  // A call that the client named is often all that it wants: an answer of a given form.
  plan->expects_results = !choice.must_call || choice.only.size() != 1;
  const bool may_call = choice.calls_allowed && !prompt.tools.empty();
  if (!ask->as_written) SetParsers(*ask, prompt, may_call, &turn, plan);
  if (const int length = chat().call_id_length(); length > 0) {
    plan->call_id_prefix.clear();
    plan->call_id_random = length;
  }
  WEFT_RETURN_IF_ERROR(Restrict(*ask, prompt, may_call, &turn, plan));
  if (!ask->before.empty()) {
    turn.tokens = Behind(std::move(ask->before), turn.tokens, *model().tokenizer());
  } else {
    PlaceMarks(prompts(), ask->domain, known.chat, ask->marks, turn.PromptSize(model().row_width()),
               &turn);
    if (turn.parts == nullptr) {
      *record =
          prompts().Track(ask->domain, std::move(prompt.text), known.chat, std::move(ask->list));
      if (parts_.agents != nullptr && turn.adapters_are_default) {
        record->agent = parts_.agents->Note(ask->domain, ask->chat);
      }
    }
  }
  return OkStatus();
}

Status Answerer::Prepare(Ask* ask, PromptRecord* record, AnswerPlan* plan) const {
  if (ask->input == Ask::Input::kConversation) {
    WEFT_RETURN_IF_ERROR(PrepareChat(ask, record, plan));
  } else if (ask->input == Ask::Input::kRendered) {
    const ChatPrompt prompt{.reasoning_is_open = ask->ends_in_thought};
    WEFT_RETURN_IF_ERROR(Restrict(*ask, prompt, /*may_call=*/false, &ask->turn, plan));
  }
  if (ask->keeps_context) plan->context = ask->turn.tokens;
  return OkStatus();
}

Task<StatusOr<std::unique_ptr<Answer>>> Answerer::Begin(Ask ask, AnswerReader reader) {
  AnswerPlan plan{.n_choices = ask.turn.n_choices,
                  .wants_logprobs = ask.turn.top_logprobs >= 0,
                  .tells_cache_report = ask.tells_cache_report};
  PromptRecord record;
  if (!ask.pictures.empty()) {
    const auto usage = [&] {
      AnswerUsage so_far;
      so_far.prompt_tokens = CountTokens(ask).value_or(0);
      return so_far;
    };
    auto encoding = EncodePicturesOf(ask, {reader.signs, usage, reader.left});
    const Status encoded = co_await encoding;
    if (!encoded.ok()) co_return encoded;
  }
  const Status prepared = Prepare(&ask, &record, &plan);
  if (!prepared.ok()) co_return prepared;
  // Signs of life tell for how much the turn waits.
  if (reader.on_progress || reader.signs.send) ask.turn.report_progress = true;
  TurnListener listener = reader;
  plan.reader = std::move(reader);
  auto submitting = Submit(std::move(ask), std::move(record), std::move(listener));
  StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (!generation.ok()) co_return generation.status();
  co_return std::make_unique<Answer>(*std::move(generation), std::move(plan));
}

// Refuses an ask that Submit would refuse, before its pictures are encoded.
Task<Status> Answerer::CheckAdmission(const Ask& ask) const {
  const Status may_run = parts_.may_run ? parts_.may_run(ask.is_begun) : OkStatus();
  if (!may_run.ok()) co_return may_run;
  const auto check = [&](std::function<void(Status)> done) {
    const std::string& tenant = ask.turn.tenant;
    engine().CheckQueue(tenant.empty() ? ask.domain : tenant, std::move(done));
  };
  const Status admitted = co_await AnswerOf<Status>(check);
  co_return admitted;
}

Task<Status> Answerer::EncodePicturesOf(Ask& ask, PictureWait wait) const {
  auto admitting = CheckAdmission(ask);
  const Status admitted = co_await admitting;
  if (!admitted.ok()) co_return admitted;
  ask.is_begun = true;
  auto encoding = EncodePictures(*pictures(), model().context_tokens(), std::move(wait), ask);
  const Status encoded = co_await encoding;
  co_return encoded;
}

// The conversation's prompt with one value per embedding.
StatusOr<TurnOptions> Answerer::MeasurePrompt(const Ask& ask) const {
  WEFT_ASSIGN_OR_RETURN(std::vector<EmbeddedRows> rows, MeasureRows(pictures(), model(), ask));
  TurnOptions turn;
  WEFT_RETURN_IF_ERROR(SetPromptOf(ask, std::move(rows), /*row_width=*/1, &turn).status());
  return turn;
}

StatusOr<std::string> Answerer::PromptText(const Ask& ask) const {
  WEFT_ASSIGN_OR_RETURN(const TurnOptions turn, MeasurePrompt(ask));
  return model().Decode(TokensOf(turn), /*render_special=*/true);
}

StatusOr<std::vector<int32_t>> Answerer::PromptTokens(const Ask& ask) const {
  WEFT_ASSIGN_OR_RETURN(const TurnOptions turn, MeasurePrompt(ask));
  if (turn.PromptRows(/*row_width=*/1) == 0) return TokensOf(turn);
  return InvalidArgument("pictures and embeddings have no tokens: send text alone");
}

StatusOr<int64_t> Answerer::CountTokens(const Ask& ask) const {
  WEFT_ASSIGN_OR_RETURN(const TurnOptions turn, MeasurePrompt(ask));
  return turn.PromptSize(/*row_width=*/1);
}

}  // namespace weft::serve
