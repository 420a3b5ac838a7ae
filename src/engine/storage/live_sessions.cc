#include "engine/storage/live_sessions.h"

#include <utility>

#include "base/clock.h"
#include "weft/options.h"

namespace weft {
namespace {

static_assert(kAnyRow == kRowToken, "callers see the ids that histories write for rows");

Status RefuseWhileRunning(const Session& session, std::string_view what) {
  if (!session.has_turn) return OkStatus();
  return FailedPrecondition("cannot ", what, " a session while a turn of it runs");
}

Status RefuseCut(const Session& session, int64_t position) {
  if (!session.tokens.Cuts(position)) return OkStatus();
  return InvalidArgument("token ", position,
                         " is within a picture; choose the picture's first one, ",
                         session.tokens.WithoutCut(position), ", or a token after it");
}

// A shared store's troubles say themselves what became of the session.
Status WithFileUnchanged(const Status& status) {
  if (TroubleOf(status) != SessionTrouble::kNone) return status;
  return Annotate(status, "the session is as it was, because its file could not be changed: ");
}

}  // namespace

void LiveSessions::Create(const SessionOptions& options,
                          const ReplyWith<StatusOr<SessionId>>& reply) {
  const auto session = sessions_->Create(options.domain, options.name);
  if (!session.ok()) return reply(session.status());
  (*session)->last_used_us = NowMicros();
  publisher_->Touch(*session);
  Begin(*session, reply);
}

void LiveSessions::Begin(Session* session, const ReplyWith<StatusOr<SessionId>>& reply) {
  const SessionId id = session->id;
  if (!files_->IsShared(*session)) return reply(id);
  files_->CreateShared(session, [=, this](const Status& status) {
    Session* const self = sessions_->Find(id);
    if (!status.ok() && self != nullptr && !self->has_turn) Destroy(self);
    reply(status.ok() ? StatusOr<SessionId>(id) : status);
  });
}

// --- a shared store ---------------------------------------------------------------------

void LiveSessions::FindShared(const SessionOptions& options,
                              const ReplyWith<StatusOr<SessionId>>& reply) {
  const Session* here = sessions_->FindByName(options.domain, options.name);
  if (here != nullptr && files_->IsCurrent(*here)) return reply(here->id);
  const Status unknown = NotFound("there is no session ", Printable(options.name));
  if (!files_->is_shared()) return reply(unknown);
  if (here == nullptr) {
    const auto expected = CreateNamed(options, /*close_idle=*/true);
    if (!expected.ok()) return reply(expected.status());
    here = *expected;
  }
  const auto answer = [=, this, id = here->id](const StatusOr<Session*>& found) {
    // Another call gave it up while this one waited; the store may have it.
    const bool is_gone = found.status().code() == StatusCode::kNotFound && !sessions_->Find(id);
    if (is_gone) return FindShared(options, reply);
    const bool is_missing = found.ok() && SessionFiles::IsNew(**found) && !(*found)->has_turn;
    const Status status = is_missing ? unknown : found.status();
    // One that cannot be read is there, and can be deleted.
    const bool is_there = status.ok() || SessionFiles::IsUnreadable(status);
    if (!is_there) DropExpected(id);
    reply(is_there ? StatusOr<SessionId>(id) : status);
  };
  files_->WhenFree(here->id, /*with_state=*/true, answer);
}

void LiveSessions::Look(const SessionOptions& options,
                        const ReplyWith<StatusOr<SessionInfo>>& reply) {
  const Session* const here = sessions_->FindByName(options.domain, options.name);
  if (here != nullptr && files_->IsCurrent(*here)) return reply(SessionInfo{.id = here->id});
  const Status unknown = NotFound("there is no session ", Printable(options.name));
  if (!files_->is_shared()) return reply(unknown);
  const bool is_file = here != nullptr && here->is_saved();
  const SessionId id = here != nullptr ? here->id : SessionId{};
  files_->Look(options.domain, options.name, [=](const StatusOr<SessionStore::Seen>& seen) {
    // One that only the state directory has.
    const bool is_old = seen.status().code() == StatusCode::kNotFound && is_file;
    if (is_old) return reply(SessionInfo{.id = id});
    if (!seen.ok()) return reply(seen.status());
    SessionInfo info;
    info.name = options.name;
    info.domain = options.domain;
    info.state = SessionState::kParked;
    info.n_tokens = seen->n_tokens;
    info.owner = seen->owner;
    reply(std::move(info));
  });
}

StatusOr<Session*> LiveSessions::CreateNamed(const SessionOptions& options, bool close_idle) {
  auto session = sessions_->Create(options.domain, options.name);
  const bool is_full = session.status().code() == StatusCode::kResourceExhausted;
  if (is_full && close_idle && CloseOldestOf(options.domain)) {
    session = sessions_->Create(options.domain, options.name);
  }
  if (session.ok() && files_->is_shared()) {
    (*session)->last_used_us = NowMicros();
    files_->Expect(*session);
  }
  return session;
}

void LiveSessions::DropExpected(SessionId id) {
  Session* const session = sessions_->Find(id);
  if (session == nullptr || session->has_turn || session->is_at_work()) return;
  if (session->is_saved()) return;
  if (!session->is_parked() && !SessionFiles::IsNew(*session)) return;
  files_->ForgetShared(*session);
  Destroy(session);
}

StatusOr<Session*> LiveSessions::Known(const StatusOr<Session*>& found) {
  if (!found.ok() || !files_->IsShared(**found) || !SessionFiles::IsNew(**found)) return found;
  if ((*found)->has_turn) return found;
  const Status unknown = NotFound("there is no session ", Printable((*found)->name), " any more");
  DropExpected((*found)->id);
  return unknown;
}

void LiveSessions::Release(SessionId id, const Reply& reply) {
  if (!files_->is_shared()) {
    return reply(FailedPrecondition("there is no shared store; start with --store"));
  }
  files_->WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& free) {
    const StatusOr<Session*> found = Known(free);
    if (!found.ok()) return reply(found.status());
    if (!files_->IsShared(**found)) {
      return reply(FailedPrecondition("only a session with a name can move"));
    }
    const Status status = RefuseWhileRunning(**found, "move");
    if (!status.ok()) return reply(status);
    files_->Release(*found, [=, this](const Status& released) {
      Session* const self = sessions_->Find(id);
      if (released.ok() && self != nullptr && !self->has_turn) Destroy(self);
      reply(released);
    });
  });
}

