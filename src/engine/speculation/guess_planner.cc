#include "engine/speculation/guess_planner.h"

#include <algorithm>

#include "engine/speculation/guesses.h"

namespace weft {
namespace {

// Limits memory: a row of logits of a large vocabulary takes half a megabyte.
constexpr int64_t kMaxGuesses = 48;
constexpr double kSmoothing = 0.2;
// Slower samples weigh more, or an expensive size would be tried again and again. But a step that
// was merely delayed counts as at most this much slower than usual.
constexpr double kSmoothingUp = 0.5;
constexpr double kMaxSlower = 2;
// Sizes that are no longer measured, because they were slow, return at this rate per step to the
// assumed time.
constexpr double kForgetting = 0.0003;
// The factor by which draft tokens must promise to be worth more than they cost, because both are
// estimates.
constexpr double kMinProfit = 1.03;
// After this many steps with draft tokens comes one without, to measure what they save.
constexpr int64_t kPlainEvery = 64;

double Prior(int64_t rows) { return GuessPlanner::kWeightRows + static_cast<double>(rows); }

// A draft token: its session and its gain.
struct Guess {
  float gain = 0;
  size_t owner = 0;
};

// All draft tokens on offer, likeliest first. The tokens of one session stay in order.
std::vector<Guess> InOrder(std::span<const GuessOffer> offers) {
  std::vector<Guess> guesses;
  for (size_t i = 0; i < offers.size(); ++i) {
    for (const float gain : offers[i].gains) guesses.push_back({gain, i});
  }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.gain > b.gain; });
  return guesses;
}

// The factor by which the slowest session advances faster if all draft tokens are verified.
double SlowestPace(std::span<const GuessOffer> offers) {
  double slowest = 1e9;
  for (const GuessOffer& offer : offers) {
    double expected = 1;
    for (const float gain : offer.gains) expected += static_cast<double>(gain);
    slowest = std::min(slowest, std::max(offer.pace, expected));
  }
  return std::max(slowest, GuessPlanner::kUnnoticed);
}

}  // namespace

std::vector<int64_t> GuessPlanner::Plan(std::span<const GuessOffer> offers, int64_t room,
                                        bool only_sure) const {
  std::vector<int64_t> taken(offers.size(), 0);
  const std::vector<Guess> guesses = InOrder(offers);
  const int64_t most = std::min<int64_t>({room, std::ssize(guesses), kMaxGuesses});
  if (most <= 0) return taken;
  const int64_t sessions = std::ssize(offers);
  const double plain_us = StepUs(sessions);
  const bool measures = plain_us == 0 || steps_with_guesses_ >= kPlainEvery;
  const double longest_us = plain_us * SlowestPace(offers);
  double tokens = static_cast<double>(sessions);
  double best_rate = kMinProfit * tokens / plain_us;
  int64_t best = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const Guess& guess = guesses[static_cast<size_t>(n - 1)];
    if (guess.gain >= Guesses::kSure) {
      best = n;
      continue;
    }
    if (only_sure || measures) break;
    tokens += static_cast<double>(guess.gain);
    const double time_us = StepUs(sessions + n);
    if (time_us > longest_us) break;
    if (tokens / time_us <= best_rate) continue;
    best_rate = tokens / time_us;
    best = n;
  }
  for (int64_t n = 0; n < best; ++n) ++taken[guesses[static_cast<size_t>(n)].owner];
  return taken;
}

size_t GuessPlanner::NearestTo(int64_t rows) {
  size_t nearest = 0;
  for (size_t i = 1; i < kRows.size(); ++i) {
    const auto distance = [rows](int64_t other) {
      return other > rows ? other - rows : rows - other;
    };
    if (distance(kRows[i]) < distance(kRows[nearest])) nearest = i;
  }
  return nearest;
}

// Never more than the measured time of more rows.
double GuessPlanner::StepUs(int64_t rows) const {
  double time_us = EstimateUs(rows);
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i] >= rows && time_us_[i] > 0) time_us = std::min(time_us, time_us_[i]);
  }
  return time_us;
}

// Interpolates between two measured sizes; outside of them, scales by the assumed cost of rows.
double GuessPlanner::EstimateUs(int64_t rows) const {
  size_t below = kRows.size(), above = kRows.size();
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (time_us_[i] == 0) continue;
    if (kRows[i] <= rows) below = i;
    if (kRows[i] >= rows && above == kRows.size()) above = i;
  }
  if (below == kRows.size() && above == kRows.size()) return 0;
  if (below == kRows.size()) return time_us_[above] * Prior(rows) / Prior(kRows[above]);
  if (above == kRows.size() || above == below) {
    return time_us_[below] * Prior(rows) / Prior(kRows[below]);
  }
  const double part =
      static_cast<double>(rows - kRows[below]) / static_cast<double>(kRows[above] - kRows[below]);
  return time_us_[below] + part * std::max(0.0, time_us_[above] - time_us_[below]);
}

void GuessPlanner::Observe(int64_t sessions, int64_t guesses, int64_t us) {
  if (guesses > 0) {
    ++steps_with_guesses_;
  } else {
    steps_with_guesses_ = 0;
  }
  const int64_t rows = sessions + guesses;
  const size_t i = NearestTo(rows);
  double& time_us = time_us_[i];
  double sample = static_cast<double>(us) * Prior(kRows[i]) / Prior(rows);
  if (time_us > 0) sample = std::min(sample, kMaxSlower * time_us);
  if (time_us == 0) time_us = sample;
  time_us += (guesses > 0 && sample > time_us ? kSmoothingUp : kSmoothing) * (sample - time_us);
  for (size_t other = 0; other < kRows.size(); ++other) {
    const double assumed_us = time_us * Prior(kRows[other]) / Prior(kRows[i]);
    if (time_us_[other] > assumed_us) {
      time_us_[other] += kForgetting * (assumed_us - time_us_[other]);
    }
  }
}

}  // namespace weft
