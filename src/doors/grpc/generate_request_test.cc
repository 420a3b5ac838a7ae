#include "doors/grpc/generate_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "base/strings.h"
#include "doors/grpc/rpc_call.h"
#include "engine/state/session_trouble.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

pb::GenerateRequest Request() {
  pb::GenerateRequest request;
  request.mutable_tokenized()->add_input_ids(5);
  request.mutable_tokenized()->add_input_ids(6);
  return request;
}

TEST(GenerateRequest, DefaultsAreThoseOfTheProtocol) {
  const auto turn = TurnOptionsOf(Request(), {});
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_THAT(turn->tokens, ElementsAre(5, 6));
  EXPECT_EQ(turn->max_tokens, -1);
  EXPECT_EQ(turn->top_logprobs, -1);
  EXPECT_FALSE(turn->ignore_eos);
  EXPECT_EQ(turn->sampling.temperature, 1.0f);
  EXPECT_EQ(turn->sampling.top_p, 1.0f);
  EXPECT_EQ(turn->sampling.top_k, 0);
  EXPECT_EQ(turn->sampling.min_p, 0.0f);
  EXPECT_EQ(turn->sampling.repetition_penalty, 1.0f);
  EXPECT_FALSE(turn->sampling.seed.has_value());
}

TEST(GenerateRequest, WhatIsLeftOpenIsTheServers) {
  RequestDefaults defaults{.advice = {.temperature = 0.25, .top_k = 9, .top_p = 0.5},
                           .ends = {.tokens = {77}}};
  defaults.sampling.seed = 5;
  pb::GenerateRequest request = Request();
  auto turn = TurnOptionsOf(request, defaults);
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->sampling.temperature, 0.25f);
  EXPECT_EQ(turn->sampling.top_k, 9);
  EXPECT_EQ(turn->sampling.top_p, 0.5f);
  EXPECT_EQ(turn->sampling.min_p, 0.0f);
  EXPECT_EQ(turn->sampling.seed, 5u);
  EXPECT_THAT(turn->stop_tokens, ElementsAre(77));
  pb::SamplingParams& params = *request.mutable_sampling_params();
  params.set_temperature(0);
  params.set_top_p(1);
  params.set_ignore_eos(true);
  turn = TurnOptionsOf(request, defaults);
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->sampling.temperature, 0.0f);
  EXPECT_EQ(turn->sampling.top_p, 1.0f);
  EXPECT_TRUE(turn->stop_tokens.empty());
}

