// Downloads a mixture's rows and routes, has the host compute the experts, and uploads their
// outputs. Has memory for one mixture at a time; owner thread only.
#ifndef WEFT_COMPUTE_GPU_MIXTURE_EXCHANGE_H_
#define WEFT_COMPUTE_GPU_MIXTURE_EXCHANGE_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "compute/device/runtime.h"
#include "compute/host_experts.h"
#include "compute/kernels_gpu/kernels.h"
#include "model/model_spec.h"

namespace weft::gpu {

// A mixture that the host computes: its input rows, and the destination of its results.
struct HostMixture {
  int64_t number = 0;                // see HostExperts
  device::Rows x;                    // d_model contiguous values for each row, as in `out`
  const int32_t* experts = nullptr;  // n_used for each row
  const float* weights = nullptr;
  int64_t n_used = 0;
  device::Rows out;
};

class MixtureExchange {
 public:
  // Null if the spec has no such mixture. REQUIRES: `experts` computes all mixtures of the spec
  // that the device does not, and outlives the object.
  static StatusOr<std::unique_ptr<MixtureExchange>> New(device::Device* device,
                                                        const ModelSpec& spec, HostExperts* experts,
                                                        int64_t max_rows);

  // Enqueues the download of n_rows rows and their routes.
  void EnqueueRoutes(const HostMixture& mixture, int64_t n_rows, device::Stream* stream);
  // Computes the experts and enqueues the upload. REQUIRES: the download has completed.
  Status Compute(const HostMixture& mixture, int64_t n_rows, device::Stream* stream);
  int64_t bytes() const { return 2 * (rows_->bytes() + choices_->bytes()); }

 private:
  MixtureExchange(int64_t width, HostExperts* experts) : width_(width), experts_(*experts) {}

  const int64_t width_;
  HostExperts& experts_;
  // Pinned host memory: rows, experts' numbers, weights, and the experts' outputs.
  std::unique_ptr<device::Memory> rows_, choices_, weights_, given_;
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_MIXTURE_EXCHANGE_H_
