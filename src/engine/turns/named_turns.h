// Turns on named sessions: finds, creates or restores the session, and ends the turn if that fails.
// Engine thread only.
#ifndef WEFT_ENGINE_TURNS_NAMED_TURNS_H_
#define WEFT_ENGINE_TURNS_NAMED_TURNS_H_

#include <functional>
#include <memory>

#include "base/status.h"
#include "engine/storage/live_sessions.h"
#include "engine/storage/session_files.h"
#include "engine/turns/turn_scheduler.h"
#include "weft/engine.h"

namespace weft {

class NamedTurns {
 public:
  using Reply = std::function<void(StatusOr<SubmittedTurn>)>;

  // All must outlive the object.
  NamedTurns(LiveSessions* sessions, SessionFiles* files, TurnScheduler* turns)
      : sessions_(sessions), files_(files), turns_(turns) {}

  // See Engine::SubmitNamed. Answers once the session's file is read, if it has to be.
  void Submit(NamedTurnRequest request, const Reply& reply);

 private:
  struct Request;

  // Each takes the turn out of the request.
  void SubmitTo(const std::shared_ptr<Request>& request, Session* session);
  void SubmitToNew(const std::shared_ptr<Request>& request);
  // Once its file is read, or a shared store has said that the session is this server's.
  void SubmitWhenFree(const std::shared_ptr<Request>& request, SessionId id);
  void Refuse(Request* request, NamedTurnPolicy::Otherwise otherwise, const Status& status);

  LiveSessions* const sessions_;
  SessionFiles* const files_;
  TurnScheduler* const turns_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_NAMED_TURNS_H_