TEST(GenerateRequest, EveryFieldCounts) {
  pb::GenerateRequest request = Request();
  pb::SamplingParams& params = *request.mutable_sampling_params();
  params.set_temperature(0);
  params.set_top_p(0.5f);
  params.set_top_k(7);
  params.set_min_p(0.25f);
  params.set_repetition_penalty(1.5f);
  params.set_frequency_penalty(-1);
  params.set_presence_penalty(2);
  (*params.mutable_logit_bias())[9] = -INFINITY;
  params.set_max_tokens(3);
  params.add_stop_token_ids(11);
  params.set_ignore_eos(true);
  params.set_logprobs(4);
  params.set_seed(-1);
  const auto turn = TurnOptionsOf(request, {});
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->sampling.temperature, 0.0f);
  EXPECT_EQ(turn->sampling.top_p, 0.5f);
  EXPECT_EQ(turn->sampling.top_k, 7);
  EXPECT_EQ(turn->sampling.min_p, 0.25f);
  EXPECT_EQ(turn->sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(turn->sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(turn->sampling.presence_penalty, 2.0f);
  EXPECT_THAT(turn->sampling.logit_bias, ElementsAre(std::pair(9, -INFINITY)));
  EXPECT_EQ(turn->max_tokens, 3);
  EXPECT_THAT(turn->stop_tokens, ElementsAre(11));
  EXPECT_TRUE(turn->ignore_eos);
  EXPECT_EQ(turn->top_logprobs, 4);
  EXPECT_EQ(turn->sampling.seed, 0xFFFFFFFFu);
}

TEST(GenerateRequest, ZeroLogprobsAreNone) {
  pb::GenerateRequest request = Request();
  request.mutable_sampling_params()->set_logprobs(0);
  EXPECT_EQ(TurnOptionsOf(request, {})->top_logprobs, -1);
}

TEST(GenerateRequest, SaysWhichFieldIsWrong) {
  const auto refused = [](auto change, const char* says) {
    pb::GenerateRequest request = Request();
    change(&request, request.mutable_sampling_params());
    const auto turn = TurnOptionsOf(request, {});
    EXPECT_EQ(turn.status().code(), StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(Message(turn.status())), HasSubstr(says));
  };
  using R = pb::GenerateRequest;
  using P = pb::SamplingParams;
  refused([](R* r, P*) { r->set_text("hello"); }, "tokenized input is required");
  refused([](R* r, P*) { r->clear_input(); }, "tokenized input is required");
  refused([](R* r, P*) { r->mutable_tokenized()->add_input_ids(1u << 31); }, "input_ids");
  refused([](R*, P* p) { p->set_temperature(-1); }, "temperature");
  refused([](R*, P* p) { p->set_temperature(NAN); }, "temperature");
  refused([](R*, P* p) { p->set_top_p(1.5f); }, "top_p");
  refused([](R*, P* p) { p->set_top_p(-0.5f); }, "top_p");
  refused([](R*, P* p) { p->set_min_p(2); }, "min_p");
  refused([](R*, P* p) { p->set_top_k(1u << 31); }, "top_k");
  refused([](R*, P* p) { p->set_repetition_penalty(-1); }, "repetition_penalty");
  refused([](R*, P* p) { p->set_frequency_penalty(INFINITY); }, "frequency_penalty");
  refused([](R*, P* p) { p->set_presence_penalty(NAN); }, "presence_penalty");
  refused([](R*, P* p) { (*p->mutable_logit_bias())[1] = NAN; }, "logit_bias");
  refused([](R*, P* p) { p->add_stop_token_ids(1u << 31); }, "stop_token_ids");
}

// --- the service of vLLM's name ------------------------------------------------------------

namespace vllm_pb = vllm::grpc::engine;

constexpr int64_t kContext = 100;

vllm_pb::GenerateRequest VllmRequest(int n_tokens = 2) {
  vllm_pb::GenerateRequest request;
  for (int i = 0; i < n_tokens; ++i) {
    request.mutable_tokenized()->add_input_ids(static_cast<uint32_t>(5 + i));
  }
  return request;
}

TEST(VllmRequest, TakesWhatTheOtherServiceLacks) {
  vllm_pb::GenerateRequest request = VllmRequest();
  vllm_pb::SamplingParams& params = *request.mutable_sampling_params();
  EXPECT_EQ(TurnOptionsOf(request, kContext, {})->n_choices, 1);
  params.set_n(3);
  params.set_min_tokens(4);
  params.add_stop("a");
  params.add_stop("");
  params.set_logprobs(0);
  const auto turn = TurnOptionsOf(request, kContext, {});
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_THAT(turn->tokens, ElementsAre(5, 6));
  EXPECT_EQ(turn->n_choices, 3);
  EXPECT_EQ(turn->min_tokens, 4);
  EXPECT_THAT(turn->stop_strings, ElementsAre("a"));
  EXPECT_EQ(turn->top_logprobs, 0);
  EXPECT_FALSE(turn->prompt_logprobs);
  params.set_prompt_logprobs(2);
  EXPECT_EQ(TurnOptionsOf(request, kContext, {})->top_logprobs, 2);
  EXPECT_TRUE(TurnOptionsOf(request, kContext, {})->prompt_logprobs);
}

TEST(VllmRequest, TruncationKeepsTheLastTokens) {
  vllm_pb::GenerateRequest request = VllmRequest(150);
  EXPECT_EQ(TurnOptionsOf(request, kContext, {})->tokens.size(), 150u);
  request.mutable_sampling_params()->set_truncate_prompt_tokens(2);
  EXPECT_THAT(TurnOptionsOf(request, kContext, {})->tokens, ElementsAre(153, 154));
  request.mutable_sampling_params()->set_truncate_prompt_tokens(-1);
  EXPECT_EQ(TurnOptionsOf(request, kContext, {})->tokens.size(), 99u);
}

TEST(VllmRequest, RefusesByName) {
  const auto refused = [](StatusCode code, auto change, const char* says) {
    vllm_pb::GenerateRequest request = VllmRequest();
    change(&request, request.mutable_sampling_params());
    const auto turn = TurnOptionsOf(request, kContext, {});
    EXPECT_EQ(turn.status().code(), code) << says;
    EXPECT_THAT(std::string(Message(turn.status())), HasSubstr(says));
  };
  using R = vllm_pb::GenerateRequest;
  using P = vllm_pb::SamplingParams;
  constexpr auto kMissing = StatusCode::kUnimplemented;
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  refused(
      kMissing, [](R* r, P*) { r->mutable_mm_inputs(); }, "mm_inputs");
  refused(
      kMissing, [](R* r, P*) { r->add_extra_mm_inputs(); }, "extra_mm_inputs");
  refused(
      kMissing, [](R* r, P*) { r->mutable_media_refs(); }, "media_refs");
  refused(
      kMissing, [](R* r, P*) { r->mutable_kv_transfer_params(); }, "kv_transfer_params");
  refused(
      kMissing, [](R* r, P*) { r->set_kv_transfer_params_json("{}"); }, "kv_transfer_params");
  refused(
      kWrong, [](R* r, P*) { r->set_data_parallel_rank(2); }, "data_parallel_rank");
  refused(
      kWrong, [](R* r, P*) { r->set_text("hello"); }, "tokenized input is required");
  refused(
      kWrong, [](R*, P* p) { p->set_logprobs(-1); }, "logprobs");
  refused(
      kWrong, [](R*, P* p) { p->set_prompt_logprobs(-1); }, "prompt_logprobs");
  refused(
      kWrong, [](R*, P* p) { p->set_truncate_prompt_tokens(0); }, "truncate_prompt_tokens");
  refused(
      kWrong,
      [](R*, P* p) {
        p->set_regex("a");
        p->set_ignore_eos(true);
      },
      "ignore_eos cannot be combined with a constraint");
}

TEST(ToGrpcStatus, TellsWhyASharedSessionCannotBeUsed) {
  const auto text = [](const Status& status) { return ToGrpcStatus(status).error_message(); };
  const Status elsewhere = SessionElsewhere("http://127.0.0.1:8082", 3);
  EXPECT_EQ(ToGrpcStatus(elsewhere).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(text(elsewhere), StartsWith("session_elsewhere: "));
  EXPECT_THAT(text(elsewhere), HasSubstr("http://127.0.0.1:8082"));
  EXPECT_EQ(ToGrpcStatus(SessionMoved()).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(text(SessionMoved()), StartsWith("session_moved: "));
  const Status away = StoreUnavailable(DeadlineExceeded("no answer"));
  EXPECT_EQ(ToGrpcStatus(away).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(text(away), StartsWith("state_unavailable: "));
  EXPECT_EQ(text(Aborted("busy")), "busy");
}

}  // namespace
}  // namespace weft::serve
