// A response as lines of JSON, one object each, as in Ollama's streams.
#ifndef WEFT_DOORS_API_NDJSON_H_
#define WEFT_DOORS_API_NDJSON_H_

#include <utility>

#include "doors/api/fields/support.h"
#include "doors/http/answer_stream.h"
#include "json/json_text.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class NdjsonStream : public AnswerStream {
 public:
  explicit NdjsonStream(HttpResponder& responder, HttpHeaders headers = {})
      : AnswerStream(responder, "application/x-ndjson", std::move(headers)) {}

  // False once the client has left: stop feeding the stream.
  bool Line(const nlohmann::ordered_json& object) { return Write(CompactJson(object) + "\n"); }
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_NDJSON_H_
