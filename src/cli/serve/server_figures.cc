#include "cli/serve/server_figures.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <vector>

#include "base/strings.h"

namespace weft::cli {
namespace {

// The sample's name without the label of the model, the first where a server has several.
std::string WithoutModel(std::string_view name) {
  constexpr std::string_view kLabel = "{model=\"";
  const size_t begin = name.find(kLabel);
  if (begin == name.npos) return std::string(name);
  size_t end = begin + kLabel.size();
  while (end < name.size() && name[end] != '"') end += name[end] == '\\' ? 2 : 1;
  const std::string_view rest = name.substr(std::min(end + 1, name.size()));
  if (rest.starts_with(',')) return StrCat(name.substr(0, begin + 1), rest.substr(1));
  return std::string(name.substr(0, begin));
}

// Samples by name with labels, such as weft_bytes{kind="weights"}; those of several models are
// added up.
std::map<std::string, double, std::less<>> ParseSamples(std::string_view text) {
  std::map<std::string, double, std::less<>> samples;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == line.npos) continue;
    double value = 0;
    const char* const last = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + space + 1, last, value);
    if (error == std::errc() && stop == last) samples[WithoutModel(line.substr(0, space))] += value;
  }
  return samples;
}

int Percent(int64_t part, int64_t whole) {
  return static_cast<int>(std::lround(100.0 * static_cast<double>(part) /
                                      static_cast<double>(std::max<int64_t>(1, whole))));
}

// "168", or "0.4" below ten.
std::string RateText(double rate) {
  if (rate >= 9.95 || rate < 0.05) return StrCat(std::llround(rate));
  const auto tenths = std::llround(rate * 10);
  return StrCat(tenths / 10, ".", tenths % 10);
}

}  // namespace

ServerFigures FiguresOf(const EngineStats& stats) {
  return {.turns_running = stats.turns_running,
          .turns_queued = stats.turns_queued,
          .sessions = stats.sessions_ready + stats.sessions_running + stats.sessions_poisoned,
          .sessions_parked = stats.sessions_parked,
          .pages_used = stats.pages_used,
          .page_budget = stats.page_budget,
          .weight_bytes = stats.weight_bytes + stats.draft_weight_bytes,
          .state_bytes = stats.page_bytes + stats.slot_bytes + stats.checkpoint_bytes +
                         stats.row_bytes + stats.draft_state_bytes,
          .other_bytes = stats.scratch_bytes + stats.draft_scratch_bytes + stats.guess_bytes,
          .disk_bytes = stats.disk_bytes,
          .disk_budget_bytes = stats.disk_budget_bytes,
          .computed_tokens = stats.prompt_tokens,
          .cached_tokens = stats.cached_tokens,
          .written_tokens = stats.generated_tokens,
          .steps = stats.steps,
          .step_us = stats.step_us};
}

StatusOr<ServerFigures> ParseFigures(std::string_view metrics) {
  const auto samples = ParseSamples(metrics);
  const auto number = [&](std::string_view name) {
    const auto it = samples.find(name);
    return it == samples.end() ? int64_t{0} : static_cast<int64_t>(std::llround(it->second));
  };
  const auto of_kind = [&](std::string_view name, std::string_view label, std::string_view kind) {
    return number(StrCat(name, "{", label, "=\"", kind, "\"}"));
  };
  const auto sum = [&](std::string_view name, std::string_view label,
                       const std::vector<const char*>& kinds) {
    int64_t all = 0;
    for (const char* kind : kinds) all += of_kind(name, label, kind);
    return all;
  };
  // A server of several models may have none loaded.
  if (!samples.contains("weft_pages{kind=\"budget\"}") && !samples.contains("weft_model_loaded")) {
    return FailedPrecondition("the server tells nothing about its engine");
  }
  const auto seconds = samples.find("weft_step_seconds_sum");
  return ServerFigures{
      .turns_running = number("weft_turns_running"),
      .turns_queued = number("weft_turns_queued"),
      .sessions = sum("weft_sessions", "state", {"ready", "running", "poisoned"}),
      .sessions_parked = of_kind("weft_sessions", "state", "parked"),
      .pages_used = of_kind("weft_pages", "kind", "used"),
      .page_budget = of_kind("weft_pages", "kind", "budget"),
      .weight_bytes = sum("weft_bytes", "kind", {"weights", "draft_weights"}),
      .state_bytes =
          sum("weft_bytes", "kind", {"pages", "slots", "checkpoints", "rows", "draft_state"}),
      .other_bytes = sum("weft_bytes", "kind", {"scratch", "draft_scratch", "guesses"}),
      .disk_bytes = of_kind("weft_state_disk_bytes", "kind", "used"),
      .disk_budget_bytes = of_kind("weft_state_disk_bytes", "kind", "budget"),
      .computed_tokens = number("weft_prompt_tokens_total"),
      .cached_tokens = number("weft_cached_tokens_total"),
      .written_tokens = number("weft_generated_tokens_total"),
      .steps = number("weft_step_seconds_count"),
      .step_us = seconds == samples.end() ? 0 : std::llround(seconds->second * 1e6)};
}

ServerRates RatesBetween(const ServerFigures& before, const ServerFigures& now, double seconds) {
  const auto rate = [&](int64_t from, int64_t to) {
    return seconds > 0 ? static_cast<double>(std::max<int64_t>(0, to - from)) / seconds : 0;
  };
  ServerRates rates = {.computed = rate(before.computed_tokens, now.computed_tokens),
                       .written = rate(before.written_tokens, now.written_tokens)};
  const int64_t steps = now.steps - before.steps;
  if (steps > 0) {
    rates.step_ms =
        static_cast<double>(now.step_us - before.step_us) / 1e3 / static_cast<double>(steps);
  }
  return rates;
}

int FoundPercent(const ServerFigures& figures) {
  const int64_t all = figures.cached_tokens + figures.computed_tokens;
  return all == 0 ? -1 : Percent(figures.cached_tokens, all);
}

int MemoryPercent(const ServerFigures& figures) {
  return Percent(figures.pages_used, figures.page_budget);
}

std::string LiveLine(const ServerFigures& now, const ServerRates& rates, size_t columns) {
  std::vector<std::string> parts;
  if (now.turns_running + now.turns_queued == 0) {
    parts.push_back("idle");
  } else {
    parts.push_back(StrCat(now.turns_running, " running"));
    if (now.turns_queued > 0) StrAppend(&parts.back(), ", ", now.turns_queued, " waiting");
    parts.push_back(
        StrCat(RateText(rates.written), " tokens/s written, ", RateText(rates.computed), " read"));
  }
  parts.push_back(StrCat("memory ", MemoryPercent(now), " % full"));
  if (FoundPercent(now) >= 0) {
    parts.push_back(StrCat(FoundPercent(now), " % of prompts found"));
  }
  std::string line;
  for (const std::string& part : parts) {
    const size_t size = line.size() + (line.empty() ? 0 : 3) + part.size();
    if (size > columns) break;
    StrAppend(&line, line.empty() ? "" : " | ", part);
  }
  return line;
}

}  // namespace weft::cli
