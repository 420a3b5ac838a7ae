#include "doors/grpc/embed_call.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "answer/generation.h"
#include "answer/vectors.h"
#include "doors/grpc/generate_request.h"
#include "vllm_engine.pb.h"

namespace weft::serve {
namespace {

namespace pb = vllm::grpc::engine;

Status CheckEmbeds(Host& host) {
  WEFT_RETURN_IF_ERROR(CheckGivesVectors(host.model(), host.model_id()));
  if (host.model().pooling() != "none") return OkStatus();
  return InvalidArgument(
      "this server pools nothing (--pooling none), and so has a vector for each token, which this "
      "message cannot hold");
}

}  // namespace

EmbedCall::EmbedCall(const Service& service, grpc::CallbackServerContext* context, RpcHead head)
    : TaskCall(service, context, std::move(head)) {
  ReadMessage();
}

StatusOr<std::string> EmbedCall::Read(grpc::ByteBuffer* message) {
  pb::EmbedRequest request;
  WEFT_RETURN_IF_ERROR(ParseMessage(message, &request));
  WEFT_RETURN_IF_ERROR(CheckEmbeds(host()));
  WEFT_ASSIGN_OR_RETURN(turn_.tokens, TokensOf(request.tokenized().input_ids(), "input_ids"));
  turn_.vector = true;
  turn_.max_tokens = 0;
  turn_.label = request.request_id();
  return request.request_id();
}

Task<Status> EmbedCall::Work() {
  auto submitting = Submit(std::move(turn_));
  const StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (!generation.ok()) co_return generation.status();
  std::vector<float> vector;
  Status status = Internal("the turn ended without a result");
  pb::EmbedResponse response;
  while (true) {
    const std::optional<TurnEvent> event = co_await (*generation)->Next();
    if (!event.has_value()) break;
    if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      vector = UnitVector(started->vectors.at(0), /*dimensions=*/0);
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      status = done->status;
      if (done->reason == FinishReason::kCancelled) status = Cancelled("the request was cancelled");
      response.set_prompt_tokens(static_cast<uint32_t>(done->usage.prompt_tokens));
    }
  }
  SetStop(nullptr);
  response.mutable_embedding()->Assign(vector.begin(), vector.end());
  response.set_embedding_dim(static_cast<uint32_t>(vector.size()));
  if (status.ok()) Respond(BytesOf(response));
  co_return status;
}

}  // namespace weft::serve
