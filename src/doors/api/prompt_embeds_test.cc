// prompt_embeds in completions and chats, before a model of random weights whose own rows give the
// bits of its tokens.
#include "doors/api/fields/prompt_embeds.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "doors/api/text_vectors.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using testing::ApiTest;
using ::testing::HasSubstr;

constexpr char kComplete[] = "/v1/completions";

// A safetensors file, as the floats that Base64Of takes: its header is padded to whole ones.
std::string Matrix(const std::vector<float>& values, int64_t n_rows, int64_t width) {
  std::string header = StrCat("{\"x\":{\"dtype\":\"F32\",\"shape\":[", n_rows, ",", width,
                              "],\"data_offsets\":[0,", values.size() * sizeof(float), "]}}");
  while (header.size() % 4 != 0) header += ' ';
  const auto length = static_cast<uint64_t>(header.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  std::vector<float> all(bytes.size() / sizeof(float));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  all.insert(all.end(), values.begin(), values.end());
  return Base64Of(all);
}

class PromptEmbedsTest : public ApiTest {
 protected:
  static void SetUpTestSuite() {
    SetUpWith("llama", 512, {.server = {.takes_prompt_embeds = true, .hold_calls = false}});
  }
  static int64_t width() { return host().model().row_width(); }
  static std::string MatrixOf(const std::vector<int32_t>& tokens) {
    const auto rows = host().model().RowsOf(tokens);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return Matrix(*rows, std::ssize(tokens), width());
  }
  // The likelihoods of a greedy answer.
  static Json Likelihoods(Json body) {
    body.update({{"max_tokens", 6}, {"temperature", 0}, {"logprobs", 2}, {"ignore_eos", true}});
    const auto answer = Post(kComplete, body);
    EXPECT_EQ(answer.status(), 200) << answer.body();
    const Json read = answer.json();
    Json all = Json::array();
    for (const Json& choice : read["choices"]) {
      all.push_back(choice["logprobs"]["token_logprobs"]);
    }
    return all;
  }
  static std::string Refusal(std::string_view path, const Json& body, std::string_view param) {
    const auto answer = Post(path, body);
    EXPECT_EQ(answer.status(), 400) << answer.body();
    EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body();
    return answer.json()["error"]["message"];
  }
  static Json Part(const Json& matrix) { return {{"type", "prompt_embeds"}, {"data", matrix}}; }
  static Json User(const Json& content) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", content}}})}};
  }
};

const std::vector<int32_t> kTokens = {1, 104, 105, 106, 300, 301, 7};

TEST_F(PromptEmbedsTest, AMatrixIsAPromptWithTheBitsOfItsTokens) {
  const Json expected = Likelihoods({{"prompt", kTokens}});
  EXPECT_EQ(Likelihoods({{"prompt_embeds", MatrixOf(kTokens)}}), expected);
  EXPECT_EQ(Likelihoods({{"prompt_embeds", MatrixOf(kTokens)}}), expected) << "found again";
  const Json answer =
      Post(kComplete, {{"prompt_embeds", MatrixOf(kTokens)}, {"max_tokens", 1}}).json();
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 6);
  ExpectIdle();
}

TEST_F(PromptEmbedsTest, MatricesComeBeforeTexts) {
  const std::vector<int32_t> other = {1, 200, 201};
  const Json all = Likelihoods(
      {{"prompt", kTokens}, {"prompt_embeds", Json::array({MatrixOf(other), MatrixOf(kTokens)})}});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], Likelihoods({{"prompt", other}})[0]);
  EXPECT_EQ(all[1], all[2]);
}

TEST_F(PromptEmbedsTest, StreamsToo) {
  const auto answer = Post(kComplete, {{"prompt_embeds", MatrixOf(kTokens)},
                                       {"max_tokens", 3},
                                       {"ignore_eos", true},
                                       {"stream", true}});
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.Events().back().data, "[DONE]");
}

