// Decides how many rows each running sequence gets, and who goes first.
//
// There are two kinds of step. A *short* one has a row for every decoding sequence and a few prompt
// rows; a *long* one has only prompts and pauses between two parts of the model, so that short
// steps can run in the meantime. Judging by the times measured so far, no decoding sequence waits
// longer for its next row than twice a decode step plus `step_us`. The time left for prompts in
// between is the allowance; a paused step gets at least a quarter of it, so that it always
// completes.
//
// The tenant with the largest deficit goes first, and each planned row counts at once. Prompts of a
// tenant ahead of one that decodes get a quarter of the allowance, and share no long step with
// other tenants' prompts, which would carry them along. A tenant's prompts are computed one after
// the other, least remaining work first, but time that a prompt has waited counts as work done, so
// that a stream of short ones cannot starve a long one. A prompt with less work left than the
// paused step's, or of a tenant with a larger deficit, does not wait for it: its rows go into short
// steps.
//
// Rows that see each other are computed together, in a long step if they must, however long that
// takes: it pauses between two parts of the model all the same.
//
// A short step without prompts may also verify draft tokens (GuessPlanner).
//
// Plans decide when rows are computed, never their results. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_STEP_PLANNER_H_
#define WEFT_ENGINE_TURNS_STEP_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tokens.h"
#include "engine/speculation/guess_planner.h"
#include "engine/turns/tenant_shares.h"

namespace weft {

// A running sequence as the planner sees it.
struct LaneView {
  bool decoding = false;       // it writes, and its pending rows but the last were computed before
  int64_t pending = 0;         // rows it could compute now; at least 1
  int64_t in_step = 0;         // how many of them are rows of the open long step
  int64_t depth = 0;           // rows already computed
  int priority = 0;            // higher first, among its tenant's
  int64_t waited_us = 0;       // since its last computed row (or its admission)
  int64_t age_us = 0;          // since its turn was submitted
  int64_t done = 0;            // rows of its turn's prompt already computed
  int64_t max_chunk = 0;       // a smaller chunk size it asks for; 0: any
  bool whole = false;          // its rows are computed in one step, or none of them
  std::vector<TokenRun> runs;  // among its pending rows: a step computes all of one, or none
  int64_t after = -1;          // for RowsBefore: index of the prompt that must come first; -1: none
  const Tenant* tenant = nullptr;  // null: the same as all others
  GuessOffer guesses;              // after its pending rows
};

// The measured cost of a step.
struct StepCost {
  int64_t decode_rows = 0;
  int64_t guessed_rows = 0;  // beyond one for each decoding lane
  int64_t prompt_rows = 0;
  int64_t attended_rows = 0;  // prompts only: sum over rows of the positions each attends to
  int64_t total_us = 0;
  int64_t attention_us = 0;  // 0 if the backend does not measure it
};

class StepPlanner {
 public:
  struct Options {
    int64_t max_step_tokens = 512;
    int64_t max_beside_tokens = 64;  // rows of a short step while a long one is paused
    int pause_points = 0;            // in a long step
    double decode_stretch = 3.0;     // most that prompts may stretch a decode step
    int64_t step_us = 50000;
  };
  explicit StepPlanner(const Options& options) : options_(options) {}

  // Other engines that compute in turn with this one (StepGate). They share `step_us`.
  void SetOthers(int n) { n_others_ = n; }

  // Rows per lane in a long step, 0 for those left out. All 0 if there are no prompts or they fit
  // into short steps.
  std::vector<int64_t> PlanLong(std::span<const LaneView> lanes) const;
  // Rows per lane in a short step; those beyond the pending ones are for its draft tokens.
  // `paused`: the prompt of the paused long step, null if there is none.
  std::vector<int64_t> PlanShort(std::span<const LaneView> lanes, const LaneView* paused) const;
  // How long a paused step continues after a short step of this duration. `is_ahead`: IsAhead of
  // all tenants with rows in the paused step.
  int64_t SliceAfter(int64_t short_us, int64_t decode_rows, int64_t prompt_rows,
                     bool is_ahead = false) const;
  // Whether prompts have had so much more time than decoding that they wait for it.
  static bool IsAhead(const Tenant* of_prompt, const Tenant* of_decoding);

  // For each prompt: how many rows of other prompts come before its next one, as long as none is
  // added. 0 for those whose rows are in the open step.
  std::vector<int64_t> RowsBefore(std::span<const LaneView> lanes) const;

  // The time of `rows` of a prompt that follow `depth` others, and of a step that only decodes.
  double PromptCostUs(int64_t rows, int64_t depth) const { return CostUs(rows, depth); }
  double DecodeStepUs() const;
  // How the times of such steps compare by their numbers of rows.
  double DecodeWork(int64_t rows) const;

  void Observe(const StepCost& cost);
  // Knows how long steps without prompts take.
  const GuessPlanner& guess_planner() const { return guess_planner_; }

 private:
  int64_t AllowanceUs() const;
  double CostUs(int64_t rows, int64_t depth) const;
  int64_t RowsFor(double us, int64_t depth) const;
  int64_t LongRows(int64_t depth, bool beside_decoding) const;
  bool IsSooner(const LaneView& lane, const LaneView& paused) const;
  bool GoesBefore(const LaneView& a, const LaneView& b) const;
  std::vector<size_t> InOrder(std::span<const LaneView> lanes, bool decoding) const;
  std::vector<size_t> TenantsInTurn(std::span<const LaneView> lanes,
                                    std::vector<size_t> order) const;
  std::vector<size_t> PromptsInTurn(std::span<const LaneView> lanes) const;
  void AddGuesses(std::span<const LaneView> lanes, int64_t room, bool only_sure,
                  std::vector<int64_t>* rows) const;

  Options options_;
  int n_others_ = 0;
  GuessPlanner guess_planner_;
  // Smoothed measurements; 0 until there is one.
  double decode_step_us_ = 0;   // one step of pure decoding
  double prompt_row_us_ = 0;    // one prompt row without its attention
  double attended_row_us_ = 0;  // attending to one more position
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_PLANNER_H_
