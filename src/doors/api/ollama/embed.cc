// Ollama's embeddings.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/ollama/request.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/text_vectors.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

struct EmbedRequest {
  std::string model;
  std::vector<std::vector<int32_t>> texts;
  int64_t dimensions = 0;  // 0: all
  bool is_former = false;  // /api/embeddings: one text, whose vector is as long as it is
  std::vector<std::string> ignored;
};

// Cuts a text that is too long, but for the token that ends it.
void Truncate(size_t most, std::vector<int32_t>* text) {
  if (text->size() <= most) return;
  text->at(most - 1) = text->back();
  text->resize(most);
}

StatusOr<EmbedRequest> ReadEmbed(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const auto body, ParseJson(request.body, {}));
  const Model& model = host.model();
  EmbedRequest read;
  read.is_former = request.path == "/api/embeddings";
  ApiFields fields(body);
  WEFT_ASSIGN_OR_RETURN(read.model, ReadOllamaModel(host, &fields));
  fields.CannotMatter({"keep_alive", "options"});
  const bool truncate = fields.Bool("truncate").value_or(true);
  const Status gives = CheckGivesVectors(host);
  if (gives.ok()) {
    read.dimensions = fields.Integer("dimensions", 0, model.vector_width()).value_or(0);
    // A cut text keeps the tokens that the whole text has up to there.
    ReadTexts(&fields, read.is_former ? "prompt" : "input", model,
              truncate ? 0 : model.context_tokens(), &read.texts);
  }
  if (fields.ok()) WEFT_RETURN_IF_ERROR(gives);
  WEFT_RETURN_IF_ERROR(fields.Finish(&read.ignored));
  if (model.pooling() == "none") {
    return InvalidArgument(
        "this server pools nothing (--pooling none), and this format has no "
        "place for a vector of each token; use /embedding");
  }
  for (std::vector<int32_t>& text : read.texts) {
    if (truncate) Truncate(static_cast<size_t>(model.context_tokens()), &text);
  }
  return read;
}

std::string EmbedJson(const EmbedRequest& read, const TextResults& results, int64_t took_us) {
  if (read.is_former) {
    std::string json = "{\"embedding\":";
    AppendVectorJson(results.texts.at(0).at(0), &json);
    return json += '}';
  }
  std::string json = StrCat("{\"model\":", CompactJson(read.model), ",\"embeddings\":[");
  for (const TextResult& text : results.texts) {
    if (json.back() == ']') json += ',';
    AppendVectorJson(UnitVector(text.at(0), read.dimensions), &json);
  }
  StrAppend(&json, "],\"total_duration\":", took_us * 1000,
            ",\"load_duration\":0,\"prompt_eval_count\":", results.prompt_tokens, "}");
  return json;
}

}  // namespace

Task<void> HandleOllamaEmbed(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const int64_t begin_us = NowMicros();
  auto read = ReadEmbed(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOllamaErrors);
    co_return;
  }
  auto computing = ComputeTexts(host, request, responder, std::move(read->texts));
  const auto results = co_await computing;
  if (!results.ok()) {
    SendError(responder, results.status(), kOllamaErrors);
    co_return;
  }
  responder.Send(200, "application/json", EmbedJson(*read, *results, NowMicros() - begin_us),
                 NoticeHeaders(read->ignored));
}

}  // namespace weft::serve
