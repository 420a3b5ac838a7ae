// llama-server's POST /slots/{id}?action=save, restore, erase, implemented with sessions: a request
// that names a slot (id_slot) and no session belongs to the slot's session. A file holds the tokens
// of a conversation; their computed state is found in memory or in the state directory, or
// recomputed.
//
// Any thread.
#ifndef WEFT_DOORS_API_LLAMA_SLOTS_H_
#define WEFT_DOORS_API_LLAMA_SLOTS_H_

#include <string>

#include "doors/api/fields/session_name.h"
#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::serve {

// `folder` is where files are kept; if empty, such requests get 501. `host` outlives the router.
void RegisterSlotsApi(Router& router, Host& host, const std::string& folder);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_LLAMA_SLOTS_H_
