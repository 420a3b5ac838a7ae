// A server's load in the last five minutes, one sample a second, for the page's chart:
//
//   GET /load/history            everything that is kept
//   GET /load/history?after=17   the samples from number 17 on
//
// The rules are those of /load: operators see everybody's turns and the engine's figures, a key
// sees how many of its own turns run and wait. Both see the places of their own turns in the queue.
//
// The route owns the samples and the thread that takes them; it ends with the router.
#ifndef WEFT_DOORS_API_SERVER_LOAD_HISTORY_H_
#define WEFT_DOORS_API_SERVER_LOAD_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "doors/host/host.h"
#include "doors/http/router.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct LoadSample {
  struct Turns {
    int64_t running = 0, waiting = 0;
  };
  Turns turns;
  std::map<std::string, Turns> by_domain;
  int64_t idle_sessions = 0;  // in memory, without a turn
  int64_t pages_used = 0, page_budget = 0;
  // Since the sample before.
  int64_t generated_tokens = 0, prompt_tokens = 0, steps = 0, step_us = 0;
};

// The figures of a sample; `before` are the statistics at the one before.
LoadSample SampleOf(const EngineStats& now, const EngineStats& before,
                    const std::vector<TurnInfo>& turns);

// How many turns wait, and the places of those of `domain` that have a named session. Others are
// only counted: two domains may have sessions of one name. `turns` as Engine::Turns has them.
nlohmann::ordered_json QueueOf(const std::vector<TurnInfo>& turns, const std::string& domain);

// A ring of samples, numbered from 0 on. Any thread.
class LoadHistory {
 public:
  explicit LoadHistory(size_t most) : max_(most) {}

  void Add(LoadSample sample);
  // Those from number `after` on that are kept; all of them if there is no such number yet, as
  // after a restart. `domain`: whose turns; null: everybody's, and the engine's figures.
  nlohmann::ordered_json Tell(int64_t after, const std::string* domain) const;

 private:
  const size_t max_;
  mutable Mutex mutex_;
  std::deque<LoadSample> samples_ WEFT_GUARDED_BY(mutex_);
  int64_t next_ WEFT_GUARDED_BY(mutex_) = 0;  // the next sample's number
};

// `host` outlives the router.
void RegisterLoadHistory(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_LOAD_HISTORY_H_
