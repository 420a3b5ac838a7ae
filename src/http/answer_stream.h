// A response that is written piece by piece. It begins with the first piece, so whoever finds
// an error before that can still answer with a plain one. What a piece looks like, the streams
// made of it say: server-sent events (sse.h), lines of JSON (ndjson.h).
//
// Used on the handler's thread; holds a reference to the responder.
#ifndef WEFT_HTTP_ANSWER_STREAM_H_
#define WEFT_HTTP_ANSWER_STREAM_H_

#include <string_view>
#include <utility>

#include "http/http.h"

namespace weft::serve {

class AnswerStream {
 public:
  // Whether it is too late for an answer of another kind.
  bool begun() const { return begun_; }
  void End() { responder_.End(); }

 protected:
  // `content_type` is a constant.
  AnswerStream(HttpResponder& responder, std::string_view content_type, HttpHeaders headers)
      : responder_(responder), content_type_(content_type), headers_(std::move(headers)) {
    headers_.emplace_back("Cache-Control", "no-cache");
    headers_.emplace_back("X-Accel-Buffering", "no");  // proxies: do not collect the pieces
  }
  ~AnswerStream() = default;

  // False when the client is gone: stop what feeds the stream.
  bool Write(std::string_view piece) {
    if (!std::exchange(begun_, true) && !responder_.Begin(200, content_type_, headers_)) {
      return false;
    }
    return responder_.Write(piece);
  }

 private:
  HttpResponder& responder_;
  const std::string_view content_type_;
  HttpHeaders headers_;
  bool begun_ = false;
};

}  // namespace weft::serve

#endif  // WEFT_HTTP_ANSWER_STREAM_H_
