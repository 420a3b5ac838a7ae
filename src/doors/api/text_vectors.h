// What the routes for embeddings and for reranking share: texts in, vectors or scores out.
//
// Each text is a turn of its own on an anonymous session, so that it is queued like any
// conversation; a request runs a few of them at a time.
#ifndef WEFT_DOORS_API_TEXT_VECTORS_H_
#define WEFT_DOORS_API_TEXT_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/vectors.h"
#include "async/task.h"
#include "base/status.h"
#include "doors/api/fields/support.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// Per request.
inline constexpr size_t kMaxTexts = 2048;

// The result for a text: its vector, or one for each token, or its scores.
using TextResult = std::vector<std::vector<float>>;
struct TextResults {
  std::vector<TextResult> texts;  // in the order of the request
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t queued_us = 0;  // the longest
  int64_t prompt_us = 0;  // all together
};

// Computes the result for each list of tokens. Cancelled when the client leaves.
Task<StatusOr<TextResults>> ComputeTexts(Host& host, const HttpRequest& request,
                                         HttpResponder& responder,
                                         std::vector<std::vector<int32_t>> texts);

// INVALID_ARGUMENT unless the model gives vectors, or scores.
Status CheckGivesVectors(Host& host);
Status CheckGivesScores(Host& host);

// A text as the model wants it, in which control tokens are plain text. Of one that clearly has
// more than `max_tokens` (0: no limit) only the first ones, but more than that.
std::vector<int32_t> EncodeText(const Model& model, std::string_view text, int64_t max_tokens = 0);
// Reads a field that holds one or several texts: each a string, token ids and strings in an array,
// {"prompt_string": ...} with either, or {"content": ...} with parts of type text. Longer ones than
// `max_tokens` are as EncodeText gives them: for the engine to refuse.
void ReadTexts(ApiFields* fields, std::string_view name, const Model& model, int64_t max_tokens,
               std::vector<std::vector<int32_t>>* texts);

// Appends "[0.5,-1]", each value as short as possible such that it reads back the same; values that
// are not finite become null.
void AppendVectorJson(std::span<const float> vector, std::string* json);
// The values as little-endian floats.
std::string Base64Of(std::span<const float> vector);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_TEXT_VECTORS_H_
