// weft bench: how fast, beside how fast this machine could be.
//
// Everything goes through the engine in this process: what is measured is what a
// server would do, without the network.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/machine_limits.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "engine/random.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

// The staggered burst and the fan-out, as the comparison with other servers fixes them.
constexpr int kBurstRequests = 16, kFanoutRequests = 8, kPlaces = 4;
constexpr int64_t kBurstPrompt = 130, kBurstTokens = 64;     // about 100 words
constexpr int64_t kFanoutPrefix = 1300, kFanoutTokens = 32;  // about 1,000 words
constexpr auto kStagger = std::chrono::milliseconds(80);

struct BenchFlags {
  ModelFlags model;
  std::vector<int> sessions = {1, 4, 8};
  int64_t prompt = 512, decode = 64, depth = 0, shared = 0;
  int repeat = 3;
  bool burst = false, fanout = false, json = false;
};

// Everything that the measurements share.
struct Bench {
  BenchFlags flags;
  std::shared_ptr<const Model> model;
  EngineOptions options;
  MachineLimits limits;
  ModelCost cost;
};

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

// When the tokens of one turn came.
struct Timeline {
  Status status;
  std::vector<int64_t> token_us;
  TurnUsage usage;
};

Timeline Follow(Turn* turn) {
  Timeline timeline;
  while (auto event = turn->Next()) {
    if (std::holds_alternative<TokenEvent>(*event)) timeline.token_us.push_back(NowMicros());
    if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      timeline.status = done->status;
      timeline.usage = done->usage;
    }
  }
  return timeline;
}

template <typename T>
T Median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int64_t PeakRssBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// What a measurement took from the engine: shares of the time by stage, and the rates
// at which weights and pages were read.
nlohmann::json StagesOf(const EngineStats& before, const EngineStats& after) {
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  const int64_t total = after.compute_us - before.compute_us;
  const int64_t matmul = after.matmul_us - before.matmul_us;
  const int64_t attention = after.attention_us - before.attention_us;
  // Bytes per microsecond are megabytes per second.
  return {{"matmul", share(matmul, total)},
          {"attention", share(attention, total)},
          {"rest", share(total - matmul - attention, total)},
          {"outside_backend", share(after.step_us - before.step_us - total, total)},
          {"weights_gb_s", share(after.weight_bytes_read - before.weight_bytes_read, matmul) / 1e3},
          {"kv_gb_s", share(after.kv_bytes_read - before.kv_bytes_read, attention) / 1e3}};
}

nlohmann::json MemoryOf(const EngineStats& stats) {
  return {{"weights", stats.weight_bytes},
          {"pages", stats.page_bytes},
          {"slots", stats.slot_bytes},
          {"scratch", stats.scratch_bytes}};
}

void Report(const Bench& bench, nlohmann::json line) {
  line["model"] = bench.model->name();
  line["threads"] = bench.options.n_threads;
  line["peak_rss_bytes"] = PeakRssBytes();
  if (bench.flags.json) {
    PrintJsonLine(line);
    return;
  }
  std::string text =
      StrCat(line["work"].get<std::string>(), "  sessions ", line["sessions"].get<int>(), "  ");
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), "%8.1f tok/s", line["tokens_per_s"].get<double>());
  text += numbers;
  if (line.contains("limit_share")) {
    std::snprintf(numbers, sizeof(numbers), "  %3.0f %% of the machine's limit",
                  100 * line["limit_share"].get<double>());
    text += numbers;
  }
  if (line.contains("stages")) {
    const auto& stages = line["stages"];
    std::snprintf(numbers, sizeof(numbers),
                  "  (matmul %.0f %% at %.1f GB/s, attention %.0f %% at %.1f GB/s, rest %.0f %%)",
                  100 * stages["matmul"].get<double>(), stages["weights_gb_s"].get<double>(),
                  100 * stages["attention"].get<double>(), stages["kv_gb_s"].get<double>(),
                  100 * stages["rest"].get<double>());
    text += numbers;
  }
  if (line.contains("ttft_ms_p50")) {
    std::snprintf(numbers, sizeof(numbers),
                  "  first token p50 %.0f p90 %.0f max %.0f ms  wall %.2f s  cached %ld",
                  line["ttft_ms_p50"].get<double>(), line["ttft_ms_p90"].get<double>(),
                  line["ttft_ms_max"].get<double>(), line["wall_s"].get<double>(),
                  line["cached_tokens"].get<long>());
    text += numbers;
  }
  PrintLine(text);
  std::fflush(stdout);
}

