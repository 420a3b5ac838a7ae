#include "serve/model_host.h"

#include <functional>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

// Sessions that are dropped for one new one: more than one where others drop and make
// sessions at the same time.
constexpr int kMaxDrops = 16;

}  // namespace

class ModelHost::CountedGeneration : public Generation {
 public:
  CountedGeneration(std::shared_ptr<Turn> turn, GenerationRequest request, int64_t submitted_us,
                    Metrics* metrics, PromptMemory* memory)
      : turn_(std::move(turn)),
        request_(std::move(request)),
        metrics_(*metrics),
        memory_(*memory),
        prompt_tokens_(static_cast<int64_t>(request_.turn.tokens.size())),
        choices_(static_cast<size_t>(request_.turn.n_choices), {.last_us = submitted_us}) {
    wakeup_ = request_.wakeup != nullptr ? request_.wakeup : std::make_shared<Wakeup>();
    // It runs on the engine thread, which may outlive this object's interest in it.
    turn_->SetReadyCallback([wakeup = wakeup_] { wakeup->Advance(); });
  }

  std::optional<TurnEvent> Next() override {
    std::optional<TurnEvent> event = std::exchange(next_, std::nullopt);
    if (!event.has_value()) event = turn_->Next();
    if (!event.has_value()) return event;
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      Count(*token);
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      Count(*done);
    }
    return event;
  }
  bool WaitFor(std::chrono::milliseconds patience) override {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!next_.has_value()) {
      const uint64_t seen = wakeup_->count();
      bool at_end = false;
      next_ = turn_->TryNext(&at_end);
      if (next_.has_value() || at_end) break;
      if (!wakeup_->WaitPast(seen, deadline)) return false;
    }
    return true;
  }
  void Cancel() override { turn_->Cancel(); }
  int64_t prompt_tokens() const override { return prompt_tokens_; }

 private:
  struct Choice {
    int64_t last_us = 0;  // its last token, or the submission
    std::vector<int32_t> tokens;
  };

  void Count(const TokenEvent& token) {
    Choice& choice = choices_[static_cast<size_t>(token.choice)];
    const int64_t now_us = NowMicros();
    const double seconds = static_cast<double>(now_us - choice.last_us) * 1e-6;
    if (choice.tokens.empty()) {
      metrics_.ObserveFirstToken(seconds);
    } else {
      metrics_.ObserveNextToken(seconds);
    }
    choice.last_us = now_us;
    choice.tokens.push_back(token.token);
  }

  void Count(const DoneEvent& done) {
    metrics_.CountFinished(done.reason, done.usage);
    completion_tokens_ += done.usage.completion_tokens;
    if (++n_done_ == choices_.size()) {
      TurnUsage usage = done.usage;
      usage.completion_tokens = completion_tokens_;
      metrics_.CountOwn(request_.domain, usage);
      if (request_.finished) request_.finished(usage);
    }
    if (request_.prompt_text.empty()) return;
    memory_.Remember(request_.domain, request_.prompt_text, request_.turn.tokens,
                     choices_[static_cast<size_t>(done.choice)].tokens);
  }

  const std::shared_ptr<Turn> turn_;
  std::shared_ptr<Wakeup> wakeup_;
  std::optional<TurnEvent> next_;  // taken while waiting
  const GenerationRequest request_;
  Metrics& metrics_;
  PromptMemory& memory_;
  const int64_t prompt_tokens_;
  std::vector<Choice> choices_;
  size_t n_done_ = 0;
  int64_t completion_tokens_ = 0;
};

ModelHost::ModelHost(Options options)
    : options_(std::move(options)),
      created_s_(WallClockMicros() / 1'000'000),
      model_id_(options_.model_id) {}

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
  if (!status.ok()) {
    MutexLock lock(&mutex_);
    failure_ = std::string(Message(status));
  }
  // Drain may have come first; then it stays so.
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
  PromptMemory::Limits memory_limits = options_.prompt_memory;
  memory_limits.tokens = model_->context_tokens();
  memory_ = std::make_unique<PromptMemory>(model_->tokenizer(), memory_limits);
  if (model_id_.empty()) model_id_ = model_->name();
  WEFT_ASSIGN_OR_RETURN(engine_, Engine::Start(model_, options_.engine));
  return OkStatus();
}

std::string ModelHost::phase_reason() const {
  switch (phase()) {
    case Phase::kLoading:
      return "Loading model";
    case Phase::kReady:
      return "";
    case Phase::kDraining:
      return "the server is shutting down";
    case Phase::kFailed: {
      MutexLock lock(&mutex_);
      return failure_;
    }
  }
  return "";
}

