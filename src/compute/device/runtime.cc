#include "compute/device/runtime.h"

#include <thread>

namespace weft::device {

StatusOr<bool> WaitUntil(const Device& device, FunctionRef<StatusOr<bool>()> poll,
                         FunctionRef<bool()> give_up) {
  // A block of a small step takes less time than the shortest sleep, so poll without sleeping
  // first.
  constexpr auto kWakeful = std::chrono::microseconds(200);
  constexpr auto kMaxRest = std::chrono::microseconds(200);
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline = begin + device.patience();
  auto rest = std::chrono::microseconds(10);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool passed, poll());
    if (passed) return true;
    if (give_up()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return DeadlineExceeded("the device ", device.name(), " has not answered for ",
                              device.patience().count(), " ms");
    }
    if (now < begin + kWakeful) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(rest);
    rest = std::min(rest * 2, kMaxRest);
  }
}

StatusOr<bool> WaitFor(const Device& device, Event* event, FunctionRef<bool()> give_up) {
  return WaitUntil(
      device, [&] { return event->Poll(); }, give_up);
}

Status WaitFor(const Device& device, Event* event) {
  return WaitFor(device, event, [] { return false; }).status();
}

}  // namespace weft::device
