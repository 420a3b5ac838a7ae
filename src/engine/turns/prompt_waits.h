// How many prompt tokens of other turns are computed before the next one of a turn's own prompt:
// for readers, and for waiting turns that report their progress.
//
// The order is the planner's; a prompt that waits for a sibling comes after the tokens that it
// needs of it, and a queued turn after all prompts that run and those queued before it. Engine
// thread only.
#ifndef WEFT_ENGINE_TURNS_PROMPT_WAITS_H_
#define WEFT_ENGINE_TURNS_PROMPT_WAITS_H_

#include <cstdint>
#include <vector>

#include "engine/sessions/state_memory.h"
#include "engine/turns/step_runner.h"
#include "engine/turns/turn_scheduler.h"

namespace weft {

class PromptWaits {
 public:
  // All must outlive the object.
  PromptWaits(const StateMemory* memory, const TurnScheduler* turns, const StepRunner* steps)
      : memory_(*memory), turns_(*turns), steps_(*steps) {}

  // Measures the wait of every turn (ActiveTurn::waits_behind_tokens) and tells those that report
  // progress, each at most once a second.
  void Look(int64_t now_us) const;

 private:
  // Returns the prompt tokens that running turns have left.
  int64_t MeasureRunning() const;
  void MeasureQueued(int64_t before) const;
  int64_t ExpectedRows(ActiveTurn* turn) const;
  static void Tell(ActiveTurn* turn, int64_t now_us);

  const StateMemory& memory_;
  const TurnScheduler& turns_;
  const StepRunner& steps_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_PROMPT_WAITS_H_
