// Publishes the engine's sessions, turns and counters, so that readers never wait for the engine
// (engine_view.h).
//
// Costs a step little, however many sessions there are: publishes at most every 20 ms while steps
// follow each other, and then only what runs, what changed, and a limited number of sessions whose
// page sharing may have changed.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"

namespace weft {
namespace {

constexpr int64_t kPublishEveryUs = 20'000;
constexpr size_t kStalePlacesAtOnce = 64;
constexpr size_t kStalePlacesWhenIdle = 1024;

void AddDiskStats(const DiskTier::Stats& disk, EngineStats* stats) {
  stats->disk_bytes = disk.bytes;
  stats->disk_file_bytes = disk.file_bytes;
  stats->disk_pending += disk.writes_under_way;
  stats->disk_budget_bytes = disk.budget_bytes;
  stats->disk_blocks = disk.blocks;
  stats->disk_read_bytes = disk.read_bytes;
  stats->disk_written_bytes = disk.written_bytes;
  stats->disk_skipped_bytes = disk.skipped_bytes;
  stats->disk_evicted_blocks = disk.evicted_blocks;
  stats->disk_damaged_blocks = disk.damaged_blocks;
  stats->disk_failed_writes = disk.failed_writes;
}

}  // namespace

void EngineCore::Touch(Session* session) {
  n_stale_places_ = sessions_.n_places();
  idle_->Note(session);
  if (std::exchange(session->is_touched, true)) return;
  touched_.push_back(session->id);
}

void EngineCore::Put(Session* session) {
  session->is_touched = false;
  if (session->role == SessionRole::kHolder) return;
  const SessionInfo info = InfoOf(*session);
  session->published_shared_pages = info.shared_pages;
  session->published_shared_with = info.shared_with;
  view_->Put(info, info.state == SessionState::kRunning ? 0 : session->last_used_us);
}

void EngineCore::PutStalePlaces() {
  const size_t most = idle() ? kStalePlacesWhenIdle : kStalePlacesAtOnce;
  for (size_t i = 0; i < most && n_stale_places_ > 0; ++i, --n_stale_places_) {
    if (++next_stale_place_ >= sessions_.n_places()) next_stale_place_ = 0;
    Session* const session = sessions_.At(next_stale_place_);
    if (session == nullptr) continue;
    const StateMemory::Sharing published = {session->published_shared_pages,
                                            session->published_shared_with};
    if (memory_->SharingOf(*session) != published) Put(session);
  }
}

void EngineCore::PublishIfDue() {
  if (!after_publish_.empty() || NowMicros() - published_us_ >= kPublishEveryUs) Publish();
}

void EngineCore::Publish() {
  for (const SessionId id : std::exchange(touched_, {})) {
    if (Session* const session = sessions_.Find(id)) Put(session);
  }
  PutStalePlaces();
  idle_->Settle();
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) Put(lane->session);
  }
  view_->Publish(Stats(), TurnInfos());
  published_us_ = NowMicros();
  for (const auto& then : std::exchange(after_publish_, {})) then();
}

// The view fills in the session counts.
EngineStats EngineCore::Stats() const {
  EngineStats stats = stats_;
  stats.turns_queued = static_cast<int64_t>(queued_.size());
  stats.turns_running = static_cast<int64_t>(running_.size());
  stats.weight_bytes = model_->weight_bytes();
  size_t n_logits = logits_.capacity();
  if (long_step_ != nullptr) n_logits += long_step_->logits.capacity();
  stats.scratch_bytes = executor_->scratch_bytes() + static_cast<int64_t>(n_logits * sizeof(float));
  memory_->FillStats(&stats);
  const StageStats stages = executor_->stage_stats();
  stats.compute_us = stages.total_ns / 1000;
  stats.matmul_us = stages.matmul_ns / 1000;
  stats.attention_us = stages.attention_ns / 1000;
  stats.weight_bytes_read = stages.weight_bytes;
  stats.kv_bytes_read = stages.kv_bytes;
  stats.save_bytes = save_bytes_;
  if (keeper_ != nullptr) stats.disk_pending = keeper_->pending();
  if (disk_ != nullptr) AddDiskStats(disk_->stats(), &stats);
  return stats;
}

