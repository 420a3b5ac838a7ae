#include "cli/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/system.h"
#include "cli/terminal/output.h"
#include "compute/kernels/isa.h"
#include "engine/sampling/random.h"

namespace weft::cli {

nlohmann::json MemoryOf(const EngineStats& stats) {
  const int64_t accounted = stats.weight_bytes + stats.page_bytes + stats.slot_bytes +
                            stats.checkpoint_bytes + stats.scratch_bytes +
                            stats.draft_weight_bytes + stats.draft_state_bytes +
                            stats.draft_scratch_bytes;
  const int64_t resident = ResidentMemoryBytes();
  return {{"weights", stats.weight_bytes},
          {"pages", stats.page_bytes},
          {"slots", stats.slot_bytes},
          {"checkpoints", stats.checkpoint_bytes},
          {"scratch", stats.scratch_bytes},
          {"draft_weights", stats.draft_weight_bytes},
          {"draft_state", stats.draft_state_bytes},
          {"draft_scratch", stats.draft_scratch_bytes},
          {"resident", resident},
          {"resident_ratio", static_cast<double>(resident) / static_cast<double>(accounted)}};
}

namespace {

void AddLimit(std::string_view stage, const StageLimit& limit, nlohmann::json* stages) {
  if (limit.kind == LimitKind::kUnknown) return;
  (*stages)[StrCat(stage, "_limit")] = NameOf(limit.kind);
  (*stages)[StrCat(stage, "_limit_share")] = limit.share;
}

}  // namespace

nlohmann::json StagesOf(const Bench& bench, const EngineStats& before, const EngineStats& after) {
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  const int64_t total = after.compute_us - before.compute_us;
  const int64_t matmul = after.matmul_us - before.matmul_us;
  const int64_t attention = after.attention_us - before.attention_us;
  // Bytes per microsecond are megabytes per second.
  const int64_t weight_bytes = after.weight_bytes_read - before.weight_bytes_read;
  const int64_t kv_bytes = after.kv_bytes_read - before.kv_bytes_read;
  nlohmann::json stages = {
      {"matmul", share(matmul, total)},
      {"attention", share(attention, total)},
      {"rest", share(total - matmul - attention, total)},
      {"outside_backend", share(after.step_us - before.step_us - total, total)},
      {"weights_gb_s", share(weight_bytes, matmul) / 1e3},
      {"kv_gb_s", share(kv_bytes, attention) / 1e3}};
  const auto limit = [&](int64_t us, int64_t bytes, int64_t int8_macs, int64_t float_macs) {
    return LimitOfStage(bench.limits, static_cast<double>(us) / 1e6, static_cast<double>(bytes),
                        static_cast<double>(int8_macs), static_cast<double>(float_macs));
  };
  AddLimit("matmul",
           limit(matmul, weight_bytes, after.int8_macs - before.int8_macs,
                 after.float_macs - before.float_macs),
           &stages);
  AddLimit("attention",
           limit(attention, kv_bytes, after.attention_int8_macs - before.attention_int8_macs,
                 after.attention_macs - before.attention_macs),
           &stages);
  return stages;
}

std::vector<int32_t> RandomTokens(const Bench& bench, uint64_t seed, int64_t n) {
  std::vector<int32_t> tokens;
  const uint64_t n_vocab = static_cast<uint64_t>(bench.model->n_vocab());
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(RandomBits(seed, static_cast<uint64_t>(i)) % n_vocab));
  }
  return tokens;
}

TurnOptions BenchTurn(std::vector<int32_t> tokens, int64_t max_tokens) {
  TurnOptions options;
  options.tokens = std::move(tokens);
  options.max_tokens = max_tokens;
  options.sampling = SamplingOptions::Greedy();
  options.ignore_eos = true;
  return options;
}

Timeline Follow(Turn* turn, const std::function<void()>& on_token) {
  Timeline timeline;
  while (auto event = turn->Next()) {
    if (std::holds_alternative<TokenEvent>(*event)) {
      timeline.token_us.push_back(NowMicros());
      if (on_token) on_token();
    }
    if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      timeline.status = done->status;
      timeline.usage = done->usage;
    }
  }
  return timeline;
}

