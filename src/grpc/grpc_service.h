// The methods of the engine service. Handlers only look and hand on: what waits runs on
// pools of its own, so that the few threads of gRPC always answer.
#ifndef WEFT_GRPC_GRPC_SERVICE_H_
#define WEFT_GRPC_GRPC_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "grpc/generate_call.h"
#include "grpc/rpc_call.h"
#include "grpc/tokenizer_bundle.h"
#include "host/api_keys.h"
#include "host/host.h"
#include "http/handler_pool.h"
#include "mlx_engine.grpc.pb.h"

namespace weft::serve {

class GrpcService final : public grpc::CallbackGenericService {
 public:
  struct Options {
    // No key is asked for, whatever `keys` says.
    bool open = false;
    bool log_text = false;
    std::chrono::milliseconds stall_timeout{60'000};
  };
  // `host` and `keys` must outlive this.
  GrpcService(Host* host, const ApiKeys* keys, const Options& options);
  ~GrpcService() override;

  // What is registered beside this, so that the service has its name.
  grpc::Service* listing();

  // Gives the requests that run so long to end, cancels the rest, refuses later ones, and
  // joins the pools.
  void Close(std::chrono::milliseconds grace);

  // Every call, but for health checks, as soon as its head is there.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  class Listing;
  struct Method;

  // Whose request it is, by the key in its metadata. UNAUTHENTICATED.
  Status FindOwner(const grpc::CallbackServerContext& context, RpcHead* head) const;
  mlx::grpc::engine::HealthCheckResponse Health() const;
  Status Abort(const RpcHead& head, const mlx::grpc::engine::AbortRequest& request);
  Status GetModelInfo(mlx::grpc::engine::GetModelInfoResponse* response) const;
  Status GetServerInfo(mlx::grpc::engine::GetServerInfoResponse* response) const;
  // Made at the first request for it, then kept.
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
  HandlerPool pumps_;
  HandlerPool bundlers_;
  const GenerateCall::Service generate_{&host_, &calls_, &pumps_, options_.stall_timeout};
};

// The model's name without spaces: gateways choose parsers by names as Hugging Face has them.
std::string ServedName(std::string_view model_id);

}  // namespace weft::serve

#endif  // WEFT_GRPC_GRPC_SERVICE_H_
