// Which adapters a request is computed with: llama-server's `lora`, or a `model` that names one.
//
// Pure functions but for the host's defaults; any thread.
#ifndef WEFT_DOORS_API_FIELDS_ADAPTERS_H_
#define WEFT_DOORS_API_FIELDS_ADAPTERS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "doors/api/fields/support.h"
#include "doors/host/adapters.h"
#include "doors/host/host.h"
#include "nlohmann/json.hpp"
#include "weft/options.h"

namespace weft::serve {

// [{"id": 0, "scale": 0.5}, ...]: INVALID_ARGUMENT says at which place it is something else.
StatusOr<std::vector<Adapters::Choice>> ReadAdapterChoices(const nlohmann::ordered_json& list,
                                                           std::string_view place);

// Takes `lora` from the body, and the adapter in `model` ("base:NAME"), for the turn. Without
// either the turn gets the host's defaults.
void ReadAdapters(ApiFields* fields, const Host& host, const std::optional<std::string>& model,
                  TurnOptions* turn);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_ADAPTERS_H_
