#include "device/runtime.h"

#include <thread>

namespace weft::device {

StatusOr<bool> WaitUntil(const Device& device, FunctionRef<StatusOr<bool>()> poll,
                         FunctionRef<bool()> give_up) {
  constexpr auto kMostRest = std::chrono::microseconds(200);
  const auto deadline = std::chrono::steady_clock::now() + device.patience();
  auto rest = std::chrono::microseconds(1);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const bool passed, poll());
    if (passed) return true;
    if (give_up()) return false;
    if (std::chrono::steady_clock::now() >= deadline) {
      return DeadlineExceeded("the device ", device.name(), " has not answered for ",
                              device.patience().count(), " ms");
    }
    std::this_thread::sleep_for(rest);
    rest = std::min(rest * 2, kMostRest);
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
