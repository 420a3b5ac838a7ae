// The methods of the engine service. Handlers only look and hand on: what waits runs on
// pools of its own, so that the few threads of gRPC always answer.
#ifndef WEFT_SERVE_GRPC_GRPC_SERVICE_H_
#define WEFT_SERVE_GRPC_GRPC_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "mlx_engine.grpc.pb.h"
#include "serve/api_keys.h"
#include "serve/grpc/generate_call.h"
#include "serve/grpc/tokenizer_bundle.h"
#include "serve/handler_pool.h"
#include "serve/host.h"

namespace weft::serve {

class GrpcService final : public mlx::grpc::engine::MlxEngine::CallbackService {
 public:
  // `host` and `keys` must outlive this.
  GrpcService(Host* host, const ApiKeys* keys, std::chrono::milliseconds stall_timeout);

  // Gives the requests that run so long to end, cancels the rest, refuses later ones, and
  // joins the pools.
  void Close(std::chrono::milliseconds grace);

  grpc::ServerWriteReactor<mlx::grpc::engine::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const mlx::grpc::engine::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* HealthCheck(grpc::CallbackServerContext* context,
                                        const mlx::grpc::engine::HealthCheckRequest* request,
                                        mlx::grpc::engine::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const mlx::grpc::engine::AbortRequest* request,
                                  mlx::grpc::engine::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(
      grpc::CallbackServerContext* context, const mlx::grpc::engine::GetModelInfoRequest* request,
      mlx::grpc::engine::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context, const mlx::grpc::engine::GetServerInfoRequest* request,
      mlx::grpc::engine::GetServerInfoResponse* response) override;
  grpc::ServerWriteReactor<smg::grpc::common::GetTokenizerChunk>* GetTokenizer(
      grpc::CallbackServerContext* context,
      const smg::grpc::common::GetTokenizerRequest* request) override;

 private:
  // Whose request it is, by the key in its metadata. UNAUTHENTICATED.
  StatusOr<std::string> DomainOf(const grpc::CallbackServerContext& context) const;
  // Made at the first request for it, then kept.
  StatusOr<std::shared_ptr<const TokenizerBundle>> Bundle();

  Host& host_;
  const ApiKeys& keys_;
  const std::chrono::milliseconds stall_timeout_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  CallTable calls_;
  Mutex bundle_mutex_;
  std::shared_ptr<const TokenizerBundle> bundle_ WEFT_GUARDED_BY(bundle_mutex_);
  // Last, so that they are joined first.
  HandlerPool pumps_;
  HandlerPool bundlers_;
};

}  // namespace weft::serve

#endif  // WEFT_SERVE_GRPC_GRPC_SERVICE_H_
