// The sessions of an engine as its callers change them: create, fork, go back, reset, rename,
// close. Each change reaches the session, its memory, its file and those who read about it. Engine
// thread only.
#ifndef WEFT_ENGINE_STORAGE_LIVE_SESSIONS_H_
#define WEFT_ENGINE_STORAGE_LIVE_SESSIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/storage/session_files.h"

namespace weft {

class LiveSessions {
 public:
  template <typename T>
  using ReplyWith = SessionFiles::ReplyWith<T>;
  using Reply = SessionFiles::Reply;

  // All must outlive the object.
  LiveSessions(const SessionFiles::Parts& parts, SessionFiles* files)
      : sessions_(parts.sessions),
        memory_(parts.memory),
        idle_(parts.idle),
        publisher_(parts.publisher),
        files_(files) {}

  void Create(const SessionOptions& options, const ReplyWith<StatusOr<SessionId>>& reply);
  // See Engine::FindShared and Release.
  void FindShared(const SessionOptions& options, const ReplyWith<StatusOr<SessionId>>& reply);
  // Answers with no more than the id of a session that is here.
  void Look(const SessionOptions& options, const ReplyWith<StatusOr<SessionInfo>>& reply);
  void Release(SessionId id, const Reply& reply);
  // Releases, in a shared store, every named session that no turn uses.
  void ReleaseIdle(const ReplyWith<StatusOr<int64_t>>& reply);
  // These restore a parked session first.
  void Fork(SessionId id, int64_t position, const SessionOptions& options,
            const ReplyWith<StatusOr<SessionId>>& reply);
  void Truncate(SessionId id, int64_t position, const Reply& reply);
  void Tokens(SessionId id, const ReplyWith<StatusOr<std::vector<TokenId>>>& reply);
  void Reset(SessionId id, const Reply& reply);
  void Rename(SessionId id, const std::string& name, const Reply& reply);
  // `forget`: the file goes too; otherwise a saved session can be found again. REQUIRES: it has no
  // turn, and its file is free.
  void Close(Session* session, bool forget, const Reply& reply);
  // Closes named sessions that were not used for so long; returns how many.
  int64_t CloseIdle(const std::optional<std::string>& domain, int64_t idle_us);
  // Closes the oldest idle one of this domain, so that nobody pays for another domain's sessions.
  // One with a file keeps its place: it must be found again.
  bool CloseOldestOf(std::string_view domain);

  // For turns, which find, make and destroy their own.
  StatusOr<Session*> Get(SessionId id) const { return sessions_->Get(id); }
  Session* Find(SessionId id) const { return sessions_->Find(id); }
  Session* FindByName(std::string_view domain, std::string_view name) const {
    return sessions_->FindByName(domain, name);
  }
  // Where a shared store may have it, it is parked until WhenFree has asked. `close_idle`: where
  // there is no place, in that of the domain's oldest.
  StatusOr<Session*> CreateNamed(const SessionOptions& options, bool close_idle);
  // It turned out to be new and unused, or unusable here: only the store knows it.
  void DropExpected(SessionId id);
  // See SessionTable.
  StatusOr<Session*> CreateForTurn(std::string_view domain) {
    return sessions_->CreateForTurn(domain);
  }
  void Destroy(Session* session);

 private:
  StatusOr<Session*> ForkNow(const Session& from, int64_t position, const SessionOptions& options);
  // Answers once a shared store has the new session, or destroys it.
  void Begin(Session* session, const ReplyWith<StatusOr<SessionId>>& reply);
  // NOT_FOUND for a session that another server has deleted.
  StatusOr<Session*> Known(const StatusOr<Session*>& found);
  static Status CheckTruncate(const Session& session, int64_t position);
  void GoBack(Session* session, int64_t position, const Reply& reply);
  void ResetNow(Session* session);

  SessionTable* const sessions_;
  StateMemory* const memory_;
  IdleSessions* const idle_;
  Publisher* const publisher_;
  SessionFiles* const files_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_LIVE_SESSIONS_H_
