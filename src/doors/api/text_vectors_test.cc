// Embeddings and reranking in every API's form, before an encoder and a reranker of random weights.
#include "doors/api/text_vectors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using testing::ApiTest;
using ::testing::HasSubstr;

constexpr int64_t kContext = 300, kWidth = 96;

std::vector<float> Floats(const Json& values) { return values.get<std::vector<float>>(); }

double LengthOf(const std::vector<float>& vector) {
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

std::vector<float> FromBase64(std::string_view text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kLetters.find(c));
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      bytes += static_cast<char>(bits >> n_bits);
    }
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

TEST(VectorText, Base64AndJsonHoldEveryBit) {
  for (size_t n = 0; n < 5; ++n) {
    std::vector<float> vector;
    for (size_t i = 0; i < n; ++i) vector.push_back(0.1f * static_cast<float>(i) - 1e-30f);
    EXPECT_EQ(FromBase64(Base64Of(vector)), vector);
    std::string json;
    AppendVectorJson(vector, &json);
    EXPECT_EQ(Floats(Json::parse(json)), vector);
  }
  const std::vector<float> odd = {0.5f, INFINITY, -1};
  std::string json;
  AppendVectorJson(odd, &json);
  EXPECT_EQ(json, "[0.5,null,-1]");
}

TEST(VectorText, UnitVectorsAreCutFirst) {
  const std::vector<float> vector = {3, 4, 12};
  EXPECT_EQ(UnitVector(vector, 2), (std::vector<float>{0.6f, 0.8f}));
  EXPECT_NEAR(LengthOf(UnitVector(vector, 0)), 1, 1e-6);
  EXPECT_EQ(UnitVector(std::vector<float>{0, 0}, 0), (std::vector<float>{0, 0}));
}

class EmbeddingsTest : public ApiTest {
 protected:
  static void SetUpTestSuite() { SetUpWith("tiny-bert", kContext); }

  static Json Embed(const Json& input, const Json& more = Json::object()) {
    Json body = {{"input", input}};
    body.update(more);
    const auto answer = Post("/v1/embeddings", body);
    EXPECT_EQ(answer.status(), 200) << answer.body();
    return answer.json();
  }
};

TEST_F(EmbeddingsTest, OpenAisFormInBothEncodings) {
  const Json answer = Embed("the loom", {{"model", "any"}, {"user", "me"}});
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "scripted");
  EXPECT_EQ(answer["data"][0]["object"], "embedding");
  EXPECT_EQ(answer["data"][0]["index"], 0);
  const auto vector = Floats(answer["data"][0]["embedding"]);
  EXPECT_EQ(std::ssize(vector), kWidth);
  EXPECT_NEAR(LengthOf(vector), 1, 1e-6);
  const auto tokens = host().model().Encode("the loom", true, false);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens.size());
  EXPECT_EQ(answer["usage"]["total_tokens"], tokens.size());

  const Json coded = Embed("the loom", {{"encoding_format", "base64"}});
  EXPECT_EQ(FromBase64(coded["data"][0]["embedding"].get<std::string>()), vector);
  EXPECT_EQ(Floats(Embed(tokens)["data"][0]["embedding"]), vector) << "as tokens";
  ExpectIdle();
}

TEST_F(EmbeddingsTest, ABatchIsInOrderAndGivesTheBitsOfEachTextAlone) {
  Json texts = Json::array();
  for (int i = 0; i < 64; ++i)
    texts.push_back("text " + std::string(static_cast<size_t>(i), 'a' + i % 26));
  const Json batch = Embed(texts);
  ASSERT_EQ(batch["data"].size(), 64u);
  for (size_t i = 0; i < 64; i += 9) {
    EXPECT_EQ(batch["data"][i]["index"], i);
    EXPECT_EQ(batch["data"][i]["embedding"], Embed(texts[i])["data"][0]["embedding"]) << i;
  }
  const Json lists = Json::array({Json::array({2, 7, 3}), Json::array({2, 8, 9, 3})});
  EXPECT_EQ(Embed(lists)["usage"]["prompt_tokens"], 7);
}