void LiveSessions::ReleaseIdle(const ReplyWith<StatusOr<int64_t>>& reply) {
  struct Outcome {
    int64_t open = 0, released = 0;
    Status status;
  };
  std::vector<SessionId> ids;
  std::vector<Session*> parked;
  sessions_->ForEach([&](Session* session) {
    if (!files_->IsShared(*session) || session->has_turn) return;
    // One that only the state directory has stays there.
    if (session->is_parked() && session->is_saved()) return;
    // The store has all of it, or another server has gone on.
    const bool is_only_given_up = session->is_parked() || !files_->IsCurrent(*session);
    if (is_only_given_up && !session->is_at_work()) return parked.push_back(session);
    ids.push_back(session->id);
  });
  if (ids.empty() && parked.empty()) return reply(int64_t{0});
  const auto outcome = std::make_shared<Outcome>();
  outcome->open = std::ssize(ids) + std::ssize(parked);
  const auto count = [outcome, reply](const Status& status) {
    const SessionTrouble trouble = TroubleOf(status);
    const bool is_gone = status.ok() || status.code() == StatusCode::kNotFound ||
                         trouble == SessionTrouble::kElsewhere || trouble == SessionTrouble::kMoved;
    if (!is_gone) outcome->status.Update(status);
    outcome->released += status.ok() ? 1 : 0;
    if (--outcome->open > 0) return;
    reply(outcome->status.ok() ? StatusOr<int64_t>(outcome->released) : outcome->status);
  };
  for (Session* const session : parked) Close(session, /*forget=*/false, count);
  for (const SessionId id : ids) Release(id, count);
}

