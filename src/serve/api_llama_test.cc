// llama-server's own completion: what its clients read from an answer.
#include "serve/api_llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// A generation that has nothing to tell when it is first waited for, and may fail then.
class QuietGeneration : public Generation {
 public:
  QuietGeneration(std::unique_ptr<Generation> inner, bool fails)
      : inner_(std::move(inner)), fails_(fails) {}
  std::optional<TurnEvent> Next() override {
    if (!fails_) return inner_->Next();
    return DoneEvent{.reason = FinishReason::kError, .status = Unavailable("it failed")};
  }
  bool WaitFor(std::chrono::milliseconds patience) override {
    return std::exchange(waited_, true) && inner_->WaitFor(patience);
  }
  void Cancel() override { inner_->Cancel(); }
  int64_t prompt_tokens() const override { return inner_->prompt_tokens(); }

 private:
  const std::unique_ptr<Generation> inner_;
  const bool fails_;
  bool waited_ = false;
};

class QuietHost : public ScriptedHost {
 public:
  QuietHost(Host& inner, bool fails) : ScriptedHost(inner), fails_(fails) {}
  StatusOr<std::unique_ptr<Generation>> Generate(GenerationRequest request) override {
    WEFT_ASSIGN_OR_RETURN(auto inner, ScriptedHost::Generate(std::move(request)));
    return std::unique_ptr<Generation>(std::make_unique<QuietGeneration>(std::move(inner), fails_));
  }

 private:
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
    HandleLlamaCompletion(host, request, responder);
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

TEST_F(LlamaCompletionTest, AStreamThatIsQuietIsKeptAlive) {
  QuietHost quiet(model_->host(), /*fails=*/false);
  const MemoryResponder answer =
      Complete(quiet, {{"prompt", "<<say>>ab<</say>>"}, {"stream", true}});
  EXPECT_TRUE(answer.body().starts_with(": still working\n\n")) << answer.body();
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
