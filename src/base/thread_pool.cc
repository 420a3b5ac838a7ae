#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft {
namespace {

// About 50 us: long enough to bridge the gap between two stages of a step, short enough that an
// idle engine releases its cores.
constexpr int kSpins = 2000;

inline void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int Resolve(int n_threads) {
  if (n_threads > 0) return n_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(Resolve(n_threads)) {
  for (int worker = 1; worker < n_threads_; ++worker) {
    try {
      helpers_.emplace_back([this, worker] { HelperLoop(worker); });
    } catch (const std::system_error&) {
      n_threads_ = worker;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    stopping_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::RunOnAll(FunctionRef<void(int)> body) {
  if (helpers_.empty()) {
    body(0);
    return;
  }
  body_ = &body;
  running_.store(n_threads_ - 1);
  generation_.fetch_add(1);
  // A helper raises `sleeping_` before its last look at `generation_`, so either it sees the new
  // generation or we see it sleeping.
  if (sleeping_.load() > 0) {
    { std::lock_guard<std::mutex> lock(sleep_mutex_); }
    wake_.notify_all();
  }
  body(0);
  for (int spins = 0; running_.load() != 0; ++spins) {
    // Yield eventually: a helper may have lost its core.
    if (spins < kSpins) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain,
                             FunctionRef<void(int64_t, int64_t, int)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (n_threads_ == 1 || n <= grain) {
    for (int64_t begin = 0; begin < n; begin += grain) body(begin, std::min(n, begin + grain), 0);
    return;
  }
  std::atomic<int64_t> next{0};
  RunOnAll([&](int worker) {
    while (true) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= n) break;
      body(begin, std::min(n, begin + grain), worker);
    }
  });
}

void ThreadPool::HelperLoop(int worker) {
  uint64_t seen = 0;
  while (true) {
    int spins = 0;
    while (generation_.load() == seen) {
      if (++spins < kSpins) {
        CpuRelax();
        continue;
      }
      std::unique_lock<std::mutex> lock(sleep_mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      sleeping_.fetch_sub(1);
    }
    ++seen;
    if (stopping_.load()) return;
    (*body_)(worker);
    running_.fetch_sub(1);
  }
}

}  // namespace weft
