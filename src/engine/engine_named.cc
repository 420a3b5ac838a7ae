// Turns on named sessions: finding, creating or restoring the session, and what happens to the turn
// if that fails.
#include <utility>

#include "engine/engine_core.h"

namespace weft {

// A request that waits while the session's file is read.
struct EngineCore::NamedRequest {
  SessionOptions session;
  TurnOptions turn;
  NamedTurnPolicy policy;
  ReplyWith<StatusOr<Submitted>> reply;
};

void EngineCore::SubmitNamed(const SessionOptions& session, const TurnOptions& options,
                             const NamedTurnPolicy& policy,
                             const ReplyWith<StatusOr<Submitted>>& reply) {
  if (session.name.empty()) return reply(SubmitOnce(session.domain, options));
  auto request =
      std::make_shared<const NamedRequest>(NamedRequest{session, options, policy, reply});
  Session* const found = sessions_.FindByName(session.domain, session.name);
  if (found == nullptr) return SubmitToNew(request);
  if (found->stage != SessionStage::kParked) {
    return SubmitTo(request, found);
  }
  // Find out now, not when the turn runs, whether the file is readable: the client may choose to do
  // without the session.
  WhenFree(found->id, /*with_state=*/true, [=, this](const StatusOr<Session*>& free) {
    if (free.ok()) return SubmitTo(request, *free);
    const StatusCode code = free.status().code();
    if (code == StatusCode::kUnavailable) return request->reply(free.status());
    if (code == StatusCode::kNotFound &&
        sessions_.FindByName(request->session.domain, request->session.name) == nullptr) {
      return SubmitToNew(request);  // it was closed meanwhile
    }
    Refuse(*request, request->policy.unusable,
           FailedPrecondition("the saved session cannot be used until it is reset or deleted: ",
                              Message(free.status())));
  });
}

void EngineCore::SubmitTo(const std::shared_ptr<const NamedRequest>& request, Session* session) {
  const NamedTurnPolicy& policy = request->policy;
  if (session->turn != nullptr) {
    return Refuse(*request, policy.busy, RefuseBusy(*session));
  }
  if (session->stage == SessionStage::kPoisoned) {
    return Refuse(*request, policy.unusable, RefusePoisoned(*session));
  }
  request->reply(Enqueue(session, request->turn, /*closes_session=*/false));
}

void EngineCore::SubmitToNew(const std::shared_ptr<const NamedRequest>& request) {
  const SessionOptions& named = request->session;
  auto session = sessions_.Create(named.domain, named.name);
  if (session.status().code() == StatusCode::kResourceExhausted) {
    if (request->policy.close_idle_when_full && CloseIdleOf(named.domain)) {
      session = sessions_.Create(named.domain, named.name);
    }
    if (!session.ok()) return Refuse(*request, request->policy.full, session.status());
  }
  if (!session.ok()) return request->reply(session.status());
  auto submitted = Enqueue(*session, request->turn, /*closes_session=*/false);
  if (!submitted.ok()) DestroySession(*session);
  request->reply(std::move(submitted));
}

void EngineCore::Refuse(const NamedRequest& request, NamedTurnPolicy::Otherwise otherwise,
                        const Status& status) {
  if (otherwise == NamedTurnPolicy::Otherwise::kRefuse) return request.reply(status);
  auto submitted = SubmitOnce(request.session.domain, request.turn);
  if (submitted.ok()) submitted->is_anonymous = true;
  request.reply(std::move(submitted));
}

// Only in this domain, so that nobody pays for another domain's sessions. A session with a file
// keeps its place: it must be found again.
bool EngineCore::CloseIdleOf(std::string_view domain) {
  Session* const oldest = idle_->OldestToClose(domain);
  if (oldest == nullptr) return false;
  CloseNow(oldest, /*forget=*/false, [](const Status&) {});
  return true;
}

}  // namespace weft
