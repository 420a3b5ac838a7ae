// What precedes an answer: progress while its prompt is computed, and the part that the client has
// begun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SseEvent;
using Json = nlohmann::ordered_json;

class BeforeAnswerTest : public testing::ApiTest {};

TEST_F(BeforeAnswerTest, ProgressComesBeforeTheAnswerWhereItIsAskedFor) {
  Json body = Chat("Hi", {{"stream", true}, {"return_progress", true}});
  const auto response = Post(kChat, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  std::vector<Json> progress;
  for (const SseEvent& event : response.Events()) {
    if (event.data == "[DONE]") break;
    const Json chunk = event.json();
    if (!chunk.contains("prompt_progress")) continue;
    EXPECT_EQ(chunk["choices"][0]["delta"].dump(), R"({"role":"assistant"})");
    progress.push_back(chunk["prompt_progress"]);
  }
  ASSERT_GE(progress.size(), 2u);
  EXPECT_EQ(progress.front()["processed"], progress.front()["cache"]);
  EXPECT_EQ(progress.back()["processed"], progress.back()["total"]);
  EXPECT_GE(progress.back()["time_ms"], 0);
  EXPECT_THAT(response.body(), HasSubstr(R"("content":"H")"));
  body["stream"] = false;
  EXPECT_FALSE(Post(kChat, body).json().contains("prompt_progress"));
  EXPECT_THAT(Post("/v1/completions", {{"prompt", "x"}, {"return_progress", true}}).body(),
              HasSubstr("return_progress is only available in /v1/chat/completions"));
}

TEST_F(BeforeAnswerTest, ThePromptIsShownWhereItIsAskedFor) {
  Json body = Chat("Hi", {{"verbose", true}});
  const Json whole = Post(kChat, body).json();
  const std::string prompt = whole["__verbose"]["prompt"];
  // As decoded: this model's word tokens begin with a space.
  EXPECT_THAT(prompt, HasSubstr("<|im_start|> user\n"));
  EXPECT_TRUE(prompt.ends_with("<|im_start|> assistant\n")) << prompt;
  body["stream"] = true;
  const auto events = Post(kChat, body).Events();
  EXPECT_EQ(events[events.size() - 2].json()["__verbose"], whole["__verbose"]);
  body["verbose"] = false;
  EXPECT_THAT(Post(kChat, body).body(), Not(HasSubstr("__verbose")));
}

TEST_F(BeforeAnswerTest, AnAnswerThatIsBegunIsContinued) {
  const auto prompt = [&](const Json& more) {
    Json body = Chat("Hi");
    body["messages"].push_back({{"role", "assistant"}, {"content", "It is "}});
    body.update(more);
    return std::string(Post("/apply-template", body).json()["prompt"]);
  };
  const std::string begun = prompt(Json::object());
  EXPECT_TRUE(begun.ends_with("<|im_start|>assistant\nIt is ")) << begun;
  EXPECT_EQ(prompt({{"continue_final_message", true}, {"add_generation_prompt", false}}), begun);
  EXPECT_TRUE(prompt({{"continue_final_message", false}})
                  .ends_with("It is <|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(prompt({{"continue_final_message", "content"}}), begun);
  // add_generation_prompt is irrelevant to a reply that has already begun.
  EXPECT_EQ(prompt({{"add_generation_prompt", true}}), begun);
  EXPECT_EQ(prompt({{"add_generation_prompt", false}}), begun);
  EXPECT_TRUE(prompt({{"add_generation_prompt", false}, {"continue_final_message", false}})
                  .ends_with("It is <|im_end|>\n"));

  Json body = Chat("warm.", {{"session_id", "begun"}});
  body["messages"].push_back({{"role", "assistant"}, {"content", "It is "}});
  const Json answer = Post(kChat, body).json();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "warm.") << "what is new of it";
  // The session holds the complete answer.
  body["messages"].back()["content"] = "It is warm.";
  body["messages"].push_back(Say("Good."));
  const Json next = Post(kChat, body).json();
  EXPECT_GE(next["usage"]["prompt_tokens_details"]["cached_tokens"],
            answer["usage"]["total_tokens"].get<int>() - 1);
  body["continue_final_message"] = "thoughts";
  EXPECT_THAT(Post(kChat, body).body(), HasSubstr("must be true, false, \\\"content\\\""));
  body["add_generation_prompt"] = true;
  body["continue_final_message"] = true;
  EXPECT_THAT(Post(kChat, body).body(), HasSubstr("cannot both be true"));
  body.erase("add_generation_prompt");
  const auto refused = Post(kChat, body);
  EXPECT_EQ(refused.status(), 400);
  EXPECT_EQ(refused.json()["error"]["param"], "continue_final_message");
  body.erase("continue_final_message");
  body["messages"].back() = {{"role", "assistant"}, {"content", "So"}};
  EXPECT_THAT(Post(kChat, body).body(), HasSubstr("two assistant messages"));
}

TEST_F(BeforeAnswerTest, AnAnswerThatIsBegunIsContinuedForAnthropicsClientsToo) {
  Json body = {{"max_tokens", 100}, {"messages", Json::array({Say("warm.")})}};
  body["messages"].push_back({{"role", "assistant"}, {"content", "It is "}});
  const auto answer = Post("/v1/messages", body);
  EXPECT_EQ(answer.json()["content"][0]["text"], "warm.") << answer.body();
  body["messages"].back()["content"] =
      Json::array({{{"type", "tool_use"}, {"id", "a"}, {"name", "f"}, {"input", Json::object()}}});
  const auto refused = Post("/v1/messages", body);
  EXPECT_EQ(refused.status(), 400);
  EXPECT_THAT(refused.body(), HasSubstr("a message with calls is complete"));
}

}  // namespace
}  // namespace weft::serve
