// Products with a matrix for each head, or for each group of heads. Owner thread only.
#ifndef WEFT_COMPUTE_CPU_LATENT_ATTENTION_H_
#define WEFT_COMPUTE_CPU_LATENT_ATTENTION_H_

#include <cstdint>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

// One product per head: head h of `x`, at h * x_head_stride, into head h of `out`. `int8`:
// quantized rows for each head, in separate panels.
void MultiplyHeads(StepContext* context, const BoundStack& stack, int n_heads, const RowsView& x,
                   int64_t x_head_stride, const Int8View& int8, const RowsView& out,
                   int64_t out_head_stride);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_LATENT_ATTENTION_H_
