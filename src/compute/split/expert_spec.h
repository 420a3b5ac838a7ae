// A model whose mixtures of experts are computed by a device and the host together: the device
// computes everything but the experts, which are most of the model's weights but little of the work
// per token.
//
// In each mixture, a step moves to the host and back, with d_model values per row.
#ifndef WEFT_COMPUTE_SPLIT_EXPERT_SPEC_H_
#define WEFT_COMPUTE_SPLIT_EXPERT_SPEC_H_

#include "model/model_spec.h"

namespace weft::split {

struct ExpertSplit {
  ModelSpec device;  // its mixtures lack gate, up and down
  ModelSpec host;    // one block per such mixture, with only gate, up and down
};

// Moves the mixtures of the first `n_layers` layers to the host.
ExpertSplit SplitExperts(const ModelSpec& spec, int n_layers);

// The smallest number of first layers with the same mixtures as the first `n_layers`; 0: they have
// none. So all numbers that mean the same split map to one.
int LayersWithExperts(const ModelSpec& spec, int n_layers);

}  // namespace weft::split

#endif  // WEFT_COMPUTE_SPLIT_EXPERT_SPEC_H_
