#include "compute/mlx/device_memory.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <variant>

#include "compute/mlx/mlx_include.h"
#include "mlx/device.h"

namespace weft::mlx {

namespace {

constexpr size_t kCacheBytes = size_t{256} << 20;

// 0: the device has no limit.
int64_t RecommendedBytes() {
  const auto& info = mx::device_info(mx::default_device());
  const auto found = info.find("max_recommended_working_set_size");
  const auto* bytes = found != info.end() ? std::get_if<size_t>(&found->second) : nullptr;
  return bytes != nullptr ? static_cast<int64_t>(*bytes) : 0;
}

// Adds to the total number of wired bytes.
void Wire(int64_t more_bytes) {
  static std::mutex mutex;
  static int64_t wanted_bytes = 0;
  const std::scoped_lock lock(mutex);
  wanted_bytes += more_bytes;
  try {
    const int64_t most = RecommendedBytes();
    if (most > 0) mx::set_wired_limit(static_cast<size_t>(std::min(wanted_bytes, most)));
  } catch (const std::exception&) {
    // Wiring is only an optimization: without it the results are the same.
  }
}

}  // namespace

MemoryInfo DeviceMemory(MemoryInfo machine) {
  const int64_t most = RecommendedBytes();
  if (most == 0) return machine;
  const auto taken = static_cast<int64_t>(mx::get_active_memory());
  return {.total_bytes = std::min(machine.total_bytes, most),
          .free_bytes = std::clamp<int64_t>(most - taken, 0, machine.free_bytes)};
}

void LimitCache() {
  static std::once_flag limited;
  std::call_once(limited, [] { mx::set_cache_limit(kCacheBytes); });
}

WiredBytes::WiredBytes(int64_t bytes) : bytes_(bytes) { Wire(bytes_); }
WiredBytes::~WiredBytes() { Wire(-bytes_); }

}  // namespace weft::mlx
