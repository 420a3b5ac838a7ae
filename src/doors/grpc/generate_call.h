// One Generate request on its way through the server, of any engine service.
#ifndef WEFT_DOORS_GRPC_GENERATE_CALL_H_
#define WEFT_DOORS_GRPC_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "answer/generation.h"
#include "async/task.h"
#include "base/status.h"
#include "doors/grpc/generate_form.h"
#include "doors/grpc/task_call.h"
#include "weft/options.h"

namespace weft::serve {

class GenerateCall final : public TaskCall {
 public:
  // `form` outlives the call.
  GenerateCall(const GenerateForm& form, const Service& service,
               grpc::CallbackServerContext* context, RpcHead head);

 private:
  StatusOr<std::string> Read(grpc::ByteBuffer* message) override;
  Task<Status> Work() override;
  // The turn with its mask, which may take a while to make.
  StatusOr<TurnOptions> TakeTurn();
  Task<Status> Pump(Generation* generation, int n_choices);
  Task<Status> WriteToken(const TokenEvent& token, GenerateWriter* writer);
  Task<Status> WriteDone(const DoneEvent& done, GenerateWriter* writer);

  const GenerateForm& form_;
  GenerateAsk request_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GENERATE_CALL_H_
