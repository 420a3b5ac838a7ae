// A model cut between two layers, for two backends that compute it one after the other.
//
// The front has the embedding and the first layers, and returns the residual stream as vectors. The
// back takes these as input embeddings, and has the last layers and the output. So a step crosses
// from one to the other once, with d_model values per row.
#ifndef WEFT_COMPUTE_SPLIT_SPLIT_SPEC_H_
#define WEFT_COMPUTE_SPLIT_SPLIT_SPEC_H_

#include <vector>

#include "base/status.h"
#include "model/model_spec.h"

namespace weft::split {

struct SpecPart {
  ModelSpec spec;
  // For each KvGroup of the whole model, the part's number of it; -1: none of the part's layers use
  // it.
  std::vector<int> groups;
};

struct SplitSpec {
  SpecPart front, back;
};

// Cuts off the first `n_front` layers. UNIMPLEMENTED, with the reason, for a model that cannot be
// cut there: its later layers need more of a token than the residual stream, or share a KV cache
// across the cut. REQUIRES: 1 <= n_front < the number of layers.
StatusOr<SplitSpec> Split(const ModelSpec& spec, int n_front);

}  // namespace weft::split

#endif  // WEFT_COMPUTE_SPLIT_SPLIT_SPEC_H_
