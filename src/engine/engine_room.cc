// Room for the rows of a step: who gets memory, and who gives it up.
#include <algorithm>
#include <utility>

#include "engine/engine_core.h"

namespace weft {

// Gives every part its pages and slot, in order of admission. A part without room is left out of
// the step; its turn fails if room can never be made for it.
void EngineCore::PrepareParts(std::vector<StepPart>* parts) {
  std::vector<StepPart> prepared;
  for (StepPart& part : *parts) {
    if (part.lane->stage == LaneStage::kPreempted)
      continue;  // an earlier part has just taken its pages
    Status status = MakeRoomFor(part, prepared);
    // Fewer rows need less at a time: pages that fall out of a window are freed after each step.
    while (status.code() == StatusCode::kResourceExhausted && part.rows > 1 &&
           !OthersWillFreeMemory(part.lane)) {
      part.rows /= 2;
      part.ends_prompt = false;
      part.n_logits = part.n_logits > 1 ? part.rows : 0;
      status = MakeRoomFor(part, prepared);
    }
    if (status.ok()) {
      prepared.push_back(part);
      continue;
    }
    // Other holders of pages will eventually free them.
    if (status.code() != StatusCode::kResourceExhausted || !OthersWillFreeMemory(part.lane)) {
      part.turn->End(FinishReason::kError, status);
    }
  }
  *parts = std::move(prepared);
}

bool EngineCore::OthersWillFreeMemory(const Lane* self) {
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      if (lane.get() != self && !lane->done() && memory_->BytesOf(*lane->session) > 0) return true;
    }
  }
  return idle_->AnyWithStateAtWork();
}

// Preempted turns resume once there is room for all of their tokens, and must resume if nothing
// else runs.
bool EngineCore::ResumePreempted(bool nobody_runs) {
  bool resumed = false;
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      if (lane->stage != LaneStage::kPreempted) continue;
      if (!nobody_runs && !memory_->EvictFor(*lane->session, lane->pending() + 1).ok()) continue;
      lane->stage.Become(LaneStage::kReady);
      if (!turn->wants_prompt_rows() || lane->is_decoding()) {
        memory_->Reuse(lane->session, lane->session->n_tokens() - 1);
      }
      resumed = true;
      if (nobody_runs) return true;
    }
  }
  return resumed;
}

Status EngineCore::MakeRoomFor(const StepPart& part, const std::vector<StepPart>& prepared) {
  while (true) {
    const Status status = memory_->Prepare(part.lane->session, part.rows);
    if (status.code() != StatusCode::kResourceExhausted) return status;
    if (GiveUpIdleState()) continue;
    if (PreemptFor(part, prepared)) continue;
    return status;
  }
}

// State that only waits to be written goes first.
bool EngineCore::GiveUpIdleState() {
  return (keeper_ != nullptr && keeper_->ReleaseMemory()) || TakeIdleSession();
}

// Takes the state of the least recently used session that is not running: parks it if it can have a
// file, otherwise drops the state and keeps the tokens, from which the next turn recomputes it. A
// session whose turn is queued is not running yet.
bool EngineCore::TakeIdleSession() {
  Session* const oldest = idle_->OldestWithState();
  if (oldest == nullptr) return false;
  if (CheckSavable(*oldest).ok()) {
    if (keeper_->IsKept(*oldest)) {
      BecomeParked(oldest);
      return true;
    }
    // If too much is being written already, only its tokens are kept: waiting would hold up the
    // running turns.
    if (saves_.empty() && SaveHasRoom(*oldest)) {
      StartSave(oldest, /*park=*/true, /*free_now=*/true, [](const Status&) {});
    }
  }
  memory_->Drop(oldest);
  Touch(oldest);
  ++stats_.sessions_dropped;
  return true;
}

// Takes the pages of a lane that is not in the step yet: the last one that comes after the part's
// own, or that does not advance now. It keeps its tokens, starts over when there is room, and its
// output does not change.
bool EngineCore::PreemptFor(const StepPart& part, const std::vector<StepPart>& prepared) {
  bool after = true;
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    const bool paused = (*it)->is_held_up();
    for (auto lane = (*it)->lanes.rbegin(); lane != (*it)->lanes.rend(); ++lane) {
      if (lane->get() == part.lane) {
        after = false;
        continue;
      }
      if ((*lane)->in_step() || (!after && !paused && !(*lane)->done())) continue;
      const bool in_step = std::any_of(prepared.begin(), prepared.end(),
                                       [&](const StepPart& p) { return p.lane == lane->get(); });
      if (in_step || memory_->BytesOf(*(*lane)->session) == 0) continue;
      AbandonLoad((*lane)->session);
      memory_->Drop((*lane)->session);
      if (!(*lane)->done()) (*lane)->stage.Become(LaneStage::kPreempted);
      ++stats_.preemptions;
      return true;
    }
  }
  return false;
}

}  // namespace weft
