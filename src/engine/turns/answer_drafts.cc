#include "engine/turns/answer_drafts.h"

#include <algorithm>

namespace weft {
namespace {

// So few tokens are caught up with in the step that drafts.
constexpr int64_t kFew = 24;
// Rows shown to an MTP head before it computes them, even if nobody asks it for drafts.
constexpr int64_t kMaxShown = 64;
// Below this chance that all of it is right a draft goes no further.
constexpr float kMinChance = 0.25f;
// While nothing is drafted, a step of the draft model is measured again after 32 steps, then 64, up
// to every 512: a single slow moment, such as a busy start, must not switch drafts off for long.
constexpr int64_t kMeasureFirst = 32;
constexpr int64_t kMeasureLast = 512;

}  // namespace

AnswerDrafts::AnswerDrafts(Drafter* drafter, int64_t n_vocab, bool at_any_cost)
    : drafter_(drafter),
      n_vocab_(n_vocab),
      at_any_cost_(at_any_cost),
      measure_after_(kMeasureFirst) {
  // Nothing is drafted, and so nothing measured, before it is known to pay.
  if (drafter_ != nullptr) planner_.Observe(1, drafter_->step_us());
}

void AnswerDrafts::NoteLanes(int64_t lanes, int64_t most, const GuessPlanner& steps) {
  if (!drafter_->takes_hidden()) return;
  const std::vector<DraftOffer> offers(static_cast<size_t>(lanes), {.share = 1, .most = most});
  // Before anything was measured nobody knows.
  const bool is_known = steps.StepUs(lanes) > 0;
  keeps_up_ = lanes == 0 || at_any_cost_ || !is_known || planner_.CouldPay(offers, steps);
}

bool AnswerDrafts::WantsHidden(const ActiveTurn& turn) const {
  return usable() && drafter_->takes_hidden() && keeps_up_ && !turn.options.vector &&
         turn.options.max_tokens != 0 && turn.options.speculation.most != 0;
}

void AnswerDrafts::Show(Lane* lane, int64_t first, std::span<const float> hidden, bool reads) {
  const Session& session = *lane->session;
  if (lane->draft_text == nullptr) lane->draft_text = drafter_->Begin(session.domain);
  Drafter::Text* const text = lane->draft_text.get();
  drafter_->Show(text, first, hidden);
  if (!reads && !lane->done() && text->shown_rows() < kMaxShown) return;
  // Hidden values are not kept, so they are computed now; the next answer reuses this state. In an
  // unfinished answer the last row is left out: it predicts the next token.
  const int64_t shown = first + std::ssize(hidden) / drafter_->hidden_width();
  const int64_t n = std::min<int64_t>(std::ssize(session.tokens), lane->done() ? shown + 1 : shown);
  const int64_t behind =
      drafter_->Follow(text, std::span(session.tokens).first(static_cast<size_t>(n)));
  if (behind > 0) drafter_->CatchUp(text, behind);
}

void AnswerDrafts::Draft(std::span<const Answer> answers, const GuessPlanner& steps) {
  if (!usable()) return;
  std::vector<DraftOffer> offers;
  for (const Answer& answer : answers) {
    const Guesses& guesses = *answer.lane->guesses;
    DraftOffer offer{.pace = guesses.pace()};
    if (guesses.WantsDraft()) {
      offer.share = guesses.draft_share();
      offer.most = guesses.most();
    }
    offers.push_back(offer);
  }
  // Where even right drafts would not pay, the draft model need not keep up.
  if (!at_any_cost_ && !planner_.CouldPay(offers, steps)) {
    MeasureNowAndThen();
    return;
  }
  std::vector<Lane*> drafted;
  std::vector<Drafter::Ask> asks;
  std::vector<DraftOffer> in_step = offers;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (offers[i].most > 0 && IsInStep(answers[i], offers, steps)) {
      drafted.push_back(answers[i].lane);
      asks.push_back({.text = drafted.back()->draft_text.get(),
                      .session = drafted.back()->session,
                      .most = offers[i].most,
                      .least = at_any_cost_ ? 0 : kMinChance});
    } else {
      in_step[i].most = 0;
    }
  }
  if (!at_any_cost_) {
    const int64_t depth = planner_.Plan(in_step, steps);
    if (depth == 0) {
      MeasureNowAndThen();
      return;
    }
    for (Drafter::Ask& ask : asks) ask.most = std::min(ask.most, depth);
  }
  if (asks.empty()) return;
  measure_after_ = kMeasureFirst;
  const int64_t n_steps = drafter_->steps(), us = drafter_->total_us();
  Take(drafted, drafter_->Continue(asks));
  const int64_t made = drafter_->steps() - n_steps;
  if (made > 0) planner_.Observe(std::ssize(asks), (drafter_->total_us() - us) / made);
}

void AnswerDrafts::MeasureNowAndThen() {
  if (++since_measured_ < measure_after_) return;
  since_measured_ = 0;
  measure_after_ = std::min(2 * measure_after_, kMeasureLast);
  if (drafter_->MeasureStep().ok()) planner_.ObserveAnew(drafter_->step_us());
}

// Whether the draft model is where the answer is, or nearly; helps it on if not.
bool AnswerDrafts::IsInStep(const Answer& answer, std::span<const DraftOffer> offers,
                            const GuessPlanner& steps) {
  Lane* const lane = answer.lane;
  const std::span<const TokenId> tokens = lane->session->tokens;
  if (lane->draft_text == nullptr) lane->draft_text = drafter_->Begin(lane->session->domain);
  Drafter::Text* const text = lane->draft_text.get();
  int64_t behind = drafter_->Follow(text, tokens);
  if (behind > kFew) {
    DraftReading reading{.last = behind, .rows = behind};
    if (!at_any_cost_) {
      reading = planner_.Read(behind, answer.left, !drafter_->takes_hidden(), offers, steps);
    }
    if (reading.rows == 0) return false;
    if (reading.last < behind) drafter_->KeepLast(text, tokens, reading.last);
    // The last row is left out: it predicts the next token.
    const int64_t rows = std::min(reading.rows, reading.last - 1);
    const int64_t us = drafter_->total_us();
    drafter_->CatchUp(text, rows);
    planner_.ObserveReading(rows, drafter_->total_us() - us);
    behind = drafter_->Follow(text, tokens);
  }
  return behind > 0 && behind <= kFew;
}

// Drafts end where the model has no such token.
void AnswerDrafts::Take(std::span<Lane* const> lanes,
                        std::span<const Drafter::Draft> drafts) const {
  for (size_t i = 0; i < lanes.size(); ++i) {
    const std::vector<TokenId>& tokens = drafts[i].tokens;
    const auto foreign = std::find_if(tokens.begin(), tokens.end(),
                                      [this](TokenId token) { return token >= n_vocab_; });
    const auto n = static_cast<size_t>(foreign - tokens.begin());
    lanes[i]->guesses->TakeDraft(std::span(tokens).first(n), std::span(drafts[i].chances).first(n),
                                 at_any_cost_);
  }
}

}  // namespace weft
