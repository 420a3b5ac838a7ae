// What the adapters of a step's rows add to products and embeddings.
#ifndef WEFT_COMPUTE_REFERENCE_ADAPTERS_H_
#define WEFT_COMPUTE_REFERENCE_ADAPTERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/reference/blocks.h"
#include "compute/reference/tensors.h"
#include "model/model_spec.h"

namespace weft::reference {

// The adapters of each sequence's last n_wanted rows.
std::vector<std::span<const AdapterUse>> AdaptersOfWanted(const Step& step,
                                                          int64_t StepSequence::*n_wanted);

// n_out values to add to each row of the product of the step's rows `x`. Empty: the weights have no
// adapters.
std::vector<std::vector<double>> ChangesOf(const Tensors& tensors, const Linear& linear,
                                           const Rows& x);

// The embedding of row `i` of the step, a token, with the changes.
std::vector<float> EmbeddingOf(const StepContext& context, size_t i);

}  // namespace weft::reference

#endif  // WEFT_COMPUTE_REFERENCE_ADAPTERS_H_
