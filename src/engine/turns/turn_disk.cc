#include "engine/turns/turn_disk.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weft {
namespace {

// A prompt of this length is worth keeping even if it was used only once.
constexpr int64_t kLongPromptTokens = 1000;
// Time between two checks of running turns' progress, and the growth worth keeping.
constexpr int64_t kGrowthMicros = 2 * int64_t{1'000'000};
constexpr int64_t kGrowthPages = 8;

}  // namespace

void TurnDisk::KeepAfter(const ActiveTurn& turn, const std::function<void(const Status&)>& then) {
  Session* const session = turn.session;
  // A turn that was never admitted changed nothing; a parked session's tokens exist only on disk.
  const bool unchanged = turn.usage.prompt_tokens == 0;
  if (!files_->keeps() || unchanged || session->is_parked()) return then(OkStatus());
  ++session->changes;
  if (session->stage == SessionStage::kPoisoned) return then(OkStatus());
  if (!session->name.empty()) {
    files_->KeepChanged(session, then);
  } else {
    KeepPrompt(session, turn.usage);
    then(OkStatus());
  }
  files_->Pump();
}

void TurnDisk::KeepPrompt(Session* session, const TurnUsage& usage) {
  // Reading from the disk has counted as a use already.
  if (usage.disk_tokens == 0) files_->UseBlocks(*session, usage.cached_tokens);
  if (usage.prompt_tokens > kLongPromptTokens) {
    files_->KeepState(session, session->computed());
  } else if (usage.cached_tokens - usage.disk_tokens >= memory_.page_tokens()) {
    // An earlier prompt began the same way: these tokens recur.
    files_->KeepState(session, usage.cached_tokens);
  }
}

void TurnDisk::KeepRunning(const std::list<std::unique_ptr<ActiveTurn>>& running) {
  if (!files_->has_blocks()) return;
  const int64_t now_us = NowMicros();
  if (now_us - kept_running_us_ < kGrowthMicros) return;
  kept_running_us_ = now_us;
  const int64_t page = memory_.page_tokens();
  for (const auto& turn : running) {
    Session* const session = turn->session;
    if (session->is_at_work()) continue;
    const int64_t whole = session->computed() / page * page;
    const int64_t least = session->name.empty() ? kLongPromptTokens : 0;
    if (whole <= least || whole - turn->kept_tokens < kGrowthPages * page) continue;
    turn->kept_tokens = whole;
    files_->KeepState(session, whole);
  }
}

void TurnDisk::LookFor(ActiveTurn* turn, std::function<void(SessionId)> loaded) {
  if (!files_->has_blocks() || turn->looked_on_disk || turn->stage != TurnStage::kReading) return;
  Lane& lane = *turn->lanes[0];
  if (lane.stage != LaneStage::kReady || lane.session->is_at_work()) return;
  turn->looked_on_disk = true;
  if (turn->wants_prompt_rows()) return;
  const auto done = [id = lane.session->id, loaded = std::move(loaded)] { loaded(id); };
  if (files_->StartLoad(lane.session, lane.session->n_tokens() - 1, done)) {
    lane.stage.Become(LaneStage::kWaitsForDisk);
  }
}

void TurnDisk::TellDiskTokens(ActiveTurn* turn) {
  Session* const session = turn->lanes[0]->session;
  const int64_t n = std::min(turn->usage.cached_tokens, std::exchange(session->from_disk, 0));
  turn->started.disk_tokens = turn->usage.disk_tokens = n;
  disk_tokens_ += n;
}

}  // namespace weft
