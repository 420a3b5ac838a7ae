#include "doors/api/fields/error_shapes.h"

#include <cstdint>
#include <string>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

const char* AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

// A further member of an error; -1 if it has none of that name.
int64_t NumberIn(const ApiError& error, const char* name) {
  const auto it = error.more.find(name);
  return it == error.more.end() ? -1 : it->get<int64_t>();
}

}  // namespace

Json AnthropicErrorBody(const ApiError& error, std::string_view request_id) {
  std::string message = error.message;
  const int64_t n_prompt_tokens = NumberIn(error, "n_prompt_tokens");
  const int64_t n_ctx = NumberIn(error, "n_ctx");
  if (n_prompt_tokens > n_ctx) {
    // Anthropic's own words, in which its clients look for the numbers.
    message =
        StrCat("prompt is too long: ", n_prompt_tokens, " tokens > ", n_ctx, " maximum: ", message);
  }
  Json body = {
      {"type", "error"},
      {"error", {{"type", AnthropicType(error.http_status)}, {"message", std::move(message)}}}};
  if (error.is_session_trouble) body["error"]["code"] = error.code;
  if (!request_id.empty()) body["request_id"] = request_id;
  return body;
}

Json LlamaErrorBody(const ApiError& error, std::string_view /*request_id*/) {
  // Its "code" is the HTTP status; clients tell errors apart by the type.
  Json body = {{"code", error.http_status},
               {"message", error.message},
               {"type", error.is_session_trouble ? error.code : error.type}};
  if (error.more.is_object()) body.update(error.more);
  return {{"error", std::move(body)}};
}

Json OllamaErrorBody(const ApiError& error, std::string_view /*request_id*/) {
  Json body = {{"error", error.message}};
  if (error.is_session_trouble) body["code"] = error.code;
  return body;
}

}  // namespace weft::serve
