// How every API tells that an answer was cut, and what it cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::MemoryResponder;
using Json = nlohmann::ordered_json;

constexpr int64_t kEndsContext = 1024;
constexpr char kFull[] = "model_context_window_exceeded";

class AnswerEndsTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() { SetUpWith("llama", kEndsContext); }

  // Longer than the room after the prompt that asks for it, and without a loop.
  static std::string Endless() {
    std::string text;
    for (int i = 0; text.size() < 600; ++i) StrAppend(&text, i, " ");
    return text;
  }

  // The same chat for each API, on a path that names it; `limit` is at most so many tokens.
  static MemoryResponder Ask(const std::string& path, const std::string& say, bool stream,
                             int limit, bool has_tool = false) {
    Json body = {{"model", "scripted"}, {"stream", stream}};
    if (has_tool) body["tools"] = Json::array({ToolFor(path)});
    if (path == "/v1/responses") {
      body["input"] = Say(say)["content"];
      if (limit > 0) body["max_output_tokens"] = limit;
    } else if (path == "/api/chat") {
      body["messages"] = Json::array({Say(say)});
      if (limit > 0) body["options"] = {{"num_predict", limit}};
    } else {
      body["messages"] = Json::array({Say(say)});
      if (limit > 0) body["max_tokens"] = limit;
      if (path == "/v1/chat/completions" && stream)
        body["stream_options"] = {{"include_usage", true}};
    }
    return Post(path, body);
  }

  static Json ToolFor(const std::string& path) {
    const Json function = WeatherTool()["function"];
    if (path == "/v1/messages") {
      return {{"name", function["name"]}, {"input_schema", function["parameters"]}};
    }
    if (path != "/v1/responses") return WeatherTool();
    Json tool = function;
    tool["type"] = "function";
    return tool;
  }

  // The objects of an answer: one, or all of a stream's.
  static std::vector<Json> Objects(const MemoryResponder& response, bool stream) {
    if (!stream) return {response.json()};
    std::vector<Json> objects;
    if (response.type().find("ndjson") != std::string::npos) {
      for (const std::string_view line : StrSplit(response.body(), '\n')) {
        if (!line.empty()) objects.push_back(Json::parse(line));
      }
      return objects;
    }
    for (const auto& event : response.Events()) {
      if (event.data != "[DONE]") objects.push_back(event.json());
    }
    return objects;
  }

  // The last value at `pointer` in them.
  static Json Last(const std::vector<Json>& objects, const std::vector<const char*>& pointers) {
    Json last;
    for (const Json& object : objects) {
      for (const char* const pointer : pointers) {
        const Json::json_pointer at(pointer);
        if (object.contains(at) && !object.at(at).is_null()) last = object.at(at);
      }
    }
    return last;
  }
};

TEST_F(AnswerEndsTest, AFullContextIsToldFromTheLimit) {
  struct Case {
    std::string path;
    std::vector<const char*> where;  // the reason
    Json cut, full;
    std::vector<const char*> detail;  // what tells a full context where the reason does not
  };
  const std::vector<Case> cases = {
      {"/v1/messages", {"/stop_reason", "/delta/stop_reason"}, "max_tokens", kFull, {}},
      {"/v1/responses",
       {"/incomplete_details/reason", "/response/incomplete_details/reason"},
       "max_output_tokens",
       kFull,
       {}},
      {"/v1/chat/completions",
       {"/choices/0/finish_reason"},
       "length",
       "length",
       {"/choices/0/stop_reason"}},
      {"/api/chat", {"/done_reason"}, "length", "length", {"/stop_reason"}},
  };
  for (const Case& api : cases) {
    for (const bool stream : {false, true}) {
      const std::string place = StrCat(api.path, stream ? " streamed" : "");
      const auto cut = Objects(Ask(api.path, Endless(), stream, 5), stream);
      EXPECT_EQ(Last(cut, api.where), api.cut) << place;
      const auto full = Objects(Ask(api.path, Endless(), stream, 4000), stream);
      EXPECT_EQ(Last(full, api.where), api.full) << place;
      if (api.detail.empty()) continue;
      EXPECT_EQ(Last(cut, api.detail), Json()) << place;
      EXPECT_EQ(Last(full, api.detail), kFull) << place;
    }
  }
}

