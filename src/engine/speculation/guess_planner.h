// Decides how many of the guesses on offer a step computes.
//
// More rows make a step longer; guesses that turn out right make fewer steps. From the times that
// steps with so many rows took lately it takes as many guesses, the likeliest first, as bring the
// most tokens per second; and never more than lengthen the step by the factor by which each session
// in it advances faster through guesses of its own. So no session waits for the guesses of another,
// and with many sessions, where rows cost most, guesses become few or none. Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_GUESS_PLANNER_H_
#define WEFT_ENGINE_SPECULATION_GUESS_PLANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// A session of a step that computes its next row.
struct GuessOffer {
  std::span<const float> gains = {};  // Guesses::gains
  double pace = 1;                    // Guesses::pace
};

class GuessPlanner {
 public:
  // Until it is measured, so many further rows are taken to cost as much as reading the weights.
  static constexpr double kWeightRows = 10;
  // By how much a step may be lengthened for sessions that do not guess, because no measurement is
  // finer.
  static constexpr double kUnnoticed = 1.01;

  // How many of each one's guesses to compute, at most `room` together. `only_sure`: none but those
  // that are taken whatever they cost.
  std::vector<int64_t> Plan(std::span<const GuessOffer> offers, int64_t room, bool only_sure) const;
  // A step of `sessions` rows, `guesses` more, and no prompts took so long.
  void Observe(int64_t sessions, int64_t guesses, int64_t us);
  // How long a step of so many rows takes; 0 if no step was measured.
  double StepUs(int64_t rows) const;

 private:
  // Rows at which times are kept.
  static constexpr std::array<int64_t, 12> kRows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

  static size_t NearestTo(int64_t rows);
  double EstimateUs(int64_t rows) const;

  std::array<double, kRows.size()> time_us_ = {};  // smoothed; 0 until there is one
  int64_t steps_with_guesses_ = 0;                 // since the last one without
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_GUESS_PLANNER_H_
