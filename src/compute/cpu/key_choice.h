// Attention to keys that a KeyChoice picks: chooses the keys, and scans only those.
//
// A row's choice depends only on the keys that it sees. Owner thread only.
#ifndef WEFT_COMPUTE_CPU_KEY_CHOICE_H_
#define WEFT_COMPUTE_CPU_KEY_CHOICE_H_

#include <cstdint>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

// Norms, rotates and stores the index keys of all rows; `keys` is overwritten.
void StoreIndexKeys(StepContext* context, const KeyChoice& choice, const BoundNorm& norm,
                    const RowsView& keys);
// Writes every row's choice to context->chosen. `queries` are normed, and rotated here; `weights`,
// scaled, are used only by choices of single keys.
void ChooseKeys(StepContext* context, const KeyChoice& choice, const RowsView& queries,
                const RowsView& weights);

// The scan over chosen keys, once queries are computed: row r, head h at r * query_stride + h *
// k_dim; sums at (r * n_heads + h) * v_dim.
struct ChosenScan {
  int kv_layer;
  int n_heads;
  float scale;
  float softcap;
  const float* sinks;  // one per query head, or null
  const float* queries;
  int64_t query_stride;
  float* outputs;
};
void AttendToChosen(StepContext* context, const ChosenScan& scan);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_KEY_CHOICE_H_
