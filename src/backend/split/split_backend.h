// Two backends as one, for weights that a device has no room for: the front computes a model's
// first layers, the back its last ones and the output.
//
// The device is the back: what a step wants is then found where the logits are, and the embedding
// stays in the file. Each part has its own backend's bits, so where a model is cut belongs to what
// it computes; the name says it ("cpu:12+cuda:20"), and with it the files of sessions.
#ifndef WEFT_BACKEND_SPLIT_SPLIT_BACKEND_H_
#define WEFT_BACKEND_SPLIT_SPLIT_BACKEND_H_

#include <memory>

#include "backend/backend.h"
#include "base/status.h"
#include "model/model_spec.h"

namespace weft {

// For one model, of which the front computes `n_front` layers. UNIMPLEMENTED, saying why, if the
// model cannot be cut there or a backend lacks what that takes. Devices are the back's; the front
// uses its first. Both backends must outlive the object. REQUIRES: 1 <= n_front < the number of
// layers.
StatusOr<std::unique_ptr<const Backend>> NewSplitBackend(const Backend* front, const Backend* back,
                                                         const ModelSpec& spec, int n_front);

}  // namespace weft

#endif  // WEFT_BACKEND_SPLIT_SPLIT_BACKEND_H_
