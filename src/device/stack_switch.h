// Switching between call stacks of one thread, for the emulator's fibers.
#ifndef WEFT_DEVICE_STACK_SWITCH_H_
#define WEFT_DEVICE_STACK_SWITCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::device {

#if defined(__x86_64__) || defined(__aarch64__)
inline constexpr bool kHasStackSwitch = true;
#else
inline constexpr bool kHasStackSwitch = false;
#endif

// A call stack of its own, for one function at a time. Belongs to the thread that made it.
//
// What is on an abandoned stack is never destroyed: code that runs there keeps nothing that
// needs a destructor across Suspend.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 64 << 10;

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume calls body(argument) on the stack. What it was doing before is abandoned.
  // `body` ends by suspending for good, never by returning.
  void Start(void (*body)(void*), void* argument);
  // Continues on the fiber's stack until it suspends. REQUIRES: not called on a fiber.
  void Resume();
  // Goes back to who resumed this fiber. REQUIRES: called on its stack.
  void Suspend();
  // Whether that lies on the stack.
  bool Holds(const void* p) const {
    const auto bottom = reinterpret_cast<uintptr_t>(stack_.get());
    return reinterpret_cast<uintptr_t>(p) - bottom < kStackBytes;
  }

 private:
  static void Enter();
  static void LeaveForGood(void* self);

  const std::unique_ptr<std::byte[]> stack_;
  void* own_ = nullptr;     // where this fiber goes on
  void* caller_ = nullptr;  // where its resumer does
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  // What sanitizers want to know. The address sanitizer's second stack lives as long as the
  // fiber: one for each body would fill the memory with those of bodies that ended.
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

#endif  // WEFT_DEVICE_STACK_SWITCH_H_
