#include "engine/storage/disk_tier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"

namespace weft {
namespace {

class DiskTierTest : public ::testing::Test {
 protected:
  DiskTierTest()
      : path_((std::filesystem::temp_directory_path() / StrCat("weft_disk_tier_", getpid()))
                  .string()) {
    std::filesystem::remove_all(path_);
    DiskTier::Options options;
    options.path = path_;
    options.identity = "a model";
    options.layout = {.page_tokens = 4, .page_bytes = {1000}, .slot_bytes = 0};
    options.windows = {0};
    options.budget_bytes = int64_t{64} << 20;
    options.notice = [this](const std::string& text) { notices_.push_back(text); };
    worker_ = std::make_unique<Worker>();
    auto tier = DiskTier::Open(options, worker_.get(), [this](std::function<void()> answer) {
      answers_.push_back(std::move(answer));
    });
    EXPECT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
  }
  ~DiskTierTest() override { std::filesystem::remove_all(path_); }

  void Write(TokenId first) {
    BlockInfo info;
    info.parent = tier_->Root("");
    info.tokens = {first, first + 1, first + 2, first + 3};
    info.key = PageBlockKey(info.parent, info.tokens);
    info.groups = 1;
    ASSERT_EQ(tier_->Ask(info, ""), DiskTier::Answer::kYes);
    tier_->Write(info.key, "", std::vector<std::byte>(1000));
  }
  // The worker does all that it was given, and answers.
  void Finish() {
    std::promise<void> last;
    worker_->Post([&last] { last.set_value(); });
    last.get_future().wait();
    for (const auto& answer : answers_) answer();
  }

  const std::string path_;
  std::vector<std::string> notices_;
  std::vector<std::function<void()>> answers_;  // the worker's, until Finish
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<DiskTier> tier_;
};

TEST_F(DiskTierTest, WhatIsGivenUpIsNotWrittenAndNoFault) {
  std::promise<void> disk;
  worker_->Post([&disk] { disk.get_future().wait(); });
  for (TokenId token = 0; token < 5; ++token) Write(10 * token);
  EXPECT_EQ(tier_->stats().writes_under_way, 5);
  tier_->GiveUpWrites();
  disk.set_value();
  Finish();
  const DiskTier::Stats stats = tier_->stats();
  EXPECT_EQ(stats.blocks, 0);
  EXPECT_EQ(stats.written_bytes, 0);
  EXPECT_EQ(stats.writes_under_way, 0);
  EXPECT_EQ(stats.failed_writes, 0);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(DiskTierTest, WhatIsNotGivenUpIsWritten) {
  for (TokenId token = 0; token < 5; ++token) Write(10 * token);
  Finish();
  EXPECT_EQ(tier_->stats().blocks, 5);
  EXPECT_EQ(tier_->stats().written_bytes, 5000);
}

}  // namespace
}  // namespace weft
