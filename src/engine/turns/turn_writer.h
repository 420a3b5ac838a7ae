// Turns the results of a step into tokens, text and events. Commits the rows, chooses the next
// token of each lane that has logits, and ends lanes that are done.
//
// Draft tokens are verified here and visible nowhere else: after each row a token is sampled as it
// would be without them, and the next row counts only if it was computed for that token.
// Engine thread only.
#ifndef WEFT_ENGINE_TURNS_TURN_WRITER_H_
#define WEFT_ENGINE_TURNS_TURN_WRITER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/best_tokens.h"
#include "base/status.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/live_sessions.h"
#include "engine/turns/step_part.h"
#include "weft/engine.h"
#include "weft/events.h"
#include "weft/model.h"

namespace weft {

class TurnWriter {
 public:
  // All must outlive the object.
  TurnWriter(const Model* model, StateMemory* memory, LiveSessions* sessions)
      : model_(*model), memory_(memory), sessions_(sessions) {}

  // Requests less than all logits of a part's rows, where that is enough for the lane's next
  // tokens. Call once before the part is computed; a dropped part may be asked again.
  void Ask(StepPart* part) const;
  // Applies the results of a computed part.
  void Take(StepPart* part);
  // The part's forward failed, which leaves its state undefined from the step on: poisons the
  // session and ends the turn.
  void Fail(const StepPart& part, const Status& status);
  // Reports progress with the prompt, if the turn asked for that and there was any.
  static void ReportProgress(const StepPart& part, int64_t done_tokens);

  void FillStats(EngineStats* stats) const;

 private:
  void TakeDecoded(StepPart* part);
  // Adds the part's vectors to the turn's.
  void PoolRows(StepPart* part);
  void TakePromptRows(StepPart* part);
  void FinishPrompt(StepPart* part);
  // The candidates of a token: all logits or the best ones; the other is empty.
  struct Row {
    std::span<float> logits = {};
    std::span<const TokenLogit> best = {};
    // Only for a row that was changed before the best tokens were found:
    bool is_changed = false;
    double weight = 0;
    StepRun* run = nullptr;
    int64_t of_step = 0;
  };
  // How many of a row's best tokens are enough for the lane's next one; 0: it takes the whole row.
  int64_t BestNeeded(const ActiveTurn& turn, const Lane& lane) const;
  void AskForChanges(StepPart* part) const;
  void ForkChoices(ActiveTurn* turn, const Row& row);
  void SampleNext(ActiveTurn* turn, Lane* lane, const Row& row);
  static Status NothingMayCome(const Lane& lane);
  StatusOr<TokenId> Choose(const TurnOptions& options, Lane* lane, const Row& row);
  StatusOr<TokenId> ChooseChanged(Lane* lane, const Row& row);
  // Into lane->allowed.
  void ApplyMask(const TurnOptions& options, Lane* lane) const;
  // `i` counts the part's rows that have results.
  Row RowAt(const StepPart& part, int64_t i) const;
  Row LastRow(const StepPart& part) const { return RowAt(part, part.n_logits - 1); }
  static bool IsSound(const Row& row);
  // `accepted`: the number of accepted tokens of one draft.
  void CountAccepted(int64_t accepted);
  void ApplyToken(ActiveTurn* turn, Lane* lane, TokenId token, TokenEvent event);
  void TakeForced(ActiveTurn* turn, Lane* lane);
  void AllowOtherEnds(const TurnOptions& options, Lane* lane) const;
  bool IsStopToken(const ActiveTurn& turn, TokenId token) const;

  // The tokens that may not follow `n_generated` others.
  std::vector<TokenId> BannedAfter(const TurnOptions& options, int64_t n_generated) const;

  const Model& model_;
  StateMemory* const memory_;
  LiveSessions* const sessions_;
  std::vector<float> row_;  // one that was read whole
  int64_t generated_tokens_ = 0, guessed_tokens_ = 0, guesses_ = 0;
  std::vector<int64_t> accepted_at_;  // by position in the draft
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_WRITER_H_
