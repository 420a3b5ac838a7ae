// Decides how many tokens a draft model drafts for the answers of a step, before the step is
// planned.
//
// The step waits for the drafts, and that time is lost if they are wrong. So it picks the number
// that gives the most tokens per second, judging by how long steps of both models took lately and
// how often the drafts for each answer were right, and never slows an answer down. With many
// answers, that means no drafts at all. Likewise it has the draft model read a text only where the
// answer can earn that back. Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_
#define WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/speculation/guess_planner.h"

namespace weft {

// One of the step's answers.
struct DraftOffer {
  double pace = 1;  // Guesses::pace
  // How often a drafted token was right when those before it were; 0: draft nothing.
  float share = 0;
  int64_t most = 0;  // tokens
};

// What of a text the draft model reads before this step.
struct DraftReading {
  int64_t last = 0;  // it does without what stands before the text's last tokens, this many
  int64_t rows = 0;  // of them, now
};

class DraftPlanner {
 public:
  // How many tokens to draft for each answer with a share; 0: none. Now and then 1 although it does
  // not pay, so that answers whose drafts were wrong get another chance.
  int64_t Plan(std::span<const DraftOffer> offers, const GuessPlanner& steps);
  // Whether drafting would pay if nearly all drafts were right.
  bool CouldPay(std::span<const DraftOffer> offers, const GuessPlanner& steps) const;
  // The draft model is `behind` rows behind the text of one of the answers, of which about `left`
  // tokens are still to come. It reads only what these will earn back: all of the text if that is
  // cheap, otherwise its end, if it can do without the rest (`may_skip`). Beside others that gets a
  // small share of the time.
  DraftReading Read(int64_t behind, int64_t left, bool may_skip, std::span<const DraftOffer> offers,
                    const GuessPlanner& steps);

  // Record how long a step of the draft model took with this many rows.
  void Observe(int64_t rows, int64_t us);
  void ObserveReading(int64_t rows, int64_t us);
  // The same for a single row, when the machine may have become busy, or idle, since the last time.
  void ObserveAnew(int64_t us);

 private:
  static constexpr std::array<int64_t, 5> kRows = {1, 2, 4, 8, 16};

  struct Choice {
    int64_t depth = 0;    // tokens to draft
    double saved_us = 0;  // for each token of an answer
  };
  Choice Best(std::span<const DraftOffer> offers, const GuessPlanner& steps,
              float least_share) const;
  double StepUs(int64_t rows) const;
  double RowUs() const;
  int64_t RowsAtOnce(int64_t answers, const GuessPlanner& steps);

  std::array<double, kRows.size()> time_us_ = {};  // smoothed; 0 until there is one
  double row_us_ = 0;                              // of many
  double allowance_us_ = 0;                        // for reading beside others
  int64_t since_trial_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_
