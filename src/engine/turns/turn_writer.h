// Turns the results of a step into what turns are about: tokens, text and events. Commits the rows,
// chooses the next token of each lane that has logits, and ends lanes that are done. Engine thread
// only.
#ifndef WEFT_ENGINE_TURNS_TURN_WRITER_H_
#define WEFT_ENGINE_TURNS_TURN_WRITER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/live_sessions.h"
#include "engine/turns/step_part.h"
#include "weft/events.h"
#include "weft/model.h"

namespace weft {

class TurnWriter {
 public:
  // All must outlive the object.
  TurnWriter(const Model* model, StateMemory* memory, LiveSessions* sessions)
      : model_(*model), memory_(memory), sessions_(sessions) {}

  // The part is computed.
  void Take(StepPart* part);
  // The part's forward failed, which leaves its state undefined from the step on: poisons the
  // session and ends the turn.
  void Fail(const StepPart& part, const Status& status);
  // So many of the prompt's tokens are done. Says so to who asked, once.
  static void ReportProgress(const StepPart& part, int64_t done_tokens);

  int64_t generated_tokens() const { return generated_tokens_; }

 private:
  void TakePromptRows(StepPart* part);
  void FinishPrompt(StepPart* part);
  void ForkChoices(ActiveTurn* turn, std::span<const float> logits);
  void SampleNext(ActiveTurn* turn, Lane* lane, std::span<float> logits);
  TokenId Choose(const TurnOptions& options, Lane* lane, std::span<float> logits);
  void ApplyToken(ActiveTurn* turn, Lane* lane, TokenId token, TokenEvent event);
  void TakeForced(ActiveTurn* turn, Lane* lane);
  void AllowOtherEnds(const TurnOptions& options, Lane* lane);
  bool IsStopToken(const ActiveTurn& turn, TokenId token) const;

  const Model& model_;
  StateMemory* const memory_;
  LiveSessions* const sessions_;
  int64_t generated_tokens_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_WRITER_H_
