// What every backend checks before it touches anything, so that each says the same.
#ifndef WEFT_BACKEND_CHECKS_H_
#define WEFT_BACKEND_CHECKS_H_

#include <cstdint>

#include "backend/backend.h"
#include "backend/state_store.h"
#include "base/status.h"
#include "model/model_spec.h"

namespace weft {

// The errors name what the backend has. What is left at 0 for the backend to choose, is chosen.
Status CheckDevice(const Backend& backend, int device);
StatusOr<StateOptions> CheckedOptions(const Backend& backend, StateOptions options);
Status CheckOptions(const Backend& backend, const ExecutorOptions& options);

// Sizes, page tables long enough, ids inside the pools, tokens inside the vocabulary, no page
// written by two sequences, room for the results.
Status ValidateStep(const ModelSpec& spec, const StateStore& state, int64_t max_step_tokens,
                    const Step& step);

}  // namespace weft

#endif  // WEFT_BACKEND_CHECKS_H_
