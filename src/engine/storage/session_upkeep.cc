// Updates a session's file when the session changes or goes away, saves sessions in the background,
// and parks or drops them when memory is short or the engine ends.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/storage/session_files.h"

namespace weft {

// --- with the session -------------------------------------------------------------------

void SessionFiles::Rewrite(Session* session, History tokens, const Reply& reply) {
  const SessionId id = session->id;
  keeper_->Forget(session);
  works_.Begin(session, FileWork::kChanging);
  keeper_->WriteTokens(session, std::move(tokens), [this, id, reply](const Status& status) {
    works_.End(id);
    Session* const changed = sessions_->Find(id);
    if (changed != nullptr && IsShared(*changed)) {
      status.ok() ? NoteCommitted(changed, changed->changes) : Unload(changed);
    }
    reply(status);
    if (Session* const self = sessions_->Find(id)) RestoreForTurn(self);
  });
}

void SessionFiles::Empty(Session* session,
                         const std::function<void(const Status&, bool has_file)>& reply) {
  const SessionId id = session->id;
  const std::string domain = session->domain, name = session->name;
  // It cannot be read, or it would be here: only the name goes on.
  if (IsShared(*session) && session->is_parked()) {
    works_.Begin(session, FileWork::kChanging);
    return store_->Remove(domain, name, [this, id, reply](const Status& removed) {
      works_.End(id);
      reply(removed, false);
      if (Session* const still = sessions_->Find(id)) RestoreForTurn(still);
    });
  }
  Rewrite(session, {}, [=, this](const Status& written) {
    Session* const self = sessions_->Find(id);
    if (written.ok() || self == nullptr || is_shared()) return reply(written, true);
    // A full disk must not prevent deletion.
    works_.Begin(self, FileWork::kChanging);
    store_->Remove(domain, name, [=, this](const Status& removed) {
      works_.End(id);
      const bool gone = removed.ok() || removed.code() == StatusCode::kNotFound;
      reply(gone ? OkStatus() : written, false);
      if (Session* const still = sessions_->Find(id)) RestoreForTurn(still);
    });
  });
}

void SessionFiles::Rename(Session* session, const std::string& old_name, const Reply& reply) {
  const SessionId id = session->id;
  const std::string name = session->name;
  works_.Begin(session, FileWork::kChanging);
  const auto finish = [=, this](const Status& status) {
    works_.End(id);
    Session* const self = sessions_->Find(id);
    // Tokens in flight may never have reached the disk.
    const bool had_none =
        status.code() == StatusCode::kNotFound && self != nullptr && !self->is_saved();
    const Status renamed = had_none ? OkStatus() : status;
    if (self != nullptr) {
      if (name.empty() || had_none) self->on_disk.Become(OnDisk::kNothing);
      // The old name is still free: names change on this thread only, and a new session of that
      // name would have found its file.
      if (!renamed.ok()) (void)sessions_->Rename(self, old_name);
      publisher_->Touch(self);
      RestoreForTurn(self);
    }
    reply(renamed);
  };
  if (name.empty()) {
    keeper_->Forget(session);
    store_->Remove(session->domain, old_name, finish);
  } else {
    store_->Rename(session->domain, old_name, name, finish);
  }
}

void SessionFiles::Forget(Session* session) {
  AbandonLoad(session);
  if (keeper_ != nullptr && !session->name.empty()) keeper_->Forget(session);
}

SessionFiles::Closed SessionFiles::DescribeForClose(const Session& session) {
  return {.id = session.id,
          .domain = session.domain,
          .name = session.name,
          .is_saved = session.is_saved(),
          .saved_tokens = session.saved_tokens,
          .last_used_us = session.last_used_us};
}

Status SessionFiles::ListParked(const Closed& closed, const std::string& note) {
  WEFT_ASSIGN_OR_RETURN(Session* const parked, sessions_->CreateSaved(closed.domain, closed.name));
  parked->saved_tokens = closed.saved_tokens;
  parked->last_used_us = closed.last_used_us;
  parked->note = note;
  publisher_->Touch(parked);
  return OkStatus();
}

void SessionFiles::CloseFile(const Closed& closed, bool forget, const Reply& reply) {
  if (is_shared() && !forget) {
    works_.BeginAfterClose(closed.id);
    return store_->shared()->Release(closed.domain, closed.name, [=, this](const Status&) {
      works_.End(closed.id);
      reply(OkStatus());  // otherwise its time passes
    });
  }
  if (closed.is_saved && !forget) return reply(ListParked(closed, ""));
  works_.BeginAfterClose(closed.id);
  store_->Remove(closed.domain, closed.name, [=, this](const Status& status) {
    works_.End(closed.id);
    // Tokens in flight may never have reached the disk.
    if (status.ok() || (!closed.is_saved && status.code() == StatusCode::kNotFound)) {
      return reply(OkStatus());
    }
    // The file still exists and can be found; another session of that name will replace it.
    if (status.code() != StatusCode::kNotFound && !is_shared()) {
      (void)ListParked(closed, StrCat("it could not be removed: ", Message(status)));
    }
    reply(status);
  });
}

// --- keeping ----------------------------------------------------------------------------

void SessionFiles::KeepChanged(Session* session, const Reply& then) {
  if (IsShared(*session)) return Commit(session, then);
  const bool keeps = keeper_ != nullptr && !session->name.empty();
  const auto told = [then] {
    if (then) then(OkStatus());
  };
  if (keeps && options_.durable) return keeper_->KeepSession(session, told);
  if (keeps) keeper_->KeepSession(session);
  told();
}

void SessionFiles::KeepState(Session* session, int64_t n_tokens) {
  if (keeper_ != nullptr) keeper_->KeepState(session, n_tokens);
}

void SessionFiles::UseBlocks(const Session& session, int64_t n_tokens) {
  if (disk_ == nullptr) return;
  disk_->Use(disk_->Match(session.DomainOf(n_tokens), session.tokens.before_rows(), n_tokens));
}

void SessionFiles::RefreshBlocks(const std::string& domain, PrefixIndex::Tokens tokens) {
  if (disk_ == nullptr) return;
  const History known(tokens());
  // Rows have other ids on disk.
  const auto row = std::find_if(known.begin(), known.end(), IsRow);
  disk_->Use(disk_->Match(domain, std::span(known.begin(), row), std::ssize(known)), /*n_uses=*/0);
}

bool SessionFiles::Pump() {
  if (is_shared()) Renew();
  if (blocks_ != nullptr) blocks_->GiveUpLate();
  return keeper_ != nullptr && keeper_->Pump();
}

std::optional<int64_t> SessionFiles::NextWake() const {
  return keeper_ != nullptr ? keeper_->NextWake() : std::nullopt;
}

bool SessionFiles::StartLoad(Session* session, int64_t max_tokens, std::function<void()> done) {
  return loader_ != nullptr && loader_->Start(session, max_tokens, std::move(done));
}

void SessionFiles::AbandonLoad(Session* session) {
  if (loader_ != nullptr) loader_->Abandon(session);
}

// --- memory -----------------------------------------------------------------------------

bool SessionFiles::GiveUpIdleState() {
  return (keeper_ != nullptr && keeper_->ReleaseMemory()) || TakeIdleSession();
}

// A session whose turn is queued is not running yet.
bool SessionFiles::TakeIdleSession() {
  Session* const oldest = idle_->OldestWithState();
  if (oldest == nullptr) return false;
  if (CheckSavable(*oldest).ok()) {
    if (keeper_->IsKept(*oldest)) {
      BecomeParked(oldest);
      return true;
    }
    // If too much is being written already, only its tokens are kept: waiting would hold up the
    // running turns.
    if (saves_.empty() && SaveHasRoom(*oldest) && !IsShared(*oldest)) {
      StartSave(oldest, /*park=*/true, /*free_now=*/true, [](const Status&) {});
    }
  }
  memory_->Drop(oldest);
  publisher_->Touch(oldest);
  ++dropped_;
  return true;
}

// Also drops the sessions' computed state, except what is on disk.
Status SessionFiles::MakeRoomForRows(int64_t bytes, const Session* spared) {
  Status status = memory_->MakeRoomForRows(bytes);
  if (status.ok() || keeper_ == nullptr) return status;
  for (Session* const session : idle_->UnusedSince(std::nullopt, NowMicros())) {
    const bool lies_in_file = session->is_kept() && session->keep.n_under_way() == 0;
    if (session == spared || !session->tokens.has_rows() || !lies_in_file) continue;
    if (!CheckSavable(*session).ok()) continue;
    BecomeParked(session);
    status = memory_->MakeRoomForRows(bytes);
    if (status.ok()) break;
  }
  return status;
}

// --- shutdown ---------------------------------------------------------------------------

bool SessionFiles::StillKeeping() {
  if (keeper_ == nullptr) return false;
  Pump();
  return keeper_->pending() > 0 || (blocks_ != nullptr && blocks_->pending() > 0);
}

void SessionFiles::ParkAll() {
  if (store_ == nullptr) return;
  keeper_->ReleaseMemory();
  keeper_->StopWaiting();
  if (is_shared()) ReleaseAll();
  std::vector<SessionId> ids;
  sessions_->ForEach([&](Session* session) {
    if (session->stage != SessionStage::kReady || !CheckSavable(*session).ok()) return;
    if (IsShared(*session)) return;
    // An empty session replaces its file, so that a reset session does not come back.
    if (session->tokens.empty() && !session->has_file()) return;
    if (!keeper_->IsKept(*session)) ids.push_back(session->id);
  });
  for (const SessionId id : ids) {
    Session* const session = sessions_->Find(id);
    if (session == nullptr || session->is_at_work()) continue;
    StartSave(session, /*park=*/true, /*free_now=*/true, [this, id](const Status& status) {
      const Session* const self = sessions_->Find(id);
      if (status.ok() || self == nullptr) return;
      // If the tokens are on disk, only the state is lost, and is recomputed.
      if (self->is_kept()) return;
      not_saved_.push_back(StrCat("\"", Printable(self->name), "\""));
      if (not_saved_because_.ok()) not_saved_because_ = status;
    });
  }
  if (disk_ != nullptr) disk_->WriteIndex();
}

void SessionFiles::StopKeeping() {
  if (disk_ != nullptr) disk_->GiveUpWrites();
  if (blocks_ != nullptr) blocks_->Abandon();
}

void SessionFiles::AbandonSaves() {
  if (std::exchange(saves_abandoned_, true) || store_ == nullptr) return;
  StopKeeping();
  store_->Abandon();
  PumpSaves();
}

Status SessionFiles::SaveOutcome() const {
  if (not_saved_.empty()) return OkStatus();
  const bool one = not_saved_.size() == 1;
  return Annotate(not_saved_because_, one ? "session " : "sessions ", StrJoin(not_saved_, ", "),
                  one ? " was" : " were", " not saved: ");
}

// --- accounts ---------------------------------------------------------------------------

void SessionFiles::FillStats(EngineStats* stats) const {
  stats->parks = parks_;
  stats->restores = restores_;
  stats->sessions_dropped = dropped_;
  stats->save_bytes = save_bytes_;
  if (store_ != nullptr) stats->file_written_bytes = store_->written_bytes();
  if (is_shared()) store_->shared()->FillStats(stats);
  if (keeper_ != nullptr) {
    stats->disk_pending = keeper_->pending();
    keeper_->FillStats(stats);
  }
  if (disk_ != nullptr) disk_->FillStats(stats);
}

Status SessionFiles::CheckIntegrity() const {
  return disk_ != nullptr ? disk_->CheckIntegrity() : OkStatus();
}

}  // namespace weft