// --- prompt and decode -------------------------------------------------------------

Status BenchPrompt(const Bench& bench) {
  EngineOptions options = bench.options;
  options.prefix_cache = false;
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(bench.model, options));
  std::vector<double> rates;
  const EngineStats before = engine->Stats();
  for (int i = 0; i < bench.flags.repeat; ++i) {
    WEFT_ASSIGN_OR_RETURN(
        const auto turn,
        engine->SubmitOnce(
            "",
            BenchTurn(RandomTokens(bench, 100 + static_cast<uint64_t>(i), bench.flags.prompt), 1)));
    const Timeline timeline = Follow(turn.get());
    WEFT_RETURN_IF_ERROR(timeline.status);
    rates.push_back(static_cast<double>(bench.flags.prompt) * 1e6 /
                    static_cast<double>(std::max<int64_t>(1, timeline.usage.prompt_us)));
  }
  const double rate = Median(rates);
  Report(bench, {{"work", "prompt"},
                 {"sessions", 1},
                 {"prompt_tokens", bench.flags.prompt},
                 {"tokens_per_s", rate},
                 {"limit_tokens_per_s", PromptLimit(bench.cost, bench.limits)},
                 {"limit_share", rate / PromptLimit(bench.cost, bench.limits)},
                 {"stages", StagesOf(before, engine->Stats())},
                 {"bytes", MemoryOf(engine->Stats())}});
  return OkStatus();
}

// Tokens per second from the moment when every session decodes until the first ends.
StatusOr<double> DecodeRate(const Bench& bench, Engine* engine, int n_sessions, int round) {
  const std::vector<int32_t> shared = RandomTokens(bench, 7, bench.flags.shared);
  std::vector<std::shared_ptr<Turn>> turns;
  for (int s = 0; s < n_sessions; ++s) {
    std::vector<int32_t> tokens = shared;
    const int64_t own = std::max<int64_t>(8, bench.flags.depth - bench.flags.shared);
    const auto seed = static_cast<uint64_t>(1000 * round + s + 1);
    const std::vector<int32_t> tail = RandomTokens(bench, seed, own);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    WEFT_ASSIGN_OR_RETURN(
        auto turn, engine->SubmitOnce("", BenchTurn(tokens, bench.flags.decode + n_sessions)));
    turns.push_back(std::move(turn));
  }
  std::vector<Timeline> timelines(turns.size());
  std::vector<std::thread> readers;
  for (size_t s = 0; s < turns.size(); ++s) {
    readers.emplace_back([&, s] { timelines[s] = Follow(turns[s].get()); });
  }
  for (std::thread& reader : readers) reader.join();
  int64_t begin_us = 0, end_us = INT64_MAX, n_tokens = 0;
  for (const Timeline& timeline : timelines) {
    WEFT_RETURN_IF_ERROR(timeline.status);
    begin_us = std::max(begin_us, timeline.token_us.front());
    end_us = std::min(end_us, timeline.token_us.back());
  }
  if (end_us <= begin_us) {
    return FailedPrecondition("the sessions did not decode together; give --decode more tokens");
  }
  for (const Timeline& timeline : timelines) {
    for (const int64_t us : timeline.token_us) n_tokens += us > begin_us && us <= end_us;
  }
  return static_cast<double>(n_tokens) * 1e6 / static_cast<double>(end_us - begin_us);
}

double BytesPerKvValue(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
      return 2;
    case KvType::kBF16:
      return 2;
    case KvType::kQ8_0:
      return 34.0 / 32;
  }
  return 2;
}

