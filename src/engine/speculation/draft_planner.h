// Decides how many tokens a draft model drafts for the answers of a step, before the step is
// planned.
//
// The step waits for the drafts, and that time is lost if they are rejected. So it picks the number
// with the highest expected throughput, from the recent times of steps of both models and the
// recent acceptance rate of each answer's drafts, and never slows an answer down. With many
// answers, that means no drafts at all. Likewise, the draft model prefills a text only if the
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
  // The acceptance rate of a drafted token if those before it were accepted; 0: draft nothing.
  float share = 0;
  int64_t most = 0;  // tokens
};

// How much of a text the draft model prefills before this step.
struct DraftReading {
  int64_t last = 0;  // only this many tokens at the text's end are needed
  int64_t rows = 0;  // to compute now
};

class DraftPlanner {
 public:
  // How many tokens to draft for each answer with a share; 0: none. From time to time 1 although it
  // does not pay, so that answers whose drafts were rejected get another chance.
  int64_t Plan(std::span<const DraftOffer> offers, const GuessPlanner& steps);
  // Whether drafting would pay if nearly all drafts were accepted.
  bool CouldPay(std::span<const DraftOffer> offers, const GuessPlanner& steps) const;
  // The draft model is `behind` rows behind the text of one of the answers, which has about `left`
  // tokens still to come. Prefills only as much as these will earn back: the whole text if that is
  // cheap, otherwise its end, if the rest may be skipped (`may_skip`). While other answers decode,
  // this gets a small share of the time.
  DraftReading Read(int64_t behind, int64_t left, bool may_skip, std::span<const DraftOffer> offers,
                    const GuessPlanner& steps);

  // Record the time of a step of the draft model with this many rows, in drafting and in prefill.
  void Observe(int64_t rows, int64_t us);
  void ObserveReading(int64_t rows, int64_t us);
  // Starts the measurements over with this one, of a single row: the machine may have become busy
  // or idle since the last time.
  void ObserveAnew(int64_t us);

 private:
  static constexpr std::array<int64_t, 5> kRows = {1, 2, 4, 8, 16};

  struct Choice {
    int64_t depth = 0;    // tokens to draft
    double saved_us = 0;  // per token of an answer
  };
  Choice Best(std::span<const DraftOffer> offers, const GuessPlanner& steps, float min_share) const;
  double StepUs(int64_t rows) const;
  double RowUs() const;
  int64_t RowsAtOnce(int64_t answers, const GuessPlanner& steps);

  std::array<double, kRows.size()> time_us_ = {};  // smoothed; 0 until measured
  double row_us_ = 0;                              // per row, when there are many
  double allowance_us_ = 0;                        // time for prefill while others decode
  int64_t since_trial_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_DRAFT_PLANNER_H_