std::vector<int32_t> ModelHost::EncodeChat(std::string_view domain, std::string_view text) {
  return memory_->Encode(domain, text);
}

StatusOr<std::unique_ptr<Generation>> ModelHost::Generate(GenerationRequest request) {
  if (phase() != Phase::kReady) return Unavailable(phase_reason());
  const int64_t submitted_us = NowMicros();
  request.turn.tokens_are_whole_context = true;
  auto turn = Submit(request);
  WEFT_RETURN_IF_ERROR(turn.status());
  return std::unique_ptr<Generation>(std::make_unique<CountedGeneration>(
      *std::move(turn), std::move(request), submitted_us, &metrics_, memory_.get()));
}

StatusOr<std::shared_ptr<Turn>> ModelHost::Submit(const GenerationRequest& request) {
  if (request.session.empty()) return engine_->SubmitOnce(request.domain, request.turn);
  bool table_is_full = false;
  auto turn = SubmitNamed(request, &table_is_full);
  // It was closed between finding it and submitting to it: by a client, or after a long time.
  if (turn.status().code() == StatusCode::kNotFound) turn = SubmitNamed(request, &table_is_full);
  // Clients name sessions and never close them. Those that were only ever in memory are
  // forgotten again when there are too many: a turn brings its whole context along, so
  // that costs no more than computing it.
  for (int drops = 0; drops < kMaxDrops && table_is_full; ++drops) {
    if (!DropIdleSession(request.domain)) break;
    turn = SubmitNamed(request, &table_is_full);
  }
  return turn;
}

StatusOr<std::shared_ptr<Turn>> ModelHost::SubmitNamed(const GenerationRequest& request,
                                                       bool* table_is_full) {
  *table_is_full = false;
  MutexLock lock(MutexOf(request.domain, request.session));
  StatusOr<SessionId> session = engine_->FindSession(request.domain, request.session);
  const bool is_new = session.status().code() == StatusCode::kNotFound;
  if (is_new) {
    session = engine_->CreateSession({.name = request.session, .domain = request.domain});
    *table_is_full = session.status().code() == StatusCode::kResourceExhausted;
  }
  WEFT_RETURN_IF_ERROR(session.status());
  if (!is_new) WEFT_RETURN_IF_ERROR(MakeReadable(*session));
  auto turn = engine_->Submit(*session, request.turn);
  // A turn that is refused leaves no session behind.
  if (!turn.ok() && is_new) (void)engine_->Close(*session, /*forget=*/true);
  return turn;
}

Mutex* ModelHost::MutexOf(std::string_view domain, std::string_view session) {
  const std::string name = StrCat(domain, "\n", session);
  return &session_mutexes_[std::hash<std::string>()(name) % session_mutexes_.size()];
}

// A file may be damaged, gone, or another model's. The turn would say so only when it runs,
// too late for a client that can do without the session.
Status ModelHost::MakeReadable(SessionId session) {
  if (options_.engine.state_dir.empty()) return OkStatus();
  const Status status = engine_->Restore(session);
  if (status.ok() || status.code() == StatusCode::kUnavailable) return status;
  return FailedPrecondition("the saved session cannot be used until it is reset or deleted: ",
                            Message(status));
}

// The one that has not been used for longest; of this domain, so that no key pays for
// another's. One that has a file keeps its place: it is to be found again.
bool ModelHost::DropIdleSession(const std::string& domain) {
  const auto sessions = engine_->ListSessions(domain);
  if (!sessions.ok()) return false;
  const SessionInfo* oldest = nullptr;
  for (const SessionInfo& info : *sessions) {
    if (info.state != SessionState::kReady || info.saved) continue;
    if (oldest == nullptr || info.idle_us > oldest->idle_us) oldest = &info;
  }
  if (oldest == nullptr) return false;
  MutexLock lock(MutexOf(domain, oldest->name));
  const auto now = engine_->Inspect(oldest->id);
  // A turn of it has begun meanwhile, or it is gone already: there may be others.
  if (!now.ok() || now->state != SessionState::kReady || now->saved) return true;
  return engine_->Close(oldest->id, /*forget=*/false).ok();
}

Status ModelHost::Drain(std::chrono::milliseconds grace) {
  if (phase_.exchange(Phase::kDraining) == Phase::kFailed) phase_ = Phase::kFailed;
  {
    MutexLock lock(&mutex_);
    while (is_loading_) load_end_.Wait(&mutex_);
  }
  return engine_ == nullptr ? OkStatus() : engine_->Shutdown(grace);
}

}  // namespace weft::serve