Status BenchDecode(const Bench& bench, int n_sessions) {
  EngineOptions options = bench.options;
  options.max_running = std::max(options.max_running, n_sessions);
  options.prefix_cache = bench.flags.shared > 0;
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(bench.model, options));
  std::vector<double> rates;
  const EngineStats before = engine->Stats();
  for (int i = 0; i < bench.flags.repeat; ++i) {
    WEFT_ASSIGN_OR_RETURN(const double rate, DecodeRate(bench, engine.get(), n_sessions, i));
    rates.push_back(rate);
  }
  const double rate = Median(rates);
  const ModelSpec& spec = bench.model->spec();
  double kv_values_per_token = 0;
  for (const KvLayer& layer : spec.kv_layers) {
    kv_values_per_token += static_cast<double>(layer.n_heads * (layer.k_dim + layer.v_dim));
  }
  const double kv_bytes_per_token = kv_values_per_token * BytesPerKvValue(options.kv_type);
  const double limit = DecodeLimit(bench.cost, bench.limits, n_sessions,
                                   kv_bytes_per_token * static_cast<double>(bench.flags.depth));
  Report(bench, {{"work", "decode"},
                 {"sessions", n_sessions},
                 {"depth", bench.flags.depth},
                 {"tokens_per_s", rate},
                 {"limit_tokens_per_s", limit},
                 {"limit_share", rate / limit},
                 {"stages", StagesOf(before, engine->Stats())},
                 {"bytes", MemoryOf(engine->Stats())}});
  return OkStatus();
}

// --- burst and fan-out ----------------------------------------------------------------

// A number of places for requests under way; a request waits for one.
class Places {
 public:
  explicit Places(int n) : free_(n) {}
  void Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    freed_.wait(lock, [&] { return free_ > 0; });
    --free_;
  }
  void Give() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++free_;
    }
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int free_;
};

struct Served {
  Status status;
  double ttft_ms = 0;
  int64_t tokens = 0;
  int64_t cached = 0;
};

Served ServeOne(Engine* engine, const TurnOptions& options) {
  Served served;
  const int64_t begin_us = NowMicros();
  auto turn = engine->SubmitOnce("", options);
  if (!turn.ok()) {
    served.status = turn.status();
    return served;
  }
  const Timeline timeline = Follow(turn->get());
  served.status = timeline.status;
  served.tokens = static_cast<int64_t>(timeline.token_us.size());
  served.cached = timeline.usage.cached_tokens;
  if (served.tokens > 0) {
    served.ttft_ms = static_cast<double>(timeline.token_us[0] - begin_us) / 1000;
  }
  return served;
}

Status BenchRequests(const Bench& bench, const char* work, int n_requests,
                     const std::vector<TurnOptions>& requests) {
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(bench.model, bench.options));
  Places places(kPlaces);
  std::vector<Served> served(static_cast<size_t>(n_requests));
  std::vector<std::thread> clients;
  const int64_t begin_us = NowMicros();
  for (size_t i = 0; i < served.size(); ++i) {
    clients.emplace_back([&, i] {
      places.Take();
      served[i] = ServeOne(engine.get(), requests[i]);
      places.Give();
    });
    std::this_thread::sleep_for(kStagger);
  }
  for (std::thread& client : clients) client.join();
  const double wall_s = static_cast<double>(NowMicros() - begin_us) / 1e6;
  std::vector<double> ttft;
  int64_t tokens = 0, cached = 0;
  for (const Served& one : served) {
    WEFT_RETURN_IF_ERROR(one.status);
    ttft.push_back(one.ttft_ms);
    tokens += one.tokens;
    cached += one.cached;
  }
  std::sort(ttft.begin(), ttft.end());
  const auto at = [&](double share) {
    return ttft[std::min(ttft.size() - 1,
                         static_cast<size_t>(share * static_cast<double>(ttft.size())))];
  };
  Report(bench, {{"work", work},
                 {"sessions", n_requests},
                 {"concurrency", kPlaces},
                 {"tokens_per_s", static_cast<double>(tokens) / wall_s},
                 {"ttft_ms_p50", at(0.5)},
                 {"ttft_ms_p90", at(0.9)},
                 {"ttft_ms_max", ttft.back()},
                 {"wall_s", wall_s},
                 {"cached_tokens", cached},
                 {"bytes", MemoryOf(engine->Stats())}});
  return OkStatus();
}

