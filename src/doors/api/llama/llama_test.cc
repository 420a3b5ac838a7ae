// llama-server's own completions: what its clients read from an answer.
#include "doors/api/llama/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/memory_responder.h"
#include "tests/support/scripted_host.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::weft::testing::MemoryResponder;
using ::weft::testing::ScriptedHost;
using ::weft::testing::ScriptedModel;

// A generation that has nothing to report for a while, and may fail then.
class QuietGeneration : public Generation {
 public:
  QuietGeneration(std::unique_ptr<Generation> inner, bool fails)
      : inner_(std::move(inner)), fails_(fails), speaker_([this] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          is_quiet_ = false;
          inner_->ready().Notify();
        }) {}
  ~QuietGeneration() override { speaker_.join(); }
  std::optional<TurnEvent> TryNext(bool* ended) override {
    if (is_quiet_) return std::nullopt;
    if (!fails_) return inner_->TryNext(ended);
    *ended = true;
    return DoneEvent{.reason = FinishReason::kError, .status = Unavailable("it failed")};
  }
  Signal& ready() override { return inner_->ready(); }
  void Cancel() override { inner_->Cancel(); }
  int64_t prompt_tokens() const override { return inner_->prompt_tokens(); }

 private:
  const std::unique_ptr<Generation> inner_;
  const bool fails_;
  std::atomic<bool> is_quiet_{true};
  std::thread speaker_;
};

class QuietHost : public ScriptedHost {
 public:
  QuietHost(Host& inner, bool fails) : ScriptedHost(inner), fails_(fails) {
    defaults_ = inner.defaults();
    defaults_.stream_begin = std::chrono::milliseconds(1);
  }
  Task<StatusOr<std::unique_ptr<Generation>>> Submit(Ask ask, PromptRecord record,
                                                     TurnListener listener) override {
    auto generating = ScriptedHost::Submit(std::move(ask), std::move(record), std::move(listener));
    StatusOr<std::unique_ptr<Generation>> inner = co_await generating;
    if (!inner.ok()) co_return inner.status();
    co_return std::make_unique<QuietGeneration>(*std::move(inner), fails_);
  }
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  RequestDefaults defaults_;
  const bool fails_;
};

class LlamaCompletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.n_threads = 1;
    auto model = ScriptedModel::Start(options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  static MemoryResponder Complete(Host& host, const Json& body) {
    HttpRequest request;
    request.body = body.dump();
    MemoryResponder responder;
    testing::Await(HandleLlamaCompletion(host, request, responder));
    return responder;
  }

  MemoryResponder Post(std::string_view path, const Json& body) {
    Router router;
    RegisterLlamaApi(router, model_->host());
    std::vector<std::string> segments;
    EXPECT_TRUE(SplitPath(path, &segments));
    HttpRequest request;
    request.body = body.dump();
    MemoryResponder responder;
    testing::RunHandler(*router.Find("POST", segments).route, request, responder);
    return responder;
  }

  std::unique_ptr<ScriptedModel> model_;
};

TEST_F(LlamaCompletionTest, ChosenFieldsHaveTheNamesThatWereAskedFor) {
  const Json body =
      Complete(model_->host(),
               {{"prompt", "x"},
                {"n_predict", 2},
                {"response_fields",
                 {"content", "timings/prompt_n", "generation_settings/n_predict", "no/such"}}})
          .json();
  ASSERT_EQ(body.size(), 3u) << body;
  EXPECT_TRUE(body["content"].is_string());
  EXPECT_TRUE(body["timings/prompt_n"].is_number());
  EXPECT_EQ(body["generation_settings/n_predict"], 2);
}

TEST_F(LlamaCompletionTest, ThePromptIsToldAsTheTextThatTheModelRead) {
  const Model& model = model_->host().model();
  const std::vector<int32_t> tokens = model.Encode("some words", true, true);
  const std::string text = model.Decode(tokens, /*render_special=*/true);
  for (const Json& prompt : {Json("some words"), Json(tokens)}) {
    EXPECT_EQ(Complete(model_->host(), {{"prompt", prompt}, {"n_predict", 1}}).json()["prompt"],
              text)
        << prompt;
  }
}

