// Decides how far a draft model goes ahead of the answers of a step, before the step is planned.
//
// Drafting takes time that nobody gets back if the guesses are wrong, and the step waits for it. So
// it is done as far as it brings the most tokens per second, judging by what steps of both models
// took lately and by how often the drafts of each answer were right, and never where an answer
// would advance more slowly than without. With many answers that is nowhere. Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_
#define WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/speculation/guess_planner.h"

namespace weft {

// An answer of a step.
struct DraftOffer {
  double pace = 1;  // Guesses::pace
  // How often a drafted token was right, if those before it were; 0: nothing is drafted for it.
  float share = 0;
  int64_t most = 0;  // tokens
};

class DraftPlanner {
 public:
  // How many tokens to draft for each answer that can be drafted for; 0: none. Now and then one
  // where more would not pay, for answers whose drafts were wrong until now.
  int64_t Plan(std::span<const DraftOffer> offers, const GuessPlanner& steps);
  // Whether it would pay to draft, were nearly all of it right.
  bool CouldPay(std::span<const DraftOffer> offers, const GuessPlanner& steps) const;
  // How many rows of a text of which the draft model is `behind` may be computed now, in a
  // step of so many answers. Comes out of a small share of the time.
  int64_t RowsToCatchUp(int64_t behind, int64_t answers, const GuessPlanner& steps);

  // A step of the draft model with so many rows took so long.
  void Observe(int64_t rows, int64_t us);
  void ObserveCatchUp(int64_t rows, int64_t us);
  // One of a single row, on a machine that may be another than before: busy, or no longer.
  void ObserveAnew(int64_t us);

 private:
  static constexpr std::array<int64_t, 5> kRows = {1, 2, 4, 8, 16};

  int64_t Best(std::span<const DraftOffer> offers, const GuessPlanner& steps,
               float least_share) const;
  double StepUs(int64_t rows) const;

  std::array<double, kRows.size()> time_us_ = {};  // smoothed; 0 until there is one
  double row_us_ = 0;                              // of many
  double allowance_us_ = 0;                        // for catching up
  int64_t since_trial_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_