namespace {

// The speed, and how close it is to the machine's limit.
std::string MainText(const nlohmann::json& line) {
  char numbers[160];
  const int n = line["sessions"].get<int>();
  std::snprintf(numbers, sizeof(numbers), "%-8s %3d %-8s %9.1f tok/s",
                line["work"].get<std::string>().c_str(), n, n == 1 ? "session" : "sessions",
                line["tokens_per_s"].get<double>());
  std::string text = numbers;
  if (line.contains("limit_share")) {
    std::snprintf(numbers, sizeof(numbers), "  %3.0f %% of what %s allows",
                  100 * line["limit_share"].get<double>(),
                  line["limit"].get<std::string>().c_str());
    text += numbers;
  }
  return text;
}

// A stage's share of the time, and how close it comes to its limit.
std::string StageText(const nlohmann::json& stages, const std::string& name, const char* rate) {
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), "%-9s %3.0f %%, reads %.1f GB/s", name.c_str(),
                100 * stages[name].get<double>(), stages[rate].get<double>());
  std::string text = numbers;
  if (!stages.contains(name + "_limit")) return text;
  std::snprintf(numbers, sizeof(numbers), ", %.0f %% of what %s allows",
                100 * stages[name + "_limit_share"].get<double>(),
                stages[name + "_limit"].get<std::string>().c_str());
  return text + numbers;
}

// Where the time went, one line each; all fit the width of a terminal.
std::vector<std::string> DetailTexts(const nlohmann::json& line) {
  std::vector<std::string> texts;
  char numbers[160];
  if (line.contains("stages")) {
    const auto& stages = line["stages"];
    texts.push_back(StageText(stages, "matmul", "weights_gb_s"));
    texts.push_back(StageText(stages, "attention", "kv_gb_s"));
    std::snprintf(numbers, sizeof(numbers), "rest      %3.0f %%",
                  100 * stages["rest"].get<double>());
    texts.emplace_back(numbers);
  }
  if (line.contains("guessed_tokens") && line["guessed_tokens"].get<long>() > 0) {
    std::snprintf(numbers, sizeof(numbers), "%ld of %ld draft tokens were accepted",
                  line["accepted_guesses"].get<long>(), line["guessed_tokens"].get<long>());
    texts.emplace_back(numbers);
  }
  if (line.contains("ttft_ms_p50")) {
    std::snprintf(numbers, sizeof(numbers),
                  "first token p50 %.0f, p90 %.0f, max %.0f ms; all in %.2f s; %ld tokens cached",
                  line["ttft_ms_p50"].get<double>(), line["ttft_ms_p90"].get<double>(),
                  line["ttft_ms_max"].get<double>(), line["wall_s"].get<double>(),
                  line["cached_tokens"].get<long>());
    texts.emplace_back(numbers);
  }
  if (line.contains("gap_ratio")) {
    std::snprintf(
        numbers, sizeof(numbers),
        "gap between tokens: alone %.1f ms, during the prefill p50 %.1f, max %.1f ms (%.1fx)",
        line["gap_alone_ms"].get<double>(), line["gap_ms_p50"].get<double>(),
        line["gap_ms_max"].get<double>(), line["gap_ratio"].get<double>());
    texts.emplace_back(numbers);
  }
  if (line.contains("bytes")) {
    const auto& bytes = line["bytes"];
    std::snprintf(numbers, sizeof(numbers), "resident %.1f MB, %.2fx the accounted memory",
                  bytes["resident"].get<double>() / 1e6, bytes["resident_ratio"].get<double>());
    texts.emplace_back(numbers);
  }
  return texts;
}

}  // namespace

void ShowProgress(std::string_view what) {
  if (isatty(STDERR_FILENO) != 1) return;
  std::fprintf(stderr, "\r\033[K%.*s ...", static_cast<int>(what.size()), what.data());
  std::fflush(stderr);
}

void EndProgress() {
  if (isatty(STDERR_FILENO) == 1) std::fputs("\r\033[K", stderr);
}

void Report(const Bench& bench, nlohmann::json line) {
  EndProgress();
  line["model"] = bench.model->name();
  line["threads"] = bench.options.n_threads;
  line["backend"] = bench.model->backend_name();
  if (ChoosesIsa(bench)) line["isa"] = NameOf(PreferredIsa());
  line["peak_rss_bytes"] = std::max(bench.load_peak_bytes, PeakMemoryBytes());
  if (bench.flags.json) {
    PrintJsonLine(line);
    return;
  }
  PrintLine(MainText(line));
  for (const std::string& detail : DetailTexts(line)) PrintLine("    " + detail);
  std::fflush(stdout);
}

}  // namespace weft::cli
