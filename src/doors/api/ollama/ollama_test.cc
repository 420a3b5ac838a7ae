#include "doors/api/ollama/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/ollama/request.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::MemoryResponder;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

// The lines of a stream, each an object.
std::vector<Json> Lines(const MemoryResponder& response) {
  EXPECT_EQ(response.type(), "application/x-ndjson");
  EXPECT_TRUE(response.ended());
  std::vector<Json> lines;
  for (const std::string_view line : StrSplit(response.body(), '\n')) {
    if (line.empty()) continue;
    lines.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  EXPECT_THAT(response.body(), ::testing::EndsWith("\n"));
  return lines;
}

std::vector<std::string> KeysOf(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

class OllamaTest : public testing::ApiTest {
 protected:
  static Json Chat(std::string_view say, const Json& more = Json::object()) {
    Json body = ApiTest::Chat(say, {{"model", "scripted"}});
    body.update(more);
    return body;
  }
  static Json Whole(std::string_view say, Json more = Json::object()) {
    more["stream"] = false;
    return Chat(say, more);
  }
  static Json Generate(std::string_view say, const Json& more = Json::object()) {
    Json body = {{"model", "scripted"}, {"prompt", StrCat("<<say>>", say, "<</say>>")}};
    body["stream"] = false;
    body.update(more);
    return body;
  }
  static std::string ErrorOf(const MemoryResponder& response, int status) {
    EXPECT_EQ(response.status(), status) << response.body();
    const Json body = response.json();
    EXPECT_THAT(KeysOf(body), ElementsAre("error")) << response.body();
    return body.value("error", "");
  }
};

TEST_F(OllamaTest, ChatStreamsLines) {
  const auto response = Post(kOllamaChat, Chat("Hello."));
  ASSERT_EQ(response.status(), 200) << response.body();
  const std::vector<Json> lines = Lines(response);
  std::string text;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_THAT(KeysOf(lines[i]), ElementsAre("model", "created_at", "message", "done"));
    EXPECT_EQ(lines[i]["done"], false);
    EXPECT_EQ(lines[i]["message"]["role"], "assistant");
    text += lines[i]["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello.");
  const Json& last = lines.back();
  EXPECT_THAT(KeysOf(last),
              ElementsAre("model", "created_at", "message", "done", "done_reason", "total_duration",
                          "load_duration", "prompt_eval_count", "cached_tokens", "disk_tokens",
                          "prompt_eval_duration", "eval_count", "eval_duration"));
  EXPECT_EQ(last["model"], "scripted");
  EXPECT_THAT(std::string(last["created_at"]),
              MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
                           "\\.[0-9]+Z"));
  EXPECT_EQ(last["message"].dump(), R"({"role":"assistant","content":""})");
  EXPECT_EQ(last["done"], true);
  EXPECT_EQ(last["done_reason"], "stop");
  EXPECT_EQ(last["eval_count"], 7);
  EXPECT_GT(last["prompt_eval_count"], 0);
  EXPECT_GT(last["eval_duration"], 0);
  EXPECT_GE(last["total_duration"].get<int64_t>(), last["eval_duration"].get<int64_t>());
  ExpectIdle();
}

TEST_F(OllamaTest, ChatAnswersWhole) {
  const auto response = Post(kOllamaChat, Whole("Hello.", {{"model", "scripted:latest"}}));
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json body = response.json();
  EXPECT_EQ(body["model"], "scripted:latest") << "the name that the client has";
  EXPECT_EQ(body["message"].dump(), R"({"role":"assistant","content":"Hello."})");
  EXPECT_EQ(body["done_reason"], "stop");
  EXPECT_EQ(body["eval_count"], 7);
}

TEST_F(OllamaTest, ThoughtsAreApart) {
  constexpr char kSay[] = "<think>\nhm\n</think>\n\nYes.";
  const Json body = Post(kOllamaChat, Whole(kSay, {{"think", true}})).json();
  EXPECT_THAT(std::string(body["message"]["thinking"]), HasSubstr("hm"));
  EXPECT_EQ(body["message"]["content"], "Yes.");
  std::string thinking, text;
  for (const Json& line : Lines(Post(kOllamaChat, Chat(kSay, {{"think", "high"}})))) {
    const Json& message = line["message"];
    thinking += message.value("thinking", "");
    text += message["content"].get<std::string>();
    EXPECT_TRUE(!message.contains("thinking") || message["content"] == "") << message;
  }
  EXPECT_THAT(thinking, HasSubstr("hm"));
  EXPECT_EQ(text, "Yes.");
  const Json hidden = Post(kOllamaChat, Whole(kSay, {{"think", false}})).json();
  EXPECT_FALSE(hidden["message"].contains("thinking"));
  EXPECT_THAT(ErrorOf(Post(kOllamaChat, Whole("x", {{"think", "much"}})), 400),
              StartsWith("think must"));
}

TEST_F(OllamaTest, ThinkingSetsTheTemplatesVariable) {
  // The template ends its prompt with an empty thought.
  const auto count = [](const Json& more) {
    return Post(kOllamaChat, Whole("x", more)).json()["prompt_eval_count"].get<int>();
  };
  EXPECT_NE(count({{"think", false}}), count({{"think", true}}));
  EXPECT_EQ(count(Json::object()), count({{"think", true}})) << "what is not said";
}

TEST_F(OllamaTest, CallsHaveObjectsForArguments) {
  const Json tools = {{"tools", Json::array({WeatherTool()})}};
  const std::string say = StrCat("Let me see.\n", kWeatherCall, "\n", kWeatherCall);
  const Json message = Post(kOllamaChat, Whole(say, tools)).json()["message"];
  ASSERT_EQ(message["tool_calls"].size(), 2u) << message;
  EXPECT_EQ(message["tool_calls"][1]["function"].dump(),
            R"({"index":1,"name":"get_weather","arguments":{"city":"Bonn"}})");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);

  std::vector<Json> calls;
  const auto lines = Lines(Post(kOllamaChat, Chat(say, tools)));
  for (const Json& line : lines) {
    if (!line["message"].contains("tool_calls")) continue;
    EXPECT_EQ(line["message"]["tool_calls"].size(), 1u);
    calls.push_back(line["message"]["tool_calls"][0]["function"]);
  }
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["arguments"], Json({{"city", "Bonn"}}));
  EXPECT_EQ(calls[1]["index"], 1);
  EXPECT_EQ(lines.back()["done_reason"], "stop");
}

