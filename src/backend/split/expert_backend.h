// A device and the host's backend as one, for mixtures of experts whose weights the device has no
// room for: the experts of the first layers stay with the host, all else is the device's.
//
// Products on the host round otherwise than on the device, so how many layers that are belongs to
// what is computed; the name says it ("cuda+cpu-experts:24"), and with it the files of sessions.
#ifndef WEFT_BACKEND_SPLIT_EXPERT_BACKEND_H_
#define WEFT_BACKEND_SPLIT_EXPERT_BACKEND_H_

#include <memory>

#include "backend/backend.h"
#include "base/status.h"

namespace weft {

// Loads models that have mixtures in the first `n_layers` layers. Devices, state and memory are the
// device's. UNIMPLEMENTED if it cannot leave experts to a host. Both backends must outlive the
// object.
StatusOr<std::unique_ptr<const Backend>> NewExpertBackend(const Backend* host,
                                                          const Backend* device, int n_layers);

}  // namespace weft

#endif  // WEFT_BACKEND_SPLIT_EXPERT_BACKEND_H_
