// Where clients' marks lie in the prompt, and which turns expect to go on.
#include "doors/api/fields/prompt_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "answer/prompt_maker.h"
#include "doors/api/anthropic/request.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/responses/request.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

class PromptMarksTest : public testing::ApiTest {
 protected:
  static HttpRequest Request(const Json& body) {
    HttpRequest request;
    request.body = body.dump();
    return request;
  }
  static std::vector<PromptMark> ReadChat(const Json& more) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
    body.update(more);
    const auto read = ReadChatCompletion(host(), Request(body));
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? read->ask.marks : std::vector<PromptMark>();
  }
  // The text before each mark, as the model sees it, and how long it is kept.
  struct Placed {
    std::string text;
    int64_t seconds = 0;
  };
  static std::vector<Placed> Place(const Json& body) {
    return Placing(ReadMessages(host(), Request(body)));
  }
  template <typename Read>
  static std::vector<Placed> Placing(const StatusOr<Read>& read) {
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok()) return {};
    TurnOptions turn;
    PromptMaker& prompts = host().answerer().prompts();
    turn.tokens = prompts.Make("", read->ask.chat)->tokens;
    PlaceMarks(prompts, "", read->ask.chat, read->ask.marks, std::ssize(turn.tokens), &turn);
    std::vector<Placed> placed;
    for (const PrefixMark& mark : turn.prefix_marks) {
      const auto tokens = std::span(turn.tokens).first(static_cast<size_t>(mark.n_tokens));
      placed.push_back(
          {host().model().Decode({tokens.begin(), tokens.end()}, true), mark.keep_for.count()});
    }
    return placed;
  }
};

const Json kMark = {{"type", "ephemeral"}};
const Json kHour = {{"type", "ephemeral"}, {"ttl", "1h"}};

Json Text(const char* text, const Json& mark = nullptr) {
  Json block = {{"type", "text"}, {"text", text}};
  if (!mark.is_null()) block["cache_control"] = mark;
  return block;
}
Json User(const Json& content) { return {{"role", "user"}, {"content", content}}; }

TEST_F(PromptMarksTest, ATextIsMarkedUpToItsEnd) {
  const auto placed = Place(
      {{"max_tokens", 5},
       {"system", "Be short."},
       {"messages",
        Json::array({User(Json::array({Text("A long file.", kHour), Text("What is it?")}))})}});
  ASSERT_THAT(placed, SizeIs(1));
  EXPECT_THAT(placed[0].text, EndsWith("A long file."));
  EXPECT_THAT(placed[0].text, HasSubstr("Be short."));
  EXPECT_EQ(placed[0].seconds, 3600);
}

TEST_F(PromptMarksTest, TheHeadTheLastMessageAndTheWholePrompt) {
  const Json tool = {{"name", "look"},
                     {"description", "Looks"},
                     {"input_schema", {{"type", "object"}}},
                     {"cache_control", kHour}};
  const auto placed =
      Place({{"max_tokens", 5},
             {"tools", Json::array({tool})},
             {"system", Json::array({Text("Be short.", kMark)})},
             {"messages", Json::array({User("One"),
                                       User(Json::array({Text("Two", kMark)})),
                                       {{"role", "assistant"}, {"content", "Yes"}},
                                       User(Json::array({Text("Three", kMark)}))})}});
  ASSERT_THAT(placed, SizeIs(3));
  EXPECT_THAT(placed[0].text, HasSubstr("Be short."));
  EXPECT_THAT(placed[0].text, HasSubstr("look"));
  EXPECT_THAT(placed[0].text, Not(HasSubstr("One")));
  EXPECT_THAT(placed[1].text, HasSubstr("Two"));
  EXPECT_THAT(placed[1].text, Not(HasSubstr("Yes")));
  EXPECT_THAT(placed[2].text, HasSubstr("Three"));
  EXPECT_EQ(placed[2].seconds, 300);
}

