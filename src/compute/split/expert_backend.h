// A device and the host's backend as one, for mixtures of experts whose weights do not fit on the
// device: the experts of the first layers stay on the host, everything else is on the device.
//
// The host's products round differently, so the number of these layers affects the results. It is
// part of the name ("cuda+cpu-experts:24"), and so of session files.
#ifndef WEFT_COMPUTE_SPLIT_EXPERT_BACKEND_H_
#define WEFT_COMPUTE_SPLIT_EXPERT_BACKEND_H_

#include <memory>

#include "base/status.h"
#include "compute/backend.h"

namespace weft {

// Loads models with mixtures in the first `n_layers` layers. Devices, state and memory are the
// device's. UNIMPLEMENTED if the device backend cannot leave experts to a host. Both backends must
// outlive the object.
StatusOr<std::unique_ptr<const Backend>> NewExpertBackend(const Backend* host,
                                                          const Backend* device, int n_layers);

}  // namespace weft

#endif  // WEFT_COMPUTE_SPLIT_EXPERT_BACKEND_H_
