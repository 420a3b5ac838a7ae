// llama-server's POST /slots/{id}?action=save, restore, erase, over sessions: a request that names
// a slot (id_slot) and no session belongs to the session of that slot. A file has the tokens of a
// conversation; what was computed for them is found again in memory or in the state directory, and
// computed anew where it is not.
//
// Any thread.
#ifndef WEFT_API_LLAMA_SLOTS_H_
#define WEFT_API_LLAMA_SLOTS_H_

#include <string>

#include "api/session_name.h"
#include "host/host.h"
#include "http/router.h"

namespace weft::serve {

// `folder` is where files are kept; empty: such requests are answered with 501. `host` outlives
// the router.
void RegisterSlotsApi(Router& router, Host& host, const std::string& folder);

}  // namespace weft::serve

#endif  // WEFT_API_LLAMA_SLOTS_H_
