#include "doors/api/fields/session_name.h"

#include <algorithm>
#include <utility>

#include "doors/api/fields/adapters.h"

namespace weft::serve {
namespace {

constexpr size_t kMaxSessionNameBytes = 128;
constexpr std::string_view kSessionHeaders[] = {
    "X-ExecuTorch-Session-ID",
    "session_id",
    "x-session-affinity",
    "x-session-id",
    "session-id",
    "x-opencode-session",
    "x-smg-routing-key",
};

}  // namespace

Status ValidateSessionName(std::string_view name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x21 && c <= 0x7e; });
  if (!name.empty() && name.size() <= kMaxSessionNameBytes && printable) return OkStatus();
  return WithCode(
      WithParam(InvalidArgument("a session id has 1 to ", kMaxSessionNameBytes,
                                " printable ASCII characters and no spaces; this one has ",
                                name.size(), " bytes", printable ? "" : " and other characters"),
                "session_id"),
      "invalid_session_id");
}

StatusOr<SessionChoice> ChooseSession(const HttpRequest& request, JsonFields* body) {
  if (const auto named = body->String("session_id")) {
    WEFT_RETURN_IF_ERROR(ValidateSessionName(*named));
    return SessionChoice{.name = *named, .required = true};
  }
  for (const std::string_view header : kSessionHeaders) {
    const std::string_view value = request.Header(header);
    if (value.empty()) continue;
    WEFT_RETURN_IF_ERROR(ValidateSessionName(value));
    return SessionChoice{.name = std::string(value), .required = false};
  }
  return SessionChoice{};
}

Status FinishFields(Host& host, const HttpRequest& request, const std::optional<std::string>& model,
                    size_t n_prompts, ApiFields* fields, std::vector<std::string>* ignored,
                    Ask* ask) {
  auto session = ChooseSession(request, fields);
  if (session.ok() && session->required && n_prompts > 1) {
    fields->Fail("session_id", "cannot be used with several prompts");
  }
  ReadAdapters(fields, host, model, &ask->turn);
  WEFT_RETURN_IF_ERROR(fields->Finish(ignored));
  WEFT_RETURN_IF_ERROR(session.status());
  WEFT_RETURN_IF_ERROR(CheckModel(host, model));
  if (n_prompts == 1) ask->session = *std::move(session);
  SetOwner(request, ask);
  return OkStatus();
}

std::optional<int64_t> ReadSlot(ApiFields* fields, Host& host, size_t n_prompts) {
  if (host.defaults().server.slot_save_path.empty()) return std::nullopt;
  const auto slot = fields->Integer("id_slot", -1, host.engine().options().max_running - 1);
  if (n_prompts != 1 || slot.value_or(-1) < 0) return std::nullopt;
  return slot;
}

SessionChoice SlotSession(int64_t slot) { return {.name = StrCat("slot-", slot)}; }

}  // namespace weft::serve
