// A program's operations on sessions, other than turns.
#include <algorithm>

#include "tests/property/program.h"

namespace weft::testing {

// --- sessions ------------------------------------------------------------------------------

// The engine may be parking the session because memory is short, or have parked it.
Status Program::Insist(Sess* session, const std::function<Status()>& call) {
  Status status = call();
  for (int i = 0; i < 1000 && status.code() == StatusCode::kFailedPrecondition; ++i) {
    const Status restored = engine_->Restore(session->id);
    if (!restored.ok()) return restored;
    status = call();
  }
  return status;
}

std::optional<Program::Tokens> Program::ReadTokens(Sess* session) {
  Tokens tokens;
  const Status status = Insist(session, [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(tokens, engine_->Tokens(session->id));
    return OkStatus();
  });
  Expect(status, "reading a session's tokens");
  if (!status.ok()) return std::nullopt;
  return tokens;
}

void Program::CheckTokens(Sess* session) {
  if (failed()) return;
  const auto tokens = ReadTokens(session);
  if (tokens && *tokens != AsShown(session->tokens)) {
    Fail("a session holds ", TokensToString(*tokens), ", expected are ",
         TokensToString(session->tokens));
  }
}

std::optional<Program::Tokens> Program::Tell(Sess* session, const Tokens& shown,
                                             const std::vector<Tokens>& candidates) {
  std::optional<Tokens> told;
  for (const Tokens& candidate : candidates) {
    const auto by_it = Recognized(shown, candidate);
    if (!by_it || by_it == told) continue;
    if (told) {
      const auto reset = [&] { return engine_->Reset(session->id); };
      Expect(Insist(session, reset), "reset of a session whose rows are not known");
      return Tokens();
    }
    told = by_it;
  }
  if (!told) Fail("a session holds what was never said: ", TokensToString(shown));
  return told;
}

void Program::Fork(Sess* session) {
  const Tokens& known = session->flight ? session->flight->context : session->tokens;
  int64_t position = Chance(25) ? -1 : Uniform(0, static_cast<int>(known.size()));
  auto fork = std::make_unique<Sess>();
  fork->domain = session->domain;
  fork->stream = session->stream;
  fork->adapters = session->adapters;
  if (Chance(30)) fork->name = NewName();
  StatusOr<SessionId> id = SessionId{};
  const auto call = [&]() -> Status {
    id = engine_->Fork(session->id, position, {.name = fork->name, .domain = fork->domain});
    return id.status();
  };
  const Status status = session->flight ? call() : Insist(session, call);
  Note("fork ", session->id.value & 0xFFFF, session->flight ? " (running)" : "", " at ", position,
       " -> ", status.ToString());
  if (!status.ok()) {
    // A running session may not have reached the position yet, or may still be loading from its
    // file.
    const bool fine = session->flight && (status.code() == StatusCode::kOutOfRange ||
                                          status.code() == StatusCode::kFailedPrecondition);
    if (!fine) Expect(status, "fork");
    return;
  }
  ++counts_.forks;
  fork->id = *id;
  const auto tokens = ReadTokens(fork.get());
  if (!tokens) return;
  if (session->flight) {
    const auto told = Tell(fork.get(), *tokens, {session->flight->before, known});
    if (!told) return;
    fork->tokens = *told;
    session->flight->forks.push_back(*told);
  } else {
    fork->tokens = position < 0 ? known : First(known, position);
    if (*tokens != AsShown(fork->tokens)) {
      Fail("a fork holds ", TokensToString(*tokens), " of ", TokensToString(known));
    }
  }
  fork->versions.push_back(fork->tokens);
  sessions_.push_back(std::move(fork));
}

void Program::Truncate(Sess* session, int64_t position) {
  const auto call = [&] { return engine_->Truncate(session->id, position); };
  const Status status = session->flight ? call() : Insist(session, call);
  Note("back ", session->id.value & 0xFFFF, " to ", position, " -> ", status.ToString());
  if (session->flight) {
    if (status.code() == StatusCode::kFailedPrecondition) return;
    Settle(*std::exchange(session->flight, std::nullopt), session);
    // A turn with the whole context may have left fewer tokens than that.
    if (status.code() == StatusCode::kOutOfRange &&
        position > static_cast<int64_t>(session->tokens.size())) {
      return;
    }
  }
  Expect(status, "truncate");
  if (failed()) return;
  session->tokens = First(session->tokens, position);
  session->versions.push_back(session->tokens);
  CheckTokens(session);
}

void Program::Reset(Sess* session) {
  const auto call = [&] { return engine_->Reset(session->id); };
  const Status status = session->flight ? call() : Insist(session, call);
  Note("reset ", session->id.value & 0xFFFF, " -> ", status.ToString());
  if (session->flight) {
    if (status.code() == StatusCode::kFailedPrecondition) return;
    Settle(*std::exchange(session->flight, std::nullopt), session);
  }
  Expect(status, "reset");
  session->tokens.clear();
  session->versions.push_back({});
  CheckTokens(session);
}

bool Program::CanSave(const Sess& session) const {
  return !session.name.empty() && !options_.state_dir.empty();
}

void Program::SaveOrPark(Sess* session, bool park) {
  const Status status = park ? engine_->Park(session->id) : engine_->Save(session->id);
  Note(park ? "park " : "save ", session->id.value & 0xFFFF, " -> ", status.ToString());
  if (!CanSave(*session)) {
    if (status.code() != StatusCode::kFailedPrecondition) Fail("parked: ", status.ToString());
    return;
  }
  if (session->flight) {
    if (status.code() == StatusCode::kFailedPrecondition) return;
    Settle(*std::exchange(session->flight, std::nullopt), session);
  }
  Expect(status, "save");
  session->versions = {session->tokens};
  session->saved = true;
  if (!park || failed()) return;
  const auto info = engine_->Inspect(session->id);
  Expect(info.status(), "inspect");
  if (info.ok() && (info->state != SessionState::kParked || info->pages != 0 ||
                    info->n_tokens != static_cast<int64_t>(session->tokens.size()))) {
    Fail("a parked session is ", NameOf(info->state), " with ", info->pages, " pages and ",
         info->n_tokens, " tokens");
  }
}

void Program::Restore(Sess* session) {
  const Status status = engine_->Restore(session->id);
  Note("restore ", session->id.value & 0xFFFF, " -> ", status.ToString());
  Expect(status, "restore");
  ++counts_.restores;
  if (!session->flight) CheckTokens(session);
}

void Program::Rename(Sess* session) {
  const Sess* const other = Pick();
  const bool taken =
      Chance(20) && other != session && !other->name.empty() && other->domain == session->domain;
  const std::string name = taken ? other->name : NewName();
  const Status status = engine_->Rename(session->id, name);
  Note("rename ", session->id.value & 0xFFFF, " to ", name, " -> ", status.ToString());
  if (taken) {
    if (status.code() != StatusCode::kAlreadyExists) Fail("took a name: ", status.ToString());
    return;
  }
  Expect(status, "rename");
  session->name = name;
  const auto found = engine_->FindSession(session->domain, name);
  if (!found.ok() || !(*found == session->id)) Fail("a renamed session is not found");
}

void Program::Close(Sess* session) {
  const bool forget = Chance(50);
  const Status status = engine_->Close(session->id, forget);
  Note("close ", session->id.value & 0xFFFF, forget ? " and forget" : "", " -> ",
       status.ToString());
  Expect(status, "close");
  if (session->flight) Settle(*std::exchange(session->flight, std::nullopt), session);
  if (engine_->Inspect(session->id).status().code() != StatusCode::kNotFound) {
    Fail("a closed session is found by its handle");
  }
  Sess closed = std::move(*session);
  std::erase_if(sessions_, [&](const auto& s) { return s.get() == session; });
  if (failed() || closed.name.empty()) return;
  if (!forget) return FindAgain(std::move(closed));
  if (engine_->FindSession(closed.domain, closed.name).ok()) Fail("a forgotten session is found");
}

// Finds a session that was closed with its file kept, or whose engine was restarted.
void Program::FindAgain(Sess closed) {
  const auto id = engine_->FindSession(closed.domain, closed.name);
  if (!id.ok()) {
    if (closed.saved) Fail("a saved session is lost: ", id.status().ToString());
    return;
  }
  auto session = std::make_unique<Sess>(std::move(closed));
  session->id = *id;
  const auto tokens = ReadTokens(session.get());
  if (!tokens) return;
  ++counts_.restores;
  std::vector<Tokens> candidates = session->versions;
  std::erase_if(candidates, [&](const Tokens& version) { return AsShown(version) != *tokens; });
  const auto told = Tell(session.get(), *tokens, candidates);
  if (!told) return;
  session->tokens = *told;
  session->saved = true;
  sessions_.push_back(std::move(session));
}

void Program::Restart() {
  const int grace_ms = Chance(50) ? 0 : 5;
  Note("restart, grace ", grace_ms);
  ++counts_.restarts;
  shut_down_ = true;
  CountPressure();
  Expect(engine_->Shutdown(std::chrono::milliseconds(grace_ms)), "shutdown");
  for (auto& session : sessions_) {
    if (session->flight) Settle(*std::exchange(session->flight, std::nullopt), session.get());
  }
  SettleOnce();
  shut_down_ = false;
  engine_.reset();
  const bool had_files = !options_.state_dir.empty();
  ChooseOptions();
  Start();
  if (failed()) return;
  std::vector<std::unique_ptr<Sess>> before = std::move(sessions_);
  sessions_.clear();
  for (auto& session : before) {
    if (engine_->Inspect(session->id).ok()) Fail("a handle of another engine is accepted");
    if (session->name.empty() || !had_files) continue;
    // The last output is parked at the end.
    session->saved = session->saved || !session->tokens.empty();
    session->versions = {session->tokens};
    FindAgain(std::move(*session));
  }
}

void Program::CountPressure() {
  const EngineStats stats = engine_->Stats();
  counts_.preemptions += stats.preemptions;
  counts_.dropped += stats.sessions_dropped;
  counts_.guessed_tokens += stats.guessed_tokens;
  counts_.accepted_guesses += stats.accepted_guesses;
}

}  // namespace weft::testing