TEST_F(EmbeddingsTest, ATextThatCannotFitIsNotEncodedToItsEnd) {
  std::string text;
  while (text.size() < 1 << 20) text += "the loom ";
  const size_t all = EncodeText(host().model(), text).size();
  const size_t some = EncodeText(host().model(), text, kContext).size();
  EXPECT_GT(some, static_cast<size_t>(kContext));
  EXPECT_LT(some, all / 4);
  const auto answer = Post("/v1/embeddings", {{"input", text}});
  EXPECT_EQ(answer.status(), 400) << answer.body();
}

TEST_F(EmbeddingsTest, TextsInLlamaServersForms) {
  const auto encode = [](const char* text, bool special) {
    return host().model().Encode(text, special, false);
  };
  const auto of = [](const Json& input, size_t i = 0) {
    return Embed(input)["data"].at(i)["embedding"];
  };
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "the "}}, {{"type", "text"}, {"text", "loom"}}});
  EXPECT_EQ(of({{"content", parts}}), of("the loom"));
  EXPECT_EQ(of({{"prompt_string", "the loom"}}), of("the loom"));
  // Token ids and strings in one text; only what begins it gets the tokens around a text.
  auto mixed = encode("the", true);
  mixed.push_back(7);
  EXPECT_EQ(of(Json::array({"the", 7})), of(mixed));
  std::vector<int32_t> late = {2, 7};
  for (const int32_t id : encode("loom", false)) late.push_back(id);
  EXPECT_EQ(of({{"prompt_string", Json::array({2, 7, "loom"})}}), of(late));
  const Json several = Json::array(
      {"the loom", Json::array({2, 7, "loom"}), {{"prompt_string", "x"}}, {{"content", parts}}});
  ASSERT_EQ(Embed(several)["data"].size(), 4u);
  EXPECT_EQ(of(several, 1), of(late));
  EXPECT_EQ(of(several, 3), of("the loom"));
}

TEST_F(EmbeddingsTest, FewerDimensionsAreTheFirstOnesAtLengthOne) {
  const auto whole = Floats(Embed("abc")["data"][0]["embedding"]);
  const auto cut = Floats(Embed("abc", {{"dimensions", 10}})["data"][0]["embedding"]);
  ASSERT_EQ(cut.size(), 10u);
  EXPECT_NEAR(LengthOf(cut), 1, 1e-6);
  EXPECT_NEAR(cut[3] / cut[0], whole[3] / whole[0], 1e-4);
}

TEST_F(EmbeddingsTest, ErrorsAreOpenAis) {
  const auto error_of = [](const Json& body) {
    const auto answer = Post("/v1/embeddings", body);
    EXPECT_EQ(answer.status(), 400) << answer.body();
    return answer.json()["error"];
  };
  EXPECT_EQ(error_of({{"model", "m"}})["param"], "input");
  EXPECT_EQ(error_of({{"input", Json::array()}})["param"], "input");
  EXPECT_EQ(error_of({{"input", Json::array({1, nullptr})}})["param"], "input");
  EXPECT_EQ(error_of({{"input", Json(std::vector<std::string>(2049, "x"))}})["param"], "input");
  EXPECT_EQ(error_of({{"input", Json::array({Json::array({"a", "b"})})}})["param"], "input");
  EXPECT_EQ(error_of({{"input", Json::array({{{"prompt", "x"}}})}})["param"], "input");
  EXPECT_EQ(error_of({{"input", {{"content", "x"}}}})["param"], "input");
  const Json picture = {{"type", "image_url"}, {"image_url", {{"url", "data:"}}}};
  EXPECT_EQ(error_of({{"input", {{"content", Json::array({picture})}}}})["param"], "input");
  EXPECT_EQ(error_of({{"input", "x"}, {"encoding_format", "int8"}})["param"], "encoding_format");
  EXPECT_EQ(error_of({{"input", "x"}, {"dimensions", 97}})["param"], "dimensions");
  EXPECT_THAT(error_of({{"input", Json::array({2, 999, 3})}}).dump(), HasSubstr("vocabulary"));
  const Json too_long = error_of({{"input", std::string(1000, '!')}});
  EXPECT_EQ(too_long["code"], "context_length_exceeded");
  EXPECT_EQ(too_long["n_ctx"], kContext);
  ExpectIdle();
}

