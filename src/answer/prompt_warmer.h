// Prefills the prompts of agents in idle time, where a change of model, KV type or version has left
// them uncomputed: their next conversation need not wait for them.
//
// One prompt at a time, only into memory that is free, and only while no request has a turn: one
// that comes waits for a step at most.
#ifndef WEFT_ANSWER_PROMPT_WARMER_H_
#define WEFT_ANSWER_PROMPT_WARMER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "answer/agent_prompts.h"
#include "answer/answerer.h"
#include "answer/turn_activity.h"
#include "base/mutex.h"
#include "base/status.h"
#include "weft/engine.h"

namespace weft::serve {

class PromptWarmer {
 public:
  struct Options {
    int64_t tokens_per_hour = 0;            // to compute at most
    std::chrono::milliseconds idle{5'000};  // how long no request has had a turn
    std::chrono::milliseconds save_every = std::chrono::minutes(10);
    std::function<void(const std::string&)> on_notice = {};
  };

  // `answerer` and `prompts` outlive it. `activity`: the turns of requests, other models' too. Also
  // saves the prompts.
  PromptWarmer(Answerer* answerer, AgentPrompts* prompts, std::shared_ptr<TurnActivity> activity,
               Options options);
  ~PromptWarmer();

  // Begins nothing more, ends what it computes and saves the prompts; waits for that, but no longer
  // than `time`. Any thread.
  void Stop(std::chrono::milliseconds time);

 private:
  using Clock = std::chrono::steady_clock;

  void Run();
  void Work();
  void Save();
  bool ends();
  bool MayBegin() const;
  void Warm(const AgentPrompt& prompt);
  StatusOr<std::vector<int32_t>> TokensOf(const AgentPrompt& prompt) const;
  // Whether so many tokens are within the bounds of memory and time.
  bool MayCompute(int64_t n_tokens);
  // True if all was computed. False: a request has a turn.
  StatusOr<bool> Compute(const AgentPrompt& prompt, std::vector<int32_t> tokens);

  Answerer& answerer_;
  AgentPrompts& prompts_;
  const std::shared_ptr<TurnActivity> activity_;
  const Options options_;
  std::deque<std::pair<Clock::time_point, int64_t>> computed_;  // tokens, in the last hour
  std::set<uint64_t> skipped_;  // what could not be computed, until the next start
  Clock::time_point saved_at_ = Clock::now();
  bool has_complained_ = false;

  Mutex mutex_;
  CondVar changed_;
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
  bool has_ended_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_WARMER_H_
