// Chooses the session of a request.
//
// In this order: the body's `session_id`; the headers X-ExecuTorch-Session-ID, session_id (with the
// underscore), x-session-affinity, x-session-id, session-id, x-opencode-session, x-smg-routing-key.
// 1 to 128 printable ASCII characters without spaces.
//
// A session named in the body is required. Agents send headers with every request, including
// concurrent side requests; so a name in a header is only a preference.
#ifndef WEFT_DOORS_API_FIELDS_SESSION_NAME_H_
#define WEFT_DOORS_API_FIELDS_SESSION_NAME_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/api/fields/support.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "json/json_fields.h"

namespace weft::serve {

// INVALID_ARGUMENT with the code "invalid_session_id".
Status ValidateSessionName(std::string_view name);
// Takes `session_id` from the body.
StatusOr<SessionChoice> ChooseSession(const HttpRequest& request, JsonFields* body);
// Finishes reading a body, after its API has read its own fields: takes `session_id` and `lora`,
// chooses adapters, reports the first error, checks that `model` is the served one, fills
// `ignored`, and sets who asks. Several prompts cannot continue a session: one named in the body is
// then an error, one named in a header is not used.
Status FinishFields(Host& host, const HttpRequest& request, const std::optional<std::string>& model,
                    size_t n_prompts, ApiFields* fields, std::vector<std::string>* ignored,
                    Ask* ask);

// llama-server's `id_slot` in a body: the slot, if slots are sessions and the request has one
// prompt. A slot's session is a preference, like one named in a header.
std::optional<int64_t> ReadSlot(ApiFields* fields, Host& host, size_t n_prompts);
SessionChoice SlotSession(int64_t slot);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_SESSION_NAME_H_
