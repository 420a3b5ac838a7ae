// Shared by the measurements of weft bench; each measurement is a function, in a file with related
// ones. Everything runs through the engine in this process: it measures what a server would do,
// without the network.
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
  ModelFlags model = {.speculate = "off"};  // random text loops, and loops are easily guessed
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
  int64_t load_peak_bytes = 0;  // the process's peak memory while loading
  ModelCost cost;
};

// --- the measurements; each reports one line ------------------------------------------

// bench_decode.cc: tokens per second of one prompt, and of sessions decoding together.
Status BenchPrompt(const Bench& bench);
Status BenchDecode(const Bench& bench, int n_sessions);
// bench_requests.cc: many short requests, and many with a common prefix.
Status BenchBurst(const Bench& bench);
Status BenchFanout(const Bench& bench);
// bench_rhythm.cc: how much a long prompt delays a session that is decoding.
Status BenchRhythm(const Bench& bench);

// --- helpers ----------------------------------------------------------------------------

std::vector<int32_t> RandomTokens(const Bench& bench, uint64_t seed, int64_t n);
// Greedy; no end token ends it before `max_tokens`.
TurnOptions BenchTurn(std::vector<int32_t> tokens, int64_t max_tokens);

// The times at which a turn's tokens arrived.
struct Timeline {
  Status status;
  std::vector<int64_t> token_us;
  TurnUsage usage;
};
// Reads the turn to its end; calls `on_token` after each of its tokens.
Timeline Follow(Turn* turn, const std::function<void()>& on_token = {});

template <typename T>
T Median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The engine's cost for a measurement: shares of the time by stage, the rates at which weights and
// pages were read, and the limit of each stage.
nlohmann::json StagesOf(const Bench& bench, const EngineStats& before, const EngineStats& after);
// Bytes by kind according to the engine, and the process's total.
nlohmann::json MemoryOf(const EngineStats& stats);
// Whether the instruction set decides what computes: only `cpu` has kernels for each.
inline bool ChoosesIsa(const Bench& bench) { return bench.model->backend_name() == "cpu"; }
// Shows the current activity on one line of stderr, if that is a terminal.
void ShowProgress(std::string_view what);
void EndProgress();
// Prints `line` with the common fields, as JSON or as text.
void Report(const Bench& bench, nlohmann::json line);

}  // namespace weft::cli

#endif  // WEFT_CLI_BENCH_BENCH_H_