// A part of a message is what its text would be, inside what the template writes around it.
TEST_F(PromptEmbedsTest, APartOfAMessageStandsInTheTemplate) {
  const std::string text = "abcdefg";
  // As they are behind the template's line feed; at the start of a text the first may be another.
  auto tokens = host().model().Encode("\n" + text, false, false);
  tokens.erase(tokens.begin(),
               tokens.begin() + std::ssize(host().model().Encode("\n", false, false)));
  const Json more = {
      {"max_tokens", 4}, {"temperature", 0}, {"logprobs", true}, {"ignore_eos", true}};
  Json as_text = User(Json::array({{{"type", "text"}, {"text", text}}}));
  Json as_rows = User(Json::array({Part(MatrixOf(tokens))}));
  as_text.update(more);
  as_rows.update(more);
  const auto first = Post(kChat, as_text), second = Post(kChat, as_rows);
  ASSERT_EQ(second.status(), 200) << second.body();
  EXPECT_EQ(second.json()["usage"]["prompt_tokens"], first.json()["usage"]["prompt_tokens"]);
  const Json mixed = User(Json::array({{{"type", "text"}, {"text", "see: "}},
                                       Part(MatrixOf(tokens)),
                                       {{"type", "text"}, {"text", "?"}},
                                       Part(MatrixOf(kTokens))}));
  const auto counted = Post("/v1/chat/completions/input_tokens", mixed);
  EXPECT_EQ(counted.json()["input_tokens"], Post(kChat, mixed).json()["usage"]["prompt_tokens"]);
  ExpectIdle();
}

TEST_F(PromptEmbedsTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal(kComplete, {{"prompt_embeds", "%%%"}}, "prompt_embeds"),
              HasSubstr("a matrix in base64"));
  EXPECT_THAT(Refusal(kComplete, {{"prompt_embeds", 7}}, "prompt_embeds"),
              HasSubstr("a matrix in base64"));
  EXPECT_THAT(Refusal(kComplete, {{"prompt_embeds", "aGVsbG8="}}, "prompt_embeds"),
              HasSubstr("neither a NumPy array"));
  EXPECT_THAT(Refusal(kComplete, {{"prompt_embeds", Json::array()}}, "prompt_embeds"),
              HasSubstr("must be one matrix"));
  const std::vector<float> one(static_cast<size_t>(width()));
  EXPECT_THAT(Refusal(kComplete, {{"prompt_embeds", Matrix(one, 2, width() / 2)}}, "prompt_embeds"),
              HasSubstr("this model needs"));
  std::vector<float> bad = one;
  bad[3] = NAN;
  EXPECT_THAT(
      Refusal(kComplete,
              {{"prompt_embeds", Json::array({Matrix(one, 1, width()), Matrix(bad, 1, width())})}},
              "prompt_embeds[1]"),
      HasSubstr("not finite"));
  EXPECT_THAT(
      Refusal(kComplete, {{"prompt_embeds", Matrix(one, 1, width())}, {"echo", true}}, "echo"),
      HasSubstr("cannot repeat vectors"));
  EXPECT_THAT(
      Refusal(kComplete, {{"prompt_embeds", Matrix(one, 1, width())}, {"suffix", "x"}}, "suffix"),
      HasSubstr("cannot be used"));
  Refusal(kChat, User(Json::array({{{"type", "text"}, {"text", "a"}}, Part("%")})),
          "messages[0].content[1]");
  Json at_top = User("hi");
  at_top["prompt_embeds"] = "aGVsbG8=";
  EXPECT_THAT(Refusal(kChat, at_top, "prompt_embeds"), HasSubstr("content of a message"));
}

class NoPromptEmbedsTest : public ApiTest {};

TEST_F(NoPromptEmbedsTest, AreOffUnlessTheOperatorAllowsThem) {
  for (const auto& [path, body] : std::vector<std::pair<const char*, Json>>{
           {kComplete, {{"prompt_embeds", "aGVsbG8="}}},
           {kChat,
            {{"messages", Json::array({{{"role", "user"},
                                        {"content", Json::array({{{"type", "prompt_embeds"},
                                                                  {"data", "aGVsbG8="}}})}}})}}}}) {
    const auto answer = Post(path, body);
    EXPECT_EQ(answer.status(), 400);
    EXPECT_EQ(answer.json()["error"]["code"], "unsupported_parameter");
    EXPECT_THAT(std::string(answer.json()["error"]["message"]),
                HasSubstr("--enable-prompt-embeds"));
  }
}

}  // namespace
}  // namespace weft::serve
