// Decides how many rows each running sequence gets, and who goes first.
//
// There are two kinds of step. A *short* one has the row of every decoding sequence and a few
// rows of prompts; a *long* one has prompts alone and pauses between two parts of the model, so
// that short steps are computed while it rests. Nobody who decodes waits longer for the next
// row than twice a step of decoding and `step_us`, as far as the times measured so far tell:
// what prompts may take in between is the allowance, and a paused step has at least a quarter
// of it, so that it always comes to its end.
//
// Prompts are computed one after the other, the one with the least work left first; waiting
// brings a prompt forward at half the rate at which work is done, so that a stream of short
// ones cannot starve a long one. What has less work left than a paused step's prompt does not
// wait for it: its rows go into short steps.
//
// Plans change when rows are computed, never what they compute. Engine thread only.
#ifndef WEFT_ENGINE_STEP_PLANNER_H_
#define WEFT_ENGINE_STEP_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// A running sequence as the planner sees it.
struct LaneView {
  bool decoding = false;  // exactly one row is pending
  int64_t pending = 0;    // rows it could compute now; at least 1
  int64_t depth = 0;      // rows computed before them
  int priority = 0;       // higher first
  int64_t waited_us = 0;  // since its last computed row (or since it was admitted)
  int64_t age_us = 0;     // since its turn was submitted
  int64_t max_chunk = 0;  // a smaller chunk that it asks for; 0: any
};

// What a step has cost.
struct StepCost {
  int64_t decode_rows = 0;
  int64_t prompt_rows = 0;
  int64_t attended_rows = 0;  // of prompts: the sum of the positions that each row looks at
  int64_t total_us = 0;
  int64_t attention_us = 0;  // 0 where the backend does not measure it
};

class StepPlanner {
 public:
  struct Options {
    int64_t max_step_tokens = 512;
    int64_t max_beside_tokens = 64;  // rows of a short step while a long one is paused
    int pause_points = 0;            // of a long step
    double decode_stretch = 3.0;     // a step of decoding with its allowance, at most
    int64_t step_us = 50000;
  };
  explicit StepPlanner(const Options& options) : options_(options) {}

  // Rows per lane of a long step, 0 for those left out. None at all where nobody has a prompt
  // or what there is of prompts fits into short steps.
  std::vector<int64_t> PlanLong(std::span<const LaneView> lanes) const;
  // Rows per lane of a short step. `paused`: the prompt of the long step that rests
  // meanwhile, null without one.
  std::vector<int64_t> PlanShort(std::span<const LaneView> lanes, const LaneView* paused) const;
  // For how long a paused step goes on after a short one that took so long.
  int64_t SliceAfter(int64_t short_us, int64_t decode_rows, int64_t prompt_rows) const;

  void Observe(const StepCost& cost);

 private:
  int64_t AllowanceUs() const;
  double CostUs(int64_t rows, int64_t depth) const;
  int64_t RowsFor(double us, int64_t depth) const;
  int64_t LongRows(int64_t depth, bool beside_decoding) const;
  std::vector<size_t> InOrder(std::span<const LaneView> lanes, bool decoding) const;

  Options options_;
  // Smoothed measurements; 0 until there is one.
  double decode_step_us_ = 0;   // a step of decoding alone
  double prompt_row_us_ = 0;    // a prompt row, but for its attention
  double attended_row_us_ = 0;  // what looking at one more position adds
};

}  // namespace weft

#endif  // WEFT_ENGINE_STEP_PLANNER_H_
