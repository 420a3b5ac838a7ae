#include "doors/grpc/generate_call.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "doors/http/request_log.h"

namespace weft::serve {

GenerateCall::GenerateCall(const GenerateForm& form, const Service& service,
                           grpc::CallbackServerContext* context, RpcHead head)
    : TaskCall(service, context, std::move(head)), form_(form) {
  ReadMessage();
}

StatusOr<std::string> GenerateCall::Read(grpc::ByteBuffer* message) {
  WEFT_ASSIGN_OR_RETURN(request_, form_.Read(message, host(), head().account));
  if (head().log_text) {
    const std::span<const int32_t> tokens = request_.turn.tokens;
    request_text_ = host().model().Decode(tokens.first(std::min(tokens.size(), kLoggedTextBytes)),
                                          /*render_special=*/true);
  }
  return request_.id;
}

StatusOr<TurnOptions> GenerateCall::TakeTurn() {
  TurnOptions turn = std::move(request_.turn);
  turn.label = request_.id;
  turn.end_loops = host().defaults().end_loops;
  if (request_.make_mask) {
    WEFT_ASSIGN_OR_RETURN(turn.token_mask, request_.make_mask());
  }
  return turn;
}

Task<Status> GenerateCall::Work() {
  StatusOr<TurnOptions> turn = TakeTurn();
  if (!turn.ok()) co_return turn.status();
  const int n_choices = turn->n_choices;
  auto submitting = Submit(*std::move(turn));
  const StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (!generation.ok()) co_return generation.status();
  auto pumping = Pump(generation->get(), n_choices);
  Status status = co_await pumping;
  SetStop(nullptr);
  const std::optional<Status> before = EndedBefore();
  if (before.has_value() && before->ok()) status = OkStatus();
  co_return status;
}

Task<Status> GenerateCall::Pump(Generation* generation, int n_choices) {
  const auto writer = form_.NewWriter(request_, n_choices, generation->prompt_tokens());
  Status status;
  while (true) {
    const std::optional<TurnEvent> event = co_await generation->Next();
    if (!event.has_value()) break;
    if (!status.ok()) continue;  // to the end, which is counted
    if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      writer->Start(*started);
    } else if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      auto writing = WriteToken(*token, writer.get());
      status = co_await writing;
      if (!status.ok()) generation->Cancel();
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      auto writing = WriteDone(*done, writer.get());
      status = co_await writing;
      if (!status.ok()) generation->Cancel();
    }
  }
  co_return status;
}

Task<Status> GenerateCall::WriteToken(const TokenEvent& token, GenerateWriter* writer) {
  if (head().log_text && answer_text_.size() <= kLoggedTextBytes) answer_text_ += token.text;
  std::optional<grpc::ByteBuffer> chunk = writer->Token(token);
  if (!chunk.has_value()) co_return OkStatus();
  auto writing = Write(*std::move(chunk));
  const bool is_written = co_await writing;
  co_return is_written ? OkStatus() : Cancelled("the client does not read");
}

Task<Status> GenerateCall::WriteDone(const DoneEvent& done, GenerateWriter* writer) {
  if (!done.status.ok()) co_return done.status;
  if (done.reason == FinishReason::kCancelled) co_return Cancelled("the request was cancelled");
  auto writing = Write(writer->Done(done));
  const bool is_written = co_await writing;
  co_return is_written ? OkStatus() : Cancelled("the client does not read");
}

}  // namespace weft::serve
