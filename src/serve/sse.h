// A response as server-sent events.
#ifndef WEFT_SERVE_SSE_H_
#define WEFT_SERVE_SSE_H_

#include <string_view>

#include "nlohmann/json.hpp"
#include "serve/answer_stream.h"

namespace weft::serve {

class SseStream : public AnswerStream {
 public:
  explicit SseStream(HttpResponder& responder, HttpHeaders headers = {});

  // False when the client is gone: stop what feeds the stream.
  bool Data(const nlohmann::ordered_json& data);
  bool Event(std::string_view name, const nlohmann::ordered_json& data);
  // OpenAI's "data: [DONE]".
  bool Done();
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_SSE_H_