// The calls sent back match the tokens that the model wrote.
TEST_F(OllamaTest, AnswersOfToolsContinueTheConversation) {
  Json body =
      Whole(kWeatherCall, {{"tools", Json::array({WeatherTool()})}, {"session_id", "tools"}});
  const Json first = Post(kOllamaChat, body).json();
  body["messages"].push_back(first["message"]);
  for (Json& call : body["messages"][1]["tool_calls"]) call.erase("id");
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_name", "get_weather"}, {"content", "<<say>>It rains.<</say>>"}});
  const auto next = Post(kOllamaChat, body);
  ASSERT_EQ(next.status(), 200) << next.body();
  EXPECT_EQ(next.json()["message"]["content"], "It rains.");
}

TEST(FromOllamaMessages, FindsTheCallOfEachResult) {
  std::vector<std::string> warnings;
  const auto call = [](const char* name) {
    return Json{{"function", {{"name", name}, {"arguments", Json::object()}}}};
  };
  const Json messages = Json::array(
      {{{"role", "assistant"}, {"tool_calls", Json::array({call("a"), call("b"), call("a")})}},
       {{"role", "tool"}, {"tool_name", "b"}, {"content", "1"}},
       {{"role", "tool"}, {"tool_name", "a"}, {"content", "2"}, {"images", Json::array({"x"})}},
       {{"role", "tool"}, {"content", "3"}},
       {{"role", "assistant"}, {"tool_calls", Json::array({call("a")})}},
       {{"role", "tool"}, {"tool_name", "other"}, {"content", "4"}}});
  const auto read = FromOllamaMessages(messages, &warnings);
  ASSERT_TRUE(read.ok()) << read.status();
  const std::vector<ChatMessage>& out = *read;
  std::vector<std::string> ids;
  for (const ToolCall& one : out[0].calls) ids.push_back(one.id);
  EXPECT_EQ(out[1].call_id, ids[1]);
  EXPECT_EQ(out[1].fields["name"], "b");
  EXPECT_EQ(out[2].call_id, ids[0]);
  EXPECT_EQ(out[3].call_id, ids[2]);
  EXPECT_EQ(out[5].call_id, out[4].calls[0].id);
  EXPECT_EQ(out[4].calls[0].id, "call_3") << "no id comes twice";
  EXPECT_FALSE(out[2].fields.contains("images"));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("images of a tool")));
}

