// Two backends as one, for weights that do not fit on a device: the front computes a model's first
// layers, the back its last layers and the output.
//
// The device is the back: results are then computed where the logits are, and the embedding stays
// in the file. Each part has its own backend's bits, so the cut affects the results. It is part of
// the name ("cpu:12+cuda:20"), and so of session files.
#ifndef WEFT_COMPUTE_SPLIT_SPLIT_BACKEND_H_
#define WEFT_COMPUTE_SPLIT_SPLIT_BACKEND_H_

#include <memory>

#include "base/status.h"
#include "compute/backend.h"
#include "model/model_spec.h"

namespace weft {

// For one model, of which the front computes `n_front` layers. UNIMPLEMENTED, with the reason, if
// the model cannot be cut there or a backend lacks a capability. Devices are the back's; the front
// uses its device 0. Both backends must outlive the object. REQUIRES: 1 <= n_front < the number of
// layers.
StatusOr<std::unique_ptr<const Backend>> NewSplitBackend(const Backend* front, const Backend* back,
                                                         const ModelSpec& spec, int n_front);

}  // namespace weft

#endif  // WEFT_COMPUTE_SPLIT_SPLIT_BACKEND_H_
