// Runs steps, from the plan to the logits: decides which lanes get how many rows (StepPlanner),
// makes room for them (StepRoom), computes them, and hands the results on (TurnWriter).
//
// A short step is computed in one go. A long one stays open between two calls, so that short ones
// can run while it pauses.
//
// Why a plan may be followed by a second one. Rows are planned by waiting time and remaining work,
// but memory is given in the order of admission: a lane may take it only from later ones. Both
// orders are needed. By work alone, two lanes could take memory from each other forever; by
// admission alone, short prompts would wait for long ones. So a plan can consist of late lanes that
// all wait for memory which earlier lanes hold that were not planned. Only the first ready lane is
// certain to make progress. It may take memory from every later lane; those before it wait for
// their consumers, and can be made to start over, or for the disk, which ends by itself; and its
// turn ends if nobody will free enough. Therefore, if a plan found no room at all, that one lane is
// planned alone, and then something is computed, a turn has ended, or the disk will wake the
// engine: a third plan is never needed. Knowing this before planning would mean trying the
// allocation, which is what the first plan does. Lanes resumed in between do not make the second
// one superfluous: they may be the very ones that the same plan preempts again.
//
// A decoding lane offers draft tokens (OfferGuesses); the plan says how many rows they get,
// StepPart holds them, TurnWriter verifies them. Only short steps have them.
//
// Engine thread only.
#ifndef WEFT_ENGINE_TURNS_STEP_RUNNER_H_
#define WEFT_ENGINE_TURNS_STEP_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "compute/backend.h"
#include "engine/sessions/state_memory.h"
#include "engine/speculation/speculator.h"
#include "engine/turns/answer_drafts.h"
#include "engine/turns/step_part.h"
#include "engine/turns/step_planner.h"
#include "engine/turns/step_room.h"
#include "engine/turns/step_sequence.h"
#include "engine/turns/turn_disk.h"
#include "engine/turns/turn_scheduler.h"
#include "engine/turns/turn_writer.h"
#include "weft/model.h"

namespace weft {

class StepRunner {
 public:
  // What steps act on. All must outlive the object.
  struct Parts {
    const Model* model = nullptr;
    Executor* executor = nullptr;
    StateMemory* memory = nullptr;
    const TurnList* running = nullptr;
    StepRoom* room = nullptr;
    TurnWriter* writer = nullptr;
    TurnDisk* disk = nullptr;
    Speculator* speculator = nullptr;
    AnswerDrafts* drafts = nullptr;  // null: there are none
  };
  StepRunner(const Parts& parts, const StepPlanner::Options& planner)
      : parts_(parts),
        needs_whole_texts_(NeedsWholeTexts(parts.model->spec())),
        planner_(planner) {}

  // Begins a long step if there is none and prompts need one, and prepares a short one if it is
  // due. True if a preempted lane was resumed.
  bool Plan();
  // Runs the plan: the short step, otherwise a slice of the long one, which ends early once
  // `interrupted` returns true. False if there was nothing to compute.
  bool Run(FunctionRef<bool()> interrupted);

  // A lane as the planner sees it.
  LaneView ViewOf(const ActiveTurn& turn, const Lane& lane) const;
  const StepPlanner& planner() const { return planner_; }

  // Other engines computed for `waited_us`. `n` of them may want to compute again.
  void NoteOthers(int n, int64_t waited_us) {
    planner_.SetOthers(n);
    slice_end_us_ += waited_us;
  }
  // Whether the last Run computed a short step.
  bool last_was_short() const { return last_was_short_; }
  // The thread spent this long on side work. After a short step, the next step is then a part of
  // the long one, even if no time is left for it.
  void NoteSideWork(int64_t us) {
    slice_end_us_ += us;
    long_is_owed_ = last_was_short_;
  }

  // Ends the long step if nobody wants its results any more. Its rows count as never begun.
  void AbandonIfUnwanted();
  // The same even if somebody wants them, provided that the turn takes part in it.
  void AbandonFor(const ActiveTurn& turn);

  // Computes a few tokens of the session, which must not fail. Removing them is up to the caller.
  Status WarmUp(Session* session);
  void FillStats(EngineStats* stats) const;

 private:
  // A step from its plan to its logits, and the data its run points to.
  struct OpenStep {
    std::vector<StepPart> parts;
    std::vector<StepSequence> sequences;
    std::vector<SequencePlaces> places;  // of each sequence
    std::vector<float> logits, vectors;
    size_t n_logit_values = 0;  // used part of `logits`
    std::vector<TokenLogit> best;
    std::vector<double> weights;
    std::unique_ptr<StepRun> run;
    StepCost cost;
  };
  struct Candidates {
    std::vector<StepPart> parts;  // rows not yet assigned
    std::vector<LaneView> views;
  };

  // --- plan ---
  bool ShortStepIsDue() const;
  bool HasNothingToRun() const { return short_parts_.empty() && long_step_ == nullptr; }
  void OfferGuesses(const ActiveTurn& turn, Lane* lane, LaneView* view) const;
  void DraftGuesses(Candidates* candidates) const;
  Candidates ReadyLanes() const;
  std::vector<StepPart> TakeRows(const Candidates& candidates,
                                 const std::vector<int64_t>& rows) const;
  std::vector<StepPart> PlanShort(Candidates lanes) const;
  std::vector<StepPart> PlanFirstLane() const;

  // --- compute ---
  Status Begin(OpenStep* step);
  // Gives its parts their places in the results.
  void PlaceResults(OpenStep* step) const;
  void NoteFirstRow(const StepPart& part, int64_t begin_us);
  // For whoever wants to know why no more of its prompt was found.
  void NoteKnownPrefix(ActiveTurn* turn) const;
  // False if it was interrupted.
  StatusOr<bool> Advance(OpenStep* step, FunctionRef<bool()> pause);
  void Land(OpenStep* step, const Status& status);
  void ShowHidden(const StepPart& part);
  void EndGuesses(const StepPart& part);
  void RunShort();
  void BeginLong(std::vector<StepPart> parts);
  void AdvanceLong(int64_t until_us, FunctionRef<bool()> interrupted);
  std::unique_ptr<OpenStep> CloseLong();
  void AbandonLong();

  const Parts parts_;
  const bool needs_whole_texts_;
  StepPlanner planner_;
  std::unique_ptr<OpenStep> long_step_;  // begun but not ended; may be paused
  std::vector<StepPart> short_parts_;    // prepared for the next Run
  bool short_is_due_ = false;
  bool last_was_short_ = false;
  bool long_is_owed_ = false;  // a part of the long step, before the next short one
  int64_t slice_end_us_ = 0;   // when the long step must make way for a short one
  std::vector<float> logits_;  // for short steps
  int64_t steps_ = 0, step_us_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_RUNNER_H_
