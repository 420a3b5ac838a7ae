#include "engine/sessions/session.h"

namespace weft {

std::string_view NameOf(SessionState state) {
  switch (state) {
    case SessionState::kReady:
      return "ready";
    case SessionState::kRunning:
      return "running";
    case SessionState::kParked:
      return "parked";
    case SessionState::kPoisoned:
      return "poisoned";
  }
  return "unknown";
}

Status RefuseBusy(const Session& session) {
  if (!session.has_turn) return OkStatus();
  return FailedPrecondition("a turn of this session is running; wait for it or cancel it");
}

Status RefusePoisoned(const Session& session) {
  if (session.stage != SessionStage::kPoisoned) return OkStatus();
  return FailedPrecondition("this session is poisoned: a forward pass failed after token ",
                            session.sound_tokens,
                            "; reset it, fork it from an earlier point, or close it");
}

}  // namespace weft
