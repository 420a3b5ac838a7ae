// Whether a turn may use its adapters on its session. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_TURN_ADAPTERS_H_
#define WEFT_ENGINE_TURNS_TURN_ADAPTERS_H_

#include "base/status.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/session.h"
#include "engine/sessions/state_memory.h"
#include "weft/options.h"

namespace weft {

// FAILED_PRECONDITION if the session's tokens are computed with others than `adapters`, which its
// caller asked for. Which those of a parked session are is known once it is restored.
Status CheckMix(const Session& session, const TurnOptions& options, const AdapterMixRef& adapters);

// A session without tokens gets the adapters of its turn.
void TakeAdapters(const AdapterMixRef& adapters, StateMemory* memory, Session* session);

// The session has its prompt: finds where in it an adapter that waits for its invocation acts, and
// gives up the state that was computed otherwise.
void FindInvocation(StateMemory* memory, Session* session);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_ADAPTERS_H_
