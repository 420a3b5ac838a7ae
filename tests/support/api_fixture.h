// Requests to the APIs' handlers without a server: the routes of all APIs over one scripted model,
// which lives as long as the process.
#ifndef WEFT_TESTS_SUPPORT_API_FIXTURE_H_
#define WEFT_TESTS_SUPPORT_API_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doors/api/anthropic/routes.h"
#include "doors/api/llama/routes.h"
#include "doors/api/llama/slots.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/openai/routes.h"
#include "doors/api/responses/routes.h"
#include "doors/api/server/info.h"
#include "doors/api/server/routes.h"
#include "doors/api/sessions/routes.h"
#include "doors/http/router.h"
#include "tests/support/memory_responder.h"
#include "tests/support/scripted_host.h"

namespace weft::serve {

// The routes that most tests use.
inline constexpr char kChat[] = "/v1/chat/completions";
inline constexpr char kMessages[] = "/v1/messages";
inline constexpr char kResponses[] = "/v1/responses";
inline constexpr char kOllamaChat[] = "/api/chat";
inline constexpr char kOllamaGenerate[] = "/api/generate";

}  // namespace weft::serve

namespace weft::testing {

class ApiTest : public ::testing::Test {
 protected:
  using Json = nlohmann::ordered_json;

  static void SetUpTestSuite() { SetUpWith("llama", kScriptedContext); }

  // For suites with their own model.
  static void SetUpWith(const std::string& architecture, int64_t context,
                        const serve::RequestDefaults& defaults = {.server = {.hold_calls = false}},
                        const std::string& slot_folder = "") {
    EngineOptions options;
    options.n_threads = 1;
    auto model = ScriptedModel::Start(options, context, architecture, defaults);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = model->release();
    router_ = new serve::Router();
    serve::RegisterOpenAiApi(*router_, model_->host());
    serve::RegisterAnthropicApi(*router_, model_->host());
    serve::RegisterResponsesApi(*router_, model_->host());
    serve::RegisterLlamaApi(*router_, model_->host());
    serve::RegisterInfoApi(*router_, model_->host());
    serve::RegisterOllamaApi(*router_, model_->host());
    serve::RegisterServerApi(*router_, model_->host());
    serve::RegisterSessionsApi(*router_, model_->host());
    serve::RegisterSlotsApi(*router_, model_->host(), slot_folder);
  }

  static void TearDownTestSuite() {
    delete std::exchange(router_, nullptr);
    delete std::exchange(model_, nullptr);
  }

  static ScriptedHost& host() { return model_->host(); }

  // The path may end with one parameter, "?name=value".
  static void Post(std::string_view path, const Json& body, MemoryResponder* responder,
                   serve::HttpHeaders headers = {}, std::string domain = "") {
    serve::HttpRequest request;
    if (const size_t mark = path.find('?'); mark != path.npos) {
      const std::string_view query = path.substr(mark + 1);
      const size_t equals = query.find('=');
      request.query[std::string(query.substr(0, equals))] = query.substr(equals + 1);
      path = path.substr(0, mark);
    }
    request.method = "POST";
    request.path = std::string(path);
    request.headers = std::move(headers);
    request.body = body.is_string() ? body.get<std::string>() : body.dump();
    request.domain = std::move(domain);
    request.is_operators = request.domain.empty();
    std::vector<std::string> segments;
    ASSERT_TRUE(serve::SplitPath(path, &segments));
    serve::Router::Match match = router_->Find("POST", segments);
    ASSERT_NE(match.route, nullptr) << path;
    request.path_arguments = std::move(match.arguments);
    RunHandler(*match.route, request, *responder);
    EXPECT_EQ(responder->answers(), 1) << path;
  }

  static Json Get(std::string_view path, std::string domain = "") {
    serve::HttpRequest request;
    request.domain = std::move(domain);
    request.method = "GET";
    request.path = std::string(path);
    std::vector<std::string> segments;
    serve::SplitPath(path, &segments);
    serve::Router::Match match = router_->Find("GET", segments);
    if (match.route == nullptr) return nullptr;
    request.path_arguments = std::move(match.arguments);
    MemoryResponder responder;
    RunHandler(*match.route, request, responder);
    EXPECT_EQ(responder.status(), 200) << path;
    return responder.json();
  }

  // A string body is sent verbatim.
  static MemoryResponder Post(std::string_view path, const Json& body,
                              serve::HttpHeaders headers = {}, std::string domain = "") {
    MemoryResponder responder;
    Post(path, body, &responder, std::move(headers), std::move(domain));
    return responder;
  }

  // A user message that makes the model say `text`.
  static Json Say(std::string_view text) {
    return {{"role", "user"}, {"content", "<<say>>" + std::string(text) + "<</say>>"}};
  }

  // A chat body for which the model says `say`; `more` replaces fields.
  static Json Chat(std::string_view say, const Json& more = Json::object()) {
    Json body = {{"messages", Json::array({Say(say)})}};
    body.update(more);
    return body;
  }

  // A call of WeatherTool in the scripted model's format.
  static constexpr char kWeatherCall[] =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>";
  static Json WeatherTool() {
    return {
        {"type", "function"},
        {"function",
         {{"name", "get_weather"},
          {"description", "The weather of a city"},
          {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}}}};
  }

  // No turns are left, and only the prefix cache holds pages.
  static void ExpectIdle() {
    const EngineStats stats = host().engine().Stats();
    EXPECT_EQ(stats.turns_running, 0);
    EXPECT_EQ(stats.turns_queued, 0);
    EXPECT_TRUE(host().engine().CheckIntegrity().ok());
  }

 private:
  // Per test suite. Raw pointers, because statics must not have destructors.
  static inline ScriptedModel* model_ = nullptr;
  static inline serve::Router* router_ = nullptr;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_API_FIXTURE_H_
