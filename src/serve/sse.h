// A response as server-sent events. It begins with the first event, so whoever finds an
// error before that can still answer with a plain one.
//
// Used on the handler's thread; holds a reference to the responder.
#ifndef WEFT_SERVE_SSE_H_
#define WEFT_SERVE_SSE_H_

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "serve/http.h"

namespace weft::serve {

class SseStream {
 public:
  explicit SseStream(HttpResponder& responder, HttpHeaders headers = {});

  // False when the client is gone: stop what feeds the stream.
  bool Data(const nlohmann::ordered_json& data);
  bool Event(std::string_view name, const nlohmann::ordered_json& data);
  // Whether it is too late for an answer of another kind.
  bool begun() const { return begun_; }
  // OpenAI's "data: [DONE]".
  bool Done();
  void End();

 private:
  bool Write(const std::string& frame);

  HttpResponder& responder_;
  HttpHeaders headers_;
  bool begun_ = false;
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_SSE_H_
