// Which of several models a request is for: the `model` of its JSON body, else of its query.
//
// Reads no more of the body than it needs; the handler checks the rest. A pure function; any
// thread.
#ifndef WEFT_DOORS_API_MODEL_WISH_H_
#define WEFT_DOORS_API_MODEL_WISH_H_

#include <chrono>
#include <optional>
#include <string_view>

#include "doors/host/model_fleet.h"
#include "doors/http/http.h"

namespace weft::serve {

// Without a name if the request names none, or none that can be read. `keep_alive` is read where
// the route's errors have Ollama's form. `may_load`: whether a request without ?autoload may load a
// model.
ModelWish ReadModelWish(const HttpRequest& request, bool may_load = true);
// Whether the body asks for a stream. Reads all of it.
bool WantsStream(const HttpRequest& request);

// Ollama's durations: "5m", "1h30m", "300ms", or seconds; a negative one means forever.
std::optional<std::chrono::milliseconds> ReadKeepAlive(std::string_view text);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_MODEL_WISH_H_
