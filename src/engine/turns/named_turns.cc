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
  // Find out now, not when the turn runs, whether it is readable, and this server's: the client may
  // choose to do without the session.
  const bool must_ask = files_->is_shared() || found->stage == SessionStage::kParked;
  must_ask ? SubmitWhenFree(request, found->id) : SubmitTo(request, found);
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

void NamedTurns::SubmitWhenFree(const std::shared_ptr<Request>& request, SessionId id) {
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
      return here == nullptr ? SubmitToNew(request) : SubmitWhenFree(request, here->id);
    }
    const bool is_trouble = TroubleOf(status) != SessionTrouble::kNone;
    if (is_trouble || status.code() == StatusCode::kUnavailable) return request->reply(status);
    Refuse(request.get(), request->policy.unusable,
           FailedPrecondition("the saved session cannot be used until it is reset or deleted: ",
                              Message(status)));
  });
}

void NamedTurns::SubmitToNew(const std::shared_ptr<Request>& request) {
  const NamedTurnPolicy& policy = request->policy;
  const auto session = sessions_->CreateNamed(request->session, policy.close_idle_when_full);
  if (session.status().code() == StatusCode::kResourceExhausted) {
    return Refuse(request.get(), policy.full, session.status());
  }
  if (!session.ok()) return request->reply(session.status());
  if (files_->is_shared()) return SubmitWhenFree(request, (*session)->id);
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
