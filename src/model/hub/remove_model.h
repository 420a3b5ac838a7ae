// Removes a model that Weft or the hub's tools downloaded; refuses any other.
//
// Blocks; one thread at a time per model.
#ifndef WEFT_MODEL_HUB_REMOVE_MODEL_H_
#define WEFT_MODEL_HUB_REMOVE_MODEL_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "model/hub/local_models.h"
#include "model/hub/model_source.h"
#include "model/hub/places.h"

namespace weft::hub {

// The named model, if it may be removed; otherwise the error says whose it is.
StatusOr<LocalModel> FindToRemove(const ModelSource& source, std::string_view name);

// Returns the bytes freed. REQUIRES: `model` came from FindToRemove.
StatusOr<int64_t> RemoveModel(const Places& places, const LocalModel& model);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_REMOVE_MODEL_H_
