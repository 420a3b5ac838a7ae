#include "engine/sessions/session.h"

#include "engine/state/prefix_domain.h"

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

void Session::SetAdapters(const AdapterMixRef& mix) {
  adapters = mix;
  prefix_domain = mix != nullptr ? PrefixDomain(domain, mix->key) : domain;
}

std::span<const AdapterUse> Session::adapter_uses() const {
  return adapters != nullptr ? std::span<const AdapterUse>(adapters->uses)
                             : std::span<const AdapterUse>();
}

std::vector<SessionHead::Adapter> Session::saved_adapters() const {
  return adapters != nullptr ? adapters->saved : std::vector<SessionHead::Adapter>();
}

std::string_view PrefixTreeOf(std::string_view prefix_domain, bool is_shared) {
  return TreeOf(prefix_domain, is_shared);
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
