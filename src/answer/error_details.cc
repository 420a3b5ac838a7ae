#include "answer/error_details.h"

#include "absl/strings/cord.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

constexpr char kParamUrl[] = "weft/param";
constexpr char kCodeUrl[] = "weft/code";
constexpr char kPromptTokensUrl[] = "weft/n_prompt_tokens";
constexpr char kContextUrl[] = "weft/n_ctx";

void SetPayload(Status* status, const char* url, std::string_view value) {
  if (!status->ok()) status->SetPayload(url, absl::Cord(std::string(value)));
}

std::string Payload(const Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload ? std::string(*payload) : std::string();
}

}  // namespace

ErrorDetails DetailsOf(const Status& status) {
  ErrorDetails details{.param = Payload(status, kParamUrl), .code = Payload(status, kCodeUrl)};
  int64_t number = 0;
  if (ParseInt64(Payload(status, kPromptTokensUrl), &number)) details.n_prompt_tokens = number;
  if (ParseInt64(Payload(status, kContextUrl), &number)) details.n_ctx = number;
  return details;
}

Status WithParam(Status status, std::string_view param) {
  if (!param.empty()) SetPayload(&status, kParamUrl, param);
  return status;
}

Status WithCode(Status status, std::string_view code) {
  SetPayload(&status, kCodeUrl, code);
  return status;
}

Status WithContext(const Status& refused, int64_t n_prompt_tokens, int64_t n_ctx) {
  // The wording by which clients of OpenAI know that they must shorten a conversation.
  Status status(
      refused.code(),
      StrCat(Message(refused), "; this model's maximum context length is ", n_ctx, " tokens"));
  SetPayload(&status, kPromptTokensUrl, StrCat(n_prompt_tokens));
  SetPayload(&status, kContextUrl, StrCat(n_ctx));
  return status;
}

Status AtPlace(const Status& status) {
  const std::string_view message = Message(status);
  return WithCode(WithParam(status, message.substr(0, message.find(':'))), "invalid_value");
}

}  // namespace weft::serve
