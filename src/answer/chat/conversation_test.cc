// Conversations as clients write them, and as templates see them.
#include "answer/chat/conversation.h"

#include <string>

#include "answer/chat/chat_format_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Shows each message and each tool whole.
constexpr char kAll[] =
    "{%- for t in tools or [] %}{{ t|tojson }}\n{% endfor %}"
    "{%- for m in messages %}{{ m|tojson }}\n{{ m.reasoning_content }}"
    "{%- for c in m.tool_calls or [] -%}{{ c.function.arguments|string|length > 1 }}"
    "{%- endfor -%}{% endfor %}";

TEST(ConversationTest, AMessageIsReadOnce) {
  const ChatMessage answer = MessageOf(Json::parse(R"({"role": "assistant", "content": null,
      "reasoning": "hm", "tool_calls": [{"id": "a", "type": "function", "function":
        {"name": "f", "arguments": "{\"k\": 1}"}}, {"function": {"name": "g"}}]})"));
  EXPECT_EQ(answer.role, Role::kAssistant);
  EXPECT_TRUE(answer.parts.empty());
  EXPECT_EQ(answer.reasoning, "hm");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].id, "a");
  EXPECT_EQ(answer.calls[0].name, "f");
  EXPECT_EQ(answer.calls[0].arguments, Json({{"k", 1}}));
  EXPECT_EQ(answer.calls[1].arguments, Json::object());
  const ChatMessage result = MessageOf(Json::parse(R"({"role": "tool", "tool_call_id": "a",
      "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]})"));
  EXPECT_EQ(result.call_id, "a");
  EXPECT_THAT(result.parts, ElementsAre("1", "2"));
  EXPECT_EQ(TextOf(result), "1\n2");
  EXPECT_EQ(TextOf({.role = Role::kAssistant, .parts = {"1", "2"}}), "12");
}

TEST(ConversationTest, ACustomCallIsOneOfAFunction) {
  const ChatMessage answer = MessageOf(Json::parse(R"({"role": "assistant", "tool_calls": [
      {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "x \"y\""}}]})"));
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].name, "patch");
  EXPECT_EQ(answer.calls[0].arguments, Json({{"input", "x \"y\""}}));
}

TEST(ConversationTest, ArgumentsThatAreNoObjectStayText) {
  EXPECT_EQ(CallArguments(" \n"), Json::object());
  EXPECT_EQ(CallArguments("[1]"), Json("[1]"));
  EXPECT_EQ(CallArguments("{oops"), Json("{oops"));
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_TRUE(CallArguments("{\"a\": " + deep + "}").is_string());
}

// What templates print whole has the client's members in the client's order.
TEST(ConversationTest, MembersThatOnlyTemplatesKnowReachThem) {
  ChatRequest request = Request(R"([
    {"weight": {"a": [1]}, "content": "q", "role": "user", "name": "Bo"},
    {"content": null, "role": "assistant", "audio": null, "thinking": "hm", "tool_calls": [
      {"function": {"arguments": "{\"z\": 1, \"a\": 2}", "name": "f", "why": "x"}, "id": "1",
       "index": 0, "type": "function"}]},
    {"content": "r", "tool_call_id": "1", "role": "tool"}])");
  request.conversation.tools = ToolsOf(Json::parse(R"([{"function": {"strict": true, "name": "f",
      "description": "d"}, "type": "function", "extra": 1}])"));
  const std::string text = Rendered(*Format(kAll), request).text;
  EXPECT_THAT(text, HasSubstr(R"({"function": {"strict": true, "name": "f", "description": "d"}, )"
                              R"("type": "function", "extra": 1})"));
  EXPECT_THAT(text,
              HasSubstr(R"({"weight": {"a": [1]}, "content": "q", "role": "user", "name": "Bo"})"));
  EXPECT_THAT(
      text, HasSubstr(R"("role": "assistant", "audio": null, "reasoning_content": "hm", )"
                      R"("tool_calls": [{"function": {"arguments": {"z": 1, "a": 2}, )"
                      R"("name": "f", "why": "x"}, "id": "1", "index": 0, "type": "function"}])"));
  EXPECT_THAT(text, HasSubstr(R"({"content": "r", "tool_call_id": "1", "role": "tool", )"
                              R"("name": "f"})"));
  EXPECT_THAT(text, Not(HasSubstr("thinking")));
}

// A conversation that did not come as JSON looks like one that did.
TEST(ConversationTest, AConversationWithoutFieldsHasTheUsualOnes) {
  const ChatRequest given = Request(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": {"k": 1}}}]},
    {"role": "tool", "tool_call_id": "1", "content": "r"}])");
  ChatRequest made = given;
  made.conversation.messages = {
      {.parts = {"q"}},
      {.role = Role::kAssistant, .calls = {{.id = "1", .name = "f", .arguments = {{"k", 1}}}}},
      {.role = Role::kTool, .parts = {"r"}, .call_id = "1"}};
  const auto format = Format(kAll);
  EXPECT_EQ(Rendered(*format, made).text, Rendered(*format, given).text);
  made.conversation.messages.clear();
  EXPECT_THAT(std::string(Message(format->Render(made).status())), HasSubstr("at least one"));
}

}  // namespace
}  // namespace weft
