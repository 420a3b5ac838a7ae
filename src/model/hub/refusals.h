// Error messages for requests that a server refuses: one sentence for each kind of answer. Pure
// functions; any thread.
#ifndef WEFT_MODEL_HUB_REFUSALS_H_
#define WEFT_MODEL_HUB_REFUSALS_H_

#include <string>

#include "base/status.h"
#include "model/hub/names/model_name.h"
#include "model/hub/net/http_client.h"
#include "model/hub/places.h"

namespace weft::hub {

struct Wish {
  std::string what;  // "owner/repo", "qwen3:0.6b", a URL
  std::string host;  // the server asked
  bool has_token = false;
  // How to get access: appended to "it may be private: " and "accept its terms: "; both may be
  // empty.
  std::string how_to_log_in;
  std::string how_to_accept;
};

// REQUIRES: the answer is not a success. NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (too many
// requests), UNAVAILABLE or FAILED_PRECONDITION.
Status RefusalOf(const HttpAnswer& answer, const Wish& wish);

Wish HubWish(const Places& places, const HubName& name);
Wish OllamaWish(const OllamaName& name, const std::string& registry);
Wish AddressWish(const std::string& url);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_REFUSALS_H_
