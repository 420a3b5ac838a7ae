// The streams over which a step spreads its work.
//
// Where MLX computes on the processor, a stream is one thread and an operation uses no other, so a
// step has as many streams as it may use threads. A device's stream uses all of the device: there
// a step has one.
#ifndef WEFT_BACKEND_MLX_LANES_H_
#define WEFT_BACKEND_MLX_LANES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/mlx/mlx_include.h"
#include "mlx/stream.h"

namespace weft::mlx {

class Lanes {
 public:
  // 0 threads: one per core. What is computed does not depend on them.
  explicit Lanes(int n_threads);

  int count() const { return 1 + static_cast<int>(beside_.size()); }

  // Until nothing of the thread's is left in any lane, whether it fails or not.
  void WaitForAll() const;

  // Until it ends, what the thread builds goes to a lane, which is numbered by any number.
  class Use {
   public:
    Use(const Lanes& lanes, int64_t lane);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::optional<mx::Stream> before_;  // of lane 0 nothing: it is the thread's own stream
  };

 private:
  // Each stands for one stream of every thread that uses it.
  std::vector<mx::ThreadLocalStream> beside_;
};

}  // namespace weft::mlx

#endif  // WEFT_BACKEND_MLX_LANES_H_