TEST_F(AnswerEndsTest, TextCompletionsTellItToo) {
  const std::string prompt = StrCat("<<say>>", Endless(), "<</say>>");
  const Json body = {{"model", "scripted"}, {"prompt", prompt}, {"max_tokens", 4000}};
  const Json choice = Post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["stop_reason"], kFull);
  const Json own = Post("/completion", {{"prompt", prompt}}).json();
  EXPECT_EQ(own["stop_type"], "limit");
  EXPECT_EQ(own["truncated"], true);
}

// The limit comes at every place within a call.
TEST_F(AnswerEndsTest, ACallThatIsCutIsNeitherTextNorWhole) {
  const std::string say = StrCat("Wait.", kWeatherCall);
  const Json arguments = {{"city", "Bonn"}};
  const std::string whole = R"({"city": "Bonn"})";
  const size_t end = say.find(whole) + whole.size();
  for (size_t limit = 6; limit < end; ++limit) {
    const int most = static_cast<int>(limit);
    const Json chat = Ask("/v1/chat/completions", say, false, most, true).json()["choices"][0];
    EXPECT_EQ(chat["finish_reason"], "length") << limit;
    EXPECT_THAT(chat["message"]["content"].get<std::string>(), MatchesRegex("Wait.<?")) << limit;
    for (const Json& call : chat["message"].value("tool_calls", Json::array())) {
      const std::string said = call["function"]["arguments"];
      EXPECT_TRUE(whole.starts_with(said) && said != whole) << limit << ": " << said;
    }
    const Json message = Ask("/v1/messages", say, false, most, true).json();
    EXPECT_EQ(message["stop_reason"], "max_tokens") << limit;
    EXPECT_THAT(message["content"][0]["text"].get<std::string>(), MatchesRegex("Wait.<?")) << limit;
    for (const Json& block : message["content"]) {
      EXPECT_TRUE(block["type"] != "tool_use" || block["input"].empty()) << limit;
    }
    const Json ollama = Ask("/api/chat", say, false, most, true).json();
    EXPECT_EQ(ollama["done_reason"], "length") << limit;
    EXPECT_FALSE(ollama["message"].contains("tool_calls")) << limit;
    const Json response = Ask("/v1/responses", say, false, most, true).json();
    EXPECT_EQ(response["status"], "incomplete") << limit;
    for (const Json& item : response["output"]) {
      EXPECT_TRUE(item["type"] != "function_call" || item["status"] == "incomplete") << limit;
    }
  }
  const Json all = Ask("/api/chat", say, false, 400, true).json();
  EXPECT_EQ(all["message"]["tool_calls"][0]["function"]["arguments"], arguments);
}

TEST_F(AnswerEndsTest, ACallInAThoughtThatDoesNotEndIsACall) {
  for (const std::string path :
       {"/v1/messages", "/v1/responses", "/v1/chat/completions", "/api/chat"}) {
    const auto calls = [&](const std::string& say) {
      const std::string body = Ask(path, say, false, 400, true).body();
      return path == "/v1/messages"    ? body.find(R"("type":"tool_use")") != body.npos
             : path == "/v1/responses" ? body.find(R"("type":"function_call")") != body.npos
                                       : body.find(R"("tool_calls":[)") != body.npos;
    };
    EXPECT_TRUE(calls(StrCat("<think>Let me look. ", kWeatherCall))) << path;
    EXPECT_FALSE(calls(StrCat("<think>Is it ", kWeatherCall, "? No.</think>No."))) << path;
  }
}

TEST_F(AnswerEndsTest, AThoughtEndsWithTheMessageOfItsBudget) {
  const std::string say = "<think>one two three</think>Yes.";
  const Json more = {{"reasoning_budget_message", " Enough."}};
  Json chat = Chat(say, {{"max_tokens", 100}, {"thinking_budget_tokens", 3}});
  chat.update(more);
  const Json message = Post("/v1/chat/completions", chat).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "one Enough.");
  EXPECT_EQ(message["content"], "two three</think>Yes.");

  Json anthropic = Chat(say, {{"model", "scripted"},
                              {"max_tokens", 100},
                              {"thinking", {{"type", "enabled"}, {"budget_tokens", 3}}}});
  anthropic.update(more);
  const Json blocks = Post("/v1/messages", anthropic).json()["content"];
  EXPECT_EQ(blocks[0]["thinking"], "one Enough.");

  const auto refused = Post("/v1/chat/completions",
                            Chat(say, {{"reasoning_budget_message", std::string(5000, 'x')}}));
  EXPECT_EQ(refused.status(), 400);
  EXPECT_EQ(refused.json()["error"]["param"], "reasoning_budget_message");
}

