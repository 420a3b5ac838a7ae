#include "answer/prompt_warmer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

using ::weft::testing::FaultyBackend;
using ::weft::testing::HeldSteps;

// A token for each letter.
const std::string kLarge(300, 'l'), kSmall(100, 's');

class PromptWarmerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft_warmer_XXXXXX";
    folder_ = mkdtemp(pattern);
    model_ = testing::TinyModel("llama", /*seed=*/1, &backend_);
    EngineOptions options;
    options.n_threads = 1;
    options.max_step_tokens = 16;
    options.memory_bytes = 40 * testing::PageBytes(*model_, options);
    engine_ = *Engine::Start(model_, options);
    auto answerer = Answerer::ForCommand(model_, engine_.get());
    ASSERT_TRUE(answerer.ok()) << answerer.status();
    Answerer::Parts parts = (*answerer)->parts();
    parts.may_run = [this](bool) { return may_run_ ? OkStatus() : Unavailable("drained"); };
    answerer_ = std::make_unique<Answerer>(parts);
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
  static ChatRequest Asked(const std::string& system, const std::string& user) {
    ChatRequest chat;
    chat.conversation.messages = {{.role = Role::kSystem, .parts = {system}},
                                  {.role = Role::kUser, .parts = {user}}};
    return chat;
  }
  // The prompts that come back after a change, the last one used last.
  void Know(const std::vector<std::string>& systems) {
    auto former = OpenPrompts("before");
    for (const std::string& system : systems) {
      for (int i = 0; i < 2; ++i) former->Note("tom", Asked(system, "hello"));
    }
    ASSERT_TRUE(former->Save().ok());
    prompts_ = OpenPrompts("now");
  }
  void StartWarmer(int64_t tokens_per_hour = 1'000'000) {
    warmer_ = std::make_unique<PromptWarmer>(
        answerer_.get(), prompts_.get(), activity_,
        PromptWarmer::Options{.tokens_per_hour = tokens_per_hour,
                              .idle = std::chrono::milliseconds(20)});
  }
  static bool WaitUntil(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return holds();
  }
  bool IsReady(int64_t n = 1) const { return prompts_->counts().ready == n; }
  int64_t Computed() { return engine_->Stats().prompt_tokens - engine_->Stats().cached_tokens; }
  // What has been computed of it, so that a new conversation finds it.
  int64_t CachedTokens(const std::string& tenant, const std::string& system) {
    const auto known = answerer_->prompts().Make(tenant, Asked(system, "something else"));
    TurnOptions turn = testing::Greedy(known->tokens, 1);
    turn.tokens_are_whole_context = true;
    const auto submitted = engine_->SubmitOnce(tenant, turn);
    return testing::Collect(submitted->get()).done().usage.cached_tokens;
  }
  // Holds a step of the warmer's turn, changes something, and lets the turn go on slowly.
  void DuringItsTurn(const std::function<void()>& change) {
    HeldSteps held(&backend_.faults());
    StartWarmer();
    ASSERT_TRUE(held.WaitForOne());
    backend_.faults().step_delay_us = 100'000;
    change();
    held.Release();
  }

  std::string folder_;
  FaultyBackend backend_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> may_run_{true};
  const std::shared_ptr<TurnActivity> activity_ = std::make_shared<TurnActivity>();
  std::unique_ptr<Answerer> answerer_;
  std::unique_ptr<AgentPrompts> prompts_;
  std::unique_ptr<PromptWarmer> warmer_;
};

TEST_F(PromptWarmerTest, ANewConversationFindsItComputed) {
  Know({kLarge});
  StartWarmer();
  ASSERT_TRUE(WaitUntil([&] { return IsReady(); }));
  EXPECT_GT(CachedTokens("tom", kLarge), 200);
  EXPECT_EQ(CachedTokens("ann", kLarge), 0) << "nobody finds another's";
}

TEST_F(PromptWarmerTest, OneThatIsTooLargeHoldsUpNoOther) {
  Know({kSmall, kLarge});
  StartWarmer(/*tokens_per_hour=*/200);
  ASSERT_TRUE(WaitUntil([&] { return IsReady(); }));
  EXPECT_LT(Computed(), 200);
  EXPECT_GT(CachedTokens("tom", kSmall), 80);
}

TEST_F(PromptWarmerTest, TakesNoMemoryFromConversations) {
  Know({kSmall, kLarge});
  TurnOptions turn = testing::Greedy(testing::RandomTokens(400, 1), 1);
  const auto first = *engine_->SubmitOnce("tom", turn);
  testing::Collect(first.get());
  StartWarmer();
  ASSERT_TRUE(WaitUntil([&] { return IsReady(); })) << "the small one";
  EXPECT_EQ(prompts_->counts().known, 2);
  const auto again = *engine_->SubmitOnce("tom", turn);
  EXPECT_GT(testing::Collect(again.get()).done().usage.cached_tokens, 380);
  EXPECT_EQ(engine_->Stats().index_evicted_pages, 0);
}

TEST_F(PromptWarmerTest, BeginsOnlyWhenNoRequestHasATurn) {
  Know({kLarge});
  {
    const TurnActivity::Turn request(activity_);
    StartWarmer();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(Computed(), 0);
  }
  EXPECT_TRUE(WaitUntil([&] { return IsReady(); }));
}

TEST_F(PromptWarmerTest, ARequestPausesIt) {
  Know({kLarge});
  std::optional<TurnActivity::Turn> request;
  DuringItsTurn([&] { request.emplace(activity_); });
  ASSERT_TRUE(WaitUntil([&] { return engine_->Stats().turns_cancelled == 1; }));
  EXPECT_FALSE(IsReady());
  backend_.faults().step_delay_us = 0;
  request.reset();
  ASSERT_TRUE(WaitUntil([&] { return IsReady(); })) << "it goes on later";
  EXPECT_GT(CachedTokens("tom", kLarge), 200);
}

TEST_F(PromptWarmerTest, ADrainedServerComputesNothing) {
  Know({kLarge});
  DuringItsTurn([&] { may_run_ = false; });
  ASSERT_TRUE(WaitUntil([&] { return engine_->Stats().turns_cancelled == 1; }));
  EXPECT_FALSE(IsReady());
}

TEST_F(PromptWarmerTest, StopEndsWhatItComputesAndSaves) {
  Know({kLarge});
  std::thread stopping;
  DuringItsTurn([&] {
    stopping = std::thread([&] {
      prompts_->Note("tom", Asked(kSmall, "hello"));
      prompts_->Note("tom", Asked(kSmall, "hello"));
      warmer_->Stop(std::chrono::minutes(1));
    });
  });
  stopping.join();
  EXPECT_EQ(engine_->Stats().turns_cancelled, 1);
  EXPECT_FALSE(IsReady());
  EXPECT_EQ(OpenPrompts("now")->counts().known, 2);
}

TEST_F(PromptWarmerTest, WhatFailedIsTriedAgainAfterARestart) {
  Know({kLarge});
  backend_.faults().fail_forward = backend_.faults().forwards + 1;
  StartWarmer();
  ASSERT_TRUE(WaitUntil([&] { return engine_->Stats().turns_failed == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(IsReady());
  warmer_.reset();
  EXPECT_TRUE(OpenPrompts("now")->Next());
}

}  // namespace
}  // namespace weft::serve
