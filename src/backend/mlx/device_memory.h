// How much memory MLX may have. Apple's GPUs use the machine's, of which the system recommends a
// part, and keep in place ("wired") what they are told to; a processor has no such limits.
//
// Any thread.
#ifndef WEFT_BACKEND_MLX_DEVICE_MEMORY_H_
#define WEFT_BACKEND_MLX_DEVICE_MEMORY_H_

#include <cstdint>

#include "backend/backend.h"

namespace weft::mlx {

// `machine`: the machine's memory. What of it MLX's device may have, and may have besides.
MemoryInfo DeviceMemory(MemoryInfo machine);

// What MLX keeps of freed memory for what is computed next; by itself it keeps all.
void LimitCache();

// As long as it lives so many bytes more stay in place, as far as the system recommends: weights,
// which every step reads, and nothing else.
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

#endif  // WEFT_BACKEND_MLX_DEVICE_MEMORY_H_
