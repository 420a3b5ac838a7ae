#include "engine/speculation/draft_planner.h"

#include <algorithm>

namespace weft {
namespace {

constexpr double kNewShare = 0.2;  // weight of a new measurement in the average
// The factor by which drafts must promise to be worth more than they cost.
constexpr double kMinDraftProfit = 1.05;
// If drafts do not pay, one token is drafted this rarely, and only if accepted drafts would pay.
constexpr int64_t kTrialEvery = 256;
constexpr float kRightShare = 0.9f;
// The time that prefill must promise to save, as a multiple of its cost: the length of an answer is
// only an estimate. The whole text is worth little more than its end.
constexpr double kMinReturn = 2;
constexpr double kMinReturnOfAll = 8;
// The tokens that count as the end of a text.
constexpr int64_t kEnd = 64;
// The share of the time for prefill while other answers decode; it is divided by their number.
constexpr double kShareBeside = 0.1;
// Prefill must be this many times as fast as the texts grow, or drafting would never begin.
constexpr double kMinPace = 2;
// Limits for one prefill. Fewer rows are not worth reading the weights; more would delay a step for
// too long, either absolutely or relative to the step.
constexpr int64_t kMinRows = 32;
constexpr int64_t kMaxRows = 128;
constexpr double kLongestReading = 2;
// Until measured: the cost of one of many rows, relative to a step of one row.
constexpr double kRowShare = 0.25;

void Smooth(double* average, double sample) {
  *average = *average == 0 ? sample : *average + kNewShare * (sample - *average);
}

// The expected number of tokens for an answer in a step with `depth` drafted tokens.
double Expected(const DraftOffer& offer, int64_t depth, float min_share) {
  double tokens = 1, chance = 1;
  if (offer.share <= 0) return tokens;
  const double share = static_cast<double>(std::max(offer.share, min_share));
  for (int64_t i = 0; i < std::min(depth, offer.most); ++i) {
    chance *= share;
    tokens += chance;
  }
  return tokens;
}

}  // namespace

int64_t DraftPlanner::Plan(std::span<const DraftOffer> offers, const GuessPlanner& steps) {
  const int64_t depth = Best(offers, steps, 0).depth;
  if (depth == 0 && (++since_trial_ < kTrialEvery || !CouldPay(offers, steps))) return 0;
  since_trial_ = 0;
  return std::max<int64_t>(1, depth);
}

bool DraftPlanner::CouldPay(std::span<const DraftOffer> offers, const GuessPlanner& steps) const {
  return Best(offers, steps, kRightShare).depth > 0;
}

// Shares below `min_share` count as `min_share`.
DraftPlanner::Choice DraftPlanner::Best(std::span<const DraftOffer> offers,
                                        const GuessPlanner& steps, float min_share) const {
  const int64_t sessions = std::ssize(offers);
  int64_t drafted = 0, deepest = 0;
  for (const DraftOffer& offer : offers) {
    if (offer.share <= 0 || offer.most <= 0) continue;
    ++drafted;
    deepest = std::max(deepest, offer.most);
  }
  const double plain_us = steps.StepUs(sessions), draft_us = StepUs(drafted);
  if (drafted == 0 || plain_us == 0 || draft_us == 0) return {};
  double best_rate = kMinDraftProfit * static_cast<double>(sessions) / plain_us;
  Choice best;
  for (int64_t depth = 1; depth <= deepest; ++depth) {
    const double time_us =
        steps.StepUs(sessions + depth * drafted) + static_cast<double>(depth) * draft_us;
    double tokens = 0, slowest = 1e9;
    for (const DraftOffer& offer : offers) {
      const double expected = Expected(offer, depth, min_share);
      tokens += expected;
      slowest = std::min(slowest, std::max(offer.pace, expected));
    }
    if (time_us > plain_us * std::max(slowest, GuessPlanner::kUnnoticed)) continue;
    if (tokens / time_us <= best_rate) continue;
    best_rate = tokens / time_us;
    best = {depth, plain_us - static_cast<double>(sessions) / best_rate};
  }
  return best;
}

DraftReading DraftPlanner::Read(int64_t behind, int64_t left, bool may_skip,
                                std::span<const DraftOffer> offers, const GuessPlanner& steps) {
  // Answers whose drafts were rejected get another chance.
  const bool is_trial = since_trial_ + 1 >= kTrialEvery;
  const double saved_us =
      static_cast<double>(left) * Best(offers, steps, is_trial ? kRightShare : 0).saved_us;
  const double row_us = RowUs();
  const auto pays = [&](int64_t rows, double min_return) {
    return saved_us > min_return * static_cast<double>(rows) * row_us;
  };
  const bool skips = may_skip && behind > 2 * kEnd && !pays(behind, kMinReturnOfAll);
  DraftReading reading{.last = skips ? kEnd : behind};
  if (!pays(reading.last, kMinReturn)) return {};
  reading.rows = std::min(reading.last, RowsAtOnce(std::ssize(offers), steps));
  if (reading.rows < std::min(reading.last, kMinRows)) return {};
  return reading;
}

// How many rows may be prefilled before a step of this many answers.
int64_t DraftPlanner::RowsAtOnce(int64_t answers, const GuessPlanner& steps) {
  const double plain_us = steps.StepUs(answers), row_us = RowUs();
  if (answers == 1) {
    return std::clamp(static_cast<int64_t>(kLongestReading * plain_us / row_us), kMinRows,
                      kMaxRows);
  }
  const double min_us = static_cast<double>(kMinRows) * row_us;
  const auto n = static_cast<double>(answers);
  const double step_us = plain_us * kShareBeside / n;
  // Meanwhile each text grows by a row.
  if (step_us < kMinPace * n * row_us) return 0;
  allowance_us_ += step_us / n;
  if (allowance_us_ < min_us) return 0;
  allowance_us_ = 0;
  return kMinRows;
}

double DraftPlanner::RowUs() const { return row_us_ > 0 ? row_us_ : kRowShare * StepUs(1); }

void DraftPlanner::ObserveReading(int64_t rows, int64_t us) {
  if (rows >= kMinRows && us > 0) {
    Smooth(&row_us_, static_cast<double>(us) / static_cast<double>(rows));
  }
}

void DraftPlanner::Observe(int64_t rows, int64_t us) {
  size_t i = 0;
  while (i + 1 < kRows.size() && kRows[i + 1] <= rows) ++i;
  if (rows <= 2 * kRows.back()) Smooth(&time_us_[i], static_cast<double>(us));
}

void DraftPlanner::ObserveAnew(int64_t us) {
  time_us_.fill(0);
  Observe(1, us);
}

// The nearest measured time, scaled by the assumed cost of the difference in rows.
double DraftPlanner::StepUs(int64_t rows) const {
  double time_us = 0;
  int64_t nearest = 0;
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (time_us_[i] == 0 || (nearest > 0 && kRows[i] > rows)) continue;
    nearest = kRows[i];
    time_us = time_us_[i];
  }
  if (nearest == 0) return 0;
  return time_us * (GuessPlanner::kWeightRows + static_cast<double>(rows)) /
         (GuessPlanner::kWeightRows + static_cast<double>(nearest));
}

}  // namespace weft
