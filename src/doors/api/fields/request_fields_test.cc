// Fields common to all bodies: sessions, sampling, stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/fields/support.h"
#include "json/json_text.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ordered_json ReadFields(std::string_view text) { return *ParseJson(text, {}); }

StatusOr<SessionChoice> Choose(std::string_view body, HttpHeaders headers) {
  const ordered_json json = ReadFields(body);
  ApiFields fields(json);
  HttpRequest request;
  request.headers = std::move(headers);
  auto choice = ChooseSession(request, &fields);
  EXPECT_TRUE(fields.ok());
  return choice;
}

TEST(SessionName, TheBodyComesBeforeHeadersInTheirOrder) {
  const HttpHeaders all = {
      {"x-smg-routing-key", "g"},      {"x-opencode-session", "f"}, {"session-id", "e"},
      {"x-session-id", "d"},           {"X-Session-Affinity", "c"}, {"Session_Id", "b"},
      {"x-executorch-session-id", "a"}};
  EXPECT_EQ(Choose(R"({"session_id":"z"})", all)->name, "z");
  EXPECT_TRUE(Choose(R"({"session_id":"z"})", all)->required);
  for (size_t left = all.size(); left > 0; --left) {
    const auto choice =
        Choose("{}", HttpHeaders(all.begin(), all.begin() + static_cast<long>(left)));
    EXPECT_EQ(choice->name, all[left - 1].second);
    EXPECT_FALSE(choice->required);
  }
  EXPECT_EQ(Choose(R"({"session_id":null})", {})->name, "");
}

TEST(SessionName, RefusesWhatIsNoName) {
  for (const std::string& bad :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("caf\xc3\xa9")}) {
    const Status status = ValidateSessionName(bad);
    EXPECT_EQ(ToDetailedApiError(status).code, "invalid_session_id") << bad;
    EXPECT_EQ(ToDetailedApiError(status).param, "session_id");
  }
  EXPECT_TRUE(ValidateSessionName(std::string(128, '~')).ok());
  EXPECT_FALSE(Choose("{}", {{"session_id", "a b"}}).ok());
}

// The turn described by a body, or the error.
StatusOr<TurnOptions> Read(std::string_view body, std::vector<std::string>* unknown = nullptr) {
  const ordered_json json = ReadFields(body);
  ApiFields fields(json);
  TurnOptions turn;
  ReadSampling(&fields, *testing::TinyModel("llama"), {}, &turn);
  ReadStops(&fields, &turn);
  ReadMaxTokens(&fields, 1, &turn);
  ReadForeignFields(&fields, &turn);
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(unknown == nullptr ? &ignored : unknown));
  return turn;
}

TEST(SamplingParams, NothingGivenKeepsTheEnginesDefaults) {
  const TurnOptions turn = *Read("{}");
  const SamplingOptions defaults;
  EXPECT_EQ(turn.sampling.temperature, defaults.temperature);
  EXPECT_EQ(turn.sampling.top_k, defaults.top_k);
  EXPECT_FALSE(turn.sampling.seed.has_value());
  EXPECT_EQ(turn.max_tokens, -1);
}

TEST(SamplingParams, ReadsEveryFieldByAllItsNames) {
  const TurnOptions turn = *Read(R"({"temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,
      "repetition_penalty":1.5,"frequency_penalty":-1,"presence_penalty":2,"repeat_last_n":7,
      "seed":12,"ignore_eos":true,"min_tokens":2,"stop":["a","b"],"stop_token_ids":[4,5],
      "max_tokens":3,"max_completion_tokens":4,"speculative.n_max":5,"speculative.n_min":2,
      "speculative.p_min":0.75})");
  EXPECT_EQ(turn.sampling.temperature, 0);
  EXPECT_EQ(turn.sampling.top_p, 0.5f);
  EXPECT_EQ(turn.sampling.top_k, 0);
  EXPECT_EQ(turn.sampling.min_p, 0.1f);
  EXPECT_EQ(turn.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(turn.sampling.frequency_penalty, -1);
  EXPECT_EQ(turn.sampling.presence_penalty, 2);
  EXPECT_EQ(turn.sampling.penalty_window, 7);
  EXPECT_EQ(turn.sampling.seed, 12u);
  EXPECT_TRUE(turn.ignore_eos);
  EXPECT_THAT(turn.stop_strings, ElementsAre("a", "b"));
  EXPECT_THAT(turn.stop_tokens, ElementsAre(4, 5));
  EXPECT_EQ(turn.max_tokens, 4);
  EXPECT_EQ(turn.min_tokens, 2);
  EXPECT_EQ(turn.speculation.most, 5);
  EXPECT_EQ(turn.speculation.least, 2);
  EXPECT_EQ(turn.speculation.min_probability, 0.75f);
  EXPECT_TRUE(turn.end_loops);
  EXPECT_FALSE(Read(R"({"end_loops":false})")->end_loops);
  EXPECT_FALSE(Read(R"({"seed":-1})")->sampling.seed.has_value());
  EXPECT_GT(Read(R"({"top_p":0})")->sampling.top_p, 0);
  EXPECT_THAT(Read(R"({"stop":"x"})")->stop_strings, ElementsAre("x"));
  EXPECT_THAT(Read(R"({"stop":["","x",""]})")->stop_strings, ElementsAre("x"));
}

