// Helpers for all APIs in the style of OpenAI and Anthropic: ids, errors with the field at fault,
// the check of `model`, JSON as text.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_SUPPORT_H_
#define WEFT_DOORS_API_FIELDS_SUPPORT_H_

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/ask.h"
#include "answer/error_details.h"
#include "base/new_id.h"
#include "base/status.h"
#include "doors/api/fields/error_shapes.h"
#include "doors/host/host.h"
#include "doors/http/api_error.h"
#include "doors/http/http.h"
#include "json/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// Of a client's turns among its own, in either direction.
inline constexpr int kMaxPriority = 1'000'000;

// Like ToApiError, with what DetailsOf has. For the errors of a shared store see
// weft/shared_store.h: session_elsewhere is 409 with the headers X-Weft-Owner and Retry-After,
// session_moved 409, state_unavailable 503 with Retry-After.
ApiError ToDetailedApiError(const Status& status);
// Includes these details.
void SendError(HttpResponder& responder, const Status& status, ErrorShape shape);

// x-weft-priority: an integer, as `priority` in a body; empty if it is not given.
StatusOr<std::optional<int>> PriorityHeader(const HttpRequest& request);
// Who asks, what shows the turn in lists, and the header's priority. REQUIRES: PriorityHeader was
// OK.
void SetOwner(const HttpRequest& request, Ask* ask);

// JsonFields whose errors carry the field, and the code "unsupported_parameter" for refused values
// or "invalid_value" for wrong ones.
class ApiFields : public JsonFields {
 public:
  using JsonFields::JsonFields;

  void Refuse(std::string_view name, std::string_view why,
              const nlohmann::ordered_json& harmless = nullptr);
  // Fails like Refuse, whatever the value.
  void Unsupported(std::string_view name, std::string_view why);
  // Records an ignored part of a field, for X-Weft-Ignored.
  void Ignore(std::string_view name) { ignored_.emplace_back(name); }
  // Takes over the error of a separately read part of the body; the first error counts.
  void Adopt(const Status& status);
  Status Finish(std::vector<std::string>* unknown);

 private:
  bool refused_ = false;
  std::vector<std::string> ignored_;
  Status adopted_;
};

// The error for a part of the body at `place`, and a required string member of such a part.
Status Misshapen(std::string_view place, std::string_view what);
StatusOr<std::string> NeedString(const nlohmann::ordered_json& object, const char* name,
                                 std::string_view place);

// A member; null if it is missing or `object` is not an object.
const nlohmann::ordered_json& ValueIn(const nlohmann::ordered_json& object, std::string_view name);
// A string member; `otherwise` if it is missing or `object` is not an object.
std::string StringOr(const nlohmann::ordered_json& object, const char* name,
                     std::string_view otherwise = "");

// What the model reads instead of a picture that a tool returned.
inline constexpr char kPictureLeftOut[] = "[a picture was left out: this model reads text only]";

// Parts of a conversation that no model here can use. Reported once.
class LeftOut {
 public:
  void Add(std::string what) { types_.insert(std::move(what)); }
  // A tool may return an image that nobody asked for, which is then sent again with every later
  // request: refusing it would end the conversation. Returns `parts`; or, if there are any of the
  // given `types`, `*copy` with parts of type `text_type` in their places that say so.
  const nlohmann::ordered_json& AddPictures(std::initializer_list<std::string_view> types,
                                            std::string_view where, const char* text_type,
                                            const nlohmann::ordered_json& parts,
                                            nlohmann::ordered_json* copy);
  // Warns with `what` and the types, if anything was left out.
  void Warn(std::string_view what, std::vector<std::string>* warnings) const;

 private:
  std::set<std::string> types_;
};

// OK if `name` is the served model's id, its own name, or its file; or one of these, a colon, and
// an adapter's name; or the adapter's alone.
Status FindModel(Host& host, std::string_view name);
// Checks a request's "model": any is allowed or, if the operator is strict about it, only names
// that FindModel accepts, or none.
Status CheckModel(Host& host, const std::optional<std::string>& model);

// A client's word, short and safe for a header.
std::string HeaderText(std::string_view text);
// Headers with notices: X-Weft-Ignored lists `ignored`; X-Weft-Warning holds `warnings` one after
// another, which are also logged.
HttpHeaders NoticeHeaders(const std::vector<std::string>& ignored,
                          const std::vector<std::string>& warnings = {});
inline constexpr char kWarningHeader[] = "X-Weft-Warning";
// 200 with a JSON body.
void SendJson(HttpResponder& responder, const nlohmann::ordered_json& body,
              const std::vector<std::string>& ignored = {},
              const std::vector<std::string>& warnings = {});

int64_t NowSeconds();  // since 1970
// RFC 3339's form, with a fraction; micros since 1970.
std::string UtcTime(int64_t wall_us);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_SUPPORT_H_
