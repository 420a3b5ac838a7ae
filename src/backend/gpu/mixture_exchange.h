// Takes a mixture's rows and routes to the host, has the experts computed there, and brings back
// what these give. Memory for one mixture at a time; owner thread only.
#ifndef WEFT_BACKEND_GPU_MIXTURE_EXCHANGE_H_
#define WEFT_BACKEND_GPU_MIXTURE_EXCHANGE_H_

#include <cstdint>
#include <memory>

#include "backend/host_experts.h"
#include "base/status.h"
#include "device/runtime.h"
#include "kernels_gpu/kernels.h"
#include "model/model_spec.h"

namespace weft::gpu {

// A mixture that the host computes: the rows that it reads, and where its results go.
struct HostMixture {
  int64_t number = 0;                // see HostExperts
  device::Rows x;                    // d_model values for each row, side by side, as in `out`
  const int32_t* experts = nullptr;  // n_used for each row
  const float* weights = nullptr;
  int64_t n_used = 0;
  device::Rows out;
};

class MixtureExchange {
 public:
  // Null where the spec has no such mixture. REQUIRES: `experts` computes those that there are, and
  // outlives the object.
  static StatusOr<std::unique_ptr<MixtureExchange>> New(device::Device* device,
                                                        const ModelSpec& spec, HostExperts* experts,
                                                        int64_t max_rows);

  // Enqueues the way down of n_rows rows.
  void EnqueueRoutes(const HostMixture& mixture, int64_t n_rows, device::Stream* stream);
  // Computes, and enqueues the way back. REQUIRES: the way down has passed.
  Status Compute(const HostMixture& mixture, int64_t n_rows, device::Stream* stream);
  int64_t bytes() const { return 2 * (rows_->bytes() + choices_->bytes()); }

 private:
  MixtureExchange(int64_t width, HostExperts* experts) : width_(width), experts_(*experts) {}

  const int64_t width_;
  HostExperts& experts_;
  // On the host: rows, choices and weights, and what the experts give.
  std::unique_ptr<device::Memory> rows_, choices_, weights_, given_;
};

}  // namespace weft::gpu

#endif  // WEFT_BACKEND_GPU_MIXTURE_EXCHANGE_H_
