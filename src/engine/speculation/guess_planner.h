// Decides how many draft tokens a step verifies.
//
// More rows make a step longer; accepted tokens save steps. From the recent times of steps of each
// size, it picks the number of draft tokens, likeliest first, with the highest expected throughput.
// A step never becomes longer by a larger factor than that by which each of its sessions advances
// faster thanks to its own draft tokens. So no session waits for those of another, and with many
// sessions, where rows cost most, few or none are verified. Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_GUESS_PLANNER_H_
#define WEFT_ENGINE_SPECULATION_GUESS_PLANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// A session whose next row the step computes.
struct GuessOffer {
  std::span<const float> gains = {};  // Guesses::gains
  double pace = 1;                    // Guesses::pace
};

class GuessPlanner {
 public:
  // Until measured, reading the weights is assumed to cost as much as this many rows.
  static constexpr double kWeightRows = 10;
  // The factor by which draft tokens may lengthen a step for sessions without any: measurements are
  // not finer.
  static constexpr double kUnnoticed = 1.01;

  // How many draft tokens to verify for each session, at most `room` together. `only_sure`: only
  // those that are verified whatever they cost.
  std::vector<int64_t> Plan(std::span<const GuessOffer> offers, int64_t room, bool only_sure) const;
  // Records the time of a step without prompts, with one row for each session and `guesses` more.
  void Observe(int64_t sessions, int64_t guesses, int64_t us);
  // The expected time of a step with this many rows; 0 if no step was measured.
  double StepUs(int64_t rows) const;

 private:
  // The numbers of rows for which times are kept.
  static constexpr std::array<int64_t, 12> kRows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

  static size_t NearestTo(int64_t rows);
  double EstimateUs(int64_t rows) const;

  std::array<double, kRows.size()> time_us_ = {};  // smoothed; 0 until measured
  int64_t steps_with_guesses_ = 0;                 // since the last one without
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_GUESS_PLANNER_H_