void LiveSessions::Destroy(Session* session) {
  files_->Forget(session);
  publisher_->Touch(session);  // others may have shared its pages
  publisher_->Remove(*session);
  memory_->Drop(session);
  idle_->Forget(session);
  sessions_->Remove(session);
}

void LiveSessions::Tokens(SessionId id, const ReplyWith<StatusOr<std::vector<TokenId>>>& reply) {
  files_->WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& found) {
    const StatusOr<Session*> session = Known(found);
    if (!session.ok()) return reply(session.status());
    reply((*session)->tokens.WithoutIds());
  });
}

// --- fork -------------------------------------------------------------------------------

void LiveSessions::Fork(SessionId id, int64_t position, const SessionOptions& options,
                        const ReplyWith<StatusOr<SessionId>>& reply) {
  files_->WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& found) {
    const StatusOr<Session*> from = Known(found);
    if (!from.ok()) return reply(from.status());
    const auto fork = ForkNow(**from, position, options);
    if (!fork.ok()) return reply(fork.status());
    Begin(*fork, reply);
  });
}

StatusOr<Session*> LiveSessions::ForkNow(const Session& from, int64_t position,
                                         const SessionOptions& options) {
  // A running session can be forked too: between two steps it is as consistent as an idle one, and
  // it writes to its own copies from now on.
  const int64_t n_tokens = static_cast<int64_t>(from.tokens.size());
  const bool poisoned = from.stage == SessionStage::kPoisoned;
  const int64_t last = poisoned ? from.sound_tokens : n_tokens;
  if (position < 0) position = from.tokens.WithoutCut(last);
  if (position > last) {
    return OutOfRange("cannot fork at token ", position, ": the session ",
                      poisoned ? "is sound up to " : "has ", last);
  }
  WEFT_RETURN_IF_ERROR(RefuseCut(from, position));
  if (options.domain != from.domain) {
    return PermissionDenied("a session can only be forked within its own domain");
  }
  WEFT_ASSIGN_OR_RETURN(Session* const fork, sessions_->Create(options.domain, options.name));
  fork->SetAdapters(from.adapters, from.invoked_at);
  fork->tokens = from.tokens.First(position);
  memory_->Share(from, position, fork);
  fork->last_used_us = NowMicros();
  publisher_->Touch(fork);
  if (!files_->IsShared(*fork)) files_->KeepChanged(fork);
  return fork;
}

// --- go back ----------------------------------------------------------------------------

void LiveSessions::Truncate(SessionId id, int64_t position, const Reply& reply) {
  files_->WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& found) {
    const StatusOr<Session*> session = Known(found);
    if (!session.ok()) return reply(session.status());
    const Status status = CheckTruncate(**session, position);
    if (!status.ok()) return reply(status);
    GoBack(*session, position, reply);
  });
}

Status LiveSessions::CheckTruncate(const Session& session, int64_t position) {
  WEFT_RETURN_IF_ERROR(RefuseWhileRunning(session, "truncate"));
  WEFT_RETURN_IF_ERROR(RefusePoisoned(session));
  if (position < 0 || position > static_cast<int64_t>(session.tokens.size())) {
    return OutOfRange("cannot go back to token ", position, ": the session has ",
                      session.tokens.size());
  }
  return RefuseCut(session, position);
}

// Discards everything after the position, first on disk if the session has a file: acknowledged
// deletions must stay deleted.
void LiveSessions::GoBack(Session* session, int64_t position, const Reply& reply) {
  const SessionId id = session->id;
  const auto apply = [=, this](Session* self) {
    memory_->Truncate(self, position);
    memory_->ReturnFreed();
    self->tokens.Cut(position);
    ++self->changes;
    publisher_->Touch(self);
  };
  if (!files_->HasFile(*session)) {
    apply(session);
    return reply(OkStatus());
  }
  files_->Rewrite(session, session->tokens.First(position), [=, this](const Status& status) {
    Session* const self = sessions_->Find(id);
    if (status.ok() && self != nullptr) {
      apply(self);
      self->SetKept(self->changes);
    }
    reply(WithFileUnchanged(status));
  });
}

