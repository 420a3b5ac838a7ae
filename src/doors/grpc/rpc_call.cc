#include "doors/grpc/rpc_call.h"

#include <absl/status/status.h>

#include "base/strings.h"
#include "doors/host/shared_sessions.h"
#include "doors/host/turn_work.h"
#include "doors/http/request_log.h"
#include "doors/http/server.h"

namespace weft::serve {

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = status.code() == StatusCode::kOutOfRange
                        ? grpc::StatusCode::INVALID_ARGUMENT
                        : static_cast<grpc::StatusCode>(status.code());
  const std::string_view trouble = CodeOf(TroubleOf(status));
  return grpc::Status(code, StrCat(trouble, trouble.empty() ? "" : ": ", Message(status)));
}

RpcCall::RpcCall(grpc::CallbackServerContext* context, RpcHead head)
    : context_(context), head_(std::move(head)), id_(NewRequestId()) {}

void RpcCall::OnReadDone(bool ok) {
  if (ok) return OnMessage(&message_);
  // gRPC does not say which; it uses this code if the message was too large.
  End(context_->IsCancelled()
          ? Cancelled("the request was cancelled")
          : ResourceExhausted("the request has no message, or one larger than any prompt needs"));
}

void RpcCall::End(const Status& status) {
  const grpc::Status end = ToGrpcStatus(status);
  Log(end);
  Finish(end);
}

void RpcCall::EndWith(const grpc::ByteBuffer& response) {
  response_ = response;  // shares its bytes
  Log(grpc::Status::OK);
  StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
}

void RpcCall::SetId(const std::string& id) {
  if (IsSaneRequestId(id)) id_ = id;
}

void RpcCall::Log(const grpc::Status& status) const {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  LogRequest({.method = "gRPC",
              .path = head_.path,
              .status = absl::StatusCodeToString(code),
              .duration_us = NowMicros() - start_us_,
              .work = WorkText(work_),
              .key_name = head_.key_name,
              .gone = context_->IsCancelled(),
              .id = id_,
              .with_text = head_.log_text,
              .request_text = request_text_,
              .answer_text = answer_text_});
}

}  // namespace weft::serve
