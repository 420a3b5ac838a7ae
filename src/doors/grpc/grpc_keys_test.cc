// Access by keys, checked before anything is read.
#include <grpcpp/generic/generic_stub.h>

#include <array>
#include <string>

#include "doors/grpc/generate_call.h"
#include "doors/grpc/grpc_server_test_util.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;

// Without access the message is neither read nor parsed: otherwise an oversized one would be
// refused for its size.
TEST_F(GrpcServerTest, TheKeyComesBeforeTheMessage) {
  Open({}, {}, "alpha\n");
  const size_t too_large = static_cast<size_t>(MaxMessageBytes(testing::kTinyContext)) + 1;
  pb::GenerateRequest large = Greedy({5}, 1);
  large.mutable_tokenized()->set_original_text(std::string(too_large, 'x'));
  EXPECT_EQ(Generate(large).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext alpha;
  alpha.AddMetadata("authorization", "Bearer  alpha");
  EXPECT_EQ(Generate(large, &alpha).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);

  // Neither is something that is not a message.
  const std::string garbage = "\xff\xff\xff\xff";
  const grpc::Slice slice(garbage);
  const auto ask = [&](const std::string& method, const char* key) {
    grpc::ClientContext context;
    if (key != nullptr) context.AddMetadata("x-api-key", key);
    grpc::GenericStub stub(channel_);
    grpc::ByteBuffer request(&slice, 1), response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, {}, &request, &response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  };
  for (const char* const name :
       {"Generate", "Abort", "GetModelInfo", "GetServerInfo", "GetTokenizer"}) {
    const std::string method = StrCat("/mlx.grpc.engine.MlxEngine/", name);
    EXPECT_EQ(ask(method, nullptr).error_code(), grpc::StatusCode::UNAUTHENTICATED) << name;
    EXPECT_EQ(ask(method, "alpha").error_code(), grpc::StatusCode::INVALID_ARGUMENT) << name;
  }
  EXPECT_EQ(ask("/mlx.grpc.engine.MlxEngine/Embed", "alpha").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  ExpectIdleWith("alpha");
}

TEST_F(GrpcServerTest, AnOpenPortAsksForNoKey) {
  Open({}, {.open = true}, "alpha\n");
  EXPECT_TRUE(Generate(Greedy({5, 6}, 2)).complete.has_value());
  for (const char* const host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(CheckGrpcOpen(host).ok()) << host;
  }
  for (const char* const host : {"0.0.0.0", "::", "192.168.1.5", "127.evil.example", ""}) {
    const Status status = CheckGrpcOpen(host);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("--grpc-host 127.0.0.1"));
  }
}

TEST_F(GrpcServerTest, KeysSeparateDomains) {
  Open({}, {}, "alpha\nbeta\n");
  backend_.faults().step_delay_us = 3'000;
  const Tokens prompt = testing::RandomTokens(10, 11);
  EXPECT_TRUE(Healthy());  // needs no key
  EXPECT_EQ(Generate(Greedy(prompt, 2)).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext wrong;
  wrong.AddMetadata("authorization", "Bearer gamma");
  EXPECT_EQ(Generate(Greedy(prompt, 2), &wrong).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);

  grpc::ClientContext alpha;
  alpha.AddMetadata("authorization", "Bearer alpha");
  auto reader = stub_->Generate(&alpha, Greedy(prompt, 60, "same"));
  pb::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // Another key's request with the same id, and its abort, are separate.
  grpc::ClientContext beta;
  beta.AddMetadata("x-api-key", "beta");
  const Outcome other = Generate(Greedy(prompt, 2, "same"), &beta);
  EXPECT_TRUE(other.complete.has_value());
  EXPECT_EQ(other.complete->cached_tokens(), 0u);
  grpc::ClientContext abort;
  abort.AddMetadata("x-api-key", "beta");
  pb::AbortRequest same;
  same.add_request_ids("same");
  pb::AbortResponse done;
  EXPECT_TRUE(stub_->Abort(&abort, same, &done).ok());
  bool complete = false;
  while (reader->Read(&response)) complete = response.has_complete();
  EXPECT_TRUE(complete);
}

TEST(CallTable, EveryAccountHasAnEqualShare) {
  CallTable table;
  std::array<char, 12> places;  // calls are known by their addresses alone
  size_t n_calls = 0;
  const auto add = [&](const std::string& account) {
    auto* const call = reinterpret_cast<GenerateCall*>(&places.at(n_calls++));
    EXPECT_TRUE(table.Add(account, account, "", call));
    const bool fits = table.IsWithinShare(account, /*max_calls=*/4);
    if (!fits) table.Remove(call);
    return fits;
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(add("a")) << i;
  EXPECT_FALSE(add("a")) << "alone it has all";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(add("b")) << i;
  EXPECT_FALSE(add("b"));
  EXPECT_TRUE(add("c"));
  EXPECT_FALSE(add("c"));
  EXPECT_EQ(table.size(), 7);
}

}  // namespace
}  // namespace weft::serve
