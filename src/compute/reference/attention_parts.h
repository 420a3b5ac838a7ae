// What the attention operations share.
#ifndef WEFT_COMPUTE_REFERENCE_ATTENTION_PARTS_H_
#define WEFT_COMPUTE_REFERENCE_ATTENTION_PARTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/state_ids.h"
#include "compute/reference/blocks.h"

namespace weft::reference {

// The sequence's page table of a KvLayer's group.
std::span<const PageId> TableOf(const StepContext& context, int kv_layer, int sequence);
// Stores all rows at their positions.
void StoreRows(const StepContext& context, int kv_layer, const Rows& keys, const Rows& values);
// The `count` best of the scores' numbers, ascending. Ties go to the lower one; NaN is the worst.
std::vector<int64_t> BestNumbers(std::vector<double> scores, int64_t count);

}  // namespace weft::reference

#endif  // WEFT_COMPUTE_REFERENCE_ATTENTION_PARTS_H_