void LiveSessions::Reset(SessionId id, const Reply& reply) {
  files_->WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& free) {
    const bool is_unreadable = files_->is_shared() && SessionFiles::IsUnreadable(free.status());
    const StatusOr<Session*> found = is_unreadable ? sessions_->Get(id) : Known(free);
    if (!found.ok()) return reply(found.status());
    const Status status = RefuseWhileRunning(**found, "reset");
    if (!status.ok()) return reply(status);
    if (!files_->HasFile(**found)) {
      ResetNow(*found);
      return reply(OkStatus());
    }
    files_->Empty(*found, [=, this](const Status& done, bool has_file) {
      Session* const self = sessions_->Find(id);
      if (done.ok() && self != nullptr) {
        ResetNow(self);
        self->saved_tokens = 0;
        self->SetKept(self->changes);
        if (!has_file) self->on_disk.Become(OnDisk::kNothing);
      }
      reply(WithFileUnchanged(done));
    });
  });
}

void LiveSessions::ResetNow(Session* session) {
  memory_->Drop(session);
  memory_->ReturnFreed();
  session->tokens = {};
  session->note.clear();
  ++session->changes;
  if (session->stage == SessionStage::kAwaited) session->stage.Become(SessionStage::kQueued);
  if (session->stage.IsAnyOf(SessionStage::kParked, SessionStage::kPoisoned)) {
    session->stage.Become(SessionStage::kReady);
  }
  publisher_->Touch(session);
}

// --- names and ends ---------------------------------------------------------------------

void LiveSessions::Rename(SessionId id, const std::string& name, const Reply& reply) {
  files_->WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& found) {
    if (!found.ok()) return reply(found.status());
    Session* const session = *found;
    const std::string old_name = session->name;
    if (files_->is_shared() && !(session->name.empty() && name.empty())) {
      return reply(FailedPrecondition("a session in a shared store keeps its name; fork it"));
    }
    if (session->is_saved() && name.empty()) {
      return reply(InvalidArgument("a saved session needs a name"));
    }
    const Status status = sessions_->Rename(session, name);
    publisher_->Touch(session);
    if (!status.ok() || name == old_name) return reply(status);
    if (session->has_file()) return files_->Rename(session, old_name, reply);
    if (!session->has_turn) files_->KeepChanged(session);
    reply(status);
  });
}

int64_t LiveSessions::CloseIdle(const std::optional<std::string>& domain, int64_t idle_us) {
  const std::vector<Session*> idle = idle_->UnusedSince(domain, NowMicros() - idle_us);
  for (Session* const session : idle) {
    if (!files_->IsShared(*session)) {
      Close(session, /*forget=*/true, [](const Status&) {});
      continue;
    }
    const SessionFiles::Closed closed = SessionFiles::DescribeForClose(*session);
    Destroy(session);
    files_->ForgetIdle(closed);
  }
  memory_->ReturnFreed();
  return static_cast<int64_t>(idle.size());
}

bool LiveSessions::CloseOldestOf(std::string_view domain) {
  Session* const oldest = idle_->OldestToClose(domain);
  if (oldest == nullptr) return false;
  Close(oldest, /*forget=*/false, [](const Status&) {});
  return true;
}

void LiveSessions::Close(Session* session, bool forget, const Reply& reply) {
  const bool has_file = files_->HasFile(*session);
  const SessionFiles::Closed closed = SessionFiles::DescribeForClose(*session);
  Destroy(session);
  memory_->ReturnFreed();
  if (!has_file) return reply(OkStatus());
  files_->CloseFile(closed, forget, reply);
}

}  // namespace weft
