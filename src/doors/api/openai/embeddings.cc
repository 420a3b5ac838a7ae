#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/openai/routes.h"
#include "doors/api/text_vectors.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

struct EmbeddingsRequest {
  std::vector<std::vector<int32_t>> texts;
  int64_t dimensions = 0;  // 0: all
  bool base64 = false;
  std::vector<std::string> ignored;
};

StatusOr<EmbeddingsRequest> ReadEmbeddings(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const auto body, ParseJson(request.body, {}));
  const Model& model = host.model();
  EmbeddingsRequest read;
  ApiFields fields(body);
  const auto name = fields.String("model");
  fields.CannotMatter({"user"});
  const std::string format = fields.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", "must be \"float\" or \"base64\"");
  }
  read.base64 = format == "base64";
  const Status gives = CheckGivesVectors(host);
  if (gives.ok()) {
    read.dimensions = fields.Integer("dimensions", 1, model.vector_width()).value_or(0);
    ReadTexts(&fields, "input", model, model.context_tokens(), &read.texts);
  }
  if (fields.ok()) WEFT_RETURN_IF_ERROR(gives);
  WEFT_RETURN_IF_ERROR(fields.Finish(&read.ignored));
  WEFT_RETURN_IF_ERROR(CheckModel(host, name));
  if (model.pooling() == "none") {
    return InvalidArgument(
        "this server pools nothing (--pooling none), and so has a vector for each token, which "
        "this format cannot hold; use /embedding");
  }
  return read;
}

// As text: as JSON values, the numbers would take many times the memory.
std::string EmbeddingsJson(Host& host, const EmbeddingsRequest& read, const TextResults& results) {
  std::string json = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < results.texts.size(); ++i) {
    const std::vector<float> vector = UnitVector(results.texts[i].at(0), read.dimensions);
    StrAppend(&json, i > 0 ? "," : "", "{\"object\":\"embedding\",\"index\":", i,
              ",\"embedding\":");
    if (read.base64) {
      StrAppend(&json, "\"", Base64Of(vector), "\"");
    } else {
      AppendVectorJson(vector, &json);
    }
    json += '}';
  }
  StrAppend(&json, "],\"model\":", CompactJson(host.model_id()),
            ",\"usage\":{\"prompt_tokens\":", results.prompt_tokens,
            ",\"total_tokens\":", results.prompt_tokens, "}}");
  return json;
}

}  // namespace

Task<void> HandleEmbeddings(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto read = ReadEmbeddings(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOpenAiErrors);
    co_return;
  }
  auto computing = ComputeTexts(host, request, responder, std::move(read->texts));
  const auto results = co_await computing;
  if (!results.ok()) {
    SendError(responder, results.status(), kOpenAiErrors);
    co_return;
  }
  responder.Send(200, "application/json", EmbeddingsJson(host, *read, *results),
                 NoticeHeaders(read->ignored));
}

}  // namespace weft::serve