// What the usage of an answer says about its prompt.
struct Cost {
  int64_t prompt = 0;
  int64_t read = 0;     // found
  int64_t disk = 0;     // of these
  int64_t written = 0;  // computed, and kept
  int64_t rest = 0;     // computed
};

Cost CostOf(const std::string& path, const Json& answer) {
  if (path == "/v1/messages") {
    const Json& usage = answer["usage"];
    Cost cost{.read = usage["cache_read_input_tokens"],
              .disk = usage["disk_tokens"],
              .written = usage["cache_creation_input_tokens"],
              .rest = usage["input_tokens"]};
    cost.prompt = cost.read + cost.written + cost.rest;
    return cost;
  }
  if (path == "/api/chat") {
    const int64_t prompt = answer["prompt_eval_count"], read = answer["cached_tokens"];
    return {.prompt = prompt,
            .read = read,
            .disk = answer["disk_tokens"],
            .written = prompt - read - 1,
            .rest = 1};
  }
  if (path == "/completion") {
    const Json& timings = answer["timings"];
    const int64_t read = timings["cache_n"], computed = timings["prompt_n"];
    return {.prompt = answer["tokens_evaluated"],
            .read = read,
            .disk = timings["cache_disk_n"],
            .written = computed - 1,
            .rest = 1};
  }
  const bool is_responses = path == "/v1/responses";
  const Json& usage = answer["usage"];
  const Json& details = usage[is_responses ? "input_tokens_details" : "prompt_tokens_details"];
  Cost cost{.prompt = usage[is_responses ? "input_tokens" : "prompt_tokens"],
            .read = details["cached_tokens"],
            .disk = details["disk_tokens"],
            .written = details["cache_write_tokens"]};
  cost.rest = cost.prompt - cost.read - cost.written;
  return cost;
}

// Prompts that share more or less of their beginnings, asked of all APIs in turn.
TEST_F(AnswerEndsTest, WhatAPromptCostAddsUpToThePromptInEveryApi) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string text(random() % 40, 'a');
    while (text.size() < 60) text += static_cast<char>('a' + random() % 26);
    for (const std::string path :
         {"/v1/messages", "/v1/responses", "/v1/chat/completions", "/api/chat", "/completion"}) {
      // A second time all is there but the last token, which is computed to say what follows it.
      int64_t before = 0;
      for (const bool again : {false, true}) {
        const std::string place = StrCat(path, " ", round, again ? " again" : "");
        // The text is part of the prompt; of several scripts the last one counts.
        const std::string say = StrCat(text, path, "<</say>><<say>>ok");
        const auto response = path == "/completion"
                                  ? Post(path, {{"prompt", StrCat("<<say>>", say, "<</say>>")}})
                                  : Ask(path, say, false, 50);
        ASSERT_EQ(response.status(), 200) << response.body();
        const Cost cost = CostOf(path, response.json());
        EXPECT_EQ(cost.read + cost.written + cost.rest, cost.prompt) << place;
        EXPECT_EQ(cost.rest, 1) << place;
        EXPECT_GE(cost.written, 0) << place;
        EXPECT_EQ(cost.disk, 0) << place;
        if (again) {
          EXPECT_EQ(cost.read, cost.prompt - 1) << place;
          EXPECT_EQ(cost.prompt, before) << place;
        }
        before = cost.prompt;
      }
    }
  }
}

TEST_F(AnswerEndsTest, APromptThatIsTooLongIsRefusedInWordsThatClientsKnow) {
  const std::string say(2000, 'x');
  const std::string size = StrCat("maximum context length is ", kEndsContext, " tokens");
  for (const std::string path : {"/v1/messages", "/v1/responses", "/v1/chat/completions",
                                 "/api/chat", "/v1/completions", "/completion"}) {
    const bool is_text = path == "/completion" || path == "/v1/completions";
    const auto refused =
        is_text ? Post(path, {{"model", "scripted"}, {"prompt", say}}) : Ask(path, say, false, 5);
    EXPECT_EQ(refused.status(), 400) << path;
    EXPECT_THAT(refused.body(), HasSubstr(StrCat("this model's ", size))) << path;
    EXPECT_THAT(refused.body(), HasSubstr("exceeds the available context size")) << path;
  }
  const Json anthropic = Ask("/v1/messages", say, false, 5).json()["error"];
  EXPECT_EQ(anthropic["type"], "invalid_request_error");
  EXPECT_THAT(anthropic["message"].get<std::string>(),
              MatchesRegex("prompt is too long: [0-9]+ tokens > 1024 maximum: .*"));
}

}  // namespace
}  // namespace weft::serve
