// A response written piece by piece. It begins with the first piece, so an error found earlier can
// still be a plain answer. Subclasses define the form of a piece: server-sent events (sse.h), lines
// of JSON (ndjson.h).
//
// Used by the handler; holds a reference to the responder.
#ifndef WEFT_DOORS_HTTP_ANSWER_STREAM_H_
#define WEFT_DOORS_HTTP_ANSWER_STREAM_H_

#include <string_view>
#include <utility>

#include "doors/http/http.h"

namespace weft::serve {

class AnswerStream {
 public:
  // Whether it is too late for a different answer.
  bool begun() const { return begun_; }
  // Also if the client seems to have left after the last piece: many close as soon as they have it.
  void End() { responder_.End(); }

 protected:
  // `content_type` is a constant.
  AnswerStream(HttpResponder& responder, std::string_view content_type, HttpHeaders headers)
      : responder_(responder), content_type_(content_type), headers_(std::move(headers)) {
    headers_.emplace_back("Cache-Control", "no-cache");
    headers_.emplace_back("X-Accel-Buffering", "no");  // tells proxies not to buffer
  }
  ~AnswerStream() = default;

  // False once the client has left: stop feeding the stream.
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

#endif  // WEFT_DOORS_HTTP_ANSWER_STREAM_H_
