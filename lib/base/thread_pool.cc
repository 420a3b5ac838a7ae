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

// Fields of ThreadPool::job_.
constexpr uint64_t kHelper = 1;  // one helper that is at the job
constexpr uint64_t kHelpers = (uint64_t{1} << 31) - 1;
constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kJob = uint64_t{1} << 32;  // one job

uint64_t NumberOf(uint64_t job) { return job / kJob; }

int Resolve(int n_threads) {
  if (n_threads > 0) return n_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

void RelaxCpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

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
    job_.fetch_add(kJob);
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::Begin(const FunctionRef<void(int)>& body) {
  body_ = &body;
  job_.store((NumberOf(job_.load()) + 1) * kJob | kOpen);
  // A helper raises `sleeping_` before its last look at `job_`, so either it sees the new job or we
  // see it sleeping.
  if (sleeping_.load() > 0) {
    { std::lock_guard<std::mutex> lock(sleep_mutex_); }
    wake_.notify_all();
  }
}

void ThreadPool::Close() {
  job_.fetch_and(~kOpen);
  for (int spins = 0; (job_.load() & kHelpers) != 0; ++spins) {
    // Yield eventually: a helper may have lost its core.
    if (spins < kSpins) {
      RelaxCpu();
    } else {
      std::this_thread::yield();
    }
  }
}

bool ThreadPool::Join(uint64_t job) {
  while ((job & kOpen) != 0) {
    uint64_t now = job;
    if (job_.compare_exchange_weak(now, job + kHelper)) return true;
    if (NumberOf(now) != NumberOf(job)) return false;
    job = now;
  }
  return false;
}

void ThreadPool::RunOnAll(FunctionRef<void(int)> body) {
  std::atomic<int> left{n_threads_};
  const auto run = [&](int worker) {
    body(worker);
    left.fetch_sub(1);
  };
  const FunctionRef<void(int)> job = run;
  Begin(job);
  run(0);
  while (left.load() != 0) std::this_thread::yield();
  Close();
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
  const auto run = [&](int worker) {
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < n) {
      const int64_t fair = (n - begin) / (int64_t{2} * n_threads_);
      const int64_t end = begin + std::clamp<int64_t>(fair, 1, grain);
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      body(begin, end, worker);
      begin = next.load(std::memory_order_relaxed);
    }
  };
  const FunctionRef<void(int)> job = run;
  Begin(job);
  run(0);
  Close();
}

void ThreadPool::HelperLoop(int worker) {
  uint64_t last = 0;  // number of the last job that was seen
  while (true) {
    int spins = 0;
    uint64_t job = job_.load();
    for (; NumberOf(job) == last; job = job_.load()) {
      if (++spins < kSpins) {
        RelaxCpu();
        continue;
      }
      std::unique_lock<std::mutex> lock(sleep_mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [&] { return NumberOf(job_.load()) != last; });
      sleeping_.fetch_sub(1);
    }
    if (stopping_.load()) return;
    last = NumberOf(job);
    if (!Join(job)) continue;
    (*body_)(worker);
    job_.fetch_sub(kHelper);
  }
}

}  // namespace weft
