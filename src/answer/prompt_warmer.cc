#include "answer/prompt_warmer.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <variant>

#include "answer/prompt_maker.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/tokens.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{1000}, kLook{20};
constexpr std::chrono::hours kHour{1};
constexpr char kLabel[] = "warming";
// The part of the memory for sessions that stays free.
constexpr double kReserve = 0.1;

}  // namespace

PromptWarmer::PromptWarmer(Answerer* answerer, AgentPrompts* prompts,
                           std::shared_ptr<TurnActivity> activity, Options options)
    : answerer_(*answerer),
      prompts_(*prompts),
      activity_(std::move(activity)),
      options_(std::move(options)),
      thread_([this] { Run(); }) {}

PromptWarmer::~PromptWarmer() {
  Stop(milliseconds(0));
  thread_.join();
}

void PromptWarmer::Stop(milliseconds time) {
  const auto deadline = Clock::now() + time;
  MutexLock lock(&mutex_);
  ends_ = true;
  changed_.NotifyAll();
  while (!has_ended_ && changed_.WaitUntil(&mutex_, deadline)) {
  }
}

bool PromptWarmer::ends() {
  MutexLock lock(&mutex_);
  return ends_;
}

void PromptWarmer::Run() {
  const milliseconds tick = std::min(kTick, options_.idle);
  while (!ends()) {
    {
      const auto deadline = Clock::now() + tick;
      MutexLock lock(&mutex_);
      while (!ends_ && changed_.WaitUntil(&mutex_, deadline)) {
      }
    }
    Work();
  }
  Save();
  MutexLock lock(&mutex_);
  has_ended_ = true;
  changed_.NotifyAll();
}

void PromptWarmer::Work() {
  if (Clock::now() - saved_at_ >= options_.save_every) Save();
  if (!activity_->HasBeenIdleFor(options_.idle) || !MayBegin() || ends()) return;
  try {
    if (const std::optional<AgentPrompt> prompt = prompts_.Next(skipped_)) Warm(*prompt);
  } catch (const std::exception& error) {
    LogLine(StrCat("the prompts of agents are not prefilled: ", Printable(error.what(), 200)));
    MutexLock lock(&mutex_);
    ends_ = true;
  }
}

void PromptWarmer::Save() {
  saved_at_ = Clock::now();
  Status saved;
  try {
    saved = prompts_.Save();
  } catch (const std::exception& error) {
    saved = Internal(error.what());
  }
  if (saved.ok() || has_complained_) return;
  has_complained_ = true;
  if (options_.on_notice) {
    options_.on_notice(StrCat("the prompts of agents are not saved: ", Message(saved)));
  }
}

bool PromptWarmer::MayBegin() const {
  const auto& may_run = answerer_.parts().may_run;
  return !may_run || may_run(/*is_begun=*/false).ok();
}

bool PromptWarmer::MayCompute(int64_t n_tokens) {
  const EngineStats stats = answerer_.engine().Stats();
  if (stats.page_budget > 0) {
    const auto budget = static_cast<double>(stats.page_budget);
    const double taken = static_cast<double>(stats.pages_used) / budget +
                         static_cast<double>(n_tokens) / static_cast<double>(stats.token_budget);
    if (taken > 1 - kReserve) return false;
  }
  while (!computed_.empty() && Clock::now() - computed_.front().first >= kHour) {
    computed_.pop_front();
  }
  int64_t n_computed = 0;
  for (const auto& [when, n] : computed_) n_computed += n;
  return n_computed + n_tokens <= options_.tokens_per_hour;
}

void PromptWarmer::Warm(const AgentPrompt& prompt) {
  auto tokens = TokensOf(prompt);
  if (!tokens.ok() || tokens->empty()) {
    skipped_.insert(prompt.id);
    return;
  }
  const int64_t n_tokens = std::ssize(*tokens);
  if (!MayCompute(n_tokens)) {
    // It may fit within another hour, if it is not larger than that.
    if (computed_.empty()) skipped_.insert(prompt.id);
    return;
  }
  const StatusOr<bool> computed = Compute(prompt, *std::move(tokens));
  if (!computed.ok()) skipped_.insert(prompt.id);
  if (!computed.ok() || !*computed) return;
  prompts_.SetReady(prompt.id);
  const AgentPrompts::Counts counts = prompts_.counts();
  LogLine(StrCat("prefilled the prompt of an agent in idle time: ", n_tokens, " tokens (",
                 counts.ready, " of ", counts.known, " agents)"));
}

// The texts part where the user speaks.
StatusOr<std::vector<int32_t>> PromptWarmer::TokensOf(const AgentPrompt& prompt) const {
  std::vector<std::vector<int32_t>> said;
  for (const char* const text : {".", "Hello"}) {
    ChatRequest chat = prompt.chat;
    chat.conversation.messages.push_back({.role = Role::kUser, .parts = {text}});
    WEFT_ASSIGN_OR_RETURN(KnownPrompt known,
                          answerer_.prompts().Make(prompt.tenant, std::move(chat)));
    said.push_back(std::move(known.tokens));
  }
  said[0].resize(static_cast<size_t>(CommonLength(said[0], said[1])));
  return std::move(said[0]);
}

StatusOr<bool> PromptWarmer::Compute(const AgentPrompt& prompt, std::vector<int32_t> tokens) {
  Engine& engine = answerer_.engine();
  TurnOptions options;
  // A checkpoint, without precedence over what requests keep.
  options.prefix_marks = {{.n_tokens = std::ssize(tokens), .keep_for = std::chrono::seconds(0)}};
  options.tokens = std::move(tokens);
  options.tokens_are_whole_context = true;
  options.max_tokens = 0;
  options.label = kLabel;
  if (answerer_.parts().default_adapters) options.adapters = answerer_.parts().default_adapters();
  WEFT_ASSIGN_OR_RETURN(const auto turn, engine.SubmitOnce(prompt.tenant, options));
  bool has_ended = false;
  DoneEvent done;
  while (!has_ended) {
    while (std::optional<TurnEvent> event = turn->TryNext(&has_ended)) {
      if (auto* const end = std::get_if<DoneEvent>(&*event)) done = std::move(*end);
    }
    if (has_ended) break;
    if (activity_->is_busy() || !MayBegin() || ends()) turn->Cancel();
    std::this_thread::sleep_for(kLook);
  }
  computed_.emplace_back(Clock::now(), done.usage.computed_tokens);
  if (ends()) return false;
  if (!done.status.ok()) return done.status;
  return done.reason == FinishReason::kLength;
}

}  // namespace weft::serve
