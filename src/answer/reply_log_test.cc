#include "answer/reply_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/strings.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReplyLogTest : public ::testing::Test {
 protected:
  ReplyLogTest() {
    std::string name = ::testing::TempDir() + "reply_log_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~ReplyLogTest() override { std::filesystem::remove_all(directory_); }

  static ReplyMemory::Record Thought(const std::string& thought, const std::string& session = "") {
    OwnReply reply{.reasoning = thought,
                   .content = "\xff not UTF-8",
                   .calls = {{.id = "call_1", .name = "f", .arguments = {{"b", 1}, {"a", "x"}}}},
                   .tokens = {1, 2, 3},
                   .prompt = EndOfPrompt(std::string(2000, 'p')),
                   .conversation = ~uint64_t{0},
                   .id = 7};
    return {.domain = "d",
            .session = session,
            .place = {.conversation = ~uint64_t{0}, .last_message = 5},
            .reply = std::make_shared<OwnReply>(std::move(reply))};
  }

  std::unique_ptr<ReplyLog> Open(const std::string& model = "model",
                                 size_t rewrite_bytes = 1 << 20) {
    found_.clear();
    auto log = ReplyLog::Open({.directory = directory_,
                               .model = model,
                               .rewrite_bytes = rewrite_bytes,
                               .all = [this] { return all_; },
                               .on_notice = [](const std::string& text) { FAIL() << text; }},
                              &found_);
    EXPECT_TRUE(log.ok()) << log.status();
    return log.ok() ? *std::move(log) : nullptr;
  }

  std::vector<std::string> Found() const {
    std::vector<std::string> thoughts;
    for (const auto& record : found_) thoughts.push_back(record.reply->reasoning);
    return thoughts;
  }

  std::string Path() const { return directory_ + "/replies.log"; }

  std::string directory_;
  std::vector<ReplyMemory::Record> found_, all_;
};

TEST_F(ReplyLogTest, WhatWasWrittenIsFound) {
  Open()->Append(Thought("one", "kitchen"));
  Open()->Append(Thought("two"));
  Open();
  ASSERT_THAT(Found(), ElementsAre("one", "two"));
  const ReplyMemory::Record& first = found_[0];
  const ReplyMemory::Record expected = Thought("one", "kitchen");
  EXPECT_EQ(first.session, "kitchen");
  EXPECT_EQ(first.domain, "d");
  EXPECT_EQ(first.place.last_message, 5u);
  EXPECT_EQ(first.place.conversation, expected.place.conversation);
  EXPECT_EQ(first.reply->content, expected.reply->content);
  EXPECT_EQ(first.reply->tokens, expected.reply->tokens);
  EXPECT_EQ(first.reply->calls[0].arguments.dump(), R"({"b":1,"a":"x"})");
  EXPECT_EQ(first.reply->prompt.hash, expected.reply->prompt.hash);
  EXPECT_EQ(first.reply->prompt.tail, expected.reply->prompt.tail);
  EXPECT_EQ(first.reply->id, 7u);
  EXPECT_EQ(std::filesystem::status(Path()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(ReplyLogTest, ADeletedSessionsRepliesAreGone) {
  {
    const auto log = Open();
    log->Append(Thought("one", "kitchen"));
    log->Append(Thought("two", "attic"));
    log->AppendDeletion("d", "kitchen");
    log->Append(Thought("three", "kitchen"));
  }
  Open();
  EXPECT_THAT(Found(), ElementsAre("two", "three"));
}

TEST_F(ReplyLogTest, AnotherModelsRepliesAreDiscarded) {
  Open()->Append(Thought("one"));
  Open("another")->Append(Thought("two"));
  EXPECT_THAT(Found(), IsEmpty());
  Open("another");
  EXPECT_THAT(Found(), ElementsAre("two"));
}

// Truncated or corrupted at many positions: the entries before the damage survive, and new ones
// can be appended.
TEST_F(ReplyLogTest, DamageCostsOnlyWhatFollows) {
  {
    const auto log = Open();
    log->Append(Thought("one"));
    log->Append(Thought("two"));
  }
  std::ifstream in(Path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t i = 0; i < whole.size(); i += 7) {
    for (const bool cut : {true, false}) {
      std::string damaged = cut ? whole.substr(0, i) : whole;
      if (!cut) damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      std::ofstream(Path(), std::ios::binary | std::ios::trunc) << damaged;
      Open()->Append(Thought("new"));
      const size_t n = found_.size();
      ASSERT_LT(n, 2u) << i;
      Open();
      ASSERT_EQ(found_.size(), n + 1) << i;
      ASSERT_EQ(Found().back(), "new") << i;
    }
  }
}

TEST_F(ReplyLogTest, ALongFileIsRewritten) {
  all_ = {Thought("kept")};
  {
    const auto log = Open("model", /*rewrite_bytes=*/10'000);
    for (int i = 0; i < 2000; ++i) log->Append(Thought(StrCat(i)));
  }
  EXPECT_LT(std::filesystem::file_size(Path()), 2'000'000u);
  Open();
  ASSERT_FALSE(found_.empty());
  EXPECT_EQ(Found().front(), "kept");
}

}  // namespace
}  // namespace weft::serve
