#include "engine/turns/step_room.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// How many steps in a row are planned again if the backend has no memory for them.
constexpr int kMaxTakenBack = 16;

}  // namespace

void StepRoom::Prepare(std::vector<StepPart>* parts) {
  std::vector<StepPart> prepared;
  int64_t needed = 0;  // bytes, without draft tokens
  for (const StepPart& part : *parts) {
    needed += memory_->BytesToPrepare(*part.session(), part.rows - part.guesses);
  }
  for (StepPart& part : *parts) {
    // An earlier part has just taken its pages, or ended the turn of both.
    if (!part.lane->is_ready()) continue;
    // Draft tokens take no memory from anybody.
    if (part.guesses > 0 && memory_->PrepareGuessed(part.session(), part.rows, needed)) {
      prepared.push_back(std::move(part));
      continue;
    }
    part.DropGuesses();
    Status status = MakeRoomFor(part, prepared);
    // Fewer rows need less at a time: pages that fall out of a window are freed after each step.
    const std::vector<TokenRun> runs = part.session()->tokens.MutualIn(part.first_row, part.rows);
    while (status.code() == StatusCode::kResourceExhausted && WithoutCut(runs, part.rows / 2) > 0 &&
           !OthersWillFreeMemory(part.lane)) {
      part.rows = WithoutCut(runs, part.rows / 2);
      part.ends_prompt = false;
      part.n_logits = part.n_logits > 1 ? part.rows : 0;
      part.n_vectors = part.n_vectors > 1 ? part.rows : 0;
      status = MakeRoomFor(part, prepared);
    }
    if (status.ok()) {
      prepared.push_back(std::move(part));
      continue;
    }
    // Other holders of pages will eventually free them.
    if (status.code() != StatusCode::kResourceExhausted || !OthersWillFreeMemory(part.lane)) {
      part.turn->End(FinishReason::kError, status);
    }
  }
  *parts = std::move(prepared);
}

bool StepRoom::TakeBack(std::span<StepPart> parts, const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted || ++n_taken_back_ > kMaxTakenBack) {
    return false;
  }
  for (const StepPart& part : parts) memory_->TakeBack(part.session());
  const int64_t used = memory_->used_bytes();
  memory_->Shrink();
  if (memory_->used_bytes() == used) files_->GiveUpIdleState();
  memory_->ReturnFreed();
  return true;
}

bool StepRoom::OthersWillFreeMemory(const Lane* self) const {
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      if (lane.get() != self && !lane->done() && memory_->BytesOf(*lane->session) > 0) return true;
    }
  }
  return idle_->AnyWithStateAtWork();
}

bool StepRoom::ResumePreempted(bool nobody_runs) {
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

Status StepRoom::MakeRoomFor(const StepPart& part, const std::vector<StepPart>& prepared) {
  while (true) {
    const Status status = memory_->Prepare(part.session(), part.rows);
    if (status.code() != StatusCode::kResourceExhausted) return status;
    if (files_->GiveUpIdleState()) continue;
    if (PreemptFor(part, prepared)) continue;
    return status;
  }
}

// Takes the pages of a lane that is not in the step yet: the last one that comes after the part's
// own, or that does not advance now. It keeps its tokens, starts over when there is room, and its
// output does not change.
bool StepRoom::PreemptFor(const StepPart& part, const std::vector<StepPart>& prepared) {
  bool after = true;
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    const bool paused = (*it)->is_held_up();
    for (auto lane = (*it)->lanes.rbegin(); lane != (*it)->lanes.rend(); ++lane) {
      if (lane->get() == part.lane) {
        after = false;
        continue;
      }
      if ((*lane)->in_step() || (!after && !paused && (*lane)->holds_place())) continue;
      const bool in_step = std::any_of(prepared.begin(), prepared.end(),
                                       [&](const StepPart& p) { return p.lane == lane->get(); });
      if (in_step || memory_->BytesOf(*(*lane)->session) == 0) continue;
      files_->AbandonLoad((*lane)->session);
      memory_->Drop((*lane)->session);
      if ((*lane)->holds_place()) (*lane)->stage.Become(LaneStage::kPreempted);
      ++preemptions_;
      return true;
    }
  }
  return false;
}

}  // namespace weft
