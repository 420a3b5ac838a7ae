// Tests the service over a real connection, with a tiny model whose steps can be slowed down and
// made to fail.
#ifndef WEFT_DOORS_GRPC_GRPC_SERVER_TEST_UTIL_H_
#define WEFT_DOORS_GRPC_GRPC_SERVER_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/grpc/grpc_server.h"
#include "doors/host/model_host.h"
#include "mlx_engine.grpc.pb.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {

namespace pb = mlx::grpc::engine;
using std::chrono::milliseconds;
using Tokens = std::vector<int32_t>;

// The result of a Generate call.
struct Outcome {
  grpc::Status status;
  int chunks = 0;
  Tokens tokens;  // from the chunks, else from the completion
  std::optional<pb::GenerateComplete> complete;
  pb::OutputLogProbs logprobs;
};

class GrpcServerTest : public ::testing::Test {
 protected:
  void Open(EngineOptions engine = {}, GrpcServerOptions options = {}, std::string key_file = "") {
    std::promise<Status> loaded;
    host_ = std::make_unique<ModelHost>(
        ModelHost::Options{.load = [this]() -> StatusOr<std::shared_ptr<const Model>> {
                             return testing::TinyModel("llama", 1, &backend_);
                           },
                           .engine = engine,
                           .template_source = "{{ messages }}",
                           .model_id = "tiny",
                           .loaded = [&](const Status& status) { loaded.set_value(status); },
                           .prompt_memory = {}});
    host_->StartLoading();
    const Status status = loaded.get_future().get();
    ASSERT_TRUE(status.ok()) << status;
    if (!key_file.empty()) keys_ = *ApiKeys::Parse(key_file);
    options.port = 0;
    auto server = GrpcServer::Start(host_.get(), &keys_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = NewChannel();
    stub_ = pb::MlxEngine::NewStub(channel_);
  }

  std::shared_ptr<grpc::Channel> NewChannel(grpc::ChannelArguments args = {}) const {
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(StrCat("127.0.0.1:", server_->port()),
                                     grpc::InsecureChannelCredentials(), args);
  }

  static pb::GenerateRequest Greedy(const Tokens& prompt, int max_tokens, std::string id = "",
                                    bool stream = true) {
    pb::GenerateRequest request;
    request.set_request_id(std::move(id));
    request.set_stream(stream);
    request.mutable_tokenized();
    for (const int32_t token : prompt) {
      request.mutable_tokenized()->add_input_ids(static_cast<uint32_t>(token));
    }
    request.mutable_sampling_params()->set_temperature(0);
    request.mutable_sampling_params()->set_max_tokens(static_cast<uint32_t>(max_tokens));
    request.mutable_sampling_params()->set_ignore_eos(true);
    return request;
  }

  static void Add(const pb::GenerateResponse& response, Outcome* outcome) {
    if (response.has_chunk()) {
      ++outcome->chunks;
      for (const uint32_t id : response.chunk().token_ids()) {
        outcome->tokens.push_back(static_cast<int32_t>(id));
      }
      outcome->logprobs.MergeFrom(response.chunk().output_logprobs());
      EXPECT_EQ(response.chunk().completion_tokens(), outcome->tokens.size());
      return;
    }
    outcome->complete = response.complete();
    outcome->logprobs.MergeFrom(response.complete().output_logprobs());
    for (const uint32_t id : response.complete().output_ids()) {
      outcome->tokens.push_back(static_cast<int32_t>(id));
    }
  }

  Outcome Generate(const pb::GenerateRequest& request, grpc::ClientContext* context = nullptr) {
    grpc::ClientContext own;
    auto reader = stub_->Generate(context != nullptr ? context : &own, request);
    Outcome outcome;
    pb::GenerateResponse response;
    while (reader->Read(&response)) Add(response, &outcome);
    outcome.status = reader->Finish();
    return outcome;
  }

  void Abort(const std::vector<std::string>& ids) {
    grpc::ClientContext context;
    pb::AbortRequest request;
    for (const std::string& id : ids) request.add_request_ids(id);
    pb::AbortResponse response;
    const grpc::Status status = stub_->Abort(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  bool Healthy() {
    grpc::ClientContext context;
    pb::HealthCheckResponse response;
    EXPECT_TRUE(stub_->HealthCheck(&context, {}, &response).ok());
    return response.healthy();
  }

  uint32_t ActiveRequests() {
    grpc::ClientContext context;
    if (!key_.empty()) context.AddMetadata("x-api-key", key_);
    pb::GetServerInfoResponse response;
    EXPECT_TRUE(stub_->GetServerInfo(&context, {}, &response).ok());
    return response.active_requests();
  }

  void ExpectIdleWith(const std::string& key) {
    key_ = key;
    ExpectIdle();
  }
  void ExpectIdle() {
    for (int i = 0; i < 1000 && ActiveRequests() > 0; ++i) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(ActiveRequests(), 0u);
    const EngineStats stats = host_->engine().Stats();
    EXPECT_EQ(stats.turns_running + stats.turns_queued, 0);
    EXPECT_EQ(stats.pages_used, stats.pages_in_index);
    const Status status = host_->engine().CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status;
  }

  testing::FaultyBackend backend_;
  ApiKeys keys_;
  std::string key_;  // the key used to check that everything is idle
  std::unique_ptr<ModelHost> host_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::MlxEngine::Stub> stub_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GRPC_SERVER_TEST_UTIL_H_
