// Decides how many rows each running sequence gets in the next step.
//
// Every decoding sequence gets its one row. Prompts share what is left: all of the
// step when nobody decodes, else as many rows as keep the step within
// `decode_stretch` times a step of decoding alone, by the times measured so far.
// Among prompts of equal priority the one that is nearest to its end goes first,
// and waiting brings a prompt forward at half the rate at which rows are computed,
// so that a stream of short prompts cannot starve a long one.
//
// Plans change when rows are computed, never what they compute. Engine thread only.
#ifndef WEFT_ENGINE_STEP_PLANNER_H_
#define WEFT_ENGINE_STEP_PLANNER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// A running sequence as the planner sees it.
struct LaneView {
  bool decoding = false;  // exactly one row is pending
  int64_t pending = 0;    // rows it could compute now; at least 1
  int priority = 0;       // higher first
  int64_t waited_us = 0;  // since its last computed row (or since it was admitted)
  int64_t max_chunk = 0;  // a smaller chunk that it asks for; 0: any
};

class StepPlanner {
 public:
  StepPlanner(int64_t max_step_tokens, double decode_stretch);

  // Rows per lane, 0 for those left out; their sum is at most max_step_tokens, and
  // at least 1 when there is a lane.
  std::vector<int64_t> Plan(std::span<const LaneView> lanes) const;

  // What a step cost, for the plans to come.
  void Observe(int64_t decode_rows, int64_t prompt_rows, int64_t step_us);

 private:
  int64_t PromptBudget(int64_t decode_rows) const;

  const int64_t max_step_tokens_;
  const double decode_stretch_;
  // Smoothed measurements; 0 until there is one.
  double decode_step_us_ = 0;  // a step of decoding alone
  double prompt_row_us_ = 0;   // one more prompt row in a step
};

}  // namespace weft

#endif  // WEFT_ENGINE_STEP_PLANNER_H_
