// One call of the engine service, from its head to its end.
//
// Calls are received as gRPC's generic ones, which exist before their message is read: a client
// without a key or with an unknown method costs only the memory of a head. The message is read when
// the call asks for it, and parsed by its type. The end of each call is logged.
//
// A call is a reactor: gRPC owns it from the moment CreateReactor returns it until OnDone, where it
// deletes itself. Callbacks come one at a time, on gRPC threads that must not block; ReadMessage
// and End may be called there, or by the thread to which a callback handed the call.
#ifndef WEFT_DOORS_GRPC_RPC_CALL_H_
#define WEFT_DOORS_GRPC_RPC_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "doors/http/http.h"
#include "vllm_engine.grpc.pb.h"  // how messages become bytes

namespace weft::serve {

// Converts a status to gRPC's; the codes are equal numbers. A prompt longer than the context
// becomes the client's error. If a session of a shared store cannot be used, the message begins
// with the code that the HTTP APIs have (CodeOf).
grpc::Status ToGrpcStatus(const Status& status);

// The part of a call that is known before its message.
struct RpcHead {
  std::string path;      // "/package.Service/Method"
  std::string domain;    // the owner
  std::string account;   // the tenant: its key or, without one, its address
  std::string key_name;  // for the log
  bool log_text = false;
  bool is_operators = false;  // may change what everybody uses, such as flush the cache
  bool sees_load = true;      // everybody's; otherwise that of its own turns
};

template <typename Message>
Status ParseMessage(grpc::ByteBuffer* bytes, Message* message) {
  if (grpc::SerializationTraits<Message>::Deserialize(bytes, message).ok()) return OkStatus();
  return InvalidArgument("the message is no ", Message::descriptor()->name());
}

template <typename Message>
grpc::ByteBuffer BytesOf(const Message& message) {
  grpc::ByteBuffer bytes;
  bool owns = false;
  (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes, &owns);
  return bytes;
}

class RpcCall : public grpc::ServerGenericBidiReactor {
 public:
  // `context` outlives the call.
  RpcCall(grpc::CallbackServerContext* context, RpcHead head);

  void OnReadDone(bool ok) final;
  void OnDone() override { delete this; }

 protected:
  // Call once.
  void ReadMessage() { StartRead(&message_); }
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;

  // Ends the call and logs it. The call may be gone when these return, unless a callback is
  // running.
  void End(const Status& status);
  void EndWith(const grpc::ByteBuffer& response);

  const RpcHead& head() const { return head_; }
  grpc::CallbackServerContext* context() const { return context_; }

  // For the log: the client's id if it is fit for a log line, otherwise our own.
  void SetId(const std::string& id);
  HttpWork work_;
  std::string request_text_, answer_text_;

 private:
  void Log(const grpc::Status& status) const;

  grpc::CallbackServerContext* const context_;
  const RpcHead head_;
  const int64_t start_us_ = NowMicros();
  std::string id_;
  grpc::ByteBuffer message_, response_;
};

// A call refused because of its head.
class RefusedCall final : public RpcCall {
 public:
  RefusedCall(grpc::CallbackServerContext* context, RpcHead head, const Status& status)
      : RpcCall(context, std::move(head)) {
    End(status);
  }

 private:
  void OnMessage(grpc::ByteBuffer* message) override {}
};

// A call with one message and an immediate answer.
template <typename Request, typename Response>
class UnaryCall final : public RpcCall {
 public:
  using Answer = std::function<Status(const RpcHead& head, const Request&, Response*)>;

  UnaryCall(grpc::CallbackServerContext* context, RpcHead head, Answer answer)
      : RpcCall(context, std::move(head)), answer_(std::move(answer)) {
    ReadMessage();
  }

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    Request request;
    Response response;
    Status status = ParseMessage(message, &request);
    if (status.ok()) status = answer_(head(), request, &response);
    if (!status.ok()) return End(status);
    EndWith(BytesOf(response));
  }

  const Answer answer_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_RPC_CALL_H_
