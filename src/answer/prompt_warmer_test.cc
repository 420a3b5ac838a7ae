#include "answer/prompt_warmer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

using ::weft::testing::FaultyBackend;
using ::weft::testing::HeldSteps;

const std::string kSystem(300, 's');  // a token each

class PromptWarmerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft_warmer_XXXXXX";
    folder_ = mkdtemp(pattern);
    model_ = testing::TinyModel("llama", /*seed=*/1, &backend_);
    EngineOptions options;
    options.n_threads = 1;
    options.memory_bytes = int64_t{32} << 20;
    options.max_step_tokens = 16;
    engine_ = *Engine::Start(model_, options);
    auto answerer = Answerer::ForCommand(model_, engine_.get());
    ASSERT_TRUE(answerer.ok()) << answerer.status();
    answerer_ = *std::move(answerer);
    auto former = OpenPrompts("before");
    for (int i = 0; i < 2; ++i) former->Note("tom", Asked("hello"));
    ASSERT_TRUE(former->Save().ok());
    prompts_ = OpenPrompts("now");
    ASSERT_TRUE(prompts_->Next());
  }
  void TearDown() override {
    warmer_.reset();
    answerer_.reset();
    engine_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<AgentPrompts> OpenPrompts(const std::string& form) const {
    return *AgentPrompts::Open({.directory = folder_, .form = form, .min_bytes = 1});
  }
  static ChatRequest Asked(const std::string& user) {
    ChatRequest chat;
    chat.conversation.messages = {{.role = Role::kSystem, .parts = {kSystem}},
                                  {.role = Role::kUser, .parts = {user}}};
    return chat;
  }
  void StartWarmer(int64_t tokens_per_hour) {
    warmer_ = std::make_unique<PromptWarmer>(
        answerer_.get(), prompts_.get(),
        PromptWarmer::Options{.tokens_per_hour = tokens_per_hour,
                              .idle = std::chrono::milliseconds(20)});
  }
  bool WaitUntil(const std::function<bool()>& holds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return holds();
  }
  bool IsReady() const { return prompts_->counts().ready == 1; }
  // How many tokens of a new conversation are cached, in the domain.
  int64_t CachedTokens(const std::string& domain) {
    const auto known = answerer_->prompts().Make(domain, Asked("something else"));
    TurnOptions turn = testing::Greedy(known->tokens, 1);
    turn.tokens_are_whole_context = true;
    const auto submitted = engine_->SubmitOnce(domain, turn);
    return testing::Collect(submitted->get()).done().usage.cached_tokens;
  }

  std::string folder_;
  FaultyBackend backend_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Answerer> answerer_;
  std::unique_ptr<AgentPrompts> prompts_;
  std::unique_ptr<PromptWarmer> warmer_;
};

TEST_F(PromptWarmerTest, ANewConversationFindsItComputed) {
  StartWarmer(/*tokens_per_hour=*/1'000'000);
  ASSERT_TRUE(WaitUntil([&] { return IsReady(); }));
  EXPECT_GT(CachedTokens("tom"), 200);
  EXPECT_EQ(CachedTokens("ann"), 0) << "nobody finds another's";
}

TEST_F(PromptWarmerTest, NothingIsComputedWithoutAllowance) {
  StartWarmer(/*tokens_per_hour=*/0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(IsReady());
  EXPECT_EQ(engine_->Stats().prompt_tokens, 0);
}

TEST_F(PromptWarmerTest, BeginsOnlyWhenNobodyHasATurn) {
  HeldSteps held(&backend_.faults());
  const auto turn = *engine_->SubmitOnce("tom", testing::Greedy(testing::RandomTokens(8, 1), 1));
  ASSERT_TRUE(held.WaitForOne());
  StartWarmer(/*tokens_per_hour=*/1'000'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(engine_->Turns().size(), 1u);
  held.Release();
  testing::Collect(turn.get());
  EXPECT_TRUE(WaitUntil([&] { return IsReady(); }));
}

TEST_F(PromptWarmerTest, ARequestPausesIt) {
  // The warmer's turn takes many steps.
  backend_.faults().step_delay_us = 30'000;
  StartWarmer(/*tokens_per_hour=*/1'000'000);
  ASSERT_TRUE(WaitUntil([&] { return engine_->Stats().turns_running == 1; }));
  const auto turn = *engine_->SubmitOnce("tom", testing::Greedy(testing::RandomTokens(8, 1), 20));
  testing::Collect(turn.get());
  EXPECT_EQ(engine_->Stats().turns_cancelled, 1);
  ASSERT_TRUE(WaitUntil([&] { return IsReady(); })) << "it goes on later";
  backend_.faults().step_delay_us = 0;
  EXPECT_GT(CachedTokens("tom"), 200);
}

TEST_F(PromptWarmerTest, StopEndsWhatItComputes) {
  HeldSteps held(&backend_.faults());
  StartWarmer(/*tokens_per_hour=*/1'000'000);
  ASSERT_TRUE(held.WaitForOne());
  warmer_->Stop();
  held.Release();
  warmer_.reset();
  EXPECT_EQ(engine_->Turns().size(), 0u);
}

}  // namespace
}  // namespace weft::serve
