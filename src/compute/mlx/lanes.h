// The MLX streams that a step uses in parallel.
//
// On the CPU, a stream is one thread and every operation runs in one stream, so a step uses as many
// streams as it may use threads. On a GPU, one stream already uses the whole device, so a step uses
// one.
#ifndef WEFT_COMPUTE_MLX_LANES_H_
#define WEFT_COMPUTE_MLX_LANES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compute/mlx/mlx_include.h"
#include "mlx/stream.h"

namespace weft::mlx {

class Lanes {
 public:
  // 0 threads: one per core. Results do not depend on the number.
  explicit Lanes(int n_threads);

  int count() const { return 1 + static_cast<int>(beside_.size()); }

  // Waits until all lanes have finished this thread's work, successfully or not.
  void WaitForAll() const;

  // For its lifetime, the thread builds its graph in the given lane; any number is valid, modulo
  // count().
  class Use {
   public:
    Use(const Lanes& lanes, int64_t lane);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::optional<mx::Stream> before_;  // none for lane 0, the thread's own stream
  };

 private:
  // Each stands for one stream per thread that uses it.
  std::vector<mx::ThreadLocalStream> beside_;
};

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_LANES_H_
