// A response as lines of JSON, one object each, as Ollama streams.
#ifndef WEFT_SERVE_NDJSON_H_
#define WEFT_SERVE_NDJSON_H_

#include <utility>

#include "nlohmann/json.hpp"
#include "serve/answer_stream.h"
#include "serve/api_support.h"

namespace weft::serve {

class NdjsonStream : public AnswerStream {
 public:
  explicit NdjsonStream(HttpResponder& responder, HttpHeaders headers = {})
      : AnswerStream(responder, "application/x-ndjson", std::move(headers)) {}

  // False when the client is gone: stop what feeds the stream.
  bool Line(const nlohmann::ordered_json& object) { return Write(JsonText(object) + "\n"); }
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_NDJSON_H_
