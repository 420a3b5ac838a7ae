// llama-server's POST /slots/{id}?action=save, restore, erase, over sessions: a request that names
// a slot (id_slot) and no session belongs to the session of that slot. A file has the tokens of a
// conversation; what was computed for them is found again in memory or in the state directory, and
// computed anew where it is not.
//
// Any thread.
#ifndef WEFT_SERVE_API_SLOTS_H_
#define WEFT_SERVE_API_SLOTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "serve/host.h"
#include "serve/router.h"
#include "serve/session_name.h"

namespace weft::serve {

// `folder` is where files are kept; empty: such requests are answered with 501. `host` outlives
// the router.
void RegisterSlotsApi(Router& router, Host& host, const std::string& folder);

// Takes `id_slot` of a body: the slot, where slots are sessions and the request has one prompt.
std::optional<int64_t> ReadSlot(ApiFields* fields, Host& host, size_t n_prompts);
// The session of a slot; a wish, as that of a header is.
SessionChoice SlotSession(int64_t slot);

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_SLOTS_H_
