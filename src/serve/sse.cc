#include "serve/sse.h"

#include <utility>

#include "base/strings.h"
#include "serve/api_support.h"

namespace weft::serve {

SseStream::SseStream(HttpResponder& responder, HttpHeaders headers)
    : AnswerStream(responder, "text/event-stream", std::move(headers)) {}

bool SseStream::Data(const nlohmann::ordered_json& data) {
  return Write(StrCat("data: ", JsonText(data), "\n\n"));
}

bool SseStream::Event(std::string_view name, const nlohmann::ordered_json& data) {
  return Write(StrCat("event: ", name, "\ndata: ", JsonText(data), "\n\n"));
}

bool SseStream::Done() { return Write("data: [DONE]\n\n"); }

}  // namespace weft::serve
