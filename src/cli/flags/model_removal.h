// Removing models from this machine, together with what Weft keeps for them.
//
// Any thread; blocks.
#ifndef WEFT_CLI_FLAGS_MODEL_REMOVAL_H_
#define WEFT_CLI_FLAGS_MODEL_REMOVAL_H_

#include <cstdint>

#include "base/status.h"
#include "model/hub/local_models.h"
#include "model/hub/places.h"

namespace weft::cli {

// As hub::RemoveModel, and the model's packed copy in Weft's own folder if its file is gone then.
// Returns the bytes freed.
StatusOr<int64_t> RemoveModelAndCopy(const hub::Places& places, const hub::LocalModel& model);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_MODEL_REMOVAL_H_