TEST_F(LlamaCompletionTest, TextsAndTokensMayBeMixed) {
  const Model& model = model_->host().model();
  const std::vector<int32_t> ab = model.Encode("ab", false, true);
  const Json tokens = Post("/tokenize", {{"content", {7, "ab", 9, "ab"}}}).json()["tokens"];
  std::vector<int32_t> expected = {7};
  expected.insert(expected.end(), ab.begin(), ab.end());
  expected.push_back(9);
  expected.insert(expected.end(), ab.begin(), ab.end());
  EXPECT_EQ(tokens, Json(expected));

  const Json one = Post("/tokenize", {{"content", {"ab", 9}}, {"add_special", true}}).json();
  EXPECT_EQ(one["tokens"][0], model.tokenizer()->bos());
  const Json late = Post("/tokenize", {{"content", {9, "ab"}}, {"add_special", true}}).json();
  EXPECT_EQ(late["tokens"][0], 9);
  EXPECT_EQ(late["tokens"][1], ab[0]) << "a text in the middle gets no token before it";
  const Json pieces = Post("/tokenize", {{"content", {9}}, {"with_pieces", true}}).json();
  EXPECT_EQ(pieces["tokens"][0]["id"], 9);
  EXPECT_TRUE(pieces["tokens"][0].contains("piece"));
  EXPECT_EQ(Post("/tokenize", Json::object()).json(), Json({{"tokens", Json::array()}}));
  for (const Json& bad : {Json(3), Json({{"a", 1}}), Json::array({-1}), Json::array({1 << 30})}) {
    EXPECT_EQ(Post("/tokenize", {{"content", bad}}).status(), 400) << bad;
  }
  const auto answer = Complete(model_->host(), {{"prompt", {{"prompt_string", {7, "ab"}}}}});
  EXPECT_EQ(answer.json()["prompt"],
            model.Decode(std::vector<int32_t>(expected.begin(),
                                              expected.begin() + 1 + static_cast<long>(ab.size())),
                         true));
  EXPECT_EQ(
      Complete(model_->host(), {{"prompt", {{"prompt_string", "x"}, {"multimodal_data", "y"}}}})
          .status(),
      400);
}

TEST_F(LlamaCompletionTest, SeveralPromptsRunTogether) {
  ScriptedHost& host = model_->host();
  const std::string slow = "<<say>><<slow>>" + std::string(60, 'a') + "<</say>>";
  const std::string quick = "<<say>>b<</say>>";
  for (const bool stream : {false, true}) {
    std::atomic<int64_t> most{0};
    std::atomic<bool> done{false};
    std::thread watcher([&] {
      while (!done) most = std::max<int64_t>(most, host.engine().Stats().turns_running);
    });
    const MemoryResponder answer =
        Complete(host, {{"prompt", {slow, slow, quick}}, {"stream", stream}});
    done = true;
    watcher.join();
    EXPECT_GE(most, 2);
    if (stream) {
      const size_t first =
          answer.body().find(R"("index":2,"content":"","tokens":[],"id_slot":-1,"stop":true)");
      const size_t last =
          answer.body().find(R"("index":0,"content":"","tokens":[],"id_slot":-1,"stop":true)");
      EXPECT_LT(first, last) << "the short answer waited for the long one: " << answer.body();
      EXPECT_NE(last, std::string::npos);
      continue;
    }
    const Json results = answer.json();
    ASSERT_EQ(results.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(results[i]["index"], i);
      EXPECT_EQ(results[i]["content"], i == 2 ? "b" : std::string(60, 'a'));
    }
  }
}

