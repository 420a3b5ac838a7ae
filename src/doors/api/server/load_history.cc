#include "doors/api/server/load_history.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/strings.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kSampleEvery{1};
constexpr size_t kMaxSamples = 300;

// Takes a sample each second while the host is ready.
class LoadSampler {
 public:
  explicit LoadSampler(Host& host) : host_(host), thread_([this] { Run(); }) {}
  ~LoadSampler() {
    {
      MutexLock lock(&mutex_);
      stop_ = true;
    }
    stopped_.NotifyAll();
    thread_.join();
  }
  LoadSampler(const LoadSampler&) = delete;
  LoadSampler& operator=(const LoadSampler&) = delete;

  const LoadHistory& history() const { return history_; }

 private:
  void Run() {
    steady_clock::time_point due = steady_clock::now();
    while (WaitUntil(due += kSampleEvery)) {
      if (host_.phase() != Phase::kReady) continue;
      const EngineStats now = host_.engine().Stats();
      history_.Add(SampleOf(now, before_, host_.engine().Turns()));
      before_ = now;
    }
  }

  // False if the sampler is to stop.
  bool WaitUntil(steady_clock::time_point due) {
    MutexLock lock(&mutex_);
    while (!stop_ && stopped_.WaitUntil(&mutex_, due)) continue;
    return !stop_;
  }

  Host& host_;
  LoadHistory history_{kMaxSamples};
  EngineStats before_;  // the thread's own
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

void HandleHistory(Host& host, const LoadHistory& history, const HttpRequest& request,
                   HttpResponder& responder) {
  int64_t after = 0;
  const auto it = request.query.find("after");
  if (it != request.query.end() && (!ParseInt64(it->second, &after) || after < 0)) {
    const Status status = WithParam(
        InvalidArgument("after is the number of a sample, for example /load/history?after=17"),
        "after");
    return SendError(responder, status, kOpenAiErrors);
  }
  const std::string* domain = request.is_operators ? nullptr : &request.domain;
  Json answer = history.Tell(after, domain);
  answer["queue"] = QueueOf(host.engine().Turns(), request.domain);
  SendJson(responder, answer);
}

}  // namespace

Json QueueOf(const std::vector<TurnInfo>& turns, const std::string& domain) {
  Json own = Json::array();
  int64_t place = 0;
  for (const TurnInfo& turn : turns) {
    if (turn.stage != TurnInfo::Stage::kQueued) continue;
    ++place;
    if (turn.domain != domain || turn.session_name.empty()) continue;
    own.push_back({{"session_id", turn.session_name}, {"place", place}});
  }
  return {{"length", place}, {"own", std::move(own)}};
}

LoadSample SampleOf(const EngineStats& now, const EngineStats& before,
                    const std::vector<TurnInfo>& turns) {
  LoadSample sample{.turns = {.running = now.turns_running, .waiting = now.turns_queued},
                    .idle_sessions = now.sessions_ready,
                    .pages_used = now.pages_used,
                    .page_budget = now.page_budget,
                    .generated_tokens = now.generated_tokens - before.generated_tokens,
                    .prompt_tokens = now.prompt_tokens - before.prompt_tokens,
                    .steps = now.steps - before.steps,
                    .step_us = now.step_us - before.step_us};
  for (const TurnInfo& turn : turns) {
    LoadSample::Turns& own = sample.by_domain[turn.domain];
    ++(turn.stage == TurnInfo::Stage::kQueued ? own.waiting : own.running);
  }
  return sample;
}

void LoadHistory::Add(LoadSample sample) {
  MutexLock lock(&mutex_);
  samples_.push_back(std::move(sample));
  if (samples_.size() > max_) samples_.pop_front();
  ++next_;
}

Json LoadHistory::Tell(int64_t after, const std::string* domain) const {
  std::vector<LoadSample> told;
  int64_t first = 0, next = 0;
  {
    MutexLock lock(&mutex_);
    next = next_;
    const int64_t kept_from = next - static_cast<int64_t>(samples_.size());
    first = after > next ? kept_from : std::max(after, kept_from);
    told.assign(samples_.begin() + (first - kept_from), samples_.end());
  }
  const auto column = [&](auto value) {
    Json values = Json::array();
    for (const LoadSample& sample : told) values.push_back(value(sample));
    return values;
  };
  const auto turns_of = [&](const LoadSample& sample) {
    if (domain == nullptr) return sample.turns;
    const auto it = sample.by_domain.find(*domain);
    return it == sample.by_domain.end() ? LoadSample::Turns() : it->second;
  };
  using Sample = const LoadSample&;
  Json answer = {{"every_ms", std::chrono::milliseconds(kSampleEvery).count()},
                 {"first", first},
                 {"next", next},
                 {"running", column([&](Sample s) { return turns_of(s).running; })},
                 {"waiting", column([&](Sample s) { return turns_of(s).waiting; })}};
  if (domain != nullptr) return answer;
  answer["idle"] = column([](Sample s) { return s.idle_sessions; });
  answer["pages_used"] = column([](Sample s) { return s.pages_used; });
  answer["page_budget"] = column([](Sample s) { return s.page_budget; });
  answer["generated_tokens"] = column([](Sample s) { return s.generated_tokens; });
  answer["prompt_tokens"] = column([](Sample s) { return s.prompt_tokens; });
  answer["steps"] = column([](Sample s) { return s.steps; });
  answer["step_us"] = column([](Sample s) { return s.step_us; });
  return answer;
}

void RegisterLoadHistory(Router& router, Host& host) {
  const auto sampler = std::make_shared<LoadSampler>(host);
  router.Add({.method = "GET",
              .pattern = "/load/history",
              .handler =
                  [&host, sampler](const HttpRequest& request, HttpResponder& responder) {
                    HandleHistory(host, sampler->history(), request, responder);
                  },
              .is_quick = true,
              .is_watched = true});
}

}  // namespace weft::serve
