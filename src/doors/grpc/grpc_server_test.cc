// Requests, their ends, and information about the model.
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/system.h"
#include "doors/grpc/grpc_server_test_util.h"
#include "doors/grpc/grpc_service.h"
#include "doors/grpc/tokenizer_bundle.h"
#include "doors/host/model_host.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;

TEST_F(GrpcServerTest, StreamsTheTokensOfTheEngine) {
  Open();
  const Tokens prompt = testing::RandomTokens(40, 1);
  const auto alone =
      testing::RunAlone(testing::TinyModel("llama"), {}, std::vector{testing::Greedy(prompt, 12)});
  const Outcome streamed = Generate(Greedy(prompt, 12));
  EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  EXPECT_EQ(streamed.chunks, 12);
  EXPECT_EQ(streamed.tokens, alone[0].tokens());
  ASSERT_TRUE(streamed.complete.has_value());
  EXPECT_EQ(streamed.complete->output_ids_size(), 0);
  EXPECT_EQ(streamed.complete->finish_reason(), "length");
  EXPECT_EQ(streamed.complete->prompt_tokens(), 40u);
  EXPECT_EQ(streamed.complete->completion_tokens(), 12u);
  EXPECT_EQ(streamed.complete->cached_tokens(), 0u);
  EXPECT_FALSE(streamed.complete->has_matched_stop_token_id());

  const Outcome whole = Generate(Greedy(prompt, 12, "", /*stream=*/false));
  EXPECT_EQ(whole.chunks, 0);
  EXPECT_EQ(whole.tokens, streamed.tokens);
  EXPECT_GT(whole.complete->cached_tokens(), 0u);
  EXPECT_LT(whole.complete->cached_tokens(), 40u);
  ExpectIdle();
}

TEST_F(GrpcServerTest, AStopTokenIsPartOfTheOutput) {
  Open();
  const Tokens prompt = testing::RandomTokens(20, 2);
  const Tokens free = Generate(Greedy(prompt, 8)).tokens;
  pb::GenerateRequest request = Greedy(prompt, 8);
  request.mutable_sampling_params()->add_stop_token_ids(static_cast<uint32_t>(free[3]));
  const Outcome stopped = Generate(request);
  const auto first = std::find(free.begin(), free.end(), free[3]);
  EXPECT_EQ(stopped.tokens, Tokens(free.begin(), first + 1));
  EXPECT_EQ(stopped.complete->finish_reason(), "stop");
  EXPECT_EQ(stopped.complete->completion_tokens(), stopped.tokens.size());
  EXPECT_EQ(stopped.complete->matched_stop_token_id(), static_cast<uint32_t>(free[3]));
}

TEST_F(GrpcServerTest, LogprobsComeWithEachTokenOrAllAtTheEnd) {
  Open();
  pb::GenerateRequest request = Greedy(testing::RandomTokens(20, 3), 5);
  request.mutable_sampling_params()->set_logprobs(3);
  const Outcome streamed = Generate(request);
  ASSERT_EQ(streamed.logprobs.token_logprobs_size(), 5);
  ASSERT_EQ(streamed.logprobs.top_logprobs_size(), 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(static_cast<int32_t>(streamed.logprobs.token_ids(i)), streamed.tokens[i]);
    ASSERT_EQ(streamed.logprobs.top_logprobs(i).values_size(), 3);
    EXPECT_EQ(streamed.logprobs.top_logprobs(i).token_ids(0), streamed.logprobs.token_ids(i));
    EXPECT_EQ(streamed.logprobs.top_logprobs(i).values(0), streamed.logprobs.token_logprobs(i));
  }
  request.set_stream(false);
  EXPECT_EQ(Generate(request).logprobs.SerializeAsString(), streamed.logprobs.SerializeAsString());
}

TEST_F(GrpcServerTest, NoTokensAreAPromptThatIsTakenIn) {
  Open();
  const Tokens prompt = testing::RandomTokens(40, 14);
  for (const bool stream : {true, false}) {
    const Outcome none = Generate(Greedy(prompt, 0, "", stream));
    EXPECT_TRUE(none.status.ok()) << none.status.error_message();
    ASSERT_TRUE(none.complete.has_value());
    EXPECT_EQ(none.chunks, 0);
    EXPECT_EQ(none.complete->output_ids_size(), 0);
    EXPECT_EQ(none.complete->prompt_tokens(), 40u);
    EXPECT_EQ(none.complete->completion_tokens(), 0u);
    EXPECT_EQ(none.complete->finish_reason(), "length");
  }
  EXPECT_GT(Generate(Greedy(prompt, 1)).complete->cached_tokens(), 0u);
  ExpectIdle();
}

