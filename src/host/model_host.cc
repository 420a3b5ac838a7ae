#include "host/model_host.h"

#include <new>
#include <utility>

#include "answer/answer_ends.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"

namespace weft::serve {

bool Generation::IsReady() {
  if (!next_.has_value() && !ended_) next_ = TryNext(&ended_);
  return next_.has_value() || ended_;
}

Task<bool> Generation::WaitUntil(std::optional<Signal::TimePoint> deadline) {
  while (!IsReady()) {
    const bool is_in_time = co_await ready().WaitUntil(deadline);
    if (!is_in_time) co_return IsReady();
  }
  co_return true;
}

Task<std::optional<TurnEvent>> Generation::Next() {
  (void)co_await WaitUntil(std::nullopt);
  co_return std::exchange(next_, std::nullopt);
}

class ModelHost::CountedGeneration : public Generation {
 public:
  CountedGeneration(ModelHost* host, NamedTurn named, GenerationRequest request,
                    int64_t prompt_tokens, int64_t submitted_us)
      : host_(*host),
        turn_(std::move(named.turn)),
        is_anonymous_(named.is_anonymous),
        request_(std::move(request)),
        prompt_tokens_(prompt_tokens),
        choices_(static_cast<size_t>(request_.turn.n_choices), {.last_us = submitted_us}) {
    ready_ = request_.ready != nullptr ? request_.ready : std::make_shared<Signal>();
    // Runs on the engine thread, which may outlive this object.
    turn_->SetReadyCallback(ready_->Notifier());
  }

  void Cancel() override { turn_->Cancel(); }
  void ExpectMore() override { turn_->ExpectMore(); }
  int64_t prompt_tokens() const override { return prompt_tokens_; }
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
    if (choice.tokens.empty()) {
      host_.metrics_.ObserveFirstToken(seconds);
    } else {
      host_.metrics_.ObserveNextToken(seconds);
    }
    choice.last_us = now_us;
    choice.tokens.push_back(token.token);
  }

  void Report(const StartedEvent& started) {
    CacheReport report = MakeCacheReport({.trail = request_.trail.get(),
                                          .tokens = request_.turn.tokens,
                                          .started = &started,
                                          .has_foreign_state = host_.has_foreign_state_});
    if (IsCostly(report)) {
      const std::string label = request_.turn.label.empty() ? "" : " id=" + request_.turn.label;
      LogLine(StrCat("prompt: ", Printable(report.brief, 1000), Printable(label, 200)));
    }
    const std::string& session = is_anonymous_ ? std::string() : request_.session;
    cache_report_ = host_.cache_reports_.Add(request_.domain, session, std::move(report));
  }

  void Count(const DoneEvent& done) {
    host_.metrics_.CountFinished(done.reason, done.usage);
    completion_tokens_ += done.usage.completion_tokens;
    if (++n_done_ == choices_.size()) {
      TurnUsage usage = done.usage;
      usage.completion_tokens = completion_tokens_;
      host_.metrics_.CountOwn(request_.domain, usage);
      if (request_.finished) request_.finished(usage);
    }
    if (request_.prompt_text.empty()) return;
    host_.memory_->Remember(request_.domain, request_.prompt_text, request_.turn.tokens,
                            choices_[static_cast<size_t>(done.choice)].tokens,
                            request_.trail != nullptr ? request_.trail->items : nullptr);
  }

  ModelHost& host_;
  const std::shared_ptr<Turn> turn_;
  const bool is_anonymous_;
  std::shared_ptr<Signal> ready_;
  const GenerationRequest request_;
  std::shared_ptr<const CacheReport> cache_report_;
  const int64_t prompt_tokens_;
  std::vector<Choice> choices_;
  size_t n_done_ = 0;
  int64_t completion_tokens_ = 0;
};

std::string DefaultModelId(std::string_view name) {
  std::string id;
  bool is_gap = false;
  for (const char c : name) {
    const bool is_kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (is_kept) {
      if (is_gap && !id.empty() && id.back() != '-' && c != '-') id.push_back('-');
      id.push_back(c);
    }
    is_gap = !is_kept;
  }
  // A name in another script leaves nothing; "." and ".." have a special meaning in paths.
  if (id.find_first_not_of("._-") == id.npos) return "model";
  return id;
}

ModelHost::ModelHost(Options options)
    : options_(std::move(options)),
      created_s_(WallClockMicros() / 1'000'000),
      model_id_(options_.model_id),
      defaults_(options_.defaults) {}

ModelHost::~ModelHost() {
  (void)Drain(std::chrono::milliseconds(0));
  if (loader_.joinable()) loader_.join();
}

void ModelHost::StartLoading() {
  {
    MutexLock lock(&mutex_);
    is_loading_ = true;
  }
  loader_ = std::thread([this] { Load(); });
}

void ModelHost::Load() {
  Status status;
  try {
    status = TryLoad();
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("out of memory while loading; use a smaller model or --memory");
  }
  // If Drain came first, the phase stays kDraining.
  Phase loading = Phase::kLoading;
  phase_.compare_exchange_strong(loading, status.ok() ? Phase::kReady : Phase::kFailed);
  {
    MutexLock lock(&mutex_);
    is_loading_ = false;
    load_end_.NotifyAll();
  }
  if (options_.loaded) options_.loaded(status);
}

