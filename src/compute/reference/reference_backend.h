// The backend that is the meaning of a ModelSpec: every block in plain loops,
// sums in double, weights decoded where they are used. Slow on purpose; the oracle
// that other backends are tested against.
#ifndef WEFT_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_
#define WEFT_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_

#include "compute/backend.h"

namespace weft {

// Named "reference". Lives forever.
const Backend* ReferenceBackend();

}  // namespace weft

#endif  // WEFT_COMPUTE_REFERENCE_REFERENCE_BACKEND_H_
