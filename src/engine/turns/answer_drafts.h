// Lets the draft model draft tokens for the answers of a step where that pays.
//
// It drafts before short steps without prompts, and never while a long step is open: drafting and
// its prefill delay everything else. N-gram lookup comes first (Guesses::WantsDraft). As long as
// drafts could pay, an MTP head gets the hidden values of each answer's text, prompt included.
// Engine thread only.
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
  // `drafter` must outlive the object; null: there is none. `at_any_cost`: even where it does not
  // pay.
  AnswerDrafts(Drafter* drafter, int64_t n_vocab, bool at_any_cost);

  bool at_any_cost() const { return at_any_cost_; }
  bool usable() const { return drafter_ != nullptr && drafter_->usable(); }
  // Call before a step with this many lanes, each with room for `most` draft tokens: decides
  // whether an MTP head keeps up with their texts. REQUIRES: usable().
  void NoteLanes(int64_t lanes, int64_t most, const GuessPlanner& steps);
  // Whether Show needs the hidden values of all rows in the turn's next steps.
  bool WantsHidden(const ActiveTurn& turn) const;
  bool hidden_before_norm() const { return drafter_->hidden_before_norm(); }
  // Takes the hidden values of the lane's rows from `first` on, once the step's results are
  // applied. `reads`: the rows are of its prompt.
  void Show(Lane* lane, int64_t first, std::span<const float> hidden, bool reads);
  struct Answer {
    Lane* lane = nullptr;
    int64_t left = 0;  // roughly how many tokens it still has to generate
  };
  // Replaces the answers' draft tokens by better ones. REQUIRES: all of them decode and have called
  // Offer.
  void Draft(std::span<const Answer> answers, const GuessPlanner& steps);

 private:
  void MeasureNowAndThen();
  bool IsInStep(const Answer& answer, std::span<const DraftOffer> offers,
                const GuessPlanner& steps);
  void Take(std::span<Lane* const> lanes, std::span<const Drafter::Draft> drafts) const;

  Drafter* const drafter_;
  const int64_t n_vocab_;
  const bool at_any_cost_;
  DraftPlanner planner_;
  int64_t since_measured_ = 0;  // steps without drafts
  int64_t measure_after_;       // the number of those before the next measurement
  bool keeps_up_ = true;        // the MTP head gets all computed rows
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_ANSWER_DRAFTS_H_