TEST_F(OllamaTest, GenerateStreamsLinesAndItsContext) {
  const auto lines = Lines(Post(kOllamaGenerate, Generate("Hello.", {{"stream", true}})));
  std::string text;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_THAT(KeysOf(lines[i]), ElementsAre("model", "created_at", "response", "done"));
    text += lines[i]["response"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello.");
  const Json& last = lines.back();
  EXPECT_EQ(last["response"], "");
  EXPECT_EQ(last["context"].size(),
            last["prompt_eval_count"].get<size_t>() + last["eval_count"].get<size_t>());
}

TEST_F(OllamaTest, GenerateGoesOnFromAContext) {
  const Json first =
      Post(kOllamaGenerate, Generate("My name is Mira.", {{"system", "Be brief."}})).json();
  EXPECT_EQ(first["response"], "My name is Mira.");
  const auto context = first["context"].get<std::vector<int32_t>>();
  EXPECT_THAT(host().model().Decode(context, true),
              AllOf(HasSubstr("Be brief."), HasSubstr("My name is Mira.")));
  const Json next = Post(kOllamaGenerate, Generate("Mira.", {{"context", context}})).json();
  EXPECT_EQ(next["response"], "Mira.");
  const auto longer = next["context"].get<std::vector<int32_t>>();
  ASSERT_GT(longer.size(), context.size());
  EXPECT_TRUE(std::equal(context.begin(), context.end(), longer.begin()));
  EXPECT_EQ(std::count(longer.begin(), longer.end(), host().model().tokenizer()->bos()),
            std::count(context.begin(), context.end(), host().model().tokenizer()->bos()))
      << "a text begins once";
  EXPECT_THAT(
      ErrorOf(Post(kOllamaGenerate, Generate("x", {{"context", Json::array({1, -2})}})), 400),
      HasSubstr("context must be"));
}

TEST_F(OllamaTest, RawIsNotPutIntoATemplate) {
  const Json body = Generate("abc", {{"raw", true}});
  const Json answer = Post(kOllamaGenerate, body).json();
  EXPECT_EQ(answer["response"], "abc");
  EXPECT_FALSE(answer.contains("context"));
  const Json plain = Post("/v1/completions", {{"prompt", body["prompt"]}}).json();
  EXPECT_EQ(answer["prompt_eval_count"], plain["usage"]["prompt_tokens"]);
  for (const Json& other :
       {Json{{"system", "x"}}, Json{{"suffix", "x"}}, Json{{"context", Json::array({5})}}}) {
    Json both = body;
    both.update(other);
    EXPECT_THAT(ErrorOf(Post(kOllamaGenerate, both), 400),
                HasSubstr("cannot be combined with raw"));
  }
}

TEST_F(OllamaTest, WithoutAPromptItIsAskedToLoadTheModel) {
  const Json nothing = {{"model", "scripted"}};
  const Json loaded = Post(kOllamaGenerate, nothing).json();
  EXPECT_THAT(KeysOf(loaded),
              ElementsAre("model", "created_at", "response", "done", "done_reason"));
  EXPECT_EQ(loaded["done_reason"], "load");
  EXPECT_EQ(Post(kOllamaChat, nothing).json()["message"]["content"], "");
  for (const Json& zero : {Json(0), Json("0"), Json("0s")}) {
    Json body = {{"model", "scripted"}, {"messages", Json::array()}, {"keep_alive", zero}};
    EXPECT_EQ(Post(kOllamaChat, body).json()["done_reason"], "unload");
  }
  for (const Json& other : {Json(-1), Json("5m"), Json("10s")}) {
    Json body = {{"model", "scripted"}, {"prompt", ""}, {"keep_alive", other}};
    EXPECT_EQ(Post(kOllamaGenerate, body).json()["done_reason"], "load");
  }
  EXPECT_EQ(Post(kOllamaChat, Whole("Hi", {{"keep_alive", 0}})).json()["message"]["content"], "Hi");
}

TEST_F(OllamaTest, OptionsAreHonoured) {
  const auto options = [](const Json& options) {
    return Post(kOllamaChat, Whole("abcdefgh", {{"options", options}}));
  };
  const Json cut = options({{"num_predict", 3}}).json();
  EXPECT_EQ(cut["message"]["content"], "abc");
  EXPECT_EQ(cut["done_reason"], "length");
  for (const int most : {-1, -2}) {
    EXPECT_EQ(options({{"num_predict", most}}).json()["message"]["content"], "abcdefgh");
  }
  EXPECT_EQ(options({{"stop", Json::array({"de"})}}).json()["message"]["content"], "abc");
  EXPECT_EQ(options({{"temperature", 7.5}, {"top_k", 3.0}, {"seed", 4}, {"presence_penalty", 3}})
                .status(),
            200);
  EXPECT_THAT(ErrorOf(options({{"temperature", "hot"}}), 400),
              HasSubstr("options.temperature must be a number"));
  EXPECT_THAT(ErrorOf(options(Json::array()), 400), HasSubstr("options must be"));
}

TEST_F(OllamaTest, WhatIsPassedOverIsTold) {
  const auto response = Post(
      kOllamaChat,
      Whole("a",
            {{"options", {{"num_ctx", 1'000'000}, {"typical_p", 0.5}, {"num_gpu", 9}, {"who", 1}}},
             {"keep_alive", "5m"}}));
  EXPECT_THAT(response.Header("X-Weft-Warning"),
              AllOf(HasSubstr("options.num_ctx of 1000000"), HasSubstr("8192"),
                    HasSubstr("options.typical_p"), Not(HasSubstr("num_gpu"))));
  EXPECT_EQ(response.Header("X-Weft-Ignored"), "options.who");
  const auto fits =
      Post(kOllamaChat, Whole("a", {{"options", {{"num_ctx", 2048}, {"typical_p", 1}}}}));
  EXPECT_EQ(fits.Header("X-Weft-Warning"), "");
}

TEST_F(OllamaTest, WhatItCannotDoIsRefused) {
  EXPECT_THAT(ErrorOf(Post(kOllamaChat, Whole("x", {{"format", "yaml"}})), 400),
              HasSubstr("format must be"));
  EXPECT_EQ(Post(kOllamaGenerate, Generate("x", {{"format", ""}})).status(), 200);
  EXPECT_THAT(ErrorOf(Post(kOllamaGenerate, Generate("x", {{"template", "{{ .Prompt }}"}})), 400),
              HasSubstr("use raw"));
  EXPECT_THAT(
      ErrorOf(Post(kOllamaGenerate, Generate("x", {{"images", Json::array({"aGk="})}})), 400),
      HasSubstr("--mmproj"));
  EXPECT_THAT(ErrorOf(Post(kOllamaGenerate, Generate("x", {{"suffix", "y"}})), 400),
              HasSubstr("suffix cannot be used"));
  Json picture = Whole("x");
  picture["messages"][0]["images"] = Json::array({"aGk="});
  EXPECT_THAT(ErrorOf(Post(kOllamaChat, picture), 400), HasSubstr("messages[0].images"));
  EXPECT_THAT(ErrorOf(Post(kOllamaChat, Chat(std::string(9000, 'x'))), 400), HasSubstr("tokens"));
  EXPECT_THAT(ErrorOf(Post(kOllamaChat, "{"), 400), HasSubstr("JSON"));
}

TEST_F(OllamaTest, OnlyTheModelThatIsServedIsFound) {
  for (const char* const path :
       {kOllamaChat, kOllamaGenerate, "/api/show", "/api/embed", "/api/embeddings"}) {
    EXPECT_EQ(ErrorOf(Post(path, {{"model", "other:7b"}}), 404), "model 'other:7b' not found");
    EXPECT_THAT(ErrorOf(Post(path, Json::object()), 400), StartsWith("model must"));
  }
  EXPECT_TRUE(IsServedModel(host(), "scripted"));
  EXPECT_TRUE(IsServedModel(host(), "scripted:latest"));
  EXPECT_FALSE(IsServedModel(host(), "scripted:7b"));
  EXPECT_EQ(Post(kOllamaChat, {{"name", "scripted"}}).status(), 200)
      << "the older name of the field";
}

TEST_F(OllamaTest, AFailureInTheMiddleIsALine) {
  const auto lines = Lines(Post(kOllamaChat, Chat("ab<<fail>>")));
  std::string text;
  for (size_t i = 0; i + 1 < lines.size(); ++i) text += lines[i]["message"]["content"];
  EXPECT_EQ(text, "ab");
  EXPECT_THAT(KeysOf(lines.back()), ElementsAre("error"));
  EXPECT_NE(ErrorOf(Post(kOllamaChat, Whole("ab<<fail>>")), 400), "");
}

TEST_F(OllamaTest, AClientThatLeavesEndsItsTurn) {
  MemoryResponder responder(/*leaves_at_write=*/2);
  Post(kOllamaChat, Chat("<<slow>>" + std::string(500, 'x')), &responder);
  ExpectIdle();
}

TEST_F(OllamaTest, TellsLogprobs) {
  const Json wanted = {{"logprobs", true}, {"top_logprobs", 2}};
  const Json body = Post(kOllamaChat, Whole("ab", wanted)).json();
  ASSERT_EQ(body["logprobs"].size(), 2u) << body;
  EXPECT_EQ(body["logprobs"][0]["top_logprobs"].size(), 2u);
  size_t n = 0;
  for (const Json& line : Lines(Post(kOllamaChat, Chat("ab", wanted)))) {
    if (line.contains("logprobs")) n += line["logprobs"].size();
  }
  EXPECT_EQ(n, 2u);
}

TEST_F(OllamaTest, SessionsAreThoseOfTheOthers) {
  Post(kOllamaChat, Whole("Hello."), {{"X-Session-Id", "mine"}});
  Post(kOllamaGenerate, Generate("Hello.", {{"session_id", "hers"}}));
  const auto sessions = host().engine().ListSessions("");
  ASSERT_TRUE(sessions.ok());
  std::vector<std::string> names;
  for (const SessionInfo& session : *sessions) names.push_back(session.name);
  EXPECT_THAT(names, AllOf(::testing::Contains("mine"), ::testing::Contains("hers")));
}

// --- queries about models ------------------------------------------------------------------

TEST_F(OllamaTest, ListsItsModel) {
  const Json tags = Get("/api/tags")["models"];
  ASSERT_EQ(tags.size(), 1u);
  EXPECT_EQ(tags[0]["name"], "scripted:latest");
  EXPECT_EQ(tags[0]["model"], "scripted:latest");
  EXPECT_GT(tags[0]["size"], 0);
  EXPECT_THAT(std::string(tags[0]["digest"]), MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(tags[0]["details"]["format"], "gguf");
  EXPECT_EQ(tags[0]["details"]["family"], "llama");
  EXPECT_GT(tags[0]["details"]["context_length"], 0);
  EXPECT_GT(tags[0]["details"]["embedding_length"], 0);
  EXPECT_EQ(tags[0]["capabilities"][0], "completion");
  const Json running = Get("/api/ps")["models"];
  EXPECT_EQ(running[0]["digest"], tags[0]["digest"]);
  EXPECT_EQ(running[0]["context_length"], testing::kScriptedContext);
  EXPECT_GT(std::string(running[0]["expires_at"]), std::string(tags[0]["modified_at"]));
  EXPECT_THAT(std::string(Get("/api/version")["version"]), MatchesRegex("[0-9]+.[0-9]+.[0-9]+"));
}

TEST_F(OllamaTest, ShowsWhatTheModelCan) {
  const Json shown = Post("/api/show", {{"model", "scripted"}}).json();
  EXPECT_EQ(shown["capabilities"], Json::array({"completion", "tools", "thinking"}));
  const Json& info = shown["model_info"];
  EXPECT_EQ(info["general.architecture"], "llama");
  EXPECT_GT(info["llama.block_count"], 0);
  EXPECT_GT(info["general.parameter_count"], 0);
  EXPECT_TRUE(info["tokenizer.ggml.tokens"].is_null());
  EXPECT_THAT(std::string(shown["template"]), HasSubstr("tool_call"));
  EXPECT_THAT(std::string(shown["parameters"]), HasSubstr("num_ctx "));
  const Json all = Post("/api/show", {{"model", "scripted"}, {"verbose", true}}).json();
  EXPECT_EQ(all["model_info"]["tokenizer.ggml.tokens"].size(),
            static_cast<size_t>(host().model().n_vocab()));
}

TEST_F(OllamaTest, WhatIsNotDoneHereSaysWhatToDo) {
  for (const char* const path : {"/api/create", "/api/copy", "/api/push", "/api/blobs/sha256:ab"}) {
    EXPECT_NE(ErrorOf(Post(path, Json::object()), 501), "") << path;
  }
  for (const char* const path : {"/api/embed", "/api/embeddings"}) {
    EXPECT_THAT(ErrorOf(Post(path, {{"model", "scripted"}, {"input", "x"}}), 400),
                HasSubstr("gives no embeddings"));
  }
}

// Whether a request with these headers is answered as Ollama's.
bool IsTakenForOllamas(HttpHeaders headers, bool by_second_port) {
  HttpRequest request{.method = "GET", .path = "/", .headers = std::move(headers)};
  request.by_second_port = by_second_port;
  MemoryResponder responder;
  if (!AnsweredAsOllama(request, responder)) return false;
  EXPECT_EQ(responder.status(), 200);
  EXPECT_EQ(responder.body(), "Ollama is running");
  return true;
}

TEST(OllamaRoot, BrowsersSeeThePage) {
  const HttpHeaders browser = {{"Accept", "text/html,application/xhtml+xml,application/json"}};
  const HttpHeaders anything = {{"Accept", "*/*"}};
  const HttpHeaders client = {{"accept", "application/json"}};
  EXPECT_FALSE(IsTakenForOllamas(browser, false));
  EXPECT_FALSE(IsTakenForOllamas(browser, true));
  EXPECT_FALSE(IsTakenForOllamas(anything, false));
  EXPECT_TRUE(IsTakenForOllamas(anything, true));
  EXPECT_TRUE(IsTakenForOllamas({}, true));
  EXPECT_TRUE(IsTakenForOllamas(client, false));
}

// --- /api/pull -----------------------------------------------------------------------------

class OllamaPullTest : public OllamaTest {
 protected:
  OllamaPullTest() {
    RegisterOllamaApi(router_, host(),
                      [this](const std::string& name, const auto& tell, const auto& is_wanted) {
                        return Pull(name, tell, is_wanted);
                      });
  }
  MemoryResponder Ask(const Json& body, bool is_operators = true, int leaves_at_write = -1) {
    HttpRequest request{.method = "POST", .path = "/api/pull", .body = body.dump()};
    request.is_operators = is_operators;
    MemoryResponder responder(leaves_at_write);
    testing::RunHandler(*router_.Find("POST", {"api", "pull"}).route, request, responder);
    EXPECT_EQ(responder.answers(), 1);
    return responder;
  }
  Status Pull(const std::string& name, const std::function<void(const OllamaPullProgress&)>& tell,
              const std::function<bool()>& is_wanted) {
    pulled_.push_back(name);
    if (name == "bad") return InvalidArgument("it has no such name");
    tell({.status = "pulling manifest"});
    for (int64_t done = 0; done <= 1000 && is_wanted(); ++done) {
      n_told_ = done;
      tell({.status = "pulling it",
            .digest = "sha256:ab",
            .total_bytes = 1000,
            .completed_bytes = done});
    }
    return name == "broken" ? DataLoss("the connection broke") : OkStatus();
  }

  Router router_;
  std::vector<std::string> pulled_;
  int64_t n_told_ = 0;
};

TEST_F(OllamaPullTest, TellsHowFarItIs) {
  const auto lines = Lines(Ask({{"model", "qwen3:0.6b"}}));
  EXPECT_THAT(pulled_, ElementsAre("qwen3:0.6b"));
  EXPECT_EQ(lines[0].dump(), R"({"status":"pulling manifest"})");
  EXPECT_EQ(lines[1].dump(),
            R"({"status":"pulling it","digest":"sha256:ab","total":1000,"completed":0})");
  EXPECT_EQ(lines[lines.size() - 2]["completed"], 1000);
  EXPECT_EQ(lines.back().dump(), R"({"status":"success"})");
  EXPECT_LT(lines.size(), 900u) << "some lines are enough";
}

TEST_F(OllamaPullTest, AnswersWhole) {
  const auto response = Ask({{"name", "qwen3:0.6b"}, {"stream", false}});
  EXPECT_EQ(response.body(), R"({"status":"success"})");
}

TEST_F(OllamaPullTest, ErrorsAreSentences) {
  EXPECT_EQ(ErrorOf(Ask({{"model", "bad"}}), 400), "it has no such name");
  EXPECT_EQ(Lines(Ask({{"model", "broken"}})).back().dump(), R"({"error":"the connection broke"})");
  EXPECT_EQ(ErrorOf(Ask({{"model", "broken"}, {"stream", false}}), 500), "the connection broke");
  EXPECT_THAT(ErrorOf(Ask(Json::object()), 400), HasSubstr("model must name"));
  EXPECT_THAT(ErrorOf(Ask({{"model", "x"}, {"insecure", true}}), 400), HasSubstr("HTTPS"));
}

TEST_F(OllamaPullTest, WhatIsServedIsThere) {
  EXPECT_EQ(Lines(Ask({{"model", "scripted"}}, /*is_operators=*/false)).back()["status"],
            "success");
  EXPECT_THAT(pulled_, ElementsAre());
}

TEST_F(OllamaPullTest, OneOfSeveralKeysCannotFillTheDisk) {
  EXPECT_THAT(ErrorOf(Ask({{"model", "x"}}, /*is_operators=*/false), 403), HasSubstr("weft pull"));
  EXPECT_THAT(pulled_, ElementsAre());
  EXPECT_THAT(ErrorOf(Post("/api/pull", {{"model", "x"}}), 501), HasSubstr("weft pull"));
}

TEST_F(OllamaPullTest, EndsWhenItsClientLeaves) {
  Ask({{"model", "x"}}, /*is_operators=*/true, /*leaves_at_write=*/1);
  EXPECT_LT(n_told_, 1000);
}

// --- filling in ------------------------------------------------------------------------------

class OllamaFillInTest : public OllamaTest {
 protected:
  static void SetUpTestSuite() { SetUpWith("fill-in-llama", 512); }
};

TEST_F(OllamaFillInTest, ASuffixAsksForWhatStandsBetween) {
  const Json body = Generate("x", {{"suffix", "end"}});
  const auto response = Post(kOllamaGenerate, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json openai =
      Post("/v1/completions", {{"prompt", body["prompt"]}, {"suffix", "end"}}).json();
  EXPECT_EQ(response.json()["prompt_eval_count"], openai["usage"]["prompt_tokens"]);
  EXPECT_EQ(response.json()["response"], "x");
  const Json shown = Post("/api/show", {{"model", "scripted"}}).json();
  EXPECT_THAT(shown["capabilities"].dump(), HasSubstr("insert"));
}

}  // namespace
}  // namespace weft::serve