Status ModelHost::TryLoad() {
  WEFT_ASSIGN_OR_RETURN(model_, options_.load());
  std::string source = options_.template_source;
  if (source.empty()) source = std::string(model_->chat_template());
  auto chat = ChatFormat::Create(std::move(source), model_->tokenizer());
  if (!chat.ok()) return Annotate(chat.status(), "the chat template: ");
  chat_ = *std::move(chat);
  defaults_.ends = EndsOf(defaults_.advice, *model_->tokenizer());
  PromptMemory::Limits memory_limits = options_.prompt_memory;
  memory_limits.tokens = model_->context_tokens();
  memory_ = std::make_unique<PromptMemory>(model_->tokenizer(), memory_limits);
  replies_ = std::make_unique<ReplyMemory>(options_.reply_memory_bytes);
  if (model_id_.empty()) model_id_ = DefaultModelId(model_->name());
  EngineOptions engine = options_.engine;
  if (options_.load_draft) {
    WEFT_ASSIGN_OR_RETURN(engine.draft_model, options_.load_draft(*model_));
  }
  WEFT_ASSIGN_OR_RETURN(engine_, Engine::Start(model_, engine));
  has_foreign_state_ = engine_->Stats().disk_foreign_blocks > 0;
  // The engine now owns the state directory.
  if (!engine.state_dir.empty() && defaults_.server.restore_reasoning) {
    const Status kept = KeepReplies();
    if (!kept.ok() && engine.on_notice) engine.on_notice(std::string(Message(kept)));
  }
  return OkStatus();
}

Status ModelHost::KeepReplies() {
  ReplyLog::Options options{.directory = options_.engine.state_dir,
                            .model = model_->fingerprint(),
                            .all = [this] { return replies_->All(); },
                            .on_notice = options_.engine.on_notice};
  if (!options.on_notice) options.on_notice = [](const std::string&) {};
  std::vector<ReplyMemory::Record> found;
  WEFT_ASSIGN_OR_RETURN(reply_log_, ReplyLog::Open(std::move(options), &found));
  for (ReplyMemory::Record& record : found) {
    OwnReply reply = *record.reply;
    for (const TokenId token : reply.tokens) {
      reply.text += model_->tokenizer()->Piece(token, /*render_special=*/true);
    }
    record.reply = std::make_shared<const OwnReply>(std::move(reply));
    replies_->Remember(std::move(record));
  }
  replies_->SetListener(
      {.remembered = [log = reply_log_.get()](const auto& record) { log->Append(record); },
       .forgotten = [log = reply_log_.get()](
                        std::string_view domain,
                        std::string_view session) { log->AppendDeletion(domain, session); }});
  return OkStatus();
}

// Monitoring must see at once that the server can no longer answer.
Phase ModelHost::phase() const {
  const Phase phase = phase_.load(std::memory_order_acquire);
  return phase == Phase::kReady && !model_->CheckFile().ok() ? Phase::kFailed : phase;
}

std::string ModelHost::phase_reason() const {
  switch (phase()) {
    case Phase::kLoading:
      return "Loading model";
    case Phase::kReady:
      return "";
    case Phase::kDraining:
      return "the server is shutting down";
    case Phase::kFailed:
      return phase_.load(std::memory_order_acquire) == Phase::kReady
                 ? std::string(Message(model_->CheckFile()))
                 : "the model could not be loaded; see the server's log";
  }
  return "";
}

std::vector<int32_t> ModelHost::EncodeChat(std::string_view domain, std::string_view text,
                                           std::span<const TokenSpan> known) {
  return memory_->Encode(domain, text, known);
}

std::shared_ptr<const PromptTrail> ModelHost::TrackPrompt(std::string_view domain,
                                                          std::string_view text,
                                                          const ChatRequest& chat,
                                                          ClientList list) {
  const auto items = std::make_shared<const PromptItems>(ItemsOf(chat));
  return std::make_shared<const PromptTrail>(
      MakeTrail(memory_->Track(domain, text, items), items, chat, text, std::move(list)));
}

Task<StatusOr<std::unique_ptr<Generation>>> ModelHost::Generate(GenerationRequest request) {
  if (phase() != Phase::kReady) co_return Unavailable(phase_reason());
  const int64_t submitted_us = NowMicros();
  request.turn.tokens_are_whole_context = true;
  const SessionOptions session{.name = request.session, .domain = request.domain};
  const auto submit = [&](std::function<void(StatusOr<NamedTurn>)> done) {
    engine_->SubmitNamed({session, request.turn, request.policy}, std::move(done));
  };
  StatusOr<NamedTurn> named = co_await AnswerOf<StatusOr<NamedTurn>>(submit);
  if (!named.ok()) co_return named.status();
  const int64_t prompt_tokens = request.turn.PromptSize(model_->row_width());
  request.turn.parts = nullptr;  // the engine has them
  co_return std::make_unique<CountedGeneration>(this, *std::move(named), std::move(request),
                                                prompt_tokens, submitted_us);
}

Status ModelHost::Drain(std::chrono::milliseconds grace) {
  if (phase_.exchange(Phase::kDraining) == Phase::kFailed) phase_ = Phase::kFailed;
  draining_.request_stop();
  {
    MutexLock lock(&mutex_);
    while (is_loading_) load_end_.Wait(&mutex_);
  }
  return engine_ == nullptr ? OkStatus() : engine_->Shutdown(grace);
}

std::string ModelFileName(const Model& model) {
  return model.path().substr(model.path().find_last_of('/') + 1);
}

}  // namespace weft::serve
