// Sessions of a store that several servers share: how front ends find them, and the codes by which
// clients tell why one cannot be used.
#ifndef WEFT_DOORS_HOST_SHARED_SESSIONS_H_
#define WEFT_DOORS_HOST_SHARED_SESSIONS_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "async/signal.h"
#include "async/task.h"
#include "base/status.h"
#include "weft/engine.h"
#include "weft/shared_store.h"

namespace weft::serve {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const StatusOr<T>& answer) {
  return answer.status();
}

// "session_elsewhere", "session_moved", "state_unavailable"; empty for kNone.
std::string_view CodeOf(SessionTrouble trouble);

// The session of that name: this server's, else the store's, which is this server's from then on.
// NOT_FOUND if neither has it; otherwise see TroubleOf.
Task<StatusOr<SessionId>> FindSession(Engine& engine, std::string domain, std::string name);
// Whether a call with a session that FindSession gave says NOT_FOUND though the session may still
// be there: another request has moved it meanwhile. Then it is to be found again.
inline bool MayHaveMoved(const Engine& engine, const Status& status) {
  return status.code() == StatusCode::kNotFound && engine.options().shared.objects != nullptr;
}
// The answer of call(session, done), a Status or StatusOr, for the session of that name, which is
// found again each time that it has moved away. The answer of FindSession if that fails.
template <typename Answer, typename Call>
Task<Answer> CallSession(Engine& engine, std::string domain, std::string name, Call call) {
  constexpr int kMaxTries = 100;  // others move it as often
  for (int i = 1;; ++i) {
    auto finding = FindSession(engine, domain, name);
    const StatusOr<SessionId> session = co_await finding;
    if (!session.ok()) co_return session.status();
    const auto ask = [&](std::function<void(Answer)> done) { call(*session, std::move(done)); };
    Answer answer = co_await AnswerOf<Answer>(ask);
    if (i == kMaxTries || !MayHaveMoved(engine, StatusOf(answer))) co_return answer;
  }
}

// What there is of it, without taking it from another server.
Task<StatusOr<SessionInfo>> LookAtSession(Engine& engine, std::string domain, std::string name);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_SHARED_SESSIONS_H_
