#include "engine/sessions/publisher.h"

#include <utility>

#include "base/clock.h"

namespace weft {
namespace {

constexpr int64_t kPublishEveryUs = 20'000;
constexpr size_t kStalePlacesAtOnce = 64;
constexpr size_t kStalePlacesWhenIdle = 1024;

}  // namespace

Publisher::Publisher(const SessionTable* sessions, const StateMemory* memory, IdleSessions* idle)
    : sessions_(*sessions),
      memory_(*memory),
      idle_(idle),
      view_(std::make_shared<EngineView>(sessions->tag())) {}

void Publisher::Touch(Session* session) {
  SharingChanged();
  idle_->Note(session);
  if (std::exchange(session->published.is_touched_, true)) return;
  touched_.push_back(session->id);
}

void Publisher::Put(Session* session) {
  session->published.is_touched_ = false;
  if (session->role == SessionRole::kHolder) return;
  const SessionInfo info = InfoOf(*session);
  session->published.shared_pages_ = info.shared_pages;
  session->published.shared_with_ = info.shared_with;
  view_->Put(info, info.state == SessionState::kRunning ? 0 : session->last_used_us);
}

void Publisher::PutStalePlaces(size_t most) {
  for (size_t i = 0; i < most && n_stale_places_ > 0; ++i, --n_stale_places_) {
    if (++next_stale_place_ >= sessions_.n_places()) next_stale_place_ = 0;
    Session* const session = sessions_.At(next_stale_place_);
    if (session == nullptr) continue;
    const StateMemory::Sharing published = {session->published.shared_pages_,
                                            session->published.shared_with_};
    if (memory_.SharingOf(*session) != published) Put(session);
  }
}

bool Publisher::IsDue() const {
  return !after_publish_.empty() || NowMicros() - published_us_ >= kPublishEveryUs;
}

void Publisher::Publish(const EngineStats& stats, std::vector<TurnInfo> turns,
                        std::span<Session* const> running, bool is_idle) {
  for (const SessionId id : std::exchange(touched_, {})) {
    if (Session* const session = sessions_.Find(id)) Put(session);
  }
  PutStalePlaces(is_idle ? kStalePlacesWhenIdle : kStalePlacesAtOnce);
  idle_->Settle();
  for (Session* const session : running) Put(session);
  view_->Publish(stats, std::move(turns));
  published_us_ = NowMicros();
  for (const auto& then : std::exchange(after_publish_, {})) then();
}

SessionInfo Publisher::InfoOf(const Session& session) const {
  SessionInfo info;
  info.id = session.id;
  info.name = session.name;
  info.domain = session.domain;
  info.state = PublicState(session.stage);
  info.n_tokens = session.n_tokens();
  info.note = session.note;
  info.unsaved = session.unsaved;
  info.n_computed = session.computed();
  info.pages = memory_.PagesOf(session);
  const StateMemory::Sharing sharing = memory_.SharingOf(session);
  info.shared_pages = sharing.pages;
  info.shared_with = sharing.sessions;
  info.state_bytes = memory_.BytesOf(session);
  info.slot_bytes = memory_.SlotBytesOf(session);
  info.saved = session.is_saved();
  for (const SessionHead::Adapter& adapter : session.saved_adapters()) {
    info.adapters.push_back({adapter.name, adapter.scale});
  }
  return info;
}

// Page sharing can change without the session changing; such sessions are rechecked in turn.
Status Publisher::CheckIntegrity() const {
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
                      info->saved == now.saved && info->note == now.note &&
                      info->unsaved == now.unsaved;
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
