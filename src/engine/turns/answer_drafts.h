// Has the draft model guess for the answers of a step, where that pays.
//
// Before a short step without prompts, and never beside a long one: what is drafted, and what the
// draft model computes to catch up with a text, delays everything else. Each answer's own guess
// from texts is asked first (Guesses::WantsDraft). A prediction head is shown what the model
// computes of each answer's text, prompt included, as long as drafts could pay. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_ANSWER_DRAFTS_H_
#define WEFT_ENGINE_TURNS_ANSWER_DRAFTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/drafting/drafter.h"
#include "engine/speculation/draft_planner.h"
#include "engine/speculation/guess_planner.h"
#include "engine/turns/active_turn.h"

namespace weft {

class AnswerDrafts {
 public:
  // `at_any_cost`: whether or not it pays. `drafter` must outlive the object; null: there is none.
  AnswerDrafts(Drafter* drafter, int64_t n_vocab, bool at_any_cost);

  bool at_any_cost() const { return at_any_cost_; }
  bool usable() const { return drafter_ != nullptr && drafter_->usable(); }
  // Before a step of so many lanes, for each of which up to `most` tokens could be guessed: decides
  // whether a prediction head keeps up. REQUIRES: usable().
  void NoteLanes(int64_t lanes, int64_t most, const GuessPlanner& steps);
  // Whether the hidden values of all rows of the turn's next steps are to be shown.
  bool WantsHidden(const ActiveTurn& turn) const;
  bool hidden_before_norm() const { return drafter_->hidden_before_norm(); }
  // What was computed of the lane's rows from `first` on, after what follows from it. `reads`: they
  // are of its prompt.
  void Show(Lane* lane, int64_t first, std::span<const float> hidden, bool reads);
  // Replaces the lanes' guesses by better ones. All of them write and were offered guesses.
  void Draft(std::span<Lane* const> lanes, const GuessPlanner& steps);

 private:
  void MeasureNowAndThen();
  bool IsInStep(Lane* lane, int64_t answers, const GuessPlanner& steps);
  void Take(std::span<Lane* const> lanes, std::span<const Drafter::Draft> drafts) const;

  Drafter* const drafter_;
  const int64_t n_vocab_;
  const bool at_any_cost_;
  DraftPlanner planner_;
  int64_t since_measured_ = 0;  // steps in which drafts would not have paid
  bool keeps_up_ = true;        // a prediction head, with all that is computed
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_ANSWER_DRAFTS_H_
