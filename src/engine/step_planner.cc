#include "engine/step_planner.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

// The least that prompts get beside decoding, and the unit of their budget: a full
// tile of attention rows.
constexpr int64_t kMinPromptRows = 16;
// Before anything was measured.
constexpr int64_t kUnmeasuredPromptRows = 64;
constexpr double kSmoothing = 0.2;
constexpr double kAgingShare = 0.5;

void Smooth(double* average, double sample) {
  *average = *average == 0 ? sample : *average + kSmoothing * (sample - *average);
}

}  // namespace

StepPlanner::StepPlanner(int64_t max_step_tokens, double decode_stretch)
    : max_step_tokens_(max_step_tokens), decode_stretch_(std::max(1.0, decode_stretch)) {}

int64_t StepPlanner::PromptBudget(int64_t decode_rows) const {
  const int64_t room = max_step_tokens_ - decode_rows;
  if (decode_rows == 0) return room;
  int64_t rows = kUnmeasuredPromptRows;
  if (decode_step_us_ > 0 && prompt_row_us_ > 0) {
    const double stretch_us = (decode_stretch_ - 1.0) * decode_step_us_;
    rows = static_cast<int64_t>(std::min(stretch_us / prompt_row_us_, 1e9));
    rows = std::max(rows / kMinPromptRows * kMinPromptRows, kMinPromptRows);
  }
  return std::min(rows, room);
}

std::vector<int64_t> StepPlanner::Plan(std::span<const LaneView> lanes) const {
  std::vector<int64_t> rows(lanes.size(), 0);
  std::vector<size_t> decoding, prompts;
  for (size_t i = 0; i < lanes.size(); ++i) (lanes[i].decoding ? decoding : prompts).push_back(i);

  const auto by_priority = [&](size_t a, size_t b) {
    return lanes[a].priority > lanes[b].priority;
  };
  std::stable_sort(decoding.begin(), decoding.end(), by_priority);
  // One row is kept free for prompts, whatever decodes.
  const int64_t decode_room = prompts.empty() ? max_step_tokens_ : max_step_tokens_ - 1;
  const int64_t n_decoding = std::min<int64_t>(static_cast<int64_t>(decoding.size()), decode_room);
  for (int64_t i = 0; i < n_decoding; ++i) rows[decoding[static_cast<size_t>(i)]] = 1;

  const double rows_per_us = prompt_row_us_ > 0 ? 1.0 / prompt_row_us_ : 0;
  const auto distance = [&](size_t i) {
    return static_cast<double>(lanes[i].pending) -
           kAgingShare * rows_per_us * static_cast<double>(lanes[i].waited_us);
  };
  std::stable_sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    if (lanes[a].priority != lanes[b].priority) return by_priority(a, b);
    return distance(a) < distance(b);
  });
  int64_t budget = PromptBudget(n_decoding);
  for (const size_t i : prompts) {
    int64_t take = std::min(lanes[i].pending, budget);
    if (lanes[i].max_chunk > 0) take = std::min(take, lanes[i].max_chunk);
    rows[i] = take;
    budget -= take;
  }
  return rows;
}

void StepPlanner::Observe(int64_t decode_rows, int64_t prompt_rows, int64_t step_us) {
  const double us = static_cast<double>(step_us);
  if (prompt_rows == 0) {
    if (decode_rows > 0) Smooth(&decode_step_us_, us);
    return;
  }
  // A few rows say more about the fixed cost of a step than about one more row.
  if (prompt_rows < kMinPromptRows) return;
  const double beside = decode_rows > 0 ? std::max(0.0, us - decode_step_us_) : us;
  Smooth(&prompt_row_us_, std::max(beside / static_cast<double>(prompt_rows), 0.01));
}

}  // namespace weft
