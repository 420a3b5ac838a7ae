// The methods of the engine service. Handlers only inspect and delegate: longer work runs on
// threads of its own, so that gRPC's few can always answer.
#ifndef WEFT_DOORS_GRPC_GRPC_SERVICE_H_
#define WEFT_DOORS_GRPC_GRPC_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "async/task_pool.h"
#include "base/mutex.h"
#include "doors/grpc/generate_call.h"
#include "doors/grpc/rpc_call.h"
#include "doors/grpc/tokenizer_bundle.h"
#include "doors/host/api_keys.h"
#include "doors/host/host.h"
#include "mlx_engine.grpc.pb.h"

namespace weft::serve {

class GrpcService final : public grpc::CallbackGenericService {
 public:
  struct Options {
    // Require no key, whatever `keys` says.
    bool open = false;
    std::chrono::milliseconds stall_timeout{60'000};
  };
  // `host` and `keys` must outlive this.
  GrpcService(Host* host, const ApiKeys* keys, const Options& options);
  ~GrpcService() override;

  // Registered besides this, so that the service is listed under its name.
  grpc::Service* listing();

  // Waits up to `grace` for running requests, cancels the rest, refuses later ones, and joins the
  // threads.
  void Close(std::chrono::milliseconds grace);

  // Handles every call except health checks, as soon as its head has arrived.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  class Listing;
  struct Method;

  // Finds the request's owner by the key in its metadata. UNAUTHENTICATED.
  Status FindOwner(const grpc::CallbackServerContext& context, RpcHead* head) const;
  mlx::grpc::engine::HealthCheckResponse Health() const;
  Status Abort(const RpcHead& head, const mlx::grpc::engine::AbortRequest& request);
  Status GetModelInfo(mlx::grpc::engine::GetModelInfoResponse* response) const;
  Status GetServerInfo(mlx::grpc::engine::GetServerInfoResponse* response) const;
  // Built at the first request for it, then kept.
  StatusOr<std::shared_ptr<const TokenizerBundle>> Bundle();

  static const Method kMethods[];

  Host& host_;
  const ApiKeys& keys_;
  const Options options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::unique_ptr<Listing> listing_;
  CallTable calls_;
  Mutex bundle_mutex_;
  std::shared_ptr<const TokenizerBundle> bundle_ WEFT_GUARDED_BY(bundle_mutex_);
  // Last, so that they are joined first.
  TaskPool pool_;
  TaskPool bundlers_;
  const GenerateCall::Service generate_;
};

// The model's name without spaces: gateways choose parsers by Hugging Face names.
std::string ServedName(std::string_view model_id);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GRPC_SERVICE_H_
