// What a server is doing, in numbers: from its engine, or as another process reads them from
// /metrics. And how that reads in one line. Values.
#ifndef WEFT_CLI_SERVE_SERVER_FIGURES_H_
#define WEFT_CLI_SERVE_SERVER_FIGURES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "weft/engine.h"

namespace weft::cli {

struct ServerFigures {
  // now
  int64_t turns_running = 0, turns_queued = 0;
  int64_t sessions = 0;         // named and anonymous ones that hold state in memory
  int64_t sessions_parked = 0;  // on disk alone
  int64_t pages_used = 0, page_budget = 0;
  int64_t weight_bytes = 0;
  int64_t state_bytes = 0;  // conversations and cached prompts
  int64_t other_bytes = 0;  // the steps' working memory, and texts for n-gram lookup
  int64_t disk_bytes = 0, disk_budget_bytes = 0;
  // since the server's start
  int64_t computed_tokens = 0, cached_tokens = 0;  // prompt tokens
  int64_t written_tokens = 0;
  int64_t steps = 0, step_us = 0;

  bool operator==(const ServerFigures&) const = default;
};

ServerFigures FiguresOf(const EngineStats& stats);
// From the text of /metrics; of several models all together. An error if it is not a Weft server's.
StatusOr<ServerFigures> ParseFigures(std::string_view metrics);

// Rates between two readings, per second.
struct ServerRates {
  double computed = 0, written = 0;  // tokens
  double step_ms = 0;                // a step's mean duration; 0: there was none
};
ServerRates RatesBetween(const ServerFigures& before, const ServerFigures& now, double seconds);

// How much of the prompts was found in memory or on disk since the start, in percent; -1: there
// were none.
int FoundPercent(const ServerFigures& figures);
// How much of the memory for conversations is used, in percent.
int MemoryPercent(const ServerFigures& figures);

// "2 running, 1 waiting | 168 tokens/s written, 540 read | memory 12 % full | 71 % of prompts
// found"; parts that do not fit are left out from the end.
std::string LiveLine(const ServerFigures& now, const ServerRates& rates, size_t columns);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SERVER_FIGURES_H_
