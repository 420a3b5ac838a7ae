// A session's part of a step, as backends take it. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_STEP_SEQUENCE_H_
#define WEFT_ENGINE_TURNS_STEP_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "base/tokens.h"
#include "compute/backend.h"
#include "engine/sessions/session.h"

namespace weft {

// What a sequence refers to and no session has: it must live as long as the step.
struct SequencePlaces {
  std::vector<AxisPositions> axes;
  std::vector<TokenRun> mutual;
};

// The session's tokens [first, first + n), with its pages and its slot. Positions after its last
// token are places of draft tokens, which the caller adds.
StepSequence SequenceOf(const ModelSpec& spec, const Session& session, int64_t first, int64_t n,
                        SequencePlaces* places);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_SEQUENCE_H_
