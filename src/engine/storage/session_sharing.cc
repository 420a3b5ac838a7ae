// Sessions in a shared store: this server confirms that a session is still its own before it uses
// it, commits each change before anybody is told, and gives up what it could not commit.
#include <utility>

#include "base/clock.h"
#include "engine/storage/session_files.h"

namespace weft {

void SessionFiles::Expect(Session* session) {
  session->stage.Become(SessionStage::kParked);
  session->saved_tokens = 0;
  publisher_->Touch(session);
}

// Its tokens were committed by this server, but the lease is over: another may have gone on.
void SessionFiles::Confirm(Session* session, const std::function<void(const Status&)>& then) {
  const SessionId id = session->id;
  works_.Begin(session, FileWork::kConfirming);
  store_->shared()->Confirm(session->domain, session->name, [=, this](const Status& status) {
    works_.End(id);
    Session* const self = sessions_->Find(id);
    if (self == nullptr) return then(NotFound("the session was closed meanwhile"));
    const SessionTrouble trouble = TroubleOf(status);
    if (!status.ok() && trouble != SessionTrouble::kUnavailable) Unload(self);
    // What the other server has added is read from the store.
    then(trouble == SessionTrouble::kMoved ? OkStatus() : status);
    if (Session* const still = sessions_->Find(id)) RestoreForTurn(still);
  });
}

// --- changes ----------------------------------------------------------------------------

void SessionFiles::Commit(Session* session, const Reply& then) {
  const SessionId id = session->id;
  if (store_closed_) {
    if (then) then(Unavailable("the engine has shut down"));
    return;
  }
  KeepState(session, session->computed());
  if (session->is_kept() || IsNew(*session)) {
    if (then) then(OkStatus());
    return;
  }
  // The next turn waits until the store has this one.
  works_.Begin(session, FileWork::kSaving);
  const auto finish = [=, this, version = session->changes](const Status& status) {
    works_.End(id);
    Session* const self = sessions_->Find(id);
    if (self != nullptr && status.ok()) {
      NoteCommitted(self, version);
      OfferBlocks(*self);  // also those that it refused earlier
    }
    if (self != nullptr && !status.ok()) Unload(self);
    if (then) then(status);
    if (Session* const still = sessions_->Find(id)) RestoreForTurn(still);
  };
  keeper_->WriteTokens(session, session->tokens, finish);
}

void SessionFiles::ParkShared(Session* session, bool park, const Reply& reply) {
  const SessionId id = session->id;
  Commit(session, [=, this](const Status& status) {
    Session* const self = sessions_->Find(id);
    if (!status.ok() || self == nullptr) return reply(status);
    works_.Begin(self, FileWork::kSaving);
    keeper_->WhenStateIsWritten(id, [=, this] {
      works_.End(id);
      Session* const still = sessions_->Find(id);
      const bool may_park = still != nullptr && still->is_kept() && !still->is_parked() &&
                            still->stage.IsAnyOf(SessionStage::kReady, SessionStage::kQueued);
      if (may_park) ++parks_;
      if (park && may_park) BecomeParked(still);
      reply(OkStatus());
      if (Session* const last = sessions_->Find(id)) RestoreForTurn(last);
    });
  });
}

bool SessionFiles::IsUnreadable(const Status& status) {
  const StatusCode code = status.code();
  return !status.ok() && TroubleOf(status) == SessionTrouble::kNone &&
         code != StatusCode::kNotFound && code != StatusCode::kUnavailable;
}

void SessionFiles::NoteCommitted(Session* session, uint64_t version) {
  // The state directory's file is from before, and goes.
  if (session->is_saved()) session->on_disk.Become(OnDisk::kNothing);
  session->SetKept(version);
  publisher_->Touch(session);
}

void SessionFiles::CreateShared(Session* session, const Reply& reply) {
  const SessionId id = session->id;
  if (store_closed_) return reply(Unavailable("the engine has shut down"));
  KeepState(session, session->computed());
  works_.Begin(session, FileWork::kSaving);
  const auto finish = [=, this, version = session->changes](const Status& status) {
    works_.End(id);
    Session* const self = sessions_->Find(id);
    if (self == nullptr) return reply(NotFound("the session was closed meanwhile"));
    if (status.ok()) NoteCommitted(self, version);
    // A turn that was queued meanwhile needs it.
    if (!status.ok() && self->has_turn) Unload(self);
    reply(status);
    if (Session* const still = sessions_->Find(id)) RestoreForTurn(still);
  };
  keeper_->WriteTokens(session, session->tokens, finish, /*is_new=*/true);
}

void SessionFiles::ForgetIdle(const Closed& closed) {
  works_.BeginAfterClose(closed.id);
  store_->RemoveIdle(closed.domain, closed.name,
                     [this, id = closed.id](const Status&) { works_.End(id); });
}

void SessionFiles::Look(const std::string& domain, const std::string& name,
                        const ReplyWith<StatusOr<SessionStore::Seen>>& reply) {
  if (store_closed_) return reply(Unavailable("the engine has shut down"));
  const SessionId work{++looks_};  // handles have a tag in their upper bits
  works_.BeginAfterClose(work);
  store_->Look(domain, name, [this, work, reply](StatusOr<SessionStore::Seen> seen) {
    works_.End(work);
    reply(std::move(seen));
  });
}

// Forgets the session's contents: the next use reads them from the store.
void SessionFiles::Unload(Session* session) {
  keeper_->Forget(session);
  memory_->Drop(session);
  memory_->ReturnFreed();
  session->tokens = {};
  session->note.clear();
  session->taken_tokens = 0;
  ++session->changes;
  const bool has_old_file = store_->HasFile(session->domain, session->name);
  if (!has_old_file) session->saved_tokens = 0;
  if (session->on_disk != OnDisk::kNothing && !(session->is_saved() && has_old_file)) {
    session->on_disk.Become(OnDisk::kNothing);
  }
  if (session->stage == SessionStage::kPoisoned) session->stage.Become(SessionStage::kReady);
  if (session->stage == SessionStage::kReady) session->stage.Become(SessionStage::kParked);
  if (session->stage == SessionStage::kQueued) session->stage.Become(SessionStage::kAwaited);
  publisher_->Touch(session);
}

// --- leases -----------------------------------------------------------------------------

// A turn may take longer than a lease.
void SessionFiles::Renew() {
  const int64_t now_us = NowMicros();
  if (now_us - renewed_us_ < store_->shared()->renewal_us()) return;
  renewed_us_ = now_us;
  sessions_->ForEach([this](Session* session) {
    if (!IsShared(*session) || !session->has_turn || session->is_parked()) return;
    const auto note = [this, id = session->id](const Status& status) {
      Session* const self = sessions_->Find(id);
      // Nobody will see what it computes.
      const bool moved = TroubleOf(status) == SessionTrouble::kMoved;
      const bool runs =
          self != nullptr && self->stage.IsAnyOf(SessionStage::kRunning, SessionStage::kInStep);
      if (moved && runs) self->restore_error = status;
    };
    store_->shared()->Renew(session->domain, session->name, note);
  });
}

void SessionFiles::Release(Session* session, const Reply& reply) {
  const SessionId id = session->id;
  // The store has what was sound.
  if (session->stage == SessionStage::kPoisoned) return GiveUp(id, reply);
  // What the state directory has from before is not in the store yet.
  Commit(session,
         [=, this](const Status& status) { status.ok() ? GiveUp(id, reply) : reply(status); });
}

void SessionFiles::GiveUp(SessionId id, const Reply& reply) {
  Session* const session = sessions_->Find(id);
  if (session == nullptr) return reply(OkStatus());
  works_.Begin(session, FileWork::kSaving);
  const auto finish = [=, this](const Status& status) {
    works_.End(id);
    Session* const self = sessions_->Find(id);
    // A turn that was queued meanwhile takes it back.
    if (self != nullptr && self->has_turn) {
      Unload(self);
      RestoreForTurn(self);
    }
    reply(status);
  };
  const auto release = [=, this] {
    const Session* const self = sessions_->Find(id);
    if (self == nullptr) return finish(OkStatus());
    store_->shared()->Release(self->domain, self->name, finish);
  };
  keeper_->WhenStateIsWritten(id, [=, this] {
    const Session* const self = sessions_->Find(id);
    if (self == nullptr || blocks_ == nullptr) return release();
    OfferBlocks(*self);
    blocks_->AfterUploads(release);
  });
}

// Those that an earlier process wrote, too.
void SessionFiles::OfferBlocks(const Session& session) {
  if (blocks_ == nullptr) return;
  const BlockMatch match = disk_->Match(session.DomainOf(session.computed()),
                                        session.tokens.before_rows(), session.computed());
  for (const Fingerprint& key : match.pages) blocks_->Offer(key);
  if (match.slot.has_value()) blocks_->Offer(*match.slot);
}

// At the end, so that no other server has to wait for the leases.
void SessionFiles::ReleaseAll() {
  sessions_->ForEach([this](Session* session) {
    if (!IsShared(*session) || session->is_at_work()) return;
    if (!store_->shared()->MayHold(session->domain, session->name)) return;
    works_.Begin(session, FileWork::kSaving);
    store_->shared()->Release(session->domain, session->name,
                              [this, id = session->id](const Status&) { works_.End(id); });
  });
}

}  // namespace weft
