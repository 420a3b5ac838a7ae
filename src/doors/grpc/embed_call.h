// One Embed request on its way through the server.
#ifndef WEFT_DOORS_GRPC_EMBED_CALL_H_
#define WEFT_DOORS_GRPC_EMBED_CALL_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "async/task.h"
#include "base/status.h"
#include "doors/grpc/task_call.h"
#include "weft/options.h"

namespace weft::serve {

class EmbedCall final : public TaskCall {
 public:
  EmbedCall(const Service& service, grpc::CallbackServerContext* context, RpcHead head);

 private:
  StatusOr<std::string> Read(grpc::ByteBuffer* message) override;
  Task<Status> Work() override;
  bool has_one_message() const override { return true; }

  TurnOptions turn_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_EMBED_CALL_H_
