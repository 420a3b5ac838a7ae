#include "answer/prompt_warmer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "answer/prompt_maker.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/tokens.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{1000}, kLook{20};
constexpr std::chrono::seconds kSaved{10};
constexpr char kLabel[] = "warming";

int64_t TurnsEnded(const EngineStats& stats) {
  return stats.turns_finished + stats.turns_cancelled + stats.turns_failed + stats.turns_refused;
}

int64_t TurnsNow(const EngineStats& stats) { return stats.turns_queued + stats.turns_running; }

}  // namespace

PromptWarmer::PromptWarmer(Answerer* answerer, AgentPrompts* prompts, Options options)
    : answerer_(*answerer),
      prompts_(*prompts),
      options_(std::move(options)),
      tokens_left_(static_cast<double>(options_.tokens_per_hour)),
      earned_at_(steady_clock::now()),
      busy_at_(earned_at_),
      saved_at_(earned_at_),
      thread_([this] { Run(); }) {}

PromptWarmer::~PromptWarmer() {
  Stop();
  thread_.join();
}

void PromptWarmer::Stop() {
  MutexLock lock(&mutex_);
  ends_ = true;
  changed_.NotifyAll();
}

bool PromptWarmer::ends() {
  MutexLock lock(&mutex_);
  return ends_;
}

void PromptWarmer::Wait(milliseconds time) {
  const auto deadline = steady_clock::now() + time;
  MutexLock lock(&mutex_);
  while (!ends_ && changed_.WaitUntil(&mutex_, deadline)) {
  }
}

void PromptWarmer::Run() {
  const milliseconds tick = std::min(kTick, options_.idle);
  while (!ends()) {
    Wait(tick);
    if (steady_clock::now() - saved_at_ >= kSaved) Save();
    Earn();
    if (options_.tokens_per_hour == 0 || tokens_left_ <= 0 || !IsIdle()) continue;
    if (const std::optional<AgentPrompt> prompt = prompts_.Next()) Warm(*prompt);
  }
  Save();
}

void PromptWarmer::Save() {
  saved_at_ = steady_clock::now();
  const Status saved = prompts_.Save();
  if (saved.ok() || has_complained_) return;
  has_complained_ = true;
  if (options_.on_notice) {
    options_.on_notice(StrCat("what agents begin with is not kept: ", Message(saved)));
  }
}

void PromptWarmer::Earn() {
  const auto now = steady_clock::now();
  const double hours = std::chrono::duration<double, std::ratio<3600>>(now - earned_at_).count();
  const auto per_hour = static_cast<double>(options_.tokens_per_hour);
  tokens_left_ = std::min(per_hour, tokens_left_ + per_hour * hours);
  earned_at_ = now;
}

bool PromptWarmer::IsIdle() {
  const EngineStats stats = answerer_.engine().Stats();
  const auto& may_run = answerer_.parts().may_run;
  const int64_t ended = TurnsEnded(stats);
  const bool is_busy = TurnsNow(stats) > 0 || ended != turns_ended_;
  if (is_busy || (may_run && !may_run(/*is_begun=*/false).ok())) busy_at_ = steady_clock::now();
  turns_ended_ = ended;
  return steady_clock::now() - busy_at_ >= options_.idle;
}

void PromptWarmer::Warm(const AgentPrompt& prompt) {
  auto tokens = TokensOf(prompt);
  const size_t n_tokens = tokens.ok() ? tokens->size() : 0;
  StatusOr<bool> computed = true;
  if (n_tokens > 0) computed = Compute(prompt, *std::move(tokens));
  // Our own turn keeps nobody waiting.
  turns_ended_ = TurnsEnded(answerer_.engine().Stats());
  if (computed.ok() && !*computed) {
    busy_at_ = steady_clock::now();
    return;
  }
  // What cannot be computed would fail the next time too.
  prompts_.SetReady(prompt.id);
  if (n_tokens == 0 || !computed.ok()) return;
  const AgentPrompts::Counts counts = prompts_.counts();
  LogLine(StrCat("computed ahead: the first ", n_tokens, " tokens of an agent's conversations (",
                 counts.ready, " of ", counts.known, " agents)"));
}

// The texts part where the user speaks.
StatusOr<std::vector<int32_t>> PromptWarmer::TokensOf(const AgentPrompt& prompt) const {
  std::vector<std::vector<int32_t>> said;
  for (const char* const text : {".", "Hello"}) {
    ChatRequest chat = prompt.chat;
    chat.conversation.messages.push_back({.role = Role::kUser, .parts = {text}});
    WEFT_ASSIGN_OR_RETURN(KnownPrompt known,
                          answerer_.prompts().Make(prompt.domain, std::move(chat)));
    said.push_back(std::move(known.tokens));
  }
  said[0].resize(static_cast<size_t>(CommonLength(said[0], said[1])));
  return std::move(said[0]);
}

StatusOr<bool> PromptWarmer::Compute(const AgentPrompt& prompt, std::vector<int32_t> tokens) {
  Engine& engine = answerer_.engine();
  TurnOptions options;
  options.prefix_marks = {{.n_tokens = std::ssize(tokens)}};
  options.tokens = std::move(tokens);
  options.tokens_are_whole_context = true;
  options.max_tokens = 0;
  options.label = kLabel;
  if (answerer_.parts().default_adapters) options.adapters = answerer_.parts().default_adapters();
  const auto turn = engine.SubmitOnce(prompt.domain, options);
  const StatusCode refusal = turn.status().code();
  if (refusal == StatusCode::kResourceExhausted || refusal == StatusCode::kUnavailable) {
    return false;
  }
  if (!turn.ok()) return turn.status();
  bool has_ended = false;
  DoneEvent done;
  while (!has_ended) {
    while (std::optional<TurnEvent> event = (*turn)->TryNext(&has_ended)) {
      if (auto* const end = std::get_if<DoneEvent>(&*event)) done = std::move(*end);
    }
    if (has_ended) break;
    if (ends() || TurnsNow(engine.Stats()) > 1) (*turn)->Cancel();
    std::this_thread::sleep_for(kLook);
  }
  tokens_left_ -= static_cast<double>(done.usage.computed_tokens);
  if (!done.status.ok()) return done.status;
  return done.reason == FinishReason::kLength;
}

}  // namespace weft::serve