TEST_F(GrpcServerTest, RefusesWithASentence) {
  Open();
  const auto code = [&](const pb::GenerateRequest& request, const char* says) {
    const Outcome outcome = Generate(request);
    EXPECT_THAT(outcome.status.error_message(), HasSubstr(says));
    EXPECT_EQ(outcome.chunks, 0);
    return outcome.status.error_code();
  };
  pb::GenerateRequest text;
  text.set_text("hello");
  EXPECT_EQ(code(text, "input_ids"), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(Greedy({}, 1), "empty prompt"), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(Greedy({99999}, 1), "vocabulary"), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(Greedy(testing::RandomTokens(600, 1), 1), "context"),
            grpc::StatusCode::INVALID_ARGUMENT);
  pb::GenerateRequest many = Greedy({5}, 1);
  many.mutable_sampling_params()->set_logprobs(1000);
  EXPECT_EQ(code(many, "top_logprobs"), grpc::StatusCode::INVALID_ARGUMENT);
  pb::GenerateRequest stops = Greedy({5}, 1);
  for (size_t i = 0; i <= kMaxStopTokens; ++i) {
    stops.mutable_sampling_params()->add_stop_token_ids(7);
  }
  EXPECT_EQ(code(stops, "at most 4096"), grpc::StatusCode::INVALID_ARGUMENT);
  pb::GenerateRequest biases = Greedy({5}, 1);
  for (size_t i = 0; i <= kMaxLogitBiases; ++i) {
    (*biases.mutable_sampling_params()->mutable_logit_bias())[static_cast<int32_t>(i)] = 1;
  }
  EXPECT_EQ(code(biases, "at most 4096"), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectIdle();
}

TEST_F(GrpcServerTest, AbortIsSafeAtAnyMoment) {
  Open({.max_running = 1});
  backend_.faults().step_delay_us = 5'000;
  Abort({"unknown", "", "unknown"});
  {
    grpc::ClientContext context;
    pb::AbortRequest many;
    for (int i = 0; i < 5000; ++i) many.add_request_ids("unknown");
    pb::AbortResponse response;
    EXPECT_EQ(stub_->Abort(&context, many, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }

  const Tokens prompt = testing::RandomTokens(20, 4);
  grpc::ClientContext running_context, queued_context;
  auto running = stub_->Generate(&running_context, Greedy(prompt, 400, "running"));
  pb::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  auto queued = stub_->Generate(&queued_context, Greedy(prompt, 400, "queued"));
  while (ActiveRequests() < 2) std::this_thread::sleep_for(milliseconds(1));

  EXPECT_EQ(Generate(Greedy(prompt, 4, "running")).status.error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  Abort({"queued"});
  EXPECT_FALSE(queued->Read(&response));
  EXPECT_TRUE(queued->Finish().ok());
  Abort({"running", "running"});
  while (running->Read(&response)) EXPECT_FALSE(response.has_complete());
  EXPECT_TRUE(running->Finish().ok());
  Abort({"running"});

  backend_.faults().step_delay_us = 0;
  const Outcome again = Generate(Greedy(prompt, 4, "running"));
  EXPECT_TRUE(again.complete.has_value());
  ExpectIdle();
}

TEST_F(GrpcServerTest, StormOfAbortsAndDisconnects) {
  Open({.max_running = 4, .max_queued = 8});
  backend_.faults().step_delay_us = 200;
  const Tokens prompt = testing::RandomTokens(30, 5);
  const Tokens expected = Generate(Greedy(prompt, 10)).tokens;
  std::atomic<int> completed{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int i = 0; i < 40; ++i) {
        const std::string id = StrCat("r", random() % 12);
        const uint32_t action = random() % 4;
        if (action == 0) {
          Abort({id, StrCat("r", random() % 12)});
          continue;
        }
        grpc::ClientContext context;
        if (action == 1) {
          context.set_deadline(std::chrono::system_clock::now() + milliseconds(random() % 8));
        }
        auto reader = stub_->Generate(&context, Greedy(prompt, 10, id));
        Outcome outcome;
        pb::GenerateResponse response;
        while (reader->Read(&response)) {
          Add(response, &outcome);
          if (action == 2 && random() % 4 == 0) context.TryCancel();
        }
        const grpc::Status status = reader->Finish();
        const auto code = status.error_code();
        EXPECT_TRUE(code == grpc::OK || code == grpc::CANCELLED ||
                    code == grpc::DEADLINE_EXCEEDED || code == grpc::ALREADY_EXISTS ||
                    code == grpc::RESOURCE_EXHAUSTED)
            << code << " " << status.error_message();
        if (!outcome.complete.has_value()) continue;
        ++completed;
        EXPECT_EQ(outcome.tokens, expected);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(completed, 0);
  EXPECT_TRUE(Healthy());
  ExpectIdle();
}

TEST_F(GrpcServerTest, AFullQueueIsResourceExhausted) {
  Open({.max_running = 1, .max_queued = 1});
  backend_.faults().step_delay_us = 5'000;
  const Tokens prompt = testing::RandomTokens(10, 6);
  std::vector<std::future<Outcome>> outcomes;
  for (int i = 0; i < 6; ++i) {
    outcomes.push_back(
        std::async(std::launch::async, [&] { return Generate(Greedy(prompt, 40)); }));
  }
  int complete = 0, refused = 0;
  for (auto& future : outcomes) {
    const Outcome outcome = future.get();
    complete += outcome.complete.has_value();
    refused += outcome.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }
  EXPECT_EQ(complete + refused, 6);
  EXPECT_GE(complete, 1);
  EXPECT_GE(refused, 1);
  ExpectIdle();
}

TEST_F(GrpcServerTest, CallsThatWaitHoldNoThread) {
  constexpr int kCalls = 100, kFewThreads = 16;
  Open({.max_running = 4, .max_queued = kCalls});
  backend_.faults().step_delay_us = 5'000;
  const Tokens prompt = testing::RandomTokens(10, 7);
  EXPECT_TRUE(Generate(Greedy(prompt, 1)).complete.has_value());  // gRPC's own are there now
  const auto before = CountThreads();
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<pb::GenerateResponse>> reader;
  };
  std::vector<Call> calls(kCalls);
  for (Call& call : calls) call.reader = stub_->Generate(&call.context, Greedy(prompt, 400));
  while (ActiveRequests() < kCalls) std::this_thread::yield();
  EXPECT_LE(CountThreads(), before + kFewThreads);
  for (Call& call : calls) call.context.TryCancel();
  for (Call& call : calls) {
    EXPECT_EQ(call.reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ExpectIdle();
}

TEST_F(GrpcServerTest, DeadlinesAndVanishedClientsEndTurns) {
  Open();
  backend_.faults().step_delay_us = 10'000;
  const Tokens prompt = testing::RandomTokens(10, 7);
  grpc::ClientContext hurried;
  hurried.set_deadline(std::chrono::system_clock::now() + milliseconds(80));
  EXPECT_EQ(Generate(Greedy(prompt, 400), &hurried).status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  {
    auto channel = NewChannel();
    auto stub = pb::MlxEngine::NewStub(channel);
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, Greedy(prompt, 400));
    pb::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    while (reader->Read(&response)) continue;
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ExpectIdle();
  EXPECT_EQ(host_->engine().Stats().turns_finished, 0);
}

TEST_F(GrpcServerTest, OneFailingRequestTouchesNoOther) {
  Open();
  const Tokens prompt = testing::RandomTokens(30, 8);
  const Tokens expected = Generate(Greedy(prompt, 30)).tokens;
  backend_.faults().step_delay_us = 2'000;
  auto other = std::async(std::launch::async, [&] { return Generate(Greedy(prompt, 30)); });
  pb::GenerateRequest banned = Greedy({5, 6, 7}, 30);
  for (int id = 0; id < testing::kTinyVocab; ++id) {
    (*banned.mutable_sampling_params()->mutable_logit_bias())[id] =
        -std::numeric_limits<float>::infinity();
  }
  EXPECT_EQ(Generate(banned).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(other.get().tokens, expected);
  backend_.faults().fail_forward = backend_.faults().forwards + 3;
  const Outcome failed = Generate(Greedy(prompt, 30));
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_FALSE(failed.complete.has_value());
  EXPECT_EQ(Generate(Greedy(prompt, 30)).tokens, expected);
  ExpectIdle();
}

// A client with a full window that does not read.
TEST_F(GrpcServerTest, SlowReadersStopNobodyAndAreCut) {
  Open({.max_pending_events = 16}, {.stall_timeout = milliseconds(300)});
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  auto channel = NewChannel(args);
  auto stub = pb::MlxEngine::NewStub(channel);
  pb::GenerateRequest large = Greedy(testing::RandomTokens(10, 9), 400);
  large.mutable_sampling_params()->set_logprobs(100);  // a kilobyte per token
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, large);
  pb::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  const Outcome other = Generate(Greedy(testing::RandomTokens(10, 10), 20));
  EXPECT_TRUE(other.complete.has_value());
  ExpectIdle();
  while (reader->Read(&response)) continue;
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(GrpcServerTest, InfoAndTokenizer) {
  Open();
  {
    grpc::ClientContext context;
    pb::GetModelInfoResponse info;
    ASSERT_TRUE(stub_->GetModelInfo(&context, {}, &info).ok());
    EXPECT_EQ(info.served_model_name(), "tiny");
    EXPECT_EQ(info.model_path(), ModelFileName(host_->model())) << "and no folder";
    EXPECT_EQ(info.max_context_length(), testing::kTinyContext);
    EXPECT_EQ(info.max_req_input_len(), testing::kTinyContext - 1);
    EXPECT_EQ(info.vocab_size(), testing::kTinyVocab);
    EXPECT_EQ(info.model_type(), "llama");
    ASSERT_EQ(info.architectures_size(), 1);
    EXPECT_EQ(info.architectures(0), "LlamaForCausalLM");
    EXPECT_TRUE(info.is_generation());
    EXPECT_GT(info.eos_token_ids_size(), 0);
  }
  grpc::ClientContext context;
  pb::GetServerInfoResponse server;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &server).ok());
  EXPECT_EQ(server.server_type(), "mlx-grpc");
  EXPECT_GT(server.uptime_seconds(), 0);

  grpc::ClientContext tokenizer_context;
  auto reader = stub_->GetTokenizer(&tokenizer_context, {});
  smg::grpc::common::GetTokenizerChunk chunk;
  std::string zip, sha256;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(sha256, "");
    zip += chunk.data();
    sha256 = chunk.sha256();
  }
  ASSERT_TRUE(reader->Finish().ok());
  const auto bundle =
      BuildTokenizerBundle(host_->model().file(), "{{ messages }}", testing::kTinyContext);
  EXPECT_EQ(zip, bundle->zip);
  EXPECT_EQ(sha256, bundle->sha256);
}

TEST_F(GrpcServerTest, ShutdownWakesEverybody) {
  Open({.max_running = 1});
  backend_.faults().step_delay_us = 5'000;
  const Tokens prompt = testing::RandomTokens(10, 12);
  std::vector<std::future<Outcome>> outcomes;
  for (int i = 0; i < 4; ++i) {
    outcomes.push_back(
        std::async(std::launch::async, [&] { return Generate(Greedy(prompt, 400)); }));
  }
  while (ActiveRequests() < 4) std::this_thread::sleep_for(milliseconds(1));
  server_->BeginDrain();
  ASSERT_TRUE(host_->Drain(milliseconds(50)).ok());
  EXPECT_FALSE(Healthy());
  server_->BeginDrain();
  EXPECT_EQ(Generate(Greedy(prompt, 1)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  for (auto& future : outcomes) EXPECT_FALSE(future.get().status.ok());
  server_->Shutdown(milliseconds(1000));
  server_->Shutdown(milliseconds(1000));
}

TEST_F(GrpcServerTest, TheServerMayGoWhileRequestsRun) {
  Open();
  backend_.faults().step_delay_us = 5'000;
  const Tokens prompt = testing::RandomTokens(10, 13);
  auto outcome = std::async(std::launch::async, [&] { return Generate(Greedy(prompt, 400)); });
  while (ActiveRequests() < 1) std::this_thread::sleep_for(milliseconds(1));
  server_.reset();
  EXPECT_FALSE(outcome.get().status.ok());
  const EngineStats stats = host_->engine().Stats();
  EXPECT_EQ(stats.turns_running + stats.turns_queued, 0);
}

TEST_F(GrpcServerTest, APortInUseIsAnError) {
  Open();
  const auto second = GrpcServer::Start(host_.get(), &keys_, {.port = server_->port()});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
}

TEST_F(GrpcServerTest, GatewaysKnowModelsByNamesWithoutSpaces) {
  EXPECT_EQ(ServedName("Llama 3.2 1B  Instruct"), "Llama-3.2-1B-Instruct");
  EXPECT_EQ(ServedName("qwen2.5-coder"), "qwen2.5-coder");
}

}  // namespace
}  // namespace weft::serve
