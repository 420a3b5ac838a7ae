// The scan over pages that attention operations share, once queries and keys are computed. Owner
// thread only, like the StepContext.
#ifndef WEFT_COMPUTE_CPU_ATTENTION_SCAN_H_
#define WEFT_COMPUTE_CPU_ATTENTION_SCAN_H_

#include <cstdint>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

// An attention operation's scan, once queries and keys are computed.
struct Scan {
  int kv_layer;
  int n_heads;
  float scale;
  float softcap;
  const float* sinks;    // one per query head, or null
  const float* queries;  // row r, head h at r * query_stride + h * query_head_stride
  int64_t query_stride, query_head_stride;
  float* outputs;     // row r, head h at (r * n_heads + h) * v_dim
  int64_t chunk = 0;  // see Attention
};

// Computes attention for all rows of the step.
void AttendRows(StepContext* context, const Scan& scan);
// Marks the pages of the layer's group that the step writes. Call it before storing keys.
void TouchPages(StepContext* context, int kv_layer);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_ATTENTION_SCAN_H_
