#include "doors/api/sse.h"

#include <utility>

#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "json/json_text.h"

namespace weft::serve {

SseStream::SseStream(HttpResponder& responder, HttpHeaders headers)
    : AnswerStream(responder, "text/event-stream", std::move(headers)) {}

bool SseStream::Data(const nlohmann::ordered_json& data) {
  return Write(StrCat("data: ", CompactJson(data), "\n\n"));
}

bool SseStream::Event(std::string_view name, const nlohmann::ordered_json& data) {
  return Write(StrCat("event: ", name, "\ndata: ", CompactJson(data), "\n\n"));
}

bool SseStream::Comment(std::string_view text) { return Write(StrCat(": ", text, "\n\n")); }

void SseStream::Done() {
  Write("data: [DONE]\n\n");
  End();
}

void SseStream::Fail(const Status& status) {
  const ApiError error = ToDetailedApiError(status);
  Data(ErrorBody(error, kOpenAiErrors));
  if (error.is_session_trouble) return End();
  Done();
}

}  // namespace weft::serve