SessionInfo EngineCore::InfoOf(const Session& session) const {
  SessionInfo info;
  info.id = session.id;
  info.name = session.name;
  info.domain = session.domain;
  info.state = PublicState(session.stage);
  info.n_tokens = session.n_tokens();
  info.note = session.note;
  info.n_computed = session.computed;
  info.pages = memory_->PagesOf(session);
  const StateMemory::Sharing sharing = memory_->SharingOf(session);
  info.shared_pages = sharing.pages;
  info.shared_with = sharing.sessions;
  info.state_bytes = memory_->BytesOf(session);
  info.slot_bytes = memory_->SlotBytesOf(session);
  info.saved = session.is_saved();
  return info;
}

std::vector<TurnInfo> EngineCore::TurnInfos() const {
  std::vector<TurnInfo> infos;
  infos.reserve(running_.size() + queued_.size());
  for (const auto& turn : running_) infos.push_back(InfoOf(*turn));
  for (const auto& turn : queued_) infos.push_back(InfoOf(*turn));
  return infos;
}

TurnInfo EngineCore::InfoOf(const ActiveTurn& turn) const {
  TurnInfo info;
  info.id = turn.serial;
  info.session = turn.session->id;
  info.session_name = turn.session->name;
  info.domain = turn.session->domain;
  info.label = turn.options.label;
  info.max_tokens = turn.options.max_tokens;
  info.queued_us = turn.usage.queued_us;
  if (turn.lanes.empty()) {
    info.prompt_tokens = static_cast<int64_t>(turn.options.tokens.size());
    if (!turn.options.tokens_are_whole_context) info.prompt_tokens += turn.session->n_tokens();
    return info;
  }
  const Lane& first = *turn.lanes[0];
  info.prompt_tokens = turn.usage.prompt_tokens;
  info.cached_tokens = turn.usage.cached_tokens;
  if (turn.is_prompt_computed()) {
    info.stage = TurnInfo::Stage::kWriting;
    info.done_tokens = info.prompt_tokens;
    info.prompt_us = turn.usage.prompt_us;
    for (const auto& lane : turn.lanes) {
      info.generated_tokens += static_cast<int64_t>(lane->generated.size());
    }
    return info;
  }
  const bool waits = first.stage.IsAnyOf(LaneStage::kWaitsForSibling, LaneStage::kWaitsForDisk,
                                         LaneStage::kPreempted);
  info.stage = waits ? TurnInfo::Stage::kWaiting : TurnInfo::Stage::kReading;
  info.done_tokens = first.session->computed;
  if (turn.first_row_us > 0) {
    info.prompt_us = first.last_row_us - turn.first_row_us;
  } else {
    info.cached_tokens = info.done_tokens;
  }
  return info;
}

// Page sharing can change without the session changing; such sessions are rechecked in turn.
Status EngineCore::CheckPublished() const {
  const auto seen = view_->Latest();
  Status status;
  int64_t n_sessions = 0;
  sessions_.ForEach([&](Session* session) {
    if (session->role == SessionRole::kHolder) return;
    ++n_sessions;
    const SessionInfo now = InfoOf(*session);
    const auto info = seen->Inspect(session->id);
    const bool same = info.ok() && info->name == now.name && info->state == now.state &&
                      info->n_tokens == now.n_tokens && info->n_computed == now.n_computed &&
                      info->pages == now.pages && info->slot_bytes == now.slot_bytes &&
                      info->saved == now.saved && info->note == now.note;
    if (!same) status.Update(Internal("session \"", session->name, "\" is published as it was"));
  });
  const EngineStats& stats = seen->stats();
  const int64_t n_published = stats.sessions_ready + stats.sessions_running +
                              stats.sessions_parked + stats.sessions_poisoned;
  if (n_published != n_sessions) {
    status.Update(Internal(n_published, " sessions are published, there are ", n_sessions));
  }
  return status;
}

}  // namespace weft