TEST_F(PromptMarksTest, WithoutMarksNothingIsPlaced) {
  EXPECT_THAT(Place({{"max_tokens", 5}, {"messages", Json::array({User("One")})}}), SizeIs(0));
  EXPECT_THAT(ReadChat({{"prompt_cache_key", "a"}, {"prompt_cache_retention", "in_memory"}}),
              SizeIs(0));
  EXPECT_THAT(ReadChat({{"prompt_cache_options", {{"mode", "explicit"}}}}), SizeIs(0));
}

TEST_F(PromptMarksTest, OpenAisOptionsMarkTheWholePrompt) {
  const auto keeps = [](const Json& more) {
    const auto marks = ReadChat(more);
    return marks.size() == 1 && marks[0].n_messages == PromptMark::kAll ? marks[0].keep_for.count()
                                                                        : -1;
  };
  EXPECT_EQ(keeps({{"prompt_cache_retention", "24h"}}), 24 * 3600);
  EXPECT_EQ(keeps({{"prompt_cache_options", {{"ttl", "12h"}}}}), 12 * 3600);
  EXPECT_EQ(keeps({{"prompt_cache_options", Json::object()}}), 30 * 60);
}

TEST_F(PromptMarksTest, OpenAisBreakpointsMarkPartsOfMessages) {
  const Json mark = {{"mode", "explicit"}};
  const auto parts = [&](const char* type, const char* first, const char* second) {
    return Json::array({{{"type", type}, {"text", first}, {"prompt_cache_breakpoint", mark}},
                        {{"type", type}, {"text", second}}});
  };
  const Json explicitly = {{"mode", "explicit"}, {"ttl", "2h"}};
  const auto check = [](const std::vector<Placed>& placed) {
    ASSERT_THAT(placed, SizeIs(2));
    EXPECT_THAT(placed[0].text, EndsWith("Be short."));
    EXPECT_EQ(placed[0].seconds, 2 * 3600);
    EXPECT_THAT(placed[1].text, EndsWith("A long file."));
    EXPECT_THAT(placed[1].text, HasSubstr("And clear."));
  };
  check(Placing(ReadChatCompletion(
      host(),
      Request({{"prompt_cache_options", explicitly},
               {"messages", Json::array({{{"role", "system"},
                                          {"content", parts("text", "Be short.", "And clear.")}},
                                         User(parts("text", "A long file.", "What is it?"))})}}))));
  check(Placing(ReadResponses(
      host(),
      Request(
          {{"prompt_cache_options", explicitly},
           {"input", Json::array({{{"role", "system"},
                                   {"content", parts("input_text", "Be short.", "And clear.")}},
                                  User(parts("input_text", "A long file.", "What is it?"))})}}))));
  // Beside the whole prompt's own mark.
  EXPECT_THAT(ReadChat({{"prompt_cache_options", Json::object()},
                        {"messages", Json::array({User(parts("text", "One", "Two"))})}}),
              SizeIs(2));
}

TEST_F(PromptMarksTest, ATimeThatIsNoneIsRefused) {
  for (const char* const ttl : {"", "5", "m", "0m", "-5m", "5d", "9999999999999999999h", "200h"}) {
    const auto read = ReadMessages(
        host(), Request({{"max_tokens", 5},
                         {"messages", Json::array({User(Json::array({Text(
                                          "One", {{"type", "ephemeral"}, {"ttl", ttl}})}))})}}));
    ASSERT_FALSE(read.ok()) << ttl;
    EXPECT_THAT(std::string(Message(read.status())),
                HasSubstr("messages[0].content[0].cache_control.ttl: must be a time"));
  }
  EXPECT_EQ(*ReadKeepFor("90s", "", std::chrono::seconds(1)), std::chrono::seconds(90));
  EXPECT_EQ(*ReadKeepFor(nullptr, "", std::chrono::seconds(1)), std::chrono::seconds(1));
}

}  // namespace
}  // namespace weft::serve
