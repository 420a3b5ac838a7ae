#include "doors/api/fields/support.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"
#include "doors/host/model_host.h"
#include "doors/host/shared_sessions.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

// Longer names, and more of them, are not listed: headers should stay short.
constexpr size_t kMaxIgnoredNames = 32;
constexpr size_t kMaxIgnoredNameBytes = 64;

bool IsHeaderSafe(std::string_view name) {
  for (const char c : name) {
    if (c < 0x21 || c > 0x7e || c == ',') return false;
  }
  return !name.empty() && name.size() <= kMaxIgnoredNameBytes;
}

constexpr int64_t kMaxRetrySeconds = 3600;
constexpr size_t kMaxOwnerBytes = 1024;

// Whether another server's address, which the store says, can be a header.
bool IsPlainAddress(std::string_view url) {
  const auto is_plain = [](char c) { return c >= 0x21 && c <= 0x7e; };
  return !url.empty() && url.size() <= kMaxOwnerBytes && std::ranges::all_of(url, is_plain);
}

// Clients that know the codes ask the other server, or again.
void AddTrouble(const Status& status, ApiError* error) {
  const SessionTrouble trouble = TroubleOf(status);
  if (trouble == SessionTrouble::kNone) return;
  error->is_session_trouble = true;
  error->code = CodeOf(trouble);
  if (trouble == SessionTrouble::kUnavailable) {
    error->http_status = 503;
    error->type = "unavailable_error";
    error->retry_after_s = 1;
    return;
  }
  error->http_status = 409;
  error->type = "conflict_error";
  if (trouble == SessionTrouble::kMoved) return;
  error->retry_after_s =
      static_cast<int>(std::clamp<int64_t>(RetrySecondsOf(status), 1, kMaxRetrySeconds));
  std::string owner = OwnerOf(status);
  if (IsPlainAddress(owner)) error->headers.emplace_back("X-Weft-Owner", std::move(owner));
}

}  // namespace

ApiError ToDetailedApiError(const Status& status) {
  ApiError error = ToApiError(status);
  ErrorDetails details = DetailsOf(status);
  if (!details.param.empty()) error.param = std::move(details.param);
  if (!details.code.empty()) error.code = std::move(details.code);
  if (details.n_prompt_tokens >= 0) error.more["n_prompt_tokens"] = details.n_prompt_tokens;
  if (details.n_ctx >= 0) {
    error.more["n_ctx"] = details.n_ctx;
    // llama-server's type and OpenAI's code.
    error.type = "exceed_context_size_error";
    error.code = "context_length_exceeded";
  }
  AddTrouble(status, &error);
  return error;
}

void SendError(HttpResponder& responder, const Status& status, ErrorShape shape) {
  SendError(responder, ToDetailedApiError(status), shape);
}

StatusOr<std::optional<int>> PriorityHeader(const HttpRequest& request) {
  const std::string_view text = request.Header("x-weft-priority");
  if (text.empty()) return std::optional<int>();
  int priority = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), priority);
  if (error != std::errc() || end != text.data() + text.size() ||
      std::abs(int64_t{priority}) > kMaxPriority) {
    return InvalidArgument("x-weft-priority must be an integer from -", kMaxPriority, " to ",
                           kMaxPriority, "; lower ones go first");
  }
  return std::optional(priority);
}

void SetOwner(const HttpRequest& request, Ask* ask) {
  ask->domain = request.domain;
  ask->turn.label = request.id;
  ask->turn.tenant = request.Account();
  const auto priority = PriorityHeader(request);
  if (priority.ok() && priority->has_value()) ask->turn.priority = -**priority;
}

void ApiFields::Refuse(std::string_view name, std::string_view why,
                       const nlohmann::ordered_json& harmless) {
  const bool was_ok = ok();
  JsonFields::Refuse(name, why, harmless);
  if (was_ok && !ok()) refused_ = true;
}

void ApiFields::Unsupported(std::string_view name, std::string_view why) {
  if (ok()) refused_ = true;
  Fail(name, why);
}

void ApiFields::Adopt(const Status& status) {
  if (ok() && adopted_.ok()) adopted_ = status;
}

Status ApiFields::Finish(std::vector<std::string>* unknown) {
  if (!adopted_.ok()) return adopted_;  // nothing failed before it
  const Status status = JsonFields::Finish(unknown);
  if (!status.ok()) {
    return WithCode(WithParam(status, failed_field()),
                    refused_ ? "unsupported_parameter" : "invalid_value");
  }
  unknown->insert(unknown->end(), ignored_.begin(), ignored_.end());
  return OkStatus();
}

