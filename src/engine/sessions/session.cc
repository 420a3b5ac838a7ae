#include "engine/sessions/session.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
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

void Session::SetAdapters(const AdapterMixRef& mix, int64_t invoked) {
  adapters = mix;
  invoked_at = invoked;
  prefix_domain = SharedDomain(domain, mix);
  before_domain.clear();
  if (invoked == kNotInvoked) return;
  before_domain = std::move(prefix_domain);
  // Where it begins to act is decided by tokens that come later.
  const Fingerprint key = FingerprintOf(StrCat(mix->key.ToHex(), " from ", invoked));
  prefix_domain = PrefixDomain(domain, key);
}

std::span<const AdapterUse> Session::AdaptersAt(int64_t position) const {
  const AdapterMix* mix = adapters.get();
  if (mix != nullptr && !mix->invocation.empty() && position < invoked_at) mix = mix->before.get();
  return mix != nullptr ? std::span<const AdapterUse>(mix->uses) : std::span<const AdapterUse>();
}

int64_t SharedPositions(const Session& a, const Session& b, bool is_shared) {
  const auto share = [is_shared](const std::string& one, const std::string& other) {
    return TreeOf(one, is_shared) == TreeOf(other, is_shared);
  };
  if (share(a.prefix_domain, b.prefix_domain)) return INT64_MAX;
  return share(a.DomainOf(0), b.DomainOf(0)) ? std::min(a.invoked_at, b.invoked_at) : 0;
}

std::string SharedDomain(const std::string& domain, const AdapterMixRef& adapters) {
  if (adapters == nullptr) return domain;
  if (!adapters->invocation.empty()) return SharedDomain(domain, adapters->before);
  return PrefixDomain(domain, adapters->key);
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
