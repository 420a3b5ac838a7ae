#include "answer/cache_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "answer/chat/chat_format_test_util.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;

class CacheReportTest : public ::testing::Test {
 protected:
  // Renders, encodes and reports; all that is in common was found, less `lost` tokens.
  CacheReport Report(const ChatRequest& chat, int64_t lost = 0,
                     PrefixLoss loss = PrefixLoss::kNone) {
    const ChatPrompt prompt = Rendered(*format_, chat);
    const auto items = std::make_shared<const PromptItems>(ItemsOf(chat));
    tokens_ = memory_.Encode("d", prompt.text);
    const PromptTrail trail =
        MakeTrail(memory_.Track("d", prompt.text, items), items, chat, prompt.text, ClientList());
    StartedEvent started{.prompt_tokens = std::ssize(tokens_), .loss = loss};
    if (trail.earlier.prompt != nullptr) {
      const auto& former = trail.earlier.prompt->context.tokens();
      const auto end =
          std::mismatch(former.begin(), former.end(), tokens_.begin(), tokens_.end()).first;
      started.cached_tokens = std::max<int64_t>(0, end - former.begin() - 1 - lost);
    }
    started.known_tokens = started.cached_tokens + lost;
    const CacheReport report =
        MakeCacheReport({.trail = &trail, .tokens = tokens_, .started = &started});
    memory_.Remember("d", prompt.text, tokens_, testing::Bytes("Here is the answer."), trail.items);
    return report;
  }

  const std::shared_ptr<const ChatFormat> format_ = Format("");
  PromptMemory memory_{testing::TinyModel("llama")->tokenizer(), {}};
  std::vector<TokenId> tokens_;
};

TEST_F(CacheReportTest, FirstPromptAndOneThatGoesOn) {
  const CacheReport first = Report(Request(R"([{"role": "user", "content": "Hello there"}])"));
  EXPECT_EQ(first.reason, CacheReason::kFirstPrompt);
  EXPECT_EQ(first.computed_tokens, first.prompt_tokens);
  const CacheReport next = Report(Request(R"([
      {"role": "user", "content": "Hello there"},
      {"role": "assistant", "content": "Here is the answer."},
      {"role": "user", "content": "Thanks"}])"));
  EXPECT_EQ(next.reason, CacheReason::kNothingMissed) << next.sentence;
  EXPECT_EQ(next.differs_at, -1);
}

TEST_F(CacheReportTest, AnotherConversationIsNotAnEarlierPrompt) {
  Report(Request(R"([{"role": "user", "content": "Tell me of the loom, and of its parts"}])"));
  const CacheReport report =
      Report(Request(R"([{"role": "user", "content": "How far is the moon from the sun?"}])"));
  EXPECT_EQ(report.reason, CacheReason::kFirstPrompt) << report.sentence;
  EXPECT_GT(report.computed_tokens, 0);
}

TEST_F(CacheReportTest, DateInTheSystemPrompt) {
  const char* const kChat = R"([
      {"role": "system", "content": "You are an agent.\nToday's date: 2026-11-2%\nBe brief."},
      {"role": "user", "content": "Hello there"}])";
  const auto on = [&](const char* day) {
    std::string chat = kChat;
    return Request(chat.replace(chat.find('%'), 1, day).c_str());
  };
  Report(on("7"));
  const CacheReport report = Report(on("8"));
  EXPECT_EQ(report.reason, CacheReason::kSystemChanged);
  EXPECT_EQ(report.item, "system");
  EXPECT_EQ(report.before, "Today's date: 2026-11-27");
  EXPECT_EQ(report.now, "Today's date: 2026-11-28");
  EXPECT_THAT(report.sentence, HasSubstr("a date in the system prompt changed"));
  EXPECT_THAT(report.sentence, HasSubstr("Today's date: 2026-11-28"));
}

TEST_F(CacheReportTest, ThoughtThatTheClientDropped) {
  const char* const kQuestion = R"([{"role": "user", "content": "Hello there"}])";
  const ChatPrompt prompt = Rendered(*format_, Request(kQuestion));
  const auto items = std::make_shared<const PromptItems>(ItemsOf(Request(kQuestion)));
  const auto tokens = memory_.Encode("d", prompt.text);
  memory_.Track("d", prompt.text, items);
  memory_.Remember("d", prompt.text, tokens,
                   testing::Bytes("<think>\nA greeting.\n</think>\n\nHere is the answer."), items);
  const CacheReport report = Report(Request(R"([
      {"role": "user", "content": "Hello there"},
      {"role": "assistant", "content": "Here is the answer."},
      {"role": "user", "content": "Thanks"}])"));
  EXPECT_EQ(report.reason, CacheReason::kReplyChanged);
  EXPECT_EQ(report.item, "messages[1]");
  EXPECT_EQ(report.before, "<think>");
  EXPECT_EQ(report.now, "Here is the answer.<|im_end|>");
}

