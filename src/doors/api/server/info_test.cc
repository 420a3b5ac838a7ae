// Queries by clients of vLLM and SGLang about the server and its tokens.
#include "doors/api/server/info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "doors/api/fields/support.h"
#include "doors/api/server/local_models.h"
#include "doors/api/server/routes.h"
#include "doors/host/model_host.h"
#include "model/formats/model_facts.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class InfoTest : public testing::ApiTest {};

// The procedure of lm-eval's remote tokenizer.
TEST_F(InfoTest, ATokenizerAtTheOtherEndOfALine) {
  const Json info = Get("/tokenizer_info");
  EXPECT_TRUE(info["tokenizer_class"].is_string());
  ASSERT_EQ(info["eos_token"], "</s>") << info;
  EXPECT_EQ(info["bos_token"], "<s>");
  EXPECT_THAT(std::string(info["chat_template"]), HasSubstr("im_start"));
  const auto encode = [](std::string_view text, bool special) {
    return Post("/tokenize", {{"prompt", text}, {"add_special_tokens", special}}).json();
  };
  EXPECT_EQ(encode("</s>", false)["tokens"], Json::array({host().model().tokenizer()->eos()}));
  const Json plain = encode("the loom", false);
  EXPECT_EQ(plain["count"], plain["tokens"].size());
  EXPECT_EQ(plain["max_model_len"], testing::kScriptedContext);
  EXPECT_EQ(Post("/tokenize", {{"prompt", "the loom"}}).json()["tokens"].size(),
            plain["tokens"].size() + 1)
      << "special tokens are added unless told otherwise";
  const Json decoded = Post("/detokenize", {{"tokens", plain["tokens"]}}).json();
  for (const char* name : {"prompt", "content", "text"}) EXPECT_EQ(decoded[name], "the loom");
  const Json with_end = {{"tokens", encode("a</s>", false)["tokens"]}};
  EXPECT_EQ(Post("/detokenize", with_end).json()["prompt"], "a</s>");
  Json without = with_end;
  without["skip_special_tokens"] = true;
  EXPECT_EQ(Post("/detokenize", without).json()["text"], "a");
}

TEST_F(InfoTest, ModelsAtHandAreForTheOperator) {
  Router router;
  RegisterLocalModelsApi(router, [] {
    const KnownModelCard known = {.name = "owner/repo", .use = "code", .sessions_that_fit = 3};
    std::vector<LocalModelCard> local{{.name = "small",
                                       .where = "folder",
                                       .title = "Small One",
                                       .architecture = "llama",
                                       .quantization = "Q4_0",
                                       .n_bytes = 1000,
                                       .n_parameters = 2000,
                                       .context_tokens = 4096,
                                       .session_tokens = 2048,
                                       .session_bytes = 500,
                                       .is_served = true,
                                       .command = "weft serve -m small"},
                                      {.name = "broken", .problem = "no model"}};
    return ModelChoice{.local = std::move(local), .known = {known}};
  });
  RegisterServerApi(router, host());
  const auto ask = [&](const std::string& path, bool is_operators) {
    Router::Match match = router.Find("GET", {"v1", "models", path});
    HttpRequest request{.method = "GET", .path = "/v1/models/" + path};
    request.is_operators = is_operators;
    request.path_arguments = match.arguments;
    testing::MemoryResponder responder;
    testing::RunHandler(*match.route, request, responder);
    return responder;
  };
  EXPECT_EQ(ask("local", false).status(), 403);
  const Json known = ask("local", true).json()["known"];
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0]["use"], "code");
  EXPECT_EQ(known[0]["sessions_that_fit"], 3);
  const Json data = ask("local", true).json()["data"];
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(data[0].dump(),
            R"({"id":"small","object":"local_model","where":"folder","bytes":1000,"served":true,)"
            R"("command":"weft serve -m small","title":"Small One","architecture":"llama",)"
            R"("quantization":"Q4_0","parameters":2000,"context_tokens":4096,)"
            R"("session":{"tokens":2048,"bytes":500}})");
  EXPECT_EQ(data[1]["error"], "no model");
  EXPECT_FALSE(data[1].contains("session"));
  const Json served = ask("scripted", false).json();
  const ModelFacts facts = FactsOf(host().model().file());
  EXPECT_FALSE(facts.quantization.empty());
  EXPECT_EQ(served["meta"]["title"], facts.title);
  EXPECT_EQ(served["meta"]["quantization"], facts.quantization);
}

