// Switching between call stacks of one thread, for the emulator's fibers.
#ifndef WEFT_COMPUTE_DEVICE_STACK_SWITCH_H_
#define WEFT_COMPUTE_DEVICE_STACK_SWITCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::device {

#if defined(__x86_64__) || defined(__aarch64__)
inline constexpr bool kHasStackSwitch = true;
#else
inline constexpr bool kHasStackSwitch = false;
#endif

// A separate call stack that runs one function at a time. Belongs to the thread that made it.
//
// Objects on an abandoned stack are never destroyed, so code on it must not keep anything with a
// destructor across Suspend.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 64 << 10;

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume calls body(argument) on the stack; any previous call is abandoned. `body` must
  // end by suspending, never by returning.
  void Start(void (*body)(void*), void* argument);
  // Continues on the fiber's stack until it suspends. REQUIRES: not called on a fiber.
  void Resume();
  // Returns to the code that resumed this fiber. REQUIRES: called on its stack.
  void Suspend();
  // Whether the address is on this stack.
  bool Holds(const void* p) const {
    const auto bottom = reinterpret_cast<uintptr_t>(stack_.get());
    return reinterpret_cast<uintptr_t>(p) - bottom < kStackBytes;
  }

 private:
  static void Enter();
  static void LeaveForGood(void* self);

  const std::unique_ptr<std::byte[]> stack_;
  void* own_ = nullptr;     // saved stack pointer of this fiber
  void* caller_ = nullptr;  // saved stack pointer of its resumer
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  // State for the sanitizers. The address sanitizer's fake stack lives as long as the fiber; with
  // one per body, those of ended bodies would fill the memory.
  struct Sanitizers {
    void* fake_stack = nullptr;
    const void* caller_bottom = nullptr;
    size_t caller_bytes = 0;
    void* own_tsan = nullptr;
    void* caller_tsan = nullptr;
  };
  [[maybe_unused]] Sanitizers sanitizers_;
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_STACK_SWITCH_H_
