#include "engine/speculation/draft_planner.h"

#include <algorithm>

namespace weft {
namespace {

constexpr double kNewShare = 0.2;  // of a new measurement in the average
// What drafts must promise beyond what they cost.
constexpr double kLeastDraftProfit = 1.05;
// Where drafts do not pay, one token is drafted so seldom, if right drafts would pay.
constexpr int64_t kTrialEvery = 256;
constexpr float kRightShare = 0.9f;
// What of the time goes into catching up: of one answer alone, and beside others.
constexpr double kShareAlone = 0.25;
constexpr double kShareBeside = 0.01;
// Fewer rows are not worth reading the weights for; more would hold a step up for too long.
constexpr int64_t kLeastRows = 32;
constexpr int64_t kMostRows = 128;

void Smooth(double* average, double sample) {
  *average = *average == 0 ? sample : *average + kNewShare * (sample - *average);
}

// Tokens that a step brings an answer for which `depth` are drafted.
double Expected(const DraftOffer& offer, int64_t depth, float least_share) {
  double tokens = 1, chance = 1;
  if (offer.share <= 0) return tokens;
  const double share = static_cast<double>(std::max(offer.share, least_share));
  for (int64_t i = 0; i < std::min(depth, offer.most); ++i) {
    chance *= share;
    tokens += chance;
  }
  return tokens;
}

}  // namespace

int64_t DraftPlanner::Plan(std::span<const DraftOffer> offers, const GuessPlanner& steps) {
  const int64_t depth = Best(offers, steps, 0);
  if (depth > 0) {
    since_trial_ = 0;
    return depth;
  }
  if (++since_trial_ < kTrialEvery) return 0;
  since_trial_ = 0;
  return CouldPay(offers, steps) ? 1 : 0;
}

bool DraftPlanner::CouldPay(std::span<const DraftOffer> offers, const GuessPlanner& steps) const {
  return Best(offers, steps, kRightShare) > 0;
}

// Shares below `least_share` count as that.
int64_t DraftPlanner::Best(std::span<const DraftOffer> offers, const GuessPlanner& steps,
                           float least_share) const {
  const int64_t sessions = std::ssize(offers);
  int64_t drafted = 0, deepest = 0;
  for (const DraftOffer& offer : offers) {
    if (offer.share <= 0 || offer.most <= 0) continue;
    ++drafted;
    deepest = std::max(deepest, offer.most);
  }
  const double plain_us = steps.StepUs(sessions), draft_us = StepUs(drafted);
  if (drafted == 0 || plain_us == 0 || draft_us == 0) return 0;
  double best_rate = kLeastDraftProfit * static_cast<double>(sessions) / plain_us;
  int64_t best = 0;
  for (int64_t depth = 1; depth <= deepest; ++depth) {
    const double time_us =
        steps.StepUs(sessions + depth * drafted) + static_cast<double>(depth) * draft_us;
    double tokens = 0, slowest = 1e9;
    for (const DraftOffer& offer : offers) {
      const double expected = Expected(offer, depth, least_share);
      tokens += expected;
      slowest = std::min(slowest, std::max(offer.pace, expected));
    }
    if (time_us > plain_us * std::max(slowest, GuessPlanner::kUnnoticed)) continue;
    if (tokens / time_us <= best_rate) continue;
    best_rate = tokens / time_us;
    best = depth;
  }
  return best;
}

int64_t DraftPlanner::RowsToCatchUp(int64_t behind, int64_t answers, const GuessPlanner& steps) {
  const double plain_us = steps.StepUs(answers);
  const double draft_us = StepUs(1);
  if (plain_us == 0 || draft_us == 0) return 0;
  const double row_us = row_us_ > 0 ? row_us_ : draft_us / 2;
  const double least_us = std::max(draft_us, static_cast<double>(kLeastRows) * row_us);
  allowance_us_ += plain_us * (answers == 1 ? kShareAlone : kShareBeside);
  allowance_us_ = std::min(allowance_us_, 4 * std::max(plain_us, least_us));
  const double affordable = allowance_us_ / row_us;
  const int64_t rows = std::min({behind, kMostRows, static_cast<int64_t>(affordable)});
  return rows >= std::min(behind, kLeastRows) ? rows : 0;
}

void DraftPlanner::ObserveCatchUp(int64_t rows, int64_t us) {
  allowance_us_ -= static_cast<double>(us);
  if (rows >= kLeastRows) Smooth(&row_us_, static_cast<double>(us) / static_cast<double>(rows));
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

// As the nearest number of rows that was measured, and as many more cost as is assumed.
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
