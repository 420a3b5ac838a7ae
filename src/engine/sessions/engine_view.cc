#include "engine/sessions/engine_view.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/sessions/session_table.h"

namespace weft {

double TurnInfo::PromptTokensPerSecond() const {
  if (prompt_us <= 0) return 0;
  return static_cast<double>(done_tokens - cached_tokens) * 1e6 / static_cast<double>(prompt_us);
}

double TurnInfo::PromptSecondsLeft() const {
  const double rate = PromptTokensPerSecond();
  const int64_t left = prompt_tokens - done_tokens + waits_behind_tokens;
  return rate > 0 ? static_cast<double>(left) / rate : 0;
}

std::string_view NameOf(TurnInfo::Stage stage) {
  switch (stage) {
    case TurnInfo::Stage::kQueued:
      return "queued";
    case TurnInfo::Stage::kWaiting:
      return "waiting";
    case TurnInfo::Stage::kReading:
      return "reading";
    case TurnInfo::Stage::kWriting:
      return "writing";
  }
  return "unknown";
}

// --- readers -----------------------------------------------------------------------------

SessionInfo EngineSnapshot::InfoOf(const Entry& entry) {
  SessionInfo info = entry.info;
  info.idle_us = entry.idle_since_us == 0 ? 0 : NowMicros() - entry.idle_since_us;
  return info;
}

const EngineSnapshot::Entry* EngineSnapshot::EntryOf(SessionId id) const {
  const size_t index = SessionTable::IndexOf(id);
  const size_t block = index / kFanOut / kFanOut;
  if (block >= blocks_.size()) return nullptr;
  const Chunk* const chunk = blocks_[block]->parts[index / kFanOut % kFanOut].get();
  const Entry* const entry = chunk != nullptr ? chunk->parts[index % kFanOut].get() : nullptr;
  return entry != nullptr && entry->info.id == id ? entry : nullptr;
}

StatusOr<SessionInfo> EngineSnapshot::Inspect(SessionId id) const {
  if (has_shut_down_) return Unavailable("the engine has shut down");
  if (const Entry* const entry = EntryOf(id)) return InfoOf(*entry);
  return SessionTable::NoSession(tag_, id);
}

StatusOr<SessionId> EngineSnapshot::Find(std::string_view domain, std::string_view name) const {
  if (has_shut_down_) return Unavailable("the engine has shut down");
  if (const auto found = names_.Find(domain, name)) return *found;
  return NotFound("there is no session named \"", Printable(name), "\"");
}

std::vector<SessionInfo> EngineSnapshot::List(std::string_view domain) const {
  std::vector<SessionInfo> infos;
  names_.ForEachOf(domain, [&](SessionId id) { infos.push_back(InfoOf(*EntryOf(id))); });
  return infos;
}

// --- the engine thread -------------------------------------------------------------------

EngineView::EngineView(uint16_t tag) {
  next_.tag_ = tag;
  Publish({}, {});
}

template <typename Part>
EngineSnapshot::Group<Part>* EngineView::Own(
    std::shared_ptr<const EngineSnapshot::Group<Part>>* group) const {
  using Group = EngineSnapshot::Group<Part>;
  if (*group == nullptr || (*group)->version != version_) {
    auto own = *group == nullptr ? std::make_shared<Group>() : std::make_shared<Group>(**group);
    own->version = version_;
    *group = std::move(own);
  }
  return const_cast<Group*>(group->get());
}

std::shared_ptr<const EngineSnapshot::Entry>& EngineView::At(SessionId id) {
  constexpr size_t kFanOut = EngineSnapshot::kFanOut;
  const size_t index = SessionTable::IndexOf(id);
  const size_t block = index / kFanOut / kFanOut;
  while (next_.blocks_.size() <= block) next_.blocks_.push_back(std::make_shared<Block>());
  auto& chunk = Own(&next_.blocks_[block])->parts[index / kFanOut % kFanOut];
  return Own(&chunk)->parts[index % kFanOut];
}

void EngineView::Count(SessionState state, int64_t n) {
  switch (state) {
    case SessionState::kReady:
      next_.stats_.sessions_ready += n;
      break;
    case SessionState::kRunning:
      next_.stats_.sessions_running += n;
      break;
    case SessionState::kParked:
      next_.stats_.sessions_parked += n;
      break;
    case SessionState::kPoisoned:
      next_.stats_.sessions_poisoned += n;
      break;
  }
}

// Another session may have its name by now.
void EngineView::TakeOut(std::shared_ptr<const Entry>* place) {
  if (*place == nullptr) return;
  const SessionInfo& info = (*place)->info;
  Count(info.state, -1);
  if (next_.names_.Find(info.domain, info.name) == info.id) {
    next_.names_.Remove(info.domain, info.name);
  }
  place->reset();
}

void EngineView::Put(const SessionInfo& info, int64_t idle_since_us) {
  auto& place = At(info.id);
  const bool keeps_name = place != nullptr && place->info.id == info.id &&
                          place->info.name == info.name && !info.name.empty();
  if (keeps_name) {
    Count(place->info.state, -1);
  } else {
    TakeOut(&place);
    if (!info.name.empty()) next_.names_.Set(info.domain, info.name, info.id);
  }
  Count(info.state, 1);
  place = std::make_shared<const Entry>(Entry{.info = info, .idle_since_us = idle_since_us});
}

void EngineView::Remove(SessionId id) {
  auto& place = At(id);
  // The place may already hold a new session, or may never have held this one.
  if (place != nullptr && place->info.id == id) TakeOut(&place);
}

void EngineView::Publish(const EngineStats& stats, std::vector<TurnInfo> turns) {
  const EngineStats counted = next_.stats_;
  next_.stats_ = stats;
  next_.stats_.sessions_ready = counted.sessions_ready;
  next_.stats_.sessions_running = counted.sessions_running;
  next_.stats_.sessions_parked = counted.sessions_parked;
  next_.stats_.sessions_poisoned = counted.sessions_poisoned;
  ++version_;
  auto snapshot = std::make_shared<EngineSnapshot>(next_);
  snapshot->turns_ = std::move(turns);
  Swap(std::move(snapshot));
}

void EngineView::Close() {
  next_.has_shut_down_ = true;
  Swap(std::make_shared<const EngineSnapshot>(next_));
}

void EngineView::Swap(std::shared_ptr<const EngineSnapshot> next) {
  MutexLock lock(&mutex_);
  latest_.swap(next);
  // The previous snapshot, and data only it held, is freed outside the lock.
}

std::shared_ptr<const EngineSnapshot> EngineView::Latest() const {
  MutexLock lock(&mutex_);
  return latest_;
}

}  // namespace weft
