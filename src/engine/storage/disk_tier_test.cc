#include "engine/storage/disk_tier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
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
    worker_ = std::make_unique<Worker>();
    tier_ = Open("a model");
  }
  ~DiskTierTest() override { std::filesystem::remove_all(path_); }

  std::unique_ptr<DiskTier> Open(const std::string& identity, int64_t bytes_per_hour = 0) {
    DiskTier::Options options;
    options.path = path_;
    options.identity = identity;
    options.layout = {.page_tokens = 4, .page_bytes = {1000}, .slot_bytes = 0};
    options.windows = {0};
    options.budget_bytes = int64_t{64} << 20;
    options.bytes_per_hour = bytes_per_hour;
    options.notice = [this](const std::string& text) { notices_.push_back(text); };
    auto tier = DiskTier::Open(options, worker_.get(), [this](std::function<void()> answer) {
      answers_.push_back(std::move(answer));
    });
    EXPECT_TRUE(tier.ok()) << tier.status();
    return *std::move(tier);
  }
  EngineStats Stats(const DiskTier* tier = nullptr) const {
    EngineStats stats;
    (tier != nullptr ? tier : tier_.get())->FillStats(&stats);
    return stats;
  }
  DiskTier::Answer Ask(DiskTier* tier, TokenId first, bool session) {
    BlockInfo info;
    info.parent = tier->Root("");
    info.tokens = {first, first + 1, first + 2, first + 3};
    info.key = PageBlockKey(info.parent, info.tokens);
    info.groups = 1;
    info.session = session;
    return tier->Keep(info, "", [] { return std::vector<std::byte>(1000); });
  }
  void Write(TokenId first) {
    ASSERT_EQ(Ask(tier_.get(), first, /*session=*/false), DiskTier::Answer::kYes);
  }
  // The worker does all that it was given, and answers.
  void Finish() {
    std::promise<void> last;
    worker_->PostLast([&last] { last.set_value(); });
    last.get_future().wait();
    for (const auto& answer : std::exchange(answers_, {})) answer();
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
  EXPECT_EQ(Stats().disk_pending, 5);
  tier_->GiveUpWrites();
  disk.set_value();
  Finish();
  const EngineStats stats = Stats();
  EXPECT_EQ(stats.disk_blocks, 0);
  EXPECT_EQ(stats.disk_written_bytes, 0);
  EXPECT_EQ(stats.disk_pending, 0);
  EXPECT_EQ(stats.disk_failed_writes, 0);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(DiskTierTest, WhatIsNotGivenUpIsWritten) {
  for (TokenId token = 0; token < 5; ++token) Write(10 * token);
  Finish();
  EXPECT_EQ(Stats().disk_blocks, 5);
  EXPECT_EQ(Stats().disk_written_bytes, 5000);
}

struct ReadResult {
  size_t n_blocks = 0;
  Status status;
};

// An error of the system says nothing about the file: it is there when the error is gone.
TEST_F(DiskTierTest, OnlyAMissingOrDamagedBlockIsForgotten) {
  for (TokenId token = 0; token < 30; token += 10) Write(token);
  Finish();
  const auto key_of = [this](TokenId first) {
    return PageBlockKey(tier_->Root(""),
                        std::vector<TokenId>{first, first + 1, first + 2, first + 3});
  };
  const std::vector<Fingerprint> keys = {key_of(0), key_of(10), key_of(20)};
  const auto read = [&] {
    ReadResult result;
    tier_->Read("tenant", "", keys, [&](std::vector<DiskTier::Loaded> blocks, Status status) {
      result = {.n_blocks = blocks.size(), .status = std::move(status)};
    });
    Finish();
    return result;
  };
  const std::string folder = StrCat(path_, "/", FingerprintOf("a model").ToHex());
  const auto permit = [&](std::filesystem::perms permissions) {
    for (const Fingerprint& key : keys) {
      std::filesystem::permissions(StrCat(folder, "/", key.ToHex()), permissions);
    }
  };
  permit(std::filesystem::perms::none);
  // Permissions are not asked of root.
  const uid_t user = geteuid();
  ASSERT_EQ(seteuid(user == 0 ? 65534 : user), 0);
  for (int again = 0; again < 2; ++again) {
    const ReadResult without = read();
    EXPECT_EQ(without.n_blocks, 0u);
    EXPECT_FALSE(without.status.ok() || without.status.code() == StatusCode::kDataLoss);
  }
  ASSERT_EQ(seteuid(user), 0);
  permit(std::filesystem::perms::owner_all);
  ASSERT_EQ(notices_.size(), 1u) << "told once";
  EXPECT_NE(notices_[0].find("could not be read"), notices_[0].npos) << notices_[0];
  EXPECT_EQ(Stats().disk_damaged_blocks, 0);
  const ReadResult with = read();
  EXPECT_EQ(with.n_blocks, 3u);
  EXPECT_TRUE(with.status.ok()) << with.status;

  std::filesystem::remove(StrCat(folder, "/", keys[1].ToHex()));
  const ReadResult missing = read();
  EXPECT_EQ(missing.n_blocks, 1u);
  EXPECT_EQ(missing.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Stats().disk_damaged_blocks, 1);
  EXPECT_EQ(Stats().disk_blocks, 2);
}

// As after kill -9: the tier before is not asked.
TEST_F(DiskTierTest, ANewProcessContinuesTheHour) {
  for (TokenId token = 0; token < 5; ++token) Write(10 * token);
  Finish();
  const auto next = Open("another model", /*bytes_per_hour=*/12'000);
  EXPECT_EQ(Ask(next.get(), 60, /*session=*/false), DiskTier::Answer::kYes);
  EXPECT_EQ(Ask(next.get(), 70, /*session=*/false), DiskTier::Answer::kNo) << "half is left";
  EXPECT_EQ(Ask(next.get(), 70, /*session=*/true), DiskTier::Answer::kYes);
  Finish();
  EXPECT_EQ(Stats(next.get()).disk_written_bytes, 2000);
  EXPECT_EQ(Stats(next.get()).disk_skipped_bytes, 1000);
  const auto last = Open("a model", /*bytes_per_hour=*/7000);
  EXPECT_EQ(Ask(last.get(), 80, /*session=*/true), DiskTier::Answer::kNo);
}

}  // namespace
}  // namespace weft
