// Reranking: how well each of some documents answers a query, in the forms of Jina, Cohere,
// llama-server and Text Embeddings Inference, which differ little.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/routes.h"
#include "doors/api/text_vectors.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;
  int64_t n_best = 0;  // 0: all
  bool with_documents = false;
  bool is_tei = false;  // the answer is a bare array
  std::vector<std::string> ignored;
};

void ReadDocuments(ApiFields* fields, const char* name, RerankRequest* read) {
  const Json* const list = fields->Value(name);
  if (list == nullptr || !list->is_array() || list->empty()) {
    return fields->Fail(name, "must be an array of texts");
  }
  if (list->size() > kMaxTexts) {
    return fields->Fail(
        name, StrCat("has ", list->size(), " documents, and at most ", kMaxTexts, " are taken"));
  }
  for (const Json& entry : *list) {
    const Json& text = entry.is_object() ? ValueIn(entry, "text") : entry;
    if (!text.is_string()) {
      return fields->Fail(name, "must hold strings, or objects with a \"text\"");
    }
    read->documents.push_back(text.get<std::string>());
  }
}

StatusOr<RerankRequest> ReadRerank(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  RerankRequest read;
  ApiFields fields(body);
  const auto model = fields.String("model");
  const auto query = fields.String("query");
  if (!query) fields.Fail("query", "must be a string");
  read.query = query.value_or("");
  read.is_tei = body.is_object() && body.contains("texts");
  ReadDocuments(&fields, read.is_tei ? "texts" : "documents", &read);
  read.n_best = fields.Integer("top_n", 1, INT32_MAX).value_or(0);
  const char* const with = read.is_tei ? "return_text" : "return_documents";
  read.with_documents = fields.Bool(with).value_or(false);
  fields.Refuse("rank_fields", "is not supported: documents are their text");
  fields.Refuse("raw_scores", "cannot be false: scores are as the model gives them", true);
  if (fields.ok()) WEFT_RETURN_IF_ERROR(CheckGivesScores(host));
  WEFT_RETURN_IF_ERROR(fields.Finish(&read.ignored));
  WEFT_RETURN_IF_ERROR(CheckModel(host, model));
  return read;
}

// The template with the texts in their places; what looks like a place within a text is text.
std::string FilledIn(std::string_view form, std::string_view query, std::string_view document) {
  constexpr std::string_view kQuery = "{query}", kDocument = "{document}";
  std::string text;
  while (!form.empty()) {
    if (form.starts_with(kQuery)) {
      text += query;
      form.remove_prefix(kQuery.size());
    } else if (form.starts_with(kDocument)) {
      text += document;
      form.remove_prefix(kDocument.size());
    } else {
      text += form[0];
      form.remove_prefix(1);
    }
  }
  return text;
}

// Query and document as one text: where the file has a template for that, in its places, else
// between the tokens that separate the texts of a pair.
std::vector<int32_t> EncodePair(const Model& model, const std::string& query,
                                const std::string& document) {
  const auto form = model.file().GetStringOr("tokenizer.chat_template.rerank", "");
  if (form.ok() && !form->empty()) {
    return model.Encode(FilledIn(*form, query, document), /*add_special=*/false,
                        /*parse_special=*/true);
  }
  const Tokenizer& tokenizer = *model.tokenizer();
  const int32_t separator =
      tokenizer.separator() != kNoToken ? tokenizer.separator() : tokenizer.eos();
  std::vector<int32_t> tokens;
  const auto add = [&tokens](int32_t id) {
    if (id != kNoToken) tokens.push_back(id);
  };
  const auto add_text = [&](const std::string& text) {
    const auto ids = model.Encode(text, /*add_special=*/false, /*parse_special=*/false);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  };
  if (tokenizer.adds_bos()) add(tokenizer.bos());
  add_text(query);
  // RoBERTa's pairs have two between them: one ends the first text, one begins the second.
  if (tokenizer.adds_eos() && tokenizer.adds_separator()) add(tokenizer.eos());
  add(separator);
  add_text(document);
  add(tokenizer.adds_eos() ? tokenizer.eos() : separator);
  return tokens;
}

// Indices of the documents, best first.
std::vector<size_t> Ranking(const std::vector<float>& scores, int64_t n_best) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (n_best > 0) order.resize(std::min(order.size(), static_cast<size_t>(n_best)));
  return order;
}

Json RerankJson(Host& host, const RerankRequest& read, const TextResults& results) {
  std::vector<float> scores;
  for (const TextResult& text : results.texts) scores.push_back(text.at(0).at(0));
  Json list = Json::array();
  for (const size_t i : Ranking(scores, read.n_best)) {
    Json entry = {{"index", i}, {read.is_tei ? "score" : "relevance_score", scores[i]}};
    if (read.with_documents && read.is_tei) entry["text"] = read.documents[i];
    if (read.with_documents && !read.is_tei) entry["document"] = {{"text", read.documents[i]}};
    list.push_back(std::move(entry));
  }
  if (read.is_tei) return list;
  return {{"id", NewId("rerank-")},
          {"object", "list"},
          {"model", host.model_id()},
          {"results", std::move(list)},
          {"usage",
           {{"prompt_tokens", results.prompt_tokens}, {"total_tokens", results.prompt_tokens}}},
          {"meta",
           {{"billed_units", {{"search_units", 1}}},
            {"tokens", {{"input_tokens", results.prompt_tokens}}}}}};
}

}  // namespace

Task<void> HandleRerank(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadRerank(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOpenAiErrors);
    co_return;
  }
  std::vector<std::vector<int32_t>> pairs;
  for (const std::string& document : read->documents) {
    pairs.push_back(EncodePair(host.model(), read->query, document));
  }
  auto computing = ComputeTexts(host, request, responder, std::move(pairs));
  const auto results = co_await computing;
  if (!results.ok()) {
    SendError(responder, results.status(), kOpenAiErrors);
    co_return;
  }
  SendJson(responder, RerankJson(host, *read, *results), read->ignored);
}

}  // namespace weft::serve