Status BenchBurst(const Bench& bench) {
  std::vector<TurnOptions> requests;
  for (int i = 0; i < kBurstRequests; ++i) {
    requests.push_back(
        BenchTurn(RandomTokens(bench, 500 + static_cast<uint64_t>(i), kBurstPrompt), kBurstTokens));
  }
  return BenchRequests(bench, "burst", kBurstRequests, requests);
}

Status BenchFanout(const Bench& bench) {
  std::vector<TurnOptions> requests;
  for (int i = 0; i < kFanoutRequests; ++i) {
    std::vector<int32_t> tokens = RandomTokens(bench, 900, kFanoutPrefix);
    const auto tail = RandomTokens(bench, 901 + static_cast<uint64_t>(i), 4);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    requests.push_back(BenchTurn(std::move(tokens), kFanoutTokens));
  }
  return BenchRequests(bench, "fanout", kFanoutRequests, requests);
}

Status RunBench(const BenchFlags& flags) {
  Bench bench;
  bench.flags = flags;
  WEFT_ASSIGN_OR_RETURN(bench.options, FlaggedEngineOptions(flags.model));
  if (bench.options.n_threads == 0) {
    bench.options.n_threads = static_cast<int>(std::thread::hardware_concurrency());
  }
  bench.limits = MeasureMachineLimits(bench.options.n_threads);
  const int64_t begin_us = NowMicros();
  WEFT_ASSIGN_OR_RETURN(bench.model, LoadFlaggedModel(flags.model));
  const double load_s = static_cast<double>(NowMicros() - begin_us) / 1e6;
  bench.cost = CostOf(bench.model->file(), bench.model->spec());
  std::fprintf(stderr,
               "loaded in %.2f s; this machine reads %.1f GB/s and multiplies %.0f GMAC/s\n",
               load_s, bench.limits.read_bytes_per_s / 1e9, bench.limits.int8_macs_per_s / 1e9);
  if (flags.burst) WEFT_RETURN_IF_ERROR(BenchBurst(bench));
  if (flags.fanout) WEFT_RETURN_IF_ERROR(BenchFanout(bench));
  if (flags.burst || flags.fanout) return FlushStdout();
  if (flags.prompt > 0) WEFT_RETURN_IF_ERROR(BenchPrompt(bench));
  for (const int n : flags.sessions) {
    if (flags.decode > 0) WEFT_RETURN_IF_ERROR(BenchDecode(bench, n));
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeBenchCommand(CLI::App* app) {
  auto flags = std::make_shared<BenchFlags>();
  AddModelFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  const auto tokens = CLI::Range(int64_t{0}, int64_t{1} << 24);
  app->add_option("--sessions", flags->sessions, "Decode with so many sessions together")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--prompt", flags->prompt, "Tokens of the prompt that is measured (0: none)")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--decode", flags->decode, "Tokens to decode per session (0: none)")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--depth", flags->depth, "Tokens of context before decoding is measured")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--shared", flags->shared, "Of those, tokens that all sessions share")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--repeat", flags->repeat, "Runs of each measurement; the median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_flag("--burst", flags->burst,
                "16 requests of 130 tokens, 4 at a time, 80 ms apart, 64 tokens each");
  app->add_flag("--fanout", flags->fanout,
                "8 requests that share 1,300 tokens, 4 at a time, 32 tokens each");
  app->add_flag("--json", flags->json, "One JSON object per measurement");
  app->footer(
      "\nThe limit is what the machine's read bandwidth (decoding) or its 8-bit multiply-adds\n"
      "(prompts) would allow; both are measured at the start.\n\nExample:\n"
      "  weft bench -m model.gguf --sessions 1,8 --threads 2");
  return [flags] { return RunBench(*flags); };
}

}  // namespace weft::cli
