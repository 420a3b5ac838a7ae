#include "base/files/mapping_guard.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "base/system.h"

namespace weft {

// One guarded range, or a free entry. The list only grows, so the handler can walk it at any
// moment.
struct MappingGuard::Range {
  static constexpr uintptr_t kNone = UINTPTR_MAX;

  std::atomic<bool> taken{true};
  std::atomic<uintptr_t> begin{kNone};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
  Range* next = nullptr;

  // `begin` is set last and cleared first: if it is the same before and after reading the end, that
  // end belongs to it.
  bool Contains(uintptr_t address, uintptr_t* range_end) const {
    const uintptr_t first = begin.load();
    *range_end = end.load();
    return first <= address && address < *range_end && begin.load() == first;
  }
};

class MappingGuard::Handler {
 public:
  static Range* Take(uintptr_t begin, uintptr_t end) {
    static std::once_flag installed;
    std::call_once(installed, Install);
    Range* range = ranges_;
    while (range != nullptr && range->taken.exchange(true)) range = range->next;
    if (range == nullptr) {
      range = new Range;
      range->next = ranges_;
      while (!ranges_.compare_exchange_weak(range->next, range)) {
      }
    }
    range->damaged = false;
    range->end = end;
    range->begin = begin;
    return range;
  }

  static void Give(Range* range) {
    range->begin = Range::kNone;
    range->end = 0;
    range->taken = false;
  }

 private:
  static void Install() {
    page_ = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    // Save the previous handler first: a fault may arrive as soon as ours is installed.
    sigaction(SIGBUS, nullptr, &former_);
    sigaction(SIGBUS, &action, nullptr);
  }

  // Runs in the signal handler: atomics and system calls only.
  static void OnBusError(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const bool is_fault = info->si_code > 0;
    if (!is_fault || !Recover(reinterpret_cast<uintptr_t>(info->si_addr))) {
      PassOn(signal, info, context);
    }
    errno = error;
  }

  static bool Recover(uintptr_t address) {
    for (Range* range = ranges_; range != nullptr; range = range->next) {
      uintptr_t end = 0;
      if (!range->Contains(address, &end)) continue;
      range->damaged = true;
      const uintptr_t begin = address / page_ * page_;
      return MapZeros(begin, end - begin);
    }
    return false;
  }

  static void PassOn(int signal, siginfo_t* info, void* context) {
    if ((former_.sa_flags & SA_SIGINFO) != 0) return former_.sa_sigaction(signal, info, context);
    if (former_.sa_handler == SIG_IGN && info->si_code <= 0) return;
    if (former_.sa_handler != SIG_DFL && former_.sa_handler != SIG_IGN) {
      return former_.sa_handler(signal);
    }
    // Reset to the default action: once this returns, the fault repeats; a signal that was sent is
    // sent again.
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    if (info->si_code <= 0) raise(signal);
  }

  static inline std::atomic<Range*> ranges_{nullptr};
  static inline struct sigaction former_ = {};
  static inline uintptr_t page_ = 0;
};

MappingGuard::MappingGuard(const std::byte* data, size_t size)
    : range_(size == 0 ? nullptr
                       : Handler::Take(reinterpret_cast<uintptr_t>(data),
                                       reinterpret_cast<uintptr_t>(data) + size)) {}

MappingGuard::~MappingGuard() {
  if (range_ != nullptr) Handler::Give(range_);
}

bool MappingGuard::damaged() const { return range_ != nullptr && range_->damaged; }

}  // namespace weft
