// Small things that every API in the style of OpenAI and Anthropic needs: ids, errors
// with the field at fault, the check of `model`, JSON as text.
//
// Functions of their arguments; any thread.
#ifndef WEFT_API_SUPPORT_H_
#define WEFT_API_SUPPORT_H_

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "host/host.h"
#include "http/api_error.h"
#include "http/http.h"
#include "json/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// `prefix` and `n_random` letters and digits that nobody can guess.
std::string NewId(std::string_view prefix, int n_random = 24);

// What a status alone cannot say to a client: the field at fault, OpenAI's code, and the
// numbers of a context that was too long. They travel as payloads of the status.
Status WithParam(Status status, std::string_view param);
Status WithCode(Status status, std::string_view code);
Status WithContext(Status status, int64_t n_prompt_tokens, int64_t n_ctx);
// ToApiError, with these details.
ApiError ToDetailedApiError(const Status& status);
// With these details too.
void SendError(HttpResponder& responder, const Status& status, ErrorShape shape);

// JsonFields whose errors carry the field, and the code "unsupported_parameter" where a
// value is refused, "invalid_value" where it is wrong.
class ApiFields : public JsonFields {
 public:
  using JsonFields::JsonFields;

  void Refuse(std::string_view name, std::string_view why,
              const nlohmann::ordered_json& harmless = nullptr);
  // Fails as Refuse does, whatever the value.
  void Unsupported(std::string_view name, std::string_view why);
  // A part of a field that is passed over, for X-Weft-Ignored.
  void Ignore(std::string_view name) { ignored_.emplace_back(name); }
  // The error of a part of the body that was read by itself; the first one counts.
  void Adopt(const Status& status);
  Status Finish(std::vector<std::string>* unknown);

 private:
  bool refused_ = false;
  std::vector<std::string> ignored_;
  Status adopted_;
};

// The error of a part of the body at `place`, and such a part's string.
Status Misshapen(std::string_view place, std::string_view what);
StatusOr<std::string> NeedString(const nlohmann::ordered_json& object, const char* name,
                                 std::string_view place);

// A member that is a string; `otherwise` where there is none, or no object.
std::string StringOr(const nlohmann::ordered_json& object, const char* name,
                     std::string_view otherwise = "");

// What of a conversation no model here could read anything from. It is told of once.
class LeftOut {
 public:
  void Add(std::string what) { types_.insert(std::move(what)); }
  // A tool may give a picture where nobody asked for one, and it is sent again with every
  // request that follows: refused, it would be the end of the conversation. Those of `types`
  // among `parts` become a part of type `text_type` that says so.
  void AddPictures(std::initializer_list<std::string_view> types, std::string_view where,
                   const char* text_type, nlohmann::ordered_json* parts);
  // `what`, and the types; nothing where nothing was left out.
  void Warn(std::string_view what, std::vector<std::string>* warnings) const;

 private:
  std::set<std::string> types_;
};

// Whether `name` is the served model's id, its own name, or its file.
Status FindModel(Host& host, std::string_view name);
// What a request's "model" may be: anything, or, where the operator is strict about it, what
// FindModel finds, or nothing.
Status CheckModel(Host& host, const std::optional<std::string>& model);

// Why a request for embeddings cannot be answered.
Status NoEmbeddings(Host& host);

// What an answer says beside itself. `ignored` is listed in X-Weft-Ignored, `warnings` are
// in X-Weft-Warning, one after the other, and in the log.
HttpHeaders NoticeHeaders(const std::vector<std::string>& ignored,
                          const std::vector<std::string>& warnings = {});
inline constexpr char kWarningHeader[] = "X-Weft-Warning";
// 200 with a JSON body.
void SendJson(HttpResponder& responder, const nlohmann::ordered_json& body,
              const std::vector<std::string>& ignored = {},
              const std::vector<std::string>& warnings = {});

int64_t NowSeconds();  // since 1970

}  // namespace weft::serve

#endif  // WEFT_API_SUPPORT_H_
