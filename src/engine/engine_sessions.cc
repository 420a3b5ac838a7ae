// Sessions: create, fork, go back, describe. Calls that need their files are in engine_files.cc.
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"

namespace weft {

StatusOr<SessionId> EngineCore::CreateSession(const SessionOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Session* const session, sessions_.Create(options.domain, options.name));
  session->last_used_us = NowMicros();
  Touch(session);
  return session->id;
}

namespace {

Status RefuseWhileRunning(const Session& session, std::string_view what) {
  if (session.turn != nullptr) {
    return FailedPrecondition("cannot ", what, " a session while a turn of it runs");
  }
  return OkStatus();
}

}  // namespace

Status EngineCore::RefusePoisoned(const Session& session) {
  if (session.stage != SessionStage::kPoisoned) return OkStatus();
  return FailedPrecondition("this session is poisoned: a forward pass failed after token ",
                            session.sound_tokens,
                            "; reset it, fork it from an earlier point, or close it");
}

void EngineCore::Fork(SessionId id, int64_t position, const SessionOptions& options,
                      const ReplyWith<StatusOr<SessionId>>& reply) {
  WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& from) {
    if (!from.ok()) return reply(from.status());
    reply(ForkNow(**from, position, options));
  });
}

StatusOr<SessionId> EngineCore::ForkNow(const Session& from, int64_t position,
                                        const SessionOptions& options) {
  // A running session can be forked too: between two steps it is as consistent as an idle one, and
  // it writes to its own copies from now on.
  const int64_t n_tokens = static_cast<int64_t>(from.tokens.size());
  const bool poisoned = from.stage == SessionStage::kPoisoned;
  const int64_t last = poisoned ? from.sound_tokens : n_tokens;
  if (position < 0) position = last;
  if (position > last) {
    return OutOfRange("cannot fork at token ", position, ": the session ",
                      poisoned ? "is sound up to " : "has ", last);
  }
  if (options.domain != from.domain) {
    return PermissionDenied("a session can only be forked within its own domain");
  }
  WEFT_ASSIGN_OR_RETURN(Session* const fork, sessions_.Create(options.domain, options.name));
  fork->tokens.assign(from.tokens.begin(), from.tokens.begin() + position);
  memory_->Share(from, position, fork);
  fork->last_used_us = NowMicros();
  Touch(fork);
  KeepIfNamed(fork);
  return fork->id;
}

void EngineCore::Truncate(SessionId id, int64_t position, const Reply& reply) {
  WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    const Status status = CheckTruncate(**session, position);
    if (!status.ok()) return reply(status);
    GoBack(*session, position, reply);
  });
}

Status EngineCore::CheckTruncate(const Session& session, int64_t position) {
  WEFT_RETURN_IF_ERROR(RefuseWhileRunning(session, "truncate"));
  WEFT_RETURN_IF_ERROR(RefusePoisoned(session));
  if (position < 0 || position > static_cast<int64_t>(session.tokens.size())) {
    return OutOfRange("cannot go back to token ", position, ": the session has ",
                      session.tokens.size());
  }
  return OkStatus();
}

// Discards everything after the position, first on disk if the session has a file: acknowledged
// deletions must stay deleted.
void EngineCore::GoBack(Session* session, int64_t position, const Reply& reply) {
  const SessionId id = session->id;
  const auto apply = [=, this](Session* self) {
    memory_->Truncate(self, position);
    memory_->ReturnFreed();
    self->tokens.resize(static_cast<size_t>(position));
    ++self->changes;
    Touch(self);
  };
  if (keeper_ == nullptr || !session->has_file()) {
    apply(session);
    return reply(OkStatus());
  }
  std::vector<TokenId> tokens(session->tokens.begin(), session->tokens.begin() + position);
  WriteInstead(session, std::move(tokens), [=, this](const Status& status) {
    Session* const self = sessions_.Find(id);
    if (status.ok() && self != nullptr) {
      apply(self);
      self->SetKept(self->changes);
    }
    reply(Annotate(status, "the session is as it was, because its file could not be changed: "));
  });
}

void EngineCore::Reset(SessionId id, const Reply& reply) {
  WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& found) {
    if (!found.ok()) return reply(found.status());
    Session* const session = *found;
    const Status status = RefuseWhileRunning(*session, "reset");
    if (!status.ok()) return reply(status);
    if (keeper_ == nullptr || !session->has_file()) {
      ResetNow(session);
      return reply(OkStatus());
    }
    const std::string domain = session->domain, name = session->name;
    const auto finish = [=, this](const Status& done, bool has_file) {
      Session* const self = sessions_.Find(id);
      if (done.ok() && self != nullptr) {
        ResetNow(self);
        self->saved_tokens = 0;
        self->SetKept(self->changes);
        if (!has_file) self->on_disk.Become(OnDisk::kNothing);
      }
      reply(Annotate(done, "the session is as it was, because its file could not be changed: "));
    };
    WriteInstead(session, {}, [=, this](const Status& written) {
      Session* const self = sessions_.Find(id);
      if (written.ok() || self == nullptr) return finish(written, true);
      // A full disk must not prevent deletion.
      BeginFileWork(self, FileWork::kChanging);
      store_->Remove(domain, name, [=, this](const Status& removed) {
        EndFileWork(id);
        const bool gone = removed.ok() || removed.code() == StatusCode::kNotFound;
        finish(gone ? OkStatus() : written, false);
        if (Session* const still = sessions_.Find(id)) RestoreForTurn(still);
      });
    });
  });
}

void EngineCore::ResetNow(Session* session) {
  memory_->Drop(session);
  memory_->ReturnFreed();
  session->tokens.clear();
  session->note.clear();
  ++session->changes;
  if (session->stage == SessionStage::kAwaited) session->stage.Become(SessionStage::kQueued);
  if (session->stage.IsAnyOf(SessionStage::kParked, SessionStage::kPoisoned)) {
    session->stage.Become(SessionStage::kReady);
  }
  Touch(session);
}

void EngineCore::DestroySession(Session* session) {
  AbandonLoad(session);
  if (keeper_ != nullptr && !session->name.empty()) keeper_->Forget(session);
  Touch(session);  // others may have shared its pages
  view_->Remove(session->id);
  memory_->Drop(session);
  idle_->Forget(session);
  sessions_.Remove(session);
}

void EngineCore::Tokens(SessionId id, const ReplyWith<StatusOr<std::vector<TokenId>>>& reply) {
  WhenFree(id, /*with_state=*/true, [=](const StatusOr<Session*>& session) {
    if (!session.ok()) return reply(session.status());
    reply((*session)->tokens);
  });
}

}  // namespace weft
