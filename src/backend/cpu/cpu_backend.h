// The `cpu` backend: weights packed once into the kernels' tiles, a step's rows of
// all sequences computed side by side.
//
// Same bits: every kernel sums in an order that depends on shapes and absolute
// positions alone, so a sequence's logits do not depend on the rest of a step,
// on chunks, threads or page ids, nor on the instruction set.
#ifndef WEFT_BACKEND_CPU_CPU_BACKEND_H_
#define WEFT_BACKEND_CPU_CPU_BACKEND_H_

#include "backend/backend.h"

namespace weft {

// The object lives forever.
const Backend* CpuBackend();

}  // namespace weft

#endif  // WEFT_BACKEND_CPU_CPU_BACKEND_H_