TEST_F(EmbeddingsTest, LlamaServersFormNestsTheVectors) {
  const auto vector = Floats(Embed("abc")["data"][0]["embedding"]);
  for (const char* const path : {"/embedding", "/embeddings"}) {
    const auto answer = Post(path, {{"content", "abc"}});
    ASSERT_EQ(answer.status(), 200) << answer.body();
    ASSERT_EQ(answer.json().size(), 1u);
    EXPECT_EQ(answer.json()[0]["index"], 0);
    const auto given = Floats(answer.json()[0]["embedding"][0]);
    for (size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(given[i], vector[i], 1e-6);
  }
  const Json two = Post("/embedding", {{"input", Json::array({"a", "b"})}}).json();
  EXPECT_EQ(two[1]["index"], 1);
  const auto raw = Floats(
      Post("/embedding", {{"content", "abc"}, {"embd_normalize", -1}}).json()[0]["embedding"][0]);
  EXPECT_GT(LengthOf(raw), 1.5);
  const auto top = Floats(
      Post("/embedding", {{"content", "abc"}, {"embd_normalize", 0}}).json()[0]["embedding"][0]);
  float largest = 0;
  for (const float value : top) largest = std::max(largest, std::abs(value));
  EXPECT_FLOAT_EQ(largest, 32760);
  EXPECT_EQ(Post("/embeddings", {{"input", "abc"}}).json()["object"], "list") << "OpenAI's";
}

TEST_F(EmbeddingsTest, OllamasFormsTruncate) {
  const auto vector = Floats(Embed("abc")["data"][0]["embedding"]);
  const Json answer = Post("/api/embed", {{"model", "scripted"}, {"input", "abc"}}).json();
  EXPECT_EQ(answer["model"], "scripted");
  EXPECT_EQ(Floats(answer["embeddings"][0]), vector);
  EXPECT_GT(answer["prompt_eval_count"], 0);
  const Json many =
      Post("/api/embed", {{"model", "scripted"}, {"input", Json::array({"a", "b"})}}).json();
  EXPECT_EQ(many["embeddings"].size(), 2u);
  const std::string long_text(1000, '!');
  EXPECT_EQ(Post("/api/embed", {{"model", "scripted"}, {"input", long_text}}).status(), 200);
  EXPECT_EQ(Post("/api/embed", {{"model", "scripted"}, {"input", long_text}, {"truncate", false}})
                .status(),
            400);
  const Json former = Post("/api/embeddings", {{"model", "scripted"}, {"prompt", "abc"}}).json();
  EXPECT_GT(LengthOf(Floats(former["embedding"])), 1.5) << "as the model gives it";
}

TEST_F(EmbeddingsTest, AnEncoderWritesNoTextAndRanksNothing) {
  const auto chat = Post("/v1/chat/completions",
                         {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}});
  EXPECT_EQ(chat.status(), 400);
  EXPECT_THAT(chat.body(), HasSubstr("writes no text: it is for vectors of texts"));
  EXPECT_EQ(Post("/completion", {{"prompt", "hi"}}).status(), 400);
  const auto rank = Post("/v1/rerank", {{"query", "q"}, {"documents", Json::array({"d"})}});
  EXPECT_EQ(rank.status(), 400);
  EXPECT_THAT(rank.body(), HasSubstr("does not rank documents"));
  EXPECT_EQ(Get("/v1/models")["models"][0]["capabilities"], Json::array({"embedding"}));
  ExpectIdle();
}

