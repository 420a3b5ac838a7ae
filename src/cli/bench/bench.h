// What the measurements of weft bench share; each is one function here, in a file with
// its kin. Everything goes through the engine in this process: what is measured is what
// a server would do, without the network.
#ifndef WEFT_CLI_BENCH_BENCH_H_
#define WEFT_CLI_BENCH_BENCH_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/bench/machine_limits.h"
#include "cli/flags/model_flags.h"
#include "nlohmann/json.hpp"
#include "weft/engine.h"

namespace weft::cli {

struct BenchFlags {
  ModelFlags model;
  std::vector<int> sessions = {1, 4, 8};
  int64_t prompt = 512, decode = 64, depth = 0, shared = 0;
  int64_t intruder = 0;
  int repeat = 3;
  bool burst = false, fanout = false, json = false;
};

struct Bench {
  BenchFlags flags;
  std::shared_ptr<const Model> model;
  EngineOptions options;
  MachineLimits limits;
  ModelCost cost;
};

// --- the measurements; each reports one line ------------------------------------------

// bench_decode.cc: tokens per second of one prompt, and of sessions decoding together.
Status BenchPrompt(const Bench& bench);
Status BenchDecode(const Bench& bench, int n_sessions);
// bench_requests.cc: many short requests, and many with a common prefix.
Status BenchBurst(const Bench& bench);
Status BenchFanout(const Bench& bench);
// bench_rhythm.cc: how much a session that decodes is held up by a long prompt beside it.
Status BenchRhythm(const Bench& bench);

// --- for them --------------------------------------------------------------------------

std::vector<int32_t> RandomTokens(const Bench& bench, uint64_t seed, int64_t n);
// Greedy; no end token ends it before `max_tokens`.
TurnOptions BenchTurn(std::vector<int32_t> tokens, int64_t max_tokens);

// When the tokens of one turn came.
struct Timeline {
  Status status;
  std::vector<int64_t> token_us;
  TurnUsage usage;
};
// Reads the turn to its end; `on_token` is called after each of its tokens.
Timeline Follow(Turn* turn, const std::function<void()>& on_token = {});

template <typename T>
T Median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What a measurement took from the engine: shares of the time by stage, and the rates
// at which weights and pages were read.
nlohmann::json StagesOf(const EngineStats& before, const EngineStats& after);
// Bytes by kind as the engine accounts for them, and what the process holds in all.
nlohmann::json MemoryOf(const EngineStats& stats);
// Counts the peak of the process's memory anew, where the system can.
void ForgetPeakMemory();
// What is being done, on one line of stderr where that is a terminal.
void ShowProgress(std::string_view what);
void EndProgress();
// Prints `line` with what is common to all, as JSON or for people.
void Report(const Bench& bench, nlohmann::json line);

}  // namespace weft::cli

#endif  // WEFT_CLI_BENCH_BENCH_H_
