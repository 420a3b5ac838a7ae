#include "answer/agent_prompts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace weft::serve {
namespace {

const std::string kInstructions(2000, 'i');

ChatMessage Said(Role role, std::string text) { return {.role = role, .parts = {std::move(text)}}; }

ChatRequest Begun(std::string system, const std::string& user) {
  ChatRequest chat;
  chat.conversation.messages = {Said(Role::kSystem, std::move(system)), Said(Role::kUser, user)};
  chat.conversation.tools = {std::make_shared<const Tool>(Tool{
      .name = "read", .definition = {{"type", "function"}, {"function", {{"name", "read"}}}}})};
  chat.variables["enable_thinking"] = false;
  return chat;
}

class AgentPromptsTest : public ::testing::Test {
 protected:
  AgentPromptsTest() {
    char pattern[] = "/tmp/weft_agents_XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~AgentPromptsTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<AgentPrompts> Open(const std::string& form, size_t max_prompts = 64) const {
    auto opened =
        AgentPrompts::Open({.directory = folder_, .form = form, .max_prompts = max_prompts});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  // As a server that had these conversations, and ends.
  void Serve(const std::string& form, const std::vector<std::string>& systems) const {
    const auto prompts = Open(form);
    for (const std::string& system : systems) {
      prompts->Note("tom", Begun(system, "hello"));
      prompts->SetReady(prompts->Note("tom", Begun(system, "something else")));
    }
    ASSERT_TRUE(prompts->Save().ok());
  }

  std::string folder_;
};

TEST_F(AgentPromptsTest, WhatComesBackIsComputedAfterAChange) {
  Serve("one", {kInstructions});
  EXPECT_FALSE(Open("one")->Next()) << "it was computed in this form";
  const auto prompts = Open("two");
  const auto next = prompts->Next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->tenant, "tom");
  ASSERT_EQ(next->chat.conversation.messages.size(), 1u) << "not what a user said";
  EXPECT_EQ(TextOf(next->chat.conversation.messages[0]), kInstructions);
  ASSERT_EQ(next->chat.conversation.tools.size(), 1u);
  EXPECT_EQ(next->chat.conversation.tools[0]->function().at("name"), "read");
  EXPECT_EQ(next->chat.variables.at("enable_thinking"), false);
  EXPECT_EQ(prompts->counts().known, 1);
  EXPECT_EQ(prompts->counts().ready, 0);
  prompts->SetReady(next->id);
  EXPECT_FALSE(prompts->Next());
  EXPECT_EQ(prompts->counts().ready, 1);
  ASSERT_TRUE(prompts->Save().ok());
  EXPECT_FALSE(Open("two")->Next());
  EXPECT_TRUE(Open("three")->Next());
}

TEST_F(AgentPromptsTest, ARequestComputesItTooIfItGetsThatFar) {
  Serve("one", {kInstructions});
  const auto prompts = Open("two");
  const uint64_t id = prompts->Note("tom", Begun(kInstructions, "again"));
  EXPECT_TRUE(prompts->Next());
  EXPECT_FALSE(prompts->Next({id}));
  prompts->SetReady(id);
  EXPECT_FALSE(prompts->Next());
  EXPECT_EQ(prompts->counts().ready, 1);
}

TEST_F(AgentPromptsTest, OldOnesAreForgotten) {
  constexpr int64_t kDay = 24 * 3600;
  const auto open = [this](int64_t now_s) {
    return *AgentPrompts::Open({.directory = folder_, .form = "one", .now_s = now_s});
  };
  const auto prompts = open(1000 * kDay);
  for (int i = 0; i < 2; ++i) prompts->Note("tom", Begun(kInstructions, "hello"));
  ASSERT_TRUE(prompts->Save().ok());
  EXPECT_EQ(open(1013 * kDay)->counts().known, 1);
  EXPECT_EQ(open(1015 * kDay)->counts().known, 0);
}

TEST_F(AgentPromptsTest, ATenantTakesNoRoomFromOthers) {
  const auto prompts = Open("one");
  for (int i = 0; i < 2; ++i) prompts->Note("ann", Begun(kInstructions, "hello"));
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 2; ++k) prompts->Note("tom", Begun(StrCat(i, kInstructions), "hello"));
  }
  EXPECT_EQ(prompts->counts().known, 1 + 32);
}

TEST_F(AgentPromptsTest, WhatDoesNotComeBackIsLeftAlone) {
  const auto prompts = Open("one");
  prompts->Note("tom", Begun(kInstructions, "once"));
  ChatRequest later = Begun(kInstructions, "once");
  later.conversation.messages.push_back(Said(Role::kAssistant, "yes"));
  later.conversation.messages.push_back(Said(Role::kUser, "and then"));
  prompts->Note("tom", later);
  prompts->Note("ann", Begun(kInstructions, "another domain's"));
  for (int i = 0; i < 3; ++i) prompts->Note("tom", Begun("short", "hello"));
  for (int i = 0; i < 3; ++i) {
    prompts->Note("tom", Begun(std::string(2 << 20, 'l'), "too long"));
  }
  ASSERT_TRUE(prompts->Save().ok());
  EXPECT_EQ(prompts->counts().known, 0);
  EXPECT_FALSE(Open("two")->Next());
}

TEST_F(AgentPromptsTest, TheOneUsedLastIsFirst) {
  for (const int64_t now_s : {1000, 3000, 2000}) {
    const auto prompts = *AgentPrompts::Open({.directory = folder_, .form = "one", .now_s = now_s});
    for (int i = 0; i < 2; ++i) prompts->Note("tom", Begun(StrCat(now_s, kInstructions), "hello"));
    ASSERT_TRUE(prompts->Save().ok());
  }
  const auto next =
      (*AgentPrompts::Open({.directory = folder_, .form = "two", .now_s = 4000}))->Next();
  EXPECT_EQ(TextOf(next->chat.conversation.messages[0]), StrCat(3000, kInstructions));
}

TEST_F(AgentPromptsTest, ThoseThatComeBackOutliveOthers) {
  const auto prompts = Open("one", /*max_prompts=*/2);
  for (int i = 0; i < 2; ++i) prompts->Note("tom", Begun(kInstructions, "hello"));
  for (const char c : {'a', 'b', 'c', 'd'}) {
    prompts->Note("tom", Begun(c + kInstructions, "hello"));
  }
  ASSERT_TRUE(prompts->Save().ok());
  EXPECT_EQ(Open("two")->counts().known, 1);
}

TEST_F(AgentPromptsTest, ADamagedFileIsNone) {
  Serve("one", {kInstructions});
  const std::string path = folder_ + "/agents.json";
  for (const char* const text : {"", "[1,", "[]", R"({"version": 1, "prompts": [{}]})",
                                 R"({"version": "1", "prompts": []})", R"({"version": 9})"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(Open("two")->counts().known, 0) << text;
  }
  Serve("one", {kInstructions});
  EXPECT_EQ(Open("two")->counts().known, 1);
}

TEST_F(AgentPromptsTest, OnlyTheUserMayReadTheFile) {
  Serve("one", {kInstructions});
  const auto permissions = std::filesystem::status(folder_ + "/agents.json").permissions();
  EXPECT_EQ(permissions, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace weft::serve
