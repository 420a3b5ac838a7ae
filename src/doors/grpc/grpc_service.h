// The methods of the engine services. Handlers only inspect and delegate: longer work runs on
// threads of its own, so that gRPC's few can always answer.
#ifndef WEFT_DOORS_GRPC_GRPC_SERVICE_H_
#define WEFT_DOORS_GRPC_GRPC_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <vector>

#include "async/task_pool.h"
#include "base/mutex.h"
#include "doors/grpc/engine_info.h"
#include "doors/grpc/engine_load.h"
#include "doors/grpc/rpc_call.h"
#include "doors/grpc/task_call.h"
#include "doors/grpc/tokenizer_bundle.h"
#include "doors/host/api_keys.h"
#include "doors/host/host.h"
#include "mlx_engine.grpc.pb.h"
#include "vllm_engine.grpc.pb.h"

namespace weft::serve {

class GrpcService final : public grpc::CallbackGenericService {
 public:
  struct Options {
    // Require no key, whatever `keys` says.
    bool open = false;
    // Keys of operators, who may ask for what concerns everybody.
    ApiKeys operators = {};
    std::chrono::milliseconds stall_timeout{60'000};
  };
  // `host` and `keys` must outlive this.
  GrpcService(Host* host, const ApiKeys* keys, const Options& options);
  ~GrpcService() override;

  std::vector<grpc::Service*> listings();

  // Waits up to `grace` for running requests, cancels the rest, refuses later ones, and joins the
  // threads.
  void Close(std::chrono::milliseconds grace);

  // Handles every call except health checks, as soon as its head has arrived.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  // Registered besides the generic service, so that the two services are listed by name and their
  // health is checked without a key.
  class MlxListing;
  class VllmListing;
  struct Method;

  // Finds the request's owner by the key in its metadata. UNAUTHENTICATED.
  Status FindOwner(const grpc::CallbackServerContext& context, bool for_operators,
                   RpcHead* head) const;
  template <typename Response>
  Response Health() const;
  template <typename Ids>
  Status Abort(const RpcHead& head, const Ids& request_ids);
  Serving serving() const;
  Status GetLoads(const RpcHead& head, const vllm::grpc::engine::GetLoadsRequest& request,
                  vllm::grpc::engine::GetLoadsResponse* response);
  // Whether callers may be told what tokens are cached: not if tenants share them.
  bool TellsPrefixes() const;
  // Built at the first request for it, then kept.
  StatusOr<std::shared_ptr<const TokenizerBundle>> Bundle();

  static const Method kMethods[];

  Host& host_;
  const ApiKeys& keys_;
  const Options options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::unique_ptr<MlxListing> mlx_;
  const std::unique_ptr<VllmListing> vllm_;
  LoadMeter meter_;
  CallTable calls_;
  CallTable watches_;  // of prefixes and load
  Mutex bundle_mutex_;
  std::shared_ptr<const TokenizerBundle> bundle_ WEFT_GUARDED_BY(bundle_mutex_);
  // Last, so that they are joined first.
  TaskPool pool_;
  TaskPool telling_;   // of prefixes and load
  TaskPool blocking_;  // calls that wait
  const TaskCall::Service requests_, watching_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GRPC_SERVICE_H_
