// Computes in idle time what agents say first, where a change of model, KV type or version has left
// it uncomputed: so that their next conversation need not wait for it.
//
// One prompt at a time, and only while the engine has nothing else to do: any request pauses it.
#ifndef WEFT_ANSWER_PROMPT_WARMER_H_
#define WEFT_ANSWER_PROMPT_WARMER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "answer/agent_prompts.h"
#include "answer/answerer.h"
#include "base/mutex.h"
#include "base/status.h"
#include "weft/engine.h"

namespace weft::serve {

class PromptWarmer {
 public:
  struct Options {
    int64_t tokens_per_hour = 0;            // to compute at most; 0: none
    std::chrono::milliseconds idle{5'000};  // how long the engine has had no turn
    std::function<void(const std::string&)> on_notice = {};
  };

  // Both outlive it. Also saves the prompts.
  PromptWarmer(Answerer* answerer, AgentPrompts* prompts, Options options);
  ~PromptWarmer();

  // Begins nothing more, and ends what it computes. Does not wait; any thread.
  void Stop();

 private:
  void Run();
  void Save();
  bool ends();
  // Waits, at most until Stop.
  void Wait(std::chrono::milliseconds time);
  // Whether the engine has had no turn for long enough.
  bool IsIdle();
  void Earn();
  void Warm(const AgentPrompt& prompt);
  StatusOr<std::vector<int32_t>> TokensOf(const AgentPrompt& prompt) const;
  // True if all was computed. False: somebody else has a turn.
  StatusOr<bool> Compute(const AgentPrompt& prompt, std::vector<int32_t> tokens);

  Answerer& answerer_;
  AgentPrompts& prompts_;
  const Options options_;
  double tokens_left_;  // of what may be computed now
  std::chrono::steady_clock::time_point earned_at_, busy_at_, saved_at_;
  int64_t turns_ended_ = -1;  // when last looked at
  bool has_complained_ = false;

  Mutex mutex_;
  CondVar changed_;
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_WARMER_H_
