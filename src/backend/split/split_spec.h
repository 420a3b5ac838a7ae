// A model cut between two layers, for two backends that compute it one after the other.
//
// The front has the embedding and the first layers, and gives the residual stream as vectors. The
// back takes these in place of tokens, and has the last layers and the output. So a step crosses
// from one to the other once, with d_model values for each row.
#ifndef WEFT_BACKEND_SPLIT_SPLIT_SPEC_H_
#define WEFT_BACKEND_SPLIT_SPLIT_SPEC_H_

#include <vector>

#include "base/status.h"
#include "model/model_spec.h"

namespace weft::split {

struct SpecPart {
  ModelSpec spec;
  // Per KvGroup of the whole model the part's own; -1: none of the part's layers is in it.
  std::vector<int> groups;
};

struct SplitSpec {
  SpecPart front, back;
};

// The first `n_front` layers, and the others. UNIMPLEMENTED, saying why, for a model that cannot be
// cut there: one whose layers take more of a token than the residual stream, or share keys and
// values across the cut. REQUIRES: 1 <= n_front < the number of layers.
StatusOr<SplitSpec> Split(const ModelSpec& spec, int n_front);

}  // namespace weft::split

#endif  // WEFT_BACKEND_SPLIT_SPLIT_SPEC_H_