// Where a prompt has two edits, the first one in the text is to blame.
TEST_F(CacheReportTest, FirstOfSeveralChanges) {
  const auto chat = [](const char* system, const char* question, bool tools) {
    ChatRequest request = Request(R"([{"role": "system", "content": ""},
        {"role": "user", "content": ""}, {"role": "assistant", "content": "Here is the answer."},
        {"role": "user", "content": "Thanks"}])",
                                  tools);
    request.conversation.messages[0].parts = {system};
    request.conversation.messages[1].parts = {question};
    return request;
  };
  Report(chat("Be brief", "How is the weather?", true));
  EXPECT_EQ(Report(chat("Be long", "What is the time?", true)).item, "system");
  Report(chat("Be kind", "How is the loom?", true));
  const CacheReport tools = Report(chat("Be kind", "How is the spinning wheel?", false));
  EXPECT_EQ(tools.item, "tools[0]");
  EXPECT_EQ(tools.reason, CacheReason::kToolsChanged);
  EXPECT_STREQ(tools.change, "removed");
}

TEST_F(CacheReportTest, WishAboutPastThoughtsIsAVariable) {
  ChatRequest chat = Request(R"([{"role": "user", "content": "Hello there"}])");
  const PromptItems before = ItemsOf(chat);
  chat.past_thoughts = PastThoughts::kClear;
  const std::vector<ItemChange> changes = ChangesBetween(before, ItemsOf(chat));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].item, ItemChange::Item::kVariable);
  EXPECT_EQ(changes[0].name, "past_thoughts");
}

TEST_F(CacheReportTest, WhatTheEngineLost) {
  const ChatRequest chat = Request(
      R"([{"role": "user", "content": "A question that is long enough to be missed by an engine"}])");
  Report(chat);
  EXPECT_EQ(Report(chat).reason, CacheReason::kNothingMissed);
  EXPECT_EQ(Report(chat, 20).reason, CacheReason::kEvicted);
  const CacheReport checkpoint = Report(chat, 20, PrefixLoss::kNoCheckpoint);
  EXPECT_EQ(checkpoint.reason, CacheReason::kNoCheckpoint);
  EXPECT_THAT(checkpoint.sentence, HasSubstr("no checkpoint"));
  EXPECT_EQ(Report(chat, 20, PrefixLoss::kNoWindow).reason, CacheReason::kWindowEvicted);
  EXPECT_EQ(Report(chat, 20, PrefixLoss::kCacheOff).reason, CacheReason::kCacheOff);
  EXPECT_EQ(Report(chat, 20, PrefixLoss::kRecomputed).reason, CacheReason::kRecomputed);
}

TEST_F(CacheReportTest, CancelledPromptWasNotComputed) {
  const ChatRequest chat = Request(
      R"([{"role": "user", "content": "A question that is long enough to be missed by an engine"}])");
  const ChatPrompt prompt = Rendered(*format_, chat);
  memory_.Encode("d", prompt.text);
  memory_.Track("d", prompt.text, std::make_shared<const PromptItems>(ItemsOf(chat)));
  EXPECT_EQ(Report(chat, 20).reason, CacheReason::kNotComputed);
}

// A client that counts tokens first does not hide the earlier prompt.
TEST_F(CacheReportTest, CountedPromptsAreNotEarlierOnes) {
  const ChatRequest first = Request(R"([{"role": "user", "content": "Tell me of the loom"}])");
  Report(first);
  const ChatRequest second = Request(R"([{"role": "user", "content": "Tell me of the wheel"}])");
  memory_.Encode("d", Rendered(*format_, second).text);
  const CacheReport report = Report(second);
  EXPECT_EQ(report.reason, CacheReason::kMessagesChanged) << report.sentence;
  EXPECT_EQ(report.item, "messages[0].content");
}

TEST(CacheReports, AreKeptBySessionAndTenant) {
  CacheReports reports;
  reports.Add("a", "s", {.prompt_tokens = 1});
  reports.Add("a", "", {.prompt_tokens = 2});
  reports.Add("b", "s", {.prompt_tokens = 3});
  EXPECT_EQ(reports.OfSession("a", "s")->prompt_tokens, 1);
  EXPECT_EQ(reports.Last("a")->prompt_tokens, 2);
  EXPECT_EQ(reports.Last("b")->prompt_tokens, 3);
  EXPECT_EQ(reports.OfSession("a", ""), nullptr);
  EXPECT_EQ(reports.OfSession("c", "s"), nullptr);
  for (int i = 0; i < 10'000; ++i) reports.Add("b", StrCat("s", i), {});
  EXPECT_EQ(reports.OfSession("a", "s"), nullptr) << "bounded";
  EXPECT_NE(reports.OfSession("b", "s9999"), nullptr);
}

}  // namespace
}  // namespace weft::serve
