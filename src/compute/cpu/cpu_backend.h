// The `cpu` backend: weights packed once into the kernels' tiles; the rows of all sequences of a
// step are computed together.
//
// Same bits: the order of every kernel's sums depends only on shapes and absolute positions, so a
// sequence's logits do not depend on the rest of a step, on chunks, threads or page ids, nor on the
// instruction set.
#ifndef WEFT_COMPUTE_CPU_CPU_BACKEND_H_
#define WEFT_COMPUTE_CPU_CPU_BACKEND_H_

#include <memory>

#include "compute/backend.h"

namespace weft {

namespace cpu {
class InputSums;
}

// The object lives forever.
const Backend* CpuBackend();
// The same, with executors that measure their products' inputs: see input_sums.h. `sums` must
// outlive it.
std::unique_ptr<const Backend> NewMeasuringCpuBackend(cpu::InputSums* sums);

}  // namespace weft

#endif  // WEFT_COMPUTE_CPU_CPU_BACKEND_H_
