// Room for the rows of a step: who gets memory, and who gives it up.
//
// Running turns have memory in the order of the list (TurnPlaces). An earlier one may take it from
// idle sessions and from every later one, which then starts over when there is room; so the first
// can always go on. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_STEP_ROOM_H_
#define WEFT_ENGINE_TURNS_STEP_ROOM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/session_files.h"
#include "engine/turns/step_part.h"
#include "engine/turns/turn_scheduler.h"

namespace weft {

class StepRoom {
 public:
  // All must outlive the object.
  StepRoom(StateMemory* memory, IdleSessions* idle, SessionFiles* files, const TurnList* running)
      : memory_(memory), idle_(idle), files_(files), running_(*running) {}

  // Gives every part its pages and slot. A part without room loses its draft tokens, then gets
  // fewer rows or is left out of the step; its turn ends if room can never be made for it.
  // REQUIRES: in the order of running turns.
  void Prepare(std::vector<StepPart>* parts);
  // Preempted lanes become ready once there is room for all of their tokens; one must if nothing
  // else runs. True if any did.
  bool ResumePreempted(bool nobody_runs);

  // A step for these parts did not begin. If the backend had no memory for it, which the budget
  // allowed, the parts lose their room and are planned again, with less memory for everybody; false
  // if that is not the reason or has not helped.
  bool TakeBack(std::span<StepPart> parts, const Status& status);
  void NoteBegun() { n_taken_back_ = 0; }

  int64_t preemptions() const { return preemptions_; }

 private:
  Status MakeRoomFor(const StepPart& part, const std::vector<StepPart>& prepared);
  bool PreemptFor(const StepPart& part, const std::vector<StepPart>& prepared);
  bool OthersWillFreeMemory(const Lane* self) const;

  StateMemory* const memory_;
  IdleSessions* const idle_;
  SessionFiles* const files_;
  const TurnList& running_;
  int64_t preemptions_ = 0;
  int n_taken_back_ = 0;  // since a step has begun
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_ROOM_H_
