#include "engine/turns/turn_adapters.h"

#include <algorithm>
#include <string>

namespace weft {
namespace {

std::string Described(const AdapterMixRef& adapters) {
  return adapters != nullptr ? adapters->Describe() : "no adapter";
}

}  // namespace

Status CheckMix(const Session& session, const TurnOptions& options, const AdapterMixRef& adapters) {
  if (options.adapters_are_default || session.is_parked() || session.tokens.empty() ||
      SameMix(session.adapters, adapters)) {
    return OkStatus();
  }
  return FailedPrecondition("the session runs with ", Described(session.adapters),
                            ", the request asks for ", Described(adapters),
                            "; use another session, or the same adapters");
}

void TakeAdapters(const AdapterMixRef& adapters, StateMemory* memory, Session* session) {
  if (session->is_parked() || !session->tokens.empty() || SameMix(session->adapters, adapters)) {
    return;
  }
  memory->Drop(session);
  session->SetAdapters(adapters);
}

void FindInvocation(StateMemory* memory, Session* session) {
  const AdapterMixRef adapters = session->adapters;
  const int64_t at = adapters != nullptr ? adapters->InvokedAt(session->tokens) : kNotInvoked;
  const int64_t alike = std::min(at, session->invoked_at);
  if (at == session->invoked_at) return;
  session->SetAdapters(adapters, at);
  memory->Truncate(session, alike);
}

}  // namespace weft
