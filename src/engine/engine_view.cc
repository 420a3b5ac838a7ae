#include "engine/engine_view.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/session_table.h"

namespace weft {

double TurnInfo::PromptTokensPerSecond() const {
  if (prompt_us <= 0) return 0;
  return static_cast<double>(done_tokens - cached_tokens) * 1e6 / static_cast<double>(prompt_us);
}

double TurnInfo::PromptSecondsLeft() const {
  const double rate = PromptTokensPerSecond();
  return rate > 0 ? static_cast<double>(prompt_tokens - done_tokens) / rate : 0;
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

void EngineSnapshot::ForEach(const std::function<void(const Entry&)>& visit) const {
  for (const auto& chunk : chunks_) {
    for (const auto& entry : *chunk) {
      if (entry != nullptr) visit(*entry);
    }
  }
}

StatusOr<SessionInfo> EngineSnapshot::Inspect(SessionId id) const {
  if (has_shut_down_) return Unavailable("the engine has shut down");
  const size_t index = SessionTable::IndexOf(id);
  if (index / kChunk < chunks_.size()) {
    const auto& entry = (*chunks_[index / kChunk])[index % kChunk];
    if (entry != nullptr && entry->info.id == id) return InfoOf(*entry);
  }
  return SessionTable::NoSession(tag_, id);
}

StatusOr<SessionId> EngineSnapshot::Find(std::string_view domain, std::string_view name) const {
  if (has_shut_down_) return Unavailable("the engine has shut down");
  SessionId found;
  ForEach([&](const Entry& entry) {
    if (!name.empty() && entry.info.name == name && entry.info.domain == domain) {
      found = entry.info.id;
    }
  });
  if (found != SessionId()) return found;
  return NotFound("there is no session named \"", Printable(name), "\"");
}

std::vector<SessionInfo> EngineSnapshot::List(std::string_view domain) const {
  std::vector<SessionInfo> infos;
  ForEach([&](const Entry& entry) {
    if (entry.info.domain == domain && !entry.info.name.empty()) infos.push_back(InfoOf(entry));
  });
  std::sort(infos.begin(), infos.end(),
            [](const SessionInfo& a, const SessionInfo& b) { return a.name < b.name; });
  return infos;
}

// --- the engine thread -------------------------------------------------------------------

EngineView::EngineView(uint16_t tag) {
  next_.tag_ = tag;
  Publish({}, {});
}

std::shared_ptr<const EngineSnapshot::Entry>& EngineView::At(SessionId id) {
  const size_t index = SessionTable::IndexOf(id);
  const size_t c = index / EngineSnapshot::kChunk;
  while (next_.chunks_.size() <= c) {
    own_chunks_.push_back(std::make_shared<Chunk>());
    next_.chunks_.push_back(own_chunks_.back());
  }
  if (own_chunks_[c] == nullptr) {
    own_chunks_[c] = std::make_shared<Chunk>(*next_.chunks_[c]);
    next_.chunks_[c] = own_chunks_[c];
  }
  return (*own_chunks_[c])[index % EngineSnapshot::kChunk];
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

void EngineView::Put(const SessionInfo& info, int64_t idle_since_us) {
  auto& place = At(info.id);
  if (place != nullptr) Count(place->info.state, -1);
  Count(info.state, 1);
  place = std::make_shared<const Entry>(Entry{.info = info, .idle_since_us = idle_since_us});
}

void EngineView::Remove(SessionId id) {
  auto& place = At(id);
  // The place may have a new session already, or never had this one.
  if (place == nullptr || place->info.id != id) return;
  Count(place->info.state, -1);
  place = nullptr;
}

void EngineView::Publish(const EngineStats& stats, std::vector<TurnInfo> turns) {
  const EngineStats counted = next_.stats_;
  next_.stats_ = stats;
  next_.stats_.sessions_ready = counted.sessions_ready;
  next_.stats_.sessions_running = counted.sessions_running;
  next_.stats_.sessions_parked = counted.sessions_parked;
  next_.stats_.sessions_poisoned = counted.sessions_poisoned;
  own_chunks_.assign(next_.chunks_.size(), nullptr);
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
  // The former one, and what only it had, is freed without the lock.
}

std::shared_ptr<const EngineSnapshot> EngineView::Latest() const {
  MutexLock lock(&mutex_);
  return latest_;
}

}  // namespace weft
