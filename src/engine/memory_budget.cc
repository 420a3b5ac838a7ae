#include "engine/memory_budget.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {
namespace {

constexpr int64_t kMinBytes = int64_t{64} << 20;

}  // namespace

StatusOr<int64_t> DefaultMemoryBudget(const Backend& backend, int device,
                                      const MemoryClaims& claims) {
  WEFT_ASSIGN_OR_RETURN(MemoryInfo memory, backend.MemoryOf(device));
  memory.free_bytes -= claims.taken_bytes + claims.later_bytes;
  return std::max(memory.usable_bytes(), kMinBytes);
}

StatusOr<int64_t> LimitMemoryBudget(int64_t wanted_bytes, const Backend& backend, int device,
                                    const MemoryClaims& claims) {
  WEFT_ASSIGN_OR_RETURN(const MemoryInfo memory, backend.MemoryOf(device));
  if (memory.reserve_bytes == 0) return wanted_bytes;
  WEFT_ASSIGN_OR_RETURN(const int64_t most, DefaultMemoryBudget(backend, device, claims));
  return std::min(wanted_bytes, most);
}

double KvBytesPerToken(const ModelSpec& spec, KvTypes types) {
  constexpr int64_t kBlock = 32;  // values in the largest storage unit of any type
  const auto bytes = [](DType type, int64_t n) {
    return static_cast<double>(n * RowBytes(type, kBlock)) / kBlock;
  };
  const std::vector<int64_t> v_dims = ValueDims(spec);
  double sum = 0;
  for (size_t i = 0; i < spec.kv_layers.size(); ++i) {
    const KvLayer& layer = spec.kv_layers[i];
    const KvTypes stored = layer.exact ? KvTypes(DType::kF32) : types;
    sum += (bytes(stored.keys, layer.n_heads * layer.k_dim) +
            bytes(stored.values, layer.n_heads * v_dims[i])) /
           static_cast<double>(layer.stride);
  }
  return sum;
}

}  // namespace weft