class RerankTest : public ApiTest {
 protected:
  static void SetUpTestSuite() { SetUpWith("tiny-reranker", kContext); }
  static Json Body(const Json& more = Json::object()) {
    Json body = {{"query", "which loom"},
                 {"documents", Json::array({"a red loom", "the sea", "which loom is it", "x"})}};
    body.update(more);
    return body;
  }
};

TEST_F(RerankTest, DocumentsComeBestFirst) {
  const auto answer = Post("/v1/rerank", Body());
  ASSERT_EQ(answer.status(), 200) << answer.body();
  const Json json = answer.json();
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "scripted");
  ASSERT_EQ(json["results"].size(), 4u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_GE(json["results"][i - 1]["relevance_score"], json["results"][i]["relevance_score"]);
  }
  EXPECT_GT(json["usage"]["total_tokens"], 0);
  EXPECT_EQ(json["meta"]["tokens"]["input_tokens"], json["usage"]["prompt_tokens"]);
  for (const char* const path : {"/rerank", "/reranking", "/v1/reranking", "/v2/rerank"}) {
    EXPECT_EQ(Post(path, Body()).json()["results"], json["results"]) << path;
  }
  ExpectIdle();
}

TEST_F(RerankTest, TopNDocumentsAndTheirTexts) {
  const Json all = Post("/v1/rerank", Body()).json()["results"];
  const Json best = Post("/v1/rerank", Body({{"top_n", 2}, {"return_documents", true}})).json();
  ASSERT_EQ(best["results"].size(), 2u);
  EXPECT_EQ(best["results"][0]["index"], all[0]["index"]);
  EXPECT_EQ(best["results"][0]["document"]["text"],
            Body()["documents"][all[0]["index"].get<size_t>()]);
  const Json tei =
      Post("/rerank",
           {{"query", "which loom"}, {"texts", Body()["documents"]}, {"return_text", true}})
          .json();
  ASSERT_TRUE(tei.is_array());
  EXPECT_EQ(tei[0]["score"], all[0]["relevance_score"]);
  EXPECT_TRUE(tei[0].contains("text"));
  const Json objects = {{"query", "which loom"},
                        {"documents", Json::array({{{"text", "a red loom"}}, "the sea"})}};
  EXPECT_EQ(Post("/v1/rerank", objects).status(), 200);
}

// The query's and the document's tokens differ in type, so their order counts.
TEST_F(RerankTest, QueryAndDocumentAreTwoThings) {
  const auto score = [](const char* query, const char* document) {
    const Json body = {{"query", query}, {"documents", Json::array({document})}};
    return Post("/v1/rerank", body).json()["results"][0]["relevance_score"];
  };
  EXPECT_NE(score("ab", "cd"), score("cd", "ab"));
  EXPECT_EQ(score("ab", "cd"), score("ab", "cd"));
}

TEST_F(RerankTest, WhatIsWrongIsSaid) {
  const auto param_of = [](const Json& body) {
    const auto answer = Post("/v1/rerank", body);
    EXPECT_EQ(answer.status(), 400);
    return answer.json()["error"]["param"];
  };
  EXPECT_EQ(param_of({{"documents", Json::array({"x"})}}), "query");
  EXPECT_EQ(param_of({{"query", "x"}}), "documents");
  EXPECT_EQ(param_of(Body({{"documents", Json::array({1})}})), "documents");
  EXPECT_EQ(param_of(Body({{"top_n", 0}})), "top_n");
  const auto embeddings = Post("/v1/embeddings", {{"input", "x"}});
  EXPECT_EQ(embeddings.status(), 400);
  EXPECT_THAT(embeddings.body(), HasSubstr("it is for scores of pairs of texts (reranking)"));
}

}  // namespace
}  // namespace weft::serve
