#include "compute/mlx/lanes.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "mlx/device.h"

namespace weft::mlx {

namespace {

// Streams live as long as the process, so all steps reuse the same ones.
std::vector<mx::ThreadLocalStream> FirstStreams(size_t n) {
  static std::mutex mutex;
  static std::vector<mx::ThreadLocalStream> streams;
  const std::scoped_lock lock(mutex);
  while (streams.size() < n) streams.push_back(mx::new_thread_local_stream(mx::default_device()));
  return {streams.begin(), streams.begin() + static_cast<std::ptrdiff_t>(n)};
}

}  // namespace

Lanes::Lanes(int n_threads) {
  if (mx::default_device() != mx::Device::cpu) return;
  const int n = n_threads > 0 ? n_threads : static_cast<int>(std::thread::hardware_concurrency());
  beside_ = FirstStreams(static_cast<size_t>(std::max(0, n - 1)));
}

void Lanes::WaitForAll() const {
  const auto wait_for = [](const auto&... stream) {
    const Status waited = WithoutExceptions("a step", [&]() -> Status {
      mx::synchronize(stream...);
      return OkStatus();
    });
  };
  wait_for();
  for (const mx::ThreadLocalStream& stream : beside_) wait_for(stream);
}

Lanes::Use::Use(const Lanes& lanes, int64_t lane) {
  const auto i = static_cast<size_t>(lane % lanes.count());
  if (i == 0) return;
  before_ = mx::default_stream(mx::default_device());
  mx::set_default_stream(mx::stream_from_thread_local_stream(lanes.beside_[i - 1]));
}

Lanes::Use::~Use() {
  if (before_) mx::set_default_stream(*before_);
}

}  // namespace weft::mlx
