// A response as server-sent events.
#ifndef WEFT_DOORS_API_SSE_H_
#define WEFT_DOORS_API_SSE_H_

#include <string_view>

#include "base/status.h"
#include "doors/http/answer_stream.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class SseStream : public AnswerStream {
 public:
  explicit SseStream(HttpResponder& responder, HttpHeaders headers = {});

  // False once the client has left: stop feeding the stream.
  bool Data(const nlohmann::ordered_json& data);
  bool Event(std::string_view name, const nlohmann::ordered_json& data);
  // Clients ignore it: a sign of life.
  bool Comment(std::string_view text);
  // OpenAI's "data: [DONE]", and the end.
  void Done();
  // An error in OpenAI's form, and the end. If another server may have the session, there is no
  // "[DONE]": clients would take what they got for an answer that the session has.
  void Fail(const Status& status);
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SSE_H_
