// Replays requests recorded from real coding agents: every request is answered, and streams end as
// their APIs require.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/api_fixture.h"
#include "tests/support/goldens.h"
#include "tests/support/slow_build.h"

namespace weft::serve {
namespace {

using ::testing::AnyOf;
using testing::MemoryResponder;
using testing::SseEvent;
using Json = nlohmann::ordered_json;

class AgentsReplayTest : public testing::ApiTest {
 protected:
  // Their longest prompt has 19,000 tokens of a large vocabulary, and more of this small one.
  static void SetUpTestSuite() { SetUpWith("llama", 256 << 10); }
};

const char* LimitOf(const std::string& path) {
  return path == "/v1/responses" ? "max_output_tokens" : "max_tokens";
}

const char* CountPathOf(const std::string& path) {
  if (path == "/v1/responses") return "/v1/responses/input_tokens";
  return path == "/v1/messages" ? "/v1/messages/count_tokens" : "/v1/chat/completions/input_tokens";
}

// Answers are computed for prompts up to this length; longer ones are only read and counted, which
// covers all possible refusals.
constexpr int64_t kMaxComputedTokens = testing::kSlowBuild ? 8'000 : 32'000;

void ExpectWholeAnswer(const std::string& path, const MemoryResponder& response) {
  if (response.type() != "text/event-stream") {
    EXPECT_TRUE(response.json().is_object());
    return;
  }
  EXPECT_TRUE(response.ended());
  const auto events = response.Events();
  ASSERT_FALSE(events.empty());
  const SseEvent& last = events.back();
  if (path == "/v1/chat/completions") {
    EXPECT_EQ(last.data, "[DONE]");
  } else if (path == "/v1/messages") {
    EXPECT_EQ(last.name, "message_stop");
  } else {
    EXPECT_THAT(last.name, AnyOf("response.completed", "response.incomplete"));
  }
}

TEST_F(AgentsReplayTest, EveryRequestIsAnswered) {
  const std::string dir = testing::AgentsDir();
  std::ifstream lines(dir + "/requests.jsonl");
  if (dir.empty() || !lines)
    GTEST_SKIP() << "no recorded requests: set WEFT_AGENTS to their folder";
  int n_requests = 0, n_computed = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json request = Json::parse(line);
    const std::string path = request["path"];
    SCOPED_TRACE(std::string(request["agent"]) + " " + std::to_string(n_requests++));
    HttpHeaders headers;
    for (const auto& [name, value] : request["headers"].items()) headers.emplace_back(name, value);
    Json body = request["body"];
    const auto count = Post(CountPathOf(path), body, headers);
    ASSERT_EQ(count.status(), 200) << count.body().substr(0, 500);
    const int64_t n_tokens = count.json()["input_tokens"];
    if (request["agent"] == "codex") {
      // Its helpers are in a namespace, and offered; only the search is left out.
      const bool has_search = body["tools"].back()["type"] == "web_search";
      EXPECT_EQ(count.Header("X-Weft-Warning"),
                has_search ? "tools that this server cannot run were left out: web_search" : "");
    }
    if (n_tokens > kMaxComputedTokens) continue;
    ++n_computed;
    body[LimitOf(path)] = 2;
    const auto response = Post(path, body, headers);
    ASSERT_EQ(response.status(), 200) << response.body().substr(0, 500);
    ExpectWholeAnswer(path, response);
  }
  EXPECT_GE(n_requests, 23);
  EXPECT_GT(n_computed, 0);
}

}  // namespace
}  // namespace weft::serve
