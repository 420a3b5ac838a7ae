// The answers of the engine services about the model and the server. Any thread.
#ifndef WEFT_DOORS_GRPC_ENGINE_INFO_H_
#define WEFT_DOORS_GRPC_ENGINE_INFO_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "doors/host/host.h"
#include "mlx_engine.pb.h"
#include "vllm_engine.pb.h"

namespace weft::serve {

// The model's name without spaces: gateways choose parsers by Hugging Face names.
std::string ServedName(std::string_view model_id);

struct Serving {
  int64_t active_requests = 0;
  double uptime_s = 0;
};

void Fill(const Host& host, mlx::grpc::engine::GetModelInfoResponse* response);
void Fill(const Host& host, vllm::grpc::engine::GetModelInfoResponse* response);
void Fill(const Host& host, const Serving& serving,
          mlx::grpc::engine::GetServerInfoResponse* response);
void Fill(const Host& host, const Serving& serving,
          vllm::grpc::engine::GetServerInfoResponse* response);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_ENGINE_INFO_H_
