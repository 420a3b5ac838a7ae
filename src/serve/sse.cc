#include "serve/sse.h"

#include <utility>

#include "base/strings.h"
#include "serve/api_support.h"

namespace weft::serve {

SseStream::SseStream(HttpResponder& responder, HttpHeaders headers)
    : responder_(responder), headers_(std::move(headers)) {
  headers_.emplace_back("Cache-Control", "no-cache");
  headers_.emplace_back("X-Accel-Buffering", "no");  // proxies: do not collect the events
}

bool SseStream::Write(const std::string& frame) {
  if (!begun_) {
    begun_ = true;
    if (!responder_.Begin(200, "text/event-stream", headers_)) return false;
  }
  return responder_.Write(frame);
}

bool SseStream::Data(const nlohmann::ordered_json& data) {
  return Write(StrCat("data: ", JsonText(data), "\n\n"));
}

bool SseStream::Event(std::string_view name, const nlohmann::ordered_json& data) {
  return Write(StrCat("event: ", name, "\ndata: ", JsonText(data), "\n\n"));
}

bool SseStream::Done() { return Write("data: [DONE]\n\n"); }

void SseStream::End() { responder_.End(); }

}  // namespace weft::serve