TEST_F(LlamaCompletionTest, ProbabilitiesMayBeThoseOfTheDraw) {
  Json body = {{"prompt", "x"},    {"n_predict", 3}, {"n_probs", 4}, {"ignore_eos", true},
               {"temperature", 5}, {"top_k", 3},     {"top_p", 1},   {"min_p", 0}};
  const Json own = Complete(model_->host(), body).json()["completion_probabilities"];
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(own[0]["top_logprobs"].size(), 4u);
  EXPECT_LT(own[0]["logprob"], 0);
  body["post_sampling_probs"] = true;
  const Json answer = Complete(model_->host(), body).json();
  EXPECT_EQ(answer["generation_settings"]["post_sampling_probs"], true);
  for (const Json& token : answer["completion_probabilities"]) {
    double sum = 0;
    for (const Json& other : token["top_probs"]) sum += other["prob"].get<double>();
    EXPECT_EQ(token["top_probs"].size(), 3u) << "only so many could be drawn";
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_GT(token["prob"], 0);
  }
}

TEST_F(LlamaCompletionTest, EveryPromptHasAsManyAnswersAsAreAskedFor) {
  Json body = {{"prompt", {"x", "y"}},
               {"n_predict", 6},
               {"ignore_eos", true},
               {"seed", 3},
               {"temperature", 5},
               {"n_probs", 1},
               {"n", 2},
               {"top_k", 0},
               {"top_p", 1},
               {"return_tokens", true}};
  const Json answers = Complete(model_->host(), body).json();
  ASSERT_EQ(answers.size(), 4u) << answers;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i]["index"], i);
    EXPECT_EQ(answers[i]["tokens"].size(), 6u);
    EXPECT_EQ(answers[i]["tokens_predicted"], 6);
    EXPECT_EQ(answers[i]["completion_probabilities"].size(), 6u);
    EXPECT_EQ(answers[i]["prompt"], answers[i / 2 * 2]["prompt"]);
  }
  EXPECT_NE(answers[0]["tokens"], answers[1]["tokens"]);
  EXPECT_NE(answers[0]["prompt"], answers[2]["prompt"]);
  EXPECT_EQ(answers[0]["generation_settings"]["n"], 2);

  body["stream"] = true;
  std::vector<Json> tokens(4, Json::array());
  size_t n_ended = 0;
  for (const auto& event : Complete(model_->host(), body).Events()) {
    const Json piece = event.json();
    for (const Json& token : piece["tokens"]) tokens[piece["index"]].push_back(token);
    n_ended += piece["stop"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(n_ended, 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(tokens[i], answers[i]["tokens"]) << i;
  body["stream"] = false;
  body["n_cmpl"] = 3;
  EXPECT_THAT(Complete(model_->host(), body).body(), HasSubstr("n_cmpl is another name for n"));
  body.erase("n");
  EXPECT_EQ(Complete(model_->host(), body).json().size(), 6u);
  body["n_cmpl"] = 17;
  EXPECT_EQ(Complete(model_->host(), body).status(), 400);
}

TEST_F(LlamaCompletionTest, ProgressIsToldOfEveryPrompt) {
  Json body = {{"prompt", {std::string(300, 'x'), "y"}},
               {"n_predict", 1},
               {"return_progress", true},
               {"stream", true}};
  std::vector<std::vector<Json>> progress(2);
  for (const auto& event : Complete(model_->host(), body).Events()) {
    const Json piece = event.json();
    if (!piece.contains("prompt_progress")) continue;
    EXPECT_EQ(piece["content"], "");
    EXPECT_EQ(piece["stop"], false);
    progress.at(piece["index"]).push_back(piece["prompt_progress"]);
  }
  for (const auto& told : progress) {
    ASSERT_GE(told.size(), 2u);
    EXPECT_EQ(told.front()["processed"], told.front()["cache"]);
    EXPECT_EQ(told.back()["processed"], told.back()["total"]);
  }
  EXPECT_GT(progress[0][0]["total"], 250);
}

TEST_F(LlamaCompletionTest, SettingsTellWhatIsInUse) {
  const Json banned = Complete(model_->host(), {{"prompt", "x"},
                                                {"n_predict", 1},
                                                {"ignore_eos", true},
                                                {"temperature", 3.5},
                                                {"seed", 9},
                                                {"stop", {"", "zz"}}})
                          .json()["generation_settings"];
  EXPECT_EQ(banned["temperature"], 3.5);
  EXPECT_EQ(banned["seed"], 9);
  EXPECT_EQ(banned["stop"], Json({"zz"}));
  ASSERT_FALSE(banned["logit_bias"].empty());
  EXPECT_TRUE(banned["logit_bias"][0]["bias"].is_null()) << "JSON has no infinity";
  const Json plain = Complete(model_->host(), {{"prompt", "x"}, {"n_predict", 1}}).json();
  EXPECT_TRUE(plain["generation_settings"]["logit_bias"].empty());
  EXPECT_EQ(plain["truncated"], false);
}

TEST_F(LlamaCompletionTest, AnAnswerThatFillsTheContextIsTruncated) {
  const Json ids(std::vector<int32_t>(static_cast<size_t>(testing::kScriptedContext) - 3, 7));
  const Json body = Complete(model_->host(), {{"prompt", ids}, {"ignore_eos", true}}).json();
  EXPECT_EQ(body["tokens_predicted"], 3);
  EXPECT_EQ(body["truncated"], true);
}

TEST_F(LlamaCompletionTest, ASessionThatIsClosedMeanwhileIsNoFaultOfTheClient) {
  ScriptedHost& host = model_->host();
  std::thread closer([&host] {
    while (host.engine().Stats().turns_running == 0) std::this_thread::yield();
    EXPECT_TRUE(host.engine().Close(*host.engine().FindSession("", "kitchen"), true).ok());
  });
  const MemoryResponder answer =
      Complete(host, {{"prompt", "<<say>><<slow>>" + std::string(400, 'a') + "<</say>>"},
                      {"session_id", "kitchen"}});
  closer.join();
  EXPECT_EQ(answer.status(), 503) << answer.body();
}

TEST_F(LlamaCompletionTest, ALoopIsALimitThatIsTold) {
  std::string loop;
  for (int i = 0; i < 40; ++i) loop += "again, and ";
  const Json cut = Complete(model_->host(), {{"prompt", "<<say>>" + loop + "<</say>>"}}).json();
  EXPECT_EQ(cut["stop_type"], "limit");
  EXPECT_EQ(cut["stopped_in_loop"], true);
  EXPECT_EQ(cut["tokens_predicted"], 256);
  EXPECT_EQ(Complete(model_->host(), {{"prompt", "<<say>>a<</say>>"}}).json()["stopped_in_loop"],
            false);
}

TEST_F(LlamaCompletionTest, AStreamThatIsQuietIsKeptAlive) {
  QuietHost quiet(model_->host(), /*fails=*/false);
  const MemoryResponder answer =
      Complete(quiet, {{"prompt", "<<say>>ab<</say>>"}, {"stream", true}});
  const Json sign = answer.Events().front().json();
  EXPECT_EQ(sign["content"], "");
  EXPECT_EQ(sign["stop"], false);
  EXPECT_THAT(answer.body(), HasSubstr(R"("stop_type":"eos")"));
  EXPECT_TRUE(answer.ended());
  EXPECT_EQ(Complete(quiet, {{"prompt", "<<say>>ab<</say>>"}}).json()["content"], "ab");
}

TEST_F(LlamaCompletionTest, AnErrorAfterAQuietTimeEndsTheStreamThatHasBegun) {
  QuietHost quiet(model_->host(), /*fails=*/true);
  const MemoryResponder streamed = Complete(quiet, {{"prompt", "x"}, {"stream", true}});
  EXPECT_EQ(streamed.answers(), 1) << "it is one response";
  EXPECT_THAT(streamed.body(), HasSubstr(R"("message":"it failed")"));
  EXPECT_TRUE(streamed.ended());
  EXPECT_EQ(Complete(quiet, {{"prompt", "x"}}).status(), 503);
}

}  // namespace
}  // namespace weft::serve
