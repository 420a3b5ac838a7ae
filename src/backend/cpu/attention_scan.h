// What the attention operations share: the scan of pages, once queries and keys are there.
// Owner thread only, like the StepContext.
#ifndef WEFT_BACKEND_CPU_ATTENTION_SCAN_H_
#define WEFT_BACKEND_CPU_ATTENTION_SCAN_H_

#include <cstdint>

#include "backend/cpu/step_context.h"

namespace weft::cpu {

// What is left of an attention operation once queries and keys are there.
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

// All rows' attention to what they see of the layer.
void AttendRows(StepContext* context, const Scan& scan);
// Tells the state which pages of the layer's group the step writes. Before it stores keys.
void TouchPages(StepContext* context, int kv_layer);

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_ATTENTION_SCAN_H_
