// Which session a request belongs to.
//
// In this order: the body's `session_id`; the headers X-ExecuTorch-Session-ID, session_id
// (with the underscore), x-session-affinity, x-session-id, session-id,
// x-opencode-session. 1 to 128 printable ASCII characters without spaces.
#ifndef WEFT_API_SESSION_NAME_H_
#define WEFT_API_SESSION_NAME_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/support.h"
#include "base/status.h"
#include "host/host.h"
#include "http/http.h"
#include "json/json_fields.h"

namespace weft::serve {

struct SessionChoice {
  std::string name;  // empty: an anonymous session
  // Named in the body: the request runs on this session or not at all. Headers are sent
  // by agents with every request, side requests that run at the same time included;
  // there the name is a wish, and a busy session means an anonymous one.
  bool required = false;
};

// INVALID_ARGUMENT with the code "invalid_session_id".
Status ValidateSessionName(std::string_view name);
// Takes `session_id` from the body.
StatusOr<SessionChoice> ChooseSession(const HttpRequest& request, JsonFields* body);
// The end of reading a body, once its API has taken the fields of its own: takes
// `session_id`, reports what was wrong first, checks that `model` is the one served, and
// fills `ignored`. Of several prompts none can go on a session: one named in the body is
// then an error, one named in a header is done without.
StatusOr<SessionChoice> FinishFields(Host& host, const HttpRequest& request,
                                     const std::optional<std::string>& model, size_t n_prompts,
                                     ApiFields* fields, std::vector<std::string>* ignored);

// llama-server's `id_slot` of a body: the slot, where slots are sessions and the request has one
// prompt. The session of a slot is a wish, as that of a header is.
std::optional<int64_t> ReadSlot(ApiFields* fields, Host& host, size_t n_prompts);
SessionChoice SlotSession(int64_t slot);

}  // namespace weft::serve

#endif  // WEFT_API_SESSION_NAME_H_