TEST(SamplingParams, RulesSayWhereARequestStartsAndHowFarItMayGo) {
  SamplingRules rules{.has_openai_limits = false};
  rules.defaults.top_k = 3;
  rules.defaults.seed = 5;
  const auto read = [&](std::string_view body) {
    const ordered_json json = ReadFields(body);
    ApiFields fields(json);
    TurnOptions turn;
    ReadSampling(&fields, *testing::TinyModel("llama"), rules, &turn);
    EXPECT_TRUE(fields.ok()) << body;
    return turn.sampling;
  };
  EXPECT_EQ(read("{}").top_k, 3);
  EXPECT_EQ(read("{}").seed, 5u);
  EXPECT_FALSE(read(R"({"seed":-1})").seed.has_value()) << "one is to be drawn";
  const SamplingOptions far = read(R"({"temperature":99,"frequency_penalty":-9,"top_k":1})");
  EXPECT_EQ(far.temperature, 99);
  EXPECT_EQ(far.frequency_penalty, -9);
  EXPECT_EQ(far.top_k, 1);
}

TEST(SamplingParams, ReadsBiasesInBothShapes) {
  EXPECT_THAT(Read(R"({"logit_bias":{"17":-5,"3":100}})")->sampling.logit_bias,
              ElementsAre(Pair(17, -5.0f), Pair(3, 100.0f)));
  EXPECT_THAT(Read(R"({"logit_bias":[[17,false],[4,1.5]]})")->sampling.logit_bias,
              ElementsAre(Pair(17, -INFINITY), Pair(4, 1.5f)));
  EXPECT_FALSE(Read(R"({"logit_bias":[["hello",2]]})")->sampling.logit_bias.empty());
  for (const char* bad :
       {R"({"logit_bias":3})", R"({"logit_bias":{"17":"x"}})", R"({"logit_bias":{"99999":1}})",
        R"({"logit_bias":[[1]]})", R"({"logit_bias":{"1":true}})"}) {
    const ApiError error = ToDetailedApiError(Read(bad).status());
    EXPECT_EQ(error.http_status, 400) << bad;
    EXPECT_EQ(error.param, "logit_bias") << bad;
    EXPECT_EQ(error.code, "invalid_value") << bad;
  }
}

TEST(SamplingParams, BoundsTheTokensThatTextsName) {
  ordered_json biases = ordered_json::array();
  biases.push_back({std::string(257, 'x'), 1});
  EXPECT_EQ(ToDetailedApiError(Read(ordered_json{{"logit_bias", biases}}.dump()).status()).param,
            "logit_bias");
  biases = ordered_json::array();
  for (int i = 0; i < 600; ++i) biases.push_back({std::string(256, "qzx"[i % 3]), 1});
  EXPECT_THAT(Message(Read(ordered_json{{"logit_bias", biases}}.dump()).status()),
              HasSubstr("more than 4096 tokens"));
}

TEST(SamplingParams, NamesTheFieldAtFault) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature":2.5})", "temperature"},
      {R"({"temperature":"hot"})", "temperature"},
      {R"({"top_p":1.5})", "top_p"},
      {R"({"max_tokens":0})", "max_tokens"},
      {R"({"stop":{}})", "stop"},
      {R"({"stop_token_ids":["a"]})", "stop_token_ids"},
      {R"({"repeat_penalty":1.1,"repetition_penalty":1.2})", "repetition_penalty"}};
  for (const auto& [body, param] : cases) {
    const ApiError error = ToDetailedApiError(Read(body).status());
    EXPECT_EQ(error.param, param) << body;
    EXPECT_EQ(error.code, "invalid_value") << body;
    EXPECT_THAT(error.message, HasSubstr(param));
  }
  ordered_json many = ordered_json::array();
  for (int i = 0; i < 65; ++i) many.push_back("x");
  EXPECT_EQ(ToDetailedApiError(Read(ordered_json{{"stop", many}}.dump()).status()).param, "stop");
}

TEST(SamplingParams, RefusesWhatWouldChangeTheOutput) {
  for (const char* body :
       {R"({"typical_p":0.5})", R"({"mirostat":2})", R"({"samplers":["mirostat"]})"}) {
    const ApiError error = ToDetailedApiError(Read(body).status());
    EXPECT_EQ(error.http_status, 400) << body;
    EXPECT_EQ(error.code, "unsupported_parameter") << body;
  }
}

TEST(SamplingParams, IgnoresWhatCannotAndListsWhatIsUnknown) {
  std::vector<std::string> unknown;
  EXPECT_TRUE(Read(R"({"cache_prompt":false,"id_slot":3,"typical_p":1,"mirostat":0,
                       "made_up":1,"another":null})",
                   &unknown)
                  .ok());
  EXPECT_THAT(unknown, ElementsAre("made_up", "another"));
}

TEST(ApiSupport, IdsAreNotRepeated) {
  EXPECT_TRUE(NewId("call_").starts_with("call_"));
  EXPECT_NE(NewId("a"), NewId("a"));
  EXPECT_EQ(NewId("", 9).size(), 9u);
}

TEST(ApiSupport, TheHeaderOfIgnoredNamesIsOneLine) {
  EXPECT_TRUE(NoticeHeaders({}).empty());
  const HttpHeaders headers = NoticeHeaders({"a", "b\r\nX-Evil: 1", "c"});
  ASSERT_EQ(headers.size(), 1u);
  EXPECT_EQ(headers[0].second, "a, c");
}

TEST(ApiSupport, TextThatIsNoUtf8IsStillJson) {
  EXPECT_EQ(CompactJson("\xff"), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace weft::serve
