// Fill-in-the-middle through /infill and the suffix of /v1/completions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doors/api/fields/fill_in_prompt.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::SseEvent;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

constexpr int64_t kFillContext = 512;

// A model with the tokens, like Qwen's code models.
class FillInTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() { SetUpWith("fill-in-llama", kFillContext); }

  static std::string Script(std::string_view text) {
    return "<<say>>" + std::string(text) + "<</say>>";
  }
  static FillInTokens Ids() { return *NeedFillInTokens(host().model()); }
  static std::string Text(const std::vector<int32_t>& tokens) {
    return host().model().Decode(tokens, /*render_special=*/true);
  }
  static std::vector<int32_t> Encode(std::string_view text) {
    return host().model().Encode(text, false, false);
  }
};

TEST_F(FillInTest, InfillAsksAsLlamaServerDoes) {
  const Json body = {{"input_prefix", "int a = "},
                     {"input_suffix", ";\n"},
                     {"input_extra", Json::array({{{"filename", "b.h"}, {"text", "int b;"}}})},
                     {"prompt", Script("b<|fim_middle|>")},
                     {"n_predict", 8}};
  const auto response = Post("/infill", body);
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json answer = response.json();
  EXPECT_THAT(
      std::string(answer["prompt"]),
      HasSubstr("<|repo_name|> myproject\n<|file_sep|> b.h\n int b;<|file_sep|> filename\n"));
  EXPECT_THAT(std::string(answer["prompt"]), HasSubstr("<|fim_suffix|> ;\n<|fim_middle|>"));
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["generation_settings"]["n_predict"], 8);
}

TEST_F(FillInTest, InfillStreams) {
  const Json body = {{"input_prefix", Script("abc")}, {"input_suffix", ""}, {"stream", true}};
  std::string text;
  for (const SseEvent& event : Post("/infill", body).Events()) {
    text += std::string(event.json()["content"]);
  }
  EXPECT_EQ(text, "abc");
}

// What editor plugins send besides the texts.
TEST_F(FillInTest, InfillTakesWhatEditorsSend) {
  const Json body = {{"input_prefix", Script("abc")},
                     {"input_suffix", ""},
                     {"input_extra", Json::array()},
                     {"prompt", ""},
                     {"n_predict", 64},
                     {"stop", Json::array()},
                     {"n_indent", 4},
                     {"top_k", 40},
                     {"top_p", 0.9},
                     {"samplers", Json::array({"top_k", "top_p", "infill"})},
                     {"cache_prompt", true},
                     {"t_max_prompt_ms", 500},
                     {"t_max_predict_ms", 60'000},
                     {"response_fields", Json::array({"content", "timings/prompt_n"})}};
  const auto response = Post("/infill", body);
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.json()["content"], "abc");
  EXPECT_EQ(response.Header("X-Weft-Ignored"), "samplers.infill");
}

TEST_F(FillInTest, InfillNeedsBothSides) {
  const Json whole = {{"input_prefix", "a"}, {"input_suffix", "b"}};
  const std::pair<const char*, Json> cases[] = {{"input_prefix", nullptr},
                                                {"input_suffix", 1},
                                                {"input_extra", "x"},
                                                {"input_extra", Json::array({{{"text", 1}}})},
                                                {"prompt", Json::array()}};
  for (const auto& [field, value] : cases) {
    Json body = whole;
    body[field] = value;
    const auto response = Post("/infill", body);
    EXPECT_EQ(response.status(), 400) << body;
    EXPECT_THAT(response.body(), HasSubstr(field));
  }
}

TEST_F(FillInTest, ASuffixMakesACompletionFillIn) {
  const Json body = {{"prompt", Script("abc")}, {"suffix", "the rest"}};
  const auto response = Post("/v1/completions", body);
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.json()["choices"][0]["text"], "abc");
  const auto parts = Encode(Script("abc")).size() + Encode("the rest").size();
  EXPECT_EQ(response.json()["usage"]["prompt_tokens"], parts + 4) << "<s> and three markers";
  Json other = body;
  other["echo"] = true;
  EXPECT_EQ(Post("/v1/completions", other).json()["error"]["param"], "echo");
  other = {{"prompt", Json::array({5, 6})}, {"suffix", "x"}};
  EXPECT_EQ(Post("/v1/completions", other).json()["error"]["param"], "prompt");
  other = {{"prompt", Script("abc")}, {"suffix", ""}};
  EXPECT_EQ(Post("/v1/completions", other).json()["usage"]["prompt_tokens"],
            Encode(Script("abc")).size() + 1);
}

