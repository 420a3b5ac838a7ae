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

constexpr std::string_view kFileUnchanged =
    "the session is as it was, because its file could not be changed: ";

}  // namespace

StatusOr<SessionId> LiveSessions::Create(const SessionOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Session* const session, sessions_->Create(options.domain, options.name));
  session->last_used_us = NowMicros();
  publisher_->Touch(session);
  return session->id;
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
  files_->WhenFree(id, /*with_state=*/true, [=](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    reply((*session)->tokens.WithoutIds());
  });
}

// --- fork -------------------------------------------------------------------------------

void LiveSessions::Fork(SessionId id, int64_t position, const SessionOptions& options,
                        const ReplyWith<StatusOr<SessionId>>& reply) {
  files_->WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& from) {
    if (!from.ok()) return reply(from.status());
    reply(ForkNow(**from, position, options));
  });
}

StatusOr<SessionId> LiveSessions::ForkNow(const Session& from, int64_t position,
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
  files_->KeepChanged(fork);
  return fork->id;
}

// --- go back ----------------------------------------------------------------------------

void LiveSessions::Truncate(SessionId id, int64_t position, const Reply& reply) {
  files_->WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& session) {
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
    reply(Annotate(status, kFileUnchanged));
  });
}

void LiveSessions::Reset(SessionId id, const Reply& reply) {
  files_->WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& found) {
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
      reply(Annotate(done, kFileUnchanged));
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
    Close(session, /*forget=*/true, [](const Status&) {});
  }
  return static_cast<int64_t>(idle.size());
}

bool LiveSessions::CloseOldestOf(std::string_view domain) {
  Session* const oldest = idle_->OldestToClose(domain);
  if (oldest == nullptr) return false;
  Close(oldest, /*forget=*/false, [](const Status&) {});
  return true;
}

void LiveSessions::Close(Session* session, bool forget, const Reply& reply) {
  const bool has_file = session->has_file();
  const SessionFiles::Closed closed = SessionFiles::DescribeForClose(*session);
  Destroy(session);
  memory_->ReturnFreed();
  if (!has_file) return reply(OkStatus());
  files_->CloseFile(closed, /*listed=*/closed.is_saved && !forget, reply);
}

}  // namespace weft
