// A model whose mixtures of experts a device and the host compute together: the device all but the
// experts, which are most of such a model's weights and little of a token's work.
//
// In each of these mixtures a step goes down to the host and back, with d_model values for each
// row.
#ifndef WEFT_BACKEND_SPLIT_EXPERT_SPEC_H_
#define WEFT_BACKEND_SPLIT_EXPERT_SPEC_H_

#include "model/model_spec.h"

namespace weft::split {

struct ExpertSplit {
  ModelSpec device;  // its mixtures lack gate, up and down
  ModelSpec host;    // a block for each of those mixtures, with gate, up and down alone
};

// Of the mixtures in the first `n_layers` layers.
ExpertSplit SplitExperts(const ModelSpec& spec, int n_layers);

// How many of the first layers hold the mixtures that the first `n_layers` have, and none behind
// the last of these; 0: they have none. All that name the same mixtures give the same.
int LayersWithExperts(const ModelSpec& spec, int n_layers);

}  // namespace weft::split

#endif  // WEFT_BACKEND_SPLIT_EXPERT_SPEC_H_