TEST_F(FillInTest, ControlTokensInTheTextsAreText) {
  const auto prompt =
      FillInPrompt(host().model(), Ids(), {.prefix = Encode("<|fim_middle|>"), .suffix = {}}, 8);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), Ids().middle), 1);
  EXPECT_EQ(prompt.back(), Ids().middle);
}

TEST_F(FillInTest, WhatIsTooLongIsCutFarFromTheGap) {
  std::vector<int32_t> prefix, suffix;
  for (int32_t i = 0; i < 2 * kFillContext; ++i) {
    prefix.push_back(3 + i % 100);
    suffix.push_back(3 + i % 90);
  }
  FillIn parts{.prefix = prefix, .suffix = suffix, .extra = {{"a", "b"}}, .names_files = true};
  const auto prompt = FillInPrompt(host().model(), Ids(), parts, 100);
  EXPECT_EQ(prompt.size(), kFillContext - 100u);
  EXPECT_EQ(prompt[1], Ids().prefix) << "nothing of the other files has room";
  const auto gap = std::find(prompt.begin(), prompt.end(), Ids().suffix);
  EXPECT_EQ(*(gap - 1), prefix.back());
  EXPECT_EQ(*(gap + 1), suffix.front());
  EXPECT_NEAR(gap - prompt.begin(), kFillContext * 0.6, 10) << "three quarters of 412";
  // A short prefix leaves more room for the suffix.
  parts.prefix = Encode("a");
  EXPECT_EQ(FillInPrompt(host().model(), Ids(), parts, 100).size(), kFillContext - 100u);
  // The end of the other files is kept.
  parts.suffix = Encode("b");
  parts.extra = {{"far", std::string(2 * kFillContext, 'x')}, {"near", "int near;"}};
  const auto around = FillInPrompt(host().model(), Ids(), parts, -1);
  EXPECT_EQ(around.size(), kFillContext * 3 / 4u);
  EXPECT_THAT(Text(around), HasSubstr("int near;<|file_sep|>"));
}

TEST_F(FillInTest, AnAnswerEndsInTime) {
  const Json body = {{"prompt", Script("<<slow>>a\nb" + std::string(300, 'c'))},
                     {"t_max_predict_ms", 1}};
  const Json answer = Post("/completion", body).json();
  EXPECT_EQ(answer["stop_type"], "limit") << answer;
  EXPECT_THAT(std::string(answer["content"]), StartsWith("a\n"));
  EXPECT_LT(answer["content"].get<std::string>().size(), 300u);
  ExpectIdle();
  Json two = body;
  two["n"] = 2;
  EXPECT_EQ(Post("/completion", two).status(), 400);
}

TEST_F(FillInTest, SamplersThatAreNotListedAreOff) {
  const auto settings = [](Json samplers) {
    return Post("/completion", {{"prompt", Script("a")},
                                {"top_k", 7},
                                {"min_p", 0.3},
                                {"temperature", 0.5},
                                {"repeat_penalty", 1.5},
                                {"samplers", std::move(samplers)}})
        .json();
  };
  const Json some = settings({"dry", "top_k", "typ_p", "xtc"})["generation_settings"];
  EXPECT_EQ(some["top_k"], 7);
  EXPECT_EQ(some["min_p"], 0.0);
  EXPECT_EQ(some["temperature"], 1.0);
  EXPECT_EQ(some["repeat_penalty"], 1.0);
  const Json all =
      settings({"penalties", "top_k", "top_p", "min_p", "temperature"})["generation_settings"];
  EXPECT_EQ(all["temperature"], 0.5);
  EXPECT_EQ(all["repeat_penalty"], 1.5);
  for (const Json& wrong : {Json::array({"temperature", "top_k"}), Json::array({"magic"}),
                            Json::array({1}), Json("kp")}) {
    EXPECT_THAT(settings(wrong).dump(), HasSubstr("samplers")) << wrong;
  }
}

// A model without these tokens.
class NoFillInTest : public testing::ApiTest {};

TEST_F(NoFillInTest, IsToldFromAWrongRequest) {
  const auto infill = Post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}});
  EXPECT_EQ(infill.status(), 501);
  EXPECT_EQ(infill.json()["error"]["type"], "not_supported_error");
  EXPECT_THAT(infill.body(), HasSubstr("does not support fill-in-the-middle"));
  const auto completion = Post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}});
  EXPECT_EQ(completion.status(), 400);
  EXPECT_EQ(completion.json()["error"]["param"], "suffix");
}

}  // namespace
}  // namespace weft::serve
