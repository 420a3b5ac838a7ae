#include "compute/device/stack_switch.h"

#include <cstdint>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_ASAN_FIBERS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WEFT_TSAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_TSAN_FIBERS 1
#endif
#endif
#ifdef WEFT_ASAN_FIBERS
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WEFT_TSAN_FIBERS
#include <sanitizer/tsan_interface.h>
#endif

// weft_switch_stacks(void** from, void* to): pushes the callee-saved registers, saves the stack
// pointer to *from and continues at `to`. In assembly, because C++ cannot express it.
#define WEFT_TEXT_OF(x) #x
#define WEFT_TEXT(x) WEFT_TEXT_OF(x)
#define WEFT_SWITCH WEFT_TEXT(__USER_LABEL_PREFIX__) "weft_switch_stacks"
#if defined(__x86_64__)
asm(".text\n"
    ".globl " WEFT_SWITCH "\n" WEFT_SWITCH
    ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
#elif defined(__aarch64__)
asm(".text\n"
    ".globl " WEFT_SWITCH
    "\n"
    ".p2align 2\n" WEFT_SWITCH
    ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");
#endif
extern "C" void weft_switch_stacks(void** from, void* to);

namespace weft::device {

namespace {

// The fiber that the thread is entering for the first time.
thread_local Fiber* entered = nullptr;

void Switch(void** from, void* to) {
  if constexpr (kHasStackSwitch) weft_switch_stacks(from, to);
}

// Writes the values that weft_switch_stacks pops from a new stack, lowest address first.
uintptr_t* Prepare(std::byte* end, void (*enter)()) {
  auto top = reinterpret_cast<uintptr_t>(end) & ~uintptr_t{63};
  auto* at = reinterpret_cast<uintptr_t*>(top);
#if defined(__aarch64__)
  at -= 20;
  for (int i = 0; i < 20; ++i) at[i] = 0;
  at[11] = reinterpret_cast<uintptr_t>(enter);  // x30
#else
  *--at = 0;  // no return address, and the alignment after a call
  *--at = reinterpret_cast<uintptr_t>(enter);
  for (int i = 0; i < 6; ++i) *--at = 0;
#endif
  return at;
}

}  // namespace

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {
#ifdef WEFT_TSAN_FIBERS
  sanitizers_.own_tsan = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef WEFT_ASAN_FIBERS
  if (sanitizers_.fake_stack != nullptr) {
    Start(&Fiber::LeaveForGood, this);
    Resume();
  }
#endif
#ifdef WEFT_TSAN_FIBERS
  __tsan_destroy_fiber(sanitizers_.own_tsan);
#endif
}

void Fiber::Start(void (*body)(void*), void* argument) {
  WEFT_CHECK(kHasStackSwitch, "the emulator has no stack switch for this processor");
  body_ = body;
  argument_ = argument;
  own_ = Prepare(stack_.get() + kStackBytes, &Fiber::Enter);
}

void Fiber::Enter() {
  Fiber* const self = entered;
#ifdef WEFT_ASAN_FIBERS
  Sanitizers& seen = self->sanitizers_;
  __sanitizer_finish_switch_fiber(seen.fake_stack, &seen.caller_bottom, &seen.caller_bytes);
#endif
  self->body_(self->argument_);
  WEFT_CHECK(false, "the body of a fiber returned");
}

// Tells the address sanitizer to free the second stack.
void Fiber::LeaveForGood([[maybe_unused]] void* self) {
#ifdef WEFT_ASAN_FIBERS
  Fiber* const fiber = static_cast<Fiber*>(self);
  __sanitizer_start_switch_fiber(nullptr, fiber->sanitizers_.caller_bottom,
                                 fiber->sanitizers_.caller_bytes);
  Switch(&fiber->own_, fiber->caller_);
#endif
}

void Fiber::Resume() {
  entered = this;
#ifdef WEFT_TSAN_FIBERS
  sanitizers_.caller_tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizers_.own_tsan, 0);
#endif
#ifdef WEFT_ASAN_FIBERS
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_.get(), kStackBytes);
#endif
  Switch(&caller_, own_);
#ifdef WEFT_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::Suspend() {
#ifdef WEFT_TSAN_FIBERS
  __tsan_switch_to_fiber(sanitizers_.caller_tsan, 0);
#endif
#ifdef WEFT_ASAN_FIBERS
  __sanitizer_start_switch_fiber(&sanitizers_.fake_stack, sanitizers_.caller_bottom,
                                 sanitizers_.caller_bytes);
#endif
  Switch(&own_, caller_);
#ifdef WEFT_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(sanitizers_.fake_stack, &sanitizers_.caller_bottom,
                                  &sanitizers_.caller_bytes);
#endif
}

}  // namespace weft::device