Status Misshapen(std::string_view place, std::string_view what) {
  return AtPlace(InvalidArgument(place, ": ", what));
}

StatusOr<std::string> NeedString(const nlohmann::ordered_json& object, const char* name,
                                 std::string_view place) {
  const auto it = object.find(name);
  if (it != object.end() && it->is_string()) return it->get<std::string>();
  return Misshapen(place, StrCat("needs the string \"", name, "\""));
}

const nlohmann::ordered_json& ValueIn(const nlohmann::ordered_json& object, std::string_view name) {
  static const nlohmann::ordered_json null;
  if (!object.is_object()) return null;
  const auto it = object.find(name);
  return it == object.end() ? null : *it;
}

std::string StringOr(const nlohmann::ordered_json& object, const char* name,
                     std::string_view otherwise) {
  const nlohmann::ordered_json& value = ValueIn(object, name);
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

const nlohmann::ordered_json& LeftOut::AddPictures(std::initializer_list<std::string_view> types,
                                                   std::string_view where, const char* text_type,
                                                   const nlohmann::ordered_json& parts,
                                                   nlohmann::ordered_json* copy) {
  for (size_t i = 0; parts.is_array() && i < parts.size(); ++i) {
    const std::string type = StringOr(parts[i], "type");
    if (std::find(types.begin(), types.end(), type) == types.end()) continue;
    Add(StrCat(type, " in ", where));
    if (copy->is_null()) *copy = parts;
    (*copy)[i] = {{"type", text_type}, {"text", kPictureLeftOut}};
  }
  return copy->is_null() ? parts : *copy;
}

void LeftOut::Warn(std::string_view what, std::vector<std::string>* warnings) const {
  if (types_.empty()) return;
  const std::vector<std::string> types(types_.begin(), types_.end());
  warnings->push_back(StrCat(what, ": ", StrJoin(types, ", ")));
}

Status FindModel(Host& host, std::string_view name) {
  const Model& served = host.model();
  const auto& names = host.defaults().further_names;
  if (std::find(names.begin(), names.end(), name) != names.end()) return OkStatus();
  if (name == host.model_id() || name == served.name() || name == served.path() ||
      name == ModelFileName(served)) {
    return OkStatus();
  }
  const auto& adapters = host.defaults().adapters;
  if (adapters != nullptr && !adapters->InName(name).empty()) {
    const std::string_view base = BaseOfName(name);
    return base == name ? OkStatus() : FindModel(host, base);
  }
  return WithCode(WithParam(NotFound("the model ", Printable(name), " is not served here; use ",
                                     Printable(host.model_id()), ", or omit \"model\""),
                            "model"),
                  "model_not_found");
}

Status CheckModel(Host& host, const std::optional<std::string>& model) {
  if (!model || model->empty()) return OkStatus();
  // Whoever asks for an adapter of this model is not answered without it.
  const std::string_view base = BaseOfName(*model);
  const bool asks_for_adapter = host.defaults().adapters != nullptr && base != *model &&
                                !model->ends_with(":latest") && FindModel(host, base).ok();
  if (!asks_for_adapter && !host.defaults().server.strict_model_name) return OkStatus();
  return FindModel(host, *model);
}

std::string HeaderText(std::string_view text) {
  std::string shown = Printable(text, 64);
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return shown;
}

HttpHeaders NoticeHeaders(const std::vector<std::string>& ignored,
                          const std::vector<std::string>& warnings) {
  HttpHeaders headers;
  if (!warnings.empty()) headers.emplace_back(kWarningHeader, StrJoin(warnings, "; "));
  std::vector<std::string> shown;
  for (const std::string& name : ignored) {
    if (IsHeaderSafe(name) && shown.size() < kMaxIgnoredNames) shown.push_back(name);
  }
  if (!shown.empty()) headers.emplace_back("X-Weft-Ignored", StrJoin(shown, ", "));
  return headers;
}

void SendJson(HttpResponder& responder, const nlohmann::ordered_json& body,
              const std::vector<std::string>& ignored, const std::vector<std::string>& warnings) {
  responder.Send(200, "application/json", CompactJson(body), NoticeHeaders(ignored, warnings));
}

int64_t NowSeconds() { return WallClockMicros() / 1'000'000; }

std::string UtcTime(int64_t wall_us) {
  const std::time_t seconds = wall_us / 1'000'000;
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char date[32], fraction[16];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(fraction, sizeof(fraction), ".%06dZ", static_cast<int>(wall_us % 1'000'000));
  return StrCat(date, fraction);
}

}  // namespace weft::serve
