// llama-server's embeddings: every text as an array of vectors, whatever the pooling.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/routes.h"
#include "doors/api/openai/routes.h"
#include "doors/api/text_vectors.h"

namespace weft::serve {
namespace {

// embd_normalize: 0 scales the largest value to that of an int16, -1 changes nothing, other
// numbers are the norm whose value becomes 1.
constexpr int64_t kNoNorm = -1, kInt16Norm = 0, kEuclidean = 2, kMaxNorm = 1000;

struct EmbeddingRequest {
  std::vector<std::vector<int32_t>> texts;
  int64_t norm = kEuclidean;
  std::vector<std::string> ignored;
};

StatusOr<EmbeddingRequest> ReadEmbedding(Host& host, const nlohmann::ordered_json& body) {
  EmbeddingRequest read;
  ApiFields fields(body);
  const auto name = fields.String("model");
  const bool has_content = body.is_object() && body.contains("content");
  read.norm = fields.Integer("embd_normalize", kNoNorm, kMaxNorm).value_or(kEuclidean);
  const Status gives = CheckGivesVectors(host);
  if (gives.ok()) {
    ReadTexts(&fields, has_content ? "content" : "input", host.model(),
              host.model().context_tokens(), &read.texts);
  }
  if (fields.ok()) WEFT_RETURN_IF_ERROR(gives);
  WEFT_RETURN_IF_ERROR(fields.Finish(&read.ignored));
  WEFT_RETURN_IF_ERROR(CheckModel(host, name));
  return read;
}

void Scale(double factor, std::vector<float>* vector) {
  for (float& value : *vector) value = static_cast<float>(static_cast<double>(value) * factor);
}

void Normalise(int64_t norm, std::vector<float>* vector) {
  if (norm == kNoNorm) return;
  double size = 0;
  if (norm == kInt16Norm) {
    for (const float value : *vector) size = std::max(size, std::abs(static_cast<double>(value)));
    size /= 32760.0;
  } else {
    const auto power = static_cast<double>(norm);
    for (const float value : *vector) size += std::pow(std::abs(static_cast<double>(value)), power);
    size = std::pow(size, 1 / power);
  }
  Scale(size > 0 ? 1 / size : 0, vector);
}

std::string EmbeddingJson(const EmbeddingRequest& read, TextResults results, bool pooled) {
  std::string json = "[";
  for (size_t i = 0; i < results.texts.size(); ++i) {
    StrAppend(&json, i > 0 ? "," : "", "{\"index\":", i, ",\"embedding\":[");
    for (std::vector<float>& vector : results.texts[i]) {
      if (json.back() == ']') json += ',';
      if (pooled) Normalise(read.norm, &vector);
      AppendVectorJson(vector, &json);
    }
    json += "]}";
  }
  return json += ']';
}

}  // namespace

Task<void> HandleLlamaEmbedding(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto body = ParseJson(request.body, {});
  // The path without a version is OpenAI's too, whose field is `input` and which has one vector for
  // each text.
  const bool is_openai = request.path == "/embeddings" && body.ok() && body->is_object() &&
                         !body->contains("content") && host.model().pooling() != "none";
  if (is_openai) {
    co_await HandleEmbeddings(host, request, responder);
    co_return;
  }
  auto read = body.ok() ? ReadEmbedding(host, *body) : body.status();
  if (!read.ok()) {
    SendError(responder, read.status(), kLlamaErrors);
    co_return;
  }
  auto computing = ComputeTexts(host, request, responder, std::move(read->texts));
  auto results = co_await computing;
  if (!results.ok()) {
    SendError(responder, results.status(), kLlamaErrors);
    co_return;
  }
  const bool pooled = host.model().pooling() != "none";
  responder.Send(200, "application/json", EmbeddingJson(*read, *std::move(results), pooled),
                 NoticeHeaders(read->ignored));
}

}  // namespace weft::serve
