#include "doors/host/shared_sessions.h"

#include <functional>
#include <utility>

#include "async/signal.h"

namespace weft::serve {

std::string_view CodeOf(SessionTrouble trouble) {
  switch (trouble) {
    case SessionTrouble::kNone:
      break;
    case SessionTrouble::kElsewhere:
      return "session_elsewhere";
    case SessionTrouble::kMoved:
      return "session_moved";
    case SessionTrouble::kUnavailable:
      return "state_unavailable";
  }
  return "";
}

Task<StatusOr<SessionId>> FindSession(Engine& engine, std::string domain, std::string name) {
  const StatusOr<SessionId> here = engine.FindSession(domain, name);
  const bool may_be_shared =
      here.status().code() == StatusCode::kNotFound && engine.options().shared.objects != nullptr;
  if (!may_be_shared) co_return here;
  const SessionOptions wanted{.name = std::move(name), .domain = std::move(domain)};
  const auto find = [&](std::function<void(StatusOr<SessionId>)> done) {
    engine.FindShared(wanted, std::move(done));
  };
  const StatusOr<SessionId> shared = co_await AnswerOf<StatusOr<SessionId>>(find);
  co_return shared;
}

Task<StatusOr<SessionInfo>> LookAtSession(Engine& engine, std::string domain, std::string name) {
  if (engine.options().shared.objects == nullptr) {
    const StatusOr<SessionId> here = engine.FindSession(domain, name);
    if (!here.ok()) co_return here.status();
    co_return engine.Inspect(*here);
  }
  const SessionOptions wanted{.name = std::move(name), .domain = std::move(domain)};
  const auto look = [&](std::function<void(StatusOr<SessionInfo>)> done) {
    engine.InspectShared(wanted, std::move(done));
  };
  const StatusOr<SessionInfo> info = co_await AnswerOf<StatusOr<SessionInfo>>(look);
  co_return info;
}

}  // namespace weft::serve
