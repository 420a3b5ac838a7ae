// How much memory MLX may use. Apple GPUs share the machine's memory: the system recommends a
// limit, and keeps "wired" memory resident on request. A CPU has no such limits.
//
// Any thread.
#ifndef WEFT_COMPUTE_MLX_DEVICE_MEMORY_H_
#define WEFT_COMPUTE_MLX_DEVICE_MEMORY_H_

#include <cstdint>

#include "compute/backend.h"

namespace weft::mlx {

// Limits the machine's memory to the part that MLX's device may use, in total and now.
MemoryInfo DeviceMemory(MemoryInfo machine);

// Limits the memory that MLX keeps for reuse after it is freed; by default it keeps everything.
void LimitCache();

// Wires this many more bytes for its lifetime, up to the limit that the system recommends. Used
// only for weights, because every step reads them.
class WiredBytes {
 public:
  explicit WiredBytes(int64_t bytes);
  ~WiredBytes();
  WiredBytes(const WiredBytes&) = delete;
  WiredBytes& operator=(const WiredBytes&) = delete;

 private:
  const int64_t bytes_;
};

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_DEVICE_MEMORY_H_
