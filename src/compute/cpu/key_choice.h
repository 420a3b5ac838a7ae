// Attention to keys that a KeyChoice picks: chooses the keys, and scans only those.
//
// A row's choice depends only on the keys that it sees. Owner thread only.
#ifndef WEFT_COMPUTE_CPU_KEY_CHOICE_H_
#define WEFT_COMPUTE_CPU_KEY_CHOICE_H_

#include <cstdint>
#include <vector>

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

// Indices of the `count` best scores, ascending. Ties go to the lower index; NaN is the worst.
std::vector<int64_t> BestNumbers(std::vector<float>* scores, int64_t count);

// Attention to keys that a worker has gathered as floats: SizeGathered makes room for up to n_keys
// in every worker's memory, PutGathered puts number i, AttendToGathered computes some heads of a
// row. `shape` is of type F32; scan.kv_layer is not read.
struct HeadRange {
  int64_t first, count;
};
void SizeGathered(StepContext* context, int64_t k_dim, int64_t v_dim, int64_t n_keys,
                  int64_t heads_per_kv_head);
void PutGathered(StepContext* context, const KvShape& shape, int64_t i, const float* key,
                 const float* value, Workspace* work);
void AttendToGathered(StepContext* context, const ChosenScan& scan, const KvShape& shape,
                      int64_t row, HeadRange heads, int64_t n_keys, Workspace* work);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_KEY_CHOICE_H_