TEST_F(InfoTest, TokensOfAConversation) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
  const Json answer =
      Post("/tokenize", {{"messages", messages}, {"return_token_strs", true}}).json();
  const Json prompt = Post("/apply-template", {{"messages", messages}}).json()["prompt"];
  EXPECT_EQ(answer["tokens"], Post("/tokenize", {{"content", prompt}}).json()["tokens"]);
  EXPECT_EQ(answer["token_strs"].size(), answer["tokens"].size());
  EXPECT_EQ(answer["token_strs"][0], "<|im_start|>");
}

TEST_F(InfoTest, TheTwoFormsOfTokenizeDoNotMix) {
  EXPECT_EQ(Post("/tokenize", {{"content", "a"}, {"prompt", "a"}}).status(), 400);
  EXPECT_EQ(Post("/tokenize", {{"prompt", 1}}).status(), 400);
  EXPECT_EQ(Post("/tokenize", {{"messages", "x"}}).status(), 400);
  EXPECT_EQ(Post("/tokenize", Json::array()).status(), 400);
  EXPECT_FALSE(Post("/tokenize", {{"content", "a"}}).json().contains("count"));
}

TEST_F(InfoTest, MoreTextThanIsTokenizedAtOnceIsRefused) {
  const std::string text(1 << 20, 'x'), more = text + "y";
  EXPECT_EQ(Post("/tokenize", {{"content", text}}).status(), 200);
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  for (const Json& body : {Json{{"content", more}}, Json{{"content", {7, text, "y"}}},
                           Json{{"prompt", more}}, Json{{"messages", messages}}}) {
    const auto answer = Post("/tokenize", body);
    EXPECT_EQ(answer.status(), 400);
    EXPECT_THAT(answer.body(), HasSubstr("at most 1048576 are tokenized in one request"));
  }
}

TEST_F(InfoTest, TheModelAndTheServer) {
  for (const char* path : {"/model_info", "/get_model_info"}) {
    const Json info = Get(path);
    EXPECT_EQ(info["model_path"], ModelFileName(host().model())) << "and no folder";
    EXPECT_EQ(info["tokenizer_path"], info["model_path"]);
    EXPECT_EQ(info["is_generation"], true);
    EXPECT_EQ(info["model_type"], "llama");
    EXPECT_EQ(info["architectures"], Json::array({"LlamaForCausalLM"})) << "as config.json has it";
  }
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const Json info = Get(path);
    EXPECT_EQ(info["served_model_name"], "scripted");
    EXPECT_EQ(info["context_length"], testing::kScriptedContext);
    EXPECT_EQ(info["model_path"], ModelFileName(host().model()));
    EXPECT_GT(info["max_running_requests"], 0);
    EXPECT_EQ(info["internal_states"][0]["num_running_reqs"], 0);
  }
  EXPECT_EQ(Get("/version")["version"], Get("/server_info")["version"]);
  EXPECT_EQ(Get("/load"), Json({{"server_load", 0}}));
}

TEST_F(InfoTest, AKeySeesItsOwnLoad) {
  TurnOptions options;
  options.tokens = {1, 2, 3};
  options.ignore_eos = true;
  auto turn = host().engine().SubmitOnce("key a", options);  // pauses, as nobody takes its tokens
  ASSERT_TRUE(turn.ok()) << turn.status();
  const auto load = [](const char* domain) { return Get("/load", domain)["server_load"]; };
  const auto reqs = [](const char* domain) {
    const Json state = Get("/server_info", domain)["internal_states"][0];
    return state["num_running_reqs"].get<int>() + state["num_waiting_reqs"].get<int>();
  };
  EXPECT_EQ(load("key a"), 1);
  EXPECT_EQ(reqs("key a"), 1);
  EXPECT_EQ(load("key b"), 0);
  EXPECT_EQ(reqs("key b"), 0);
  Router router;
  RegisterInfoApi(router, host());
  HttpRequest request{.method = "GET", .path = "/load"};
  request.is_operators = true;
  testing::MemoryResponder responder;
  testing::RunHandler(*router.Find("GET", {"load"}).route, request, responder);
  EXPECT_EQ(responder.json()["server_load"], 1);
  (*turn)->Cancel();
  while ((*turn)->Next()) continue;
}

}  // namespace
}  // namespace weft::serve
