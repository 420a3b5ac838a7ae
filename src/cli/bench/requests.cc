#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/bench/bench.h"

namespace weft::cli {
namespace {

// The staggered burst and the fan-out, with the parameters of the comparison with other servers.
constexpr int kBurstRequests = 16, kFanoutRequests = 8, kPlaces = 4;
constexpr int64_t kBurstPrompt = 130, kBurstTokens = 64;     // about 100 words
constexpr int64_t kFanoutPrefix = 1300, kFanoutTokens = 32;  // about 1,000 words
constexpr auto kStagger = std::chrono::milliseconds(80);

// A limited number of places for concurrent requests; a request waits for one.
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
  std::atomic<int> n_done = 0;
  ShowProgress(work);
  const int64_t begin_us = NowMicros();
  for (size_t i = 0; i < served.size(); ++i) {
    clients.emplace_back([&, i] {
      places.Take();
      served[i] = ServeOne(engine.get(), requests[i]);
      ShowProgress(StrCat(work, ", ", ++n_done, " of ", n_requests, " requests"));
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

}  // namespace

Status BenchBurst(const Bench& bench) {
  std::vector<TurnOptions> requests;
  requests.reserve(kBurstRequests);
  for (int i = 0; i < kBurstRequests; ++i) {
    requests.push_back(
        BenchTurn(RandomTokens(bench, 500 + static_cast<uint64_t>(i), kBurstPrompt), kBurstTokens));
  }
  return BenchRequests(bench, "burst", kBurstRequests, requests);
}

Status BenchFanout(const Bench& bench) {
  std::vector<TurnOptions> requests;
  requests.reserve(kFanoutRequests);
  for (int i = 0; i < kFanoutRequests; ++i) {
    std::vector<int32_t> tokens = RandomTokens(bench, 900, kFanoutPrefix);
    const auto tail = RandomTokens(bench, 901 + static_cast<uint64_t>(i), 4);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    requests.push_back(BenchTurn(std::move(tokens), kFanoutTokens));
  }
  return BenchRequests(bench, "fanout", kFanoutRequests, requests);
}

}  // namespace weft::cli
