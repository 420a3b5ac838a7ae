#include "engine/turns/named_turns.h"

#include <utility>

namespace weft {

// A request that waits while the session's file is read.
struct NamedTurns::Request : NamedTurnRequest {
  Reply reply;
};

void NamedTurns::Submit(NamedTurnRequest asked, const Reply& reply) {
  if (asked.session.name.empty()) {
    return reply(turns_->SubmitOnce(asked.session.domain, std::move(asked.turn)));
  }
  const auto request = std::make_shared<Request>(Request{std::move(asked), reply});
  Session* const found = sessions_->FindByName(request->session.domain, request->session.name);
  if (found == nullptr) return SubmitToNew(request);
  if (files_->is_shared()) return SubmitToShared(request, found->id);
  if (found->stage != SessionStage::kParked) {
    return SubmitTo(request, found);
  }
  // Find out now, not when the turn runs, whether the file is readable: the client may choose to do
  // without the session.
  files_->WhenFree(found->id, /*with_state=*/true, [=, this](const StatusOr<Session*>& free) {
    if (free.ok()) return SubmitTo(request, *free);
    const StatusCode code = free.status().code();
    if (code == StatusCode::kUnavailable) return request->reply(free.status());
    if (code == StatusCode::kNotFound &&
        sessions_->FindByName(request->session.domain, request->session.name) == nullptr) {
      return SubmitToNew(request);  // it was closed meanwhile
    }
    Refuse(request.get(), request->policy.unusable,
           FailedPrecondition("the saved session cannot be used until it is reset or deleted: ",
                              Message(free.status())));
  });
}

void NamedTurns::SubmitTo(const std::shared_ptr<Request>& request, Session* session) {
  const NamedTurnPolicy& policy = request->policy;
  if (session->has_turn) {
    return Refuse(request.get(), policy.busy, RefuseBusy(*session));
  }
  if (session->stage == SessionStage::kPoisoned) {
    return Refuse(request.get(), policy.unusable, RefusePoisoned(*session));
  }
  const Status fits = turns_->CheckAdapters(*session, request->turn);
  if (fits.code() == StatusCode::kFailedPrecondition) {
    return Refuse(request.get(), policy.unusable, fits);
  }
  request->reply(turns_->Submit(session, std::move(request->turn), /*closes_session=*/false));
}

// Whether the session is here or not, and whoever had it last.
void NamedTurns::SubmitToShared(const std::shared_ptr<Request>& request, SessionId id) {
  files_->WhenFree(id, /*with_state=*/true, [=, this](const StatusOr<Session*>& free) {
    const Status& status = free.status();
    if (free.ok()) {
      SubmitTo(request, *free);
      return sessions_->DropExpected(id);  // one that is new, and was refused
    }
    sessions_->DropExpected(id);
    // It was closed, or given up, meanwhile, and may have begun anew.
    if (status.code() == StatusCode::kNotFound && sessions_->Find(id) == nullptr) {
      const Session* const here =
          sessions_->FindByName(request->session.domain, request->session.name);
      return here == nullptr ? SubmitToNew(request) : SubmitToShared(request, here->id);
    }
    const bool is_trouble = TroubleOf(status) != SessionTrouble::kNone;
    if (is_trouble || status.code() == StatusCode::kUnavailable) return request->reply(status);
    Refuse(request.get(), request->policy.unusable,
           FailedPrecondition("the saved session cannot be used until it is reset or deleted: ",
                              Message(status)));
  });
}

StatusOr<Session*> NamedTurns::Create(const std::shared_ptr<Request>& request) {
  const SessionOptions& named = request->session;
  const auto create = [&] {
    return files_->is_shared() ? sessions_->CreateExpected(named.domain, named.name)
                               : sessions_->CreateNamed(named.domain, named.name);
  };
  auto session = create();
  if (session.status().code() == StatusCode::kResourceExhausted) {
    if (request->policy.close_idle_when_full && sessions_->CloseOldestOf(named.domain)) {
      session = create();
    }
    if (!session.ok()) Refuse(request.get(), request->policy.full, session.status());
  } else if (!session.ok()) {
    request->reply(session.status());
  }
  return session;
}

void NamedTurns::SubmitToNew(const std::shared_ptr<Request>& request) {
  auto session = Create(request);
  if (!session.ok()) return;
  if (files_->is_shared()) return SubmitToShared(request, (*session)->id);
  auto submitted = turns_->Submit(*session, std::move(request->turn), /*closes_session=*/false);
  if (!submitted.ok()) sessions_->Destroy(*session);
  request->reply(std::move(submitted));
}

void NamedTurns::Refuse(Request* request, NamedTurnPolicy::Otherwise otherwise,
                        const Status& status) {
  if (otherwise == NamedTurnPolicy::Otherwise::kRefuse) return request->reply(status);
  auto submitted = turns_->SubmitOnce(request->session.domain, std::move(request->turn));
  if (submitted.ok()) submitted->is_anonymous = true;
  request->reply(std::move(submitted));
}

}  // namespace weft
