#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/bench/bench.h"

namespace weft::cli {
namespace {

constexpr int64_t kAloneTokens = 24;  // decoded before the long prompt arrives

std::vector<double> GapsMs(const std::vector<int64_t>& token_us, int64_t from_us, int64_t to_us) {
  std::vector<double> gaps;
  for (size_t i = 1; i < token_us.size(); ++i) {
    if (token_us[i] <= from_us || token_us[i - 1] >= to_us) continue;
    gaps.push_back(static_cast<double>(token_us[i] - token_us[i - 1]) / 1000);
  }
  std::sort(gaps.begin(), gaps.end());
  return gaps;
}

// A turn that decodes until the long prompt is done, and the times of its tokens.
class Victim {
 public:
  explicit Victim(std::shared_ptr<Turn> turn) : turn_(std::move(turn)) {}
  // Returns after this many tokens.
  Status Read(int64_t n_tokens) {
    while (static_cast<int64_t>(token_us_.size()) < n_tokens) {
      auto event = turn_->Next();
      if (!event) return FailedPrecondition("the context is too short: increase --ctx");
      Take(*event);
    }
    return OkStatus();
  }
  void ReadOn() {
    reader_ = std::thread([this] {
      while (auto event = turn_->Next()) Take(*event);
    });
  }
  void Stop() {
    turn_->Cancel();
    reader_.join();
  }
  const std::vector<int64_t>& token_us() const { return token_us_; }

 private:
  void Take(const TurnEvent& event) {
    if (std::holds_alternative<TokenEvent>(event)) token_us_.push_back(NowMicros());
  }

  const std::shared_ptr<Turn> turn_;
  std::vector<int64_t> token_us_;
  std::thread reader_;
};

}  // namespace

Status BenchRhythm(const Bench& bench) {
  EngineOptions options = bench.options;
  options.prefix_cache = false;
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(bench.model, options));
  std::vector<double> alone, middle, worst, rates;
  for (int i = 0; i < bench.flags.repeat; ++i) {
    ShowProgress(StrCat("rhythm, run ", i + 1, " of ", bench.flags.repeat));
    const uint64_t seed = 300 + 2 * static_cast<uint64_t>(i);
    const int64_t room = bench.model->context_tokens() - 16;
    WEFT_ASSIGN_OR_RETURN(auto turn,
                          engine->SubmitOnce("", BenchTurn(RandomTokens(bench, seed, 8), room)));
    Victim victim(std::move(turn));
    WEFT_RETURN_IF_ERROR(victim.Read(kAloneTokens));
    victim.ReadOn();
    const int64_t arrival_us = NowMicros();
    auto intruder =
        engine->SubmitOnce("", BenchTurn(RandomTokens(bench, seed + 1, bench.flags.intruder), 1));
    const Timeline prompt = intruder.ok() ? Follow(intruder->get()) : Timeline{intruder.status()};
    const int64_t done_us = NowMicros();
    victim.Stop();
    WEFT_RETURN_IF_ERROR(prompt.status);
    alone.push_back(Median(GapsMs(victim.token_us(), 0, arrival_us)));
    const std::vector<double> beside = GapsMs(victim.token_us(), arrival_us, done_us);
    if (beside.empty()) {
      return FailedPrecondition("the prompt was done between two tokens; increase --intruder");
    }
    middle.push_back(Median(beside));
    worst.push_back(beside.back());
    rates.push_back(static_cast<double>(bench.flags.intruder) * 1e6 /
                    static_cast<double>(done_us - arrival_us));
  }
  Report(bench, {{"work", "rhythm"},
                 {"sessions", 2},
                 {"prompt_tokens", bench.flags.intruder},
                 {"tokens_per_s", Median(rates)},  // the long prompt's
                 {"gap_alone_ms", Median(alone)},
                 {"gap_ms_p50", Median(middle)},
                 {"gap_ms_max", Median(worst)},
                 {"gap_ratio", Median(worst) / Median(alone)},
                 {"bytes", MemoryOf(engine->Stats())}});
  return OkStatus();
}

}  // namespace weft::cli
