#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <set>

namespace weft {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, RunOnAllRunsOnceOnEveryWorker) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.n_threads(), GetParam());
  std::vector<int> calls(static_cast<size_t>(GetParam()));  // each worker writes its own
  for (int round = 1; round <= 200; ++round) {
    pool.RunOnAll([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
    for (const int n : calls) ASSERT_EQ(n, round);
  }
}

TEST_P(ThreadPoolTest, WorkersAreDifferentThreadsAndTheCallerIsZero) {
  ThreadPool pool(GetParam());
  std::vector<std::thread::id> ids(static_cast<size_t>(GetParam()));
  pool.RunOnAll([&](int worker) { ids[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
}

TEST_P(ThreadPoolTest, ParallelForCoversEachIndexOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t n : {0, 1, 7, 64, 1000}) {
    for (const int64_t grain : {0, 1, 3, 64, 5000}) {
      std::vector<int> touched(static_cast<size_t>(n));
      std::atomic<bool> in_bounds{true};
      pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int worker) {
        if (begin < 0 || begin >= end || end > n || worker < 0 || worker >= GetParam() ||
            end - begin > std::max<int64_t>(1, grain)) {
          in_bounds = false;
          return;
        }
        for (int64_t i = begin; i < end; ++i) ++touched[static_cast<size_t>(i)];
      });
      EXPECT_TRUE(in_bounds);
      EXPECT_EQ(touched, std::vector<int>(static_cast<size_t>(n), 1)) << n << " by " << grain;
    }
  }
}

TEST_P(ThreadPoolTest, LastRangesAreShort) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> last_length{0};
  pool.ParallelFor(1000, 100, [&](int64_t begin, int64_t end, int) {
    if (end == 1000) last_length = end - begin;
  });
  EXPECT_EQ(last_length, GetParam() == 1 ? 100 : 1);
}

// Helpers fall asleep between these calls; each call must wake them.
TEST_P(ThreadPoolTest, SleepingHelpersWake) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> calls{0};
    pool.RunOnAll([&](int) { ++calls; });
    EXPECT_EQ(calls, GetParam());
  }
}

// The caller and the next job see what workers wrote.
TEST_P(ThreadPoolTest, ResultsAreVisibleToTheNextStage) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(4096);
  std::iota(values.begin(), values.end(), 0);
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> next(values.size());
    pool.ParallelFor(4096, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) next[i] = values[(i + 1) % 4096];
    });
    values.swap(next);
  }
  for (int64_t i = 0; i < 4096; ++i) ASSERT_EQ(values[i], (i + 100) % 4096);
}

// Nobody waits for a helper that has not begun with a job: one that comes late must not begin with
// it any more.
TEST_P(ThreadPoolTest, JobsThatAreOverAreLeftAlone) {
  ThreadPool pool(GetParam());
  std::atomic<int> late{0};
  for (int round = 0; round < 20000; ++round) {
    std::atomic<bool> over{false};
    std::atomic<int> parts{0};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int) {
      if (over) ++late;
      ++parts;
    });
    over = true;
    ASSERT_EQ(parts, 2);
  }
  EXPECT_EQ(late, 0);
}

TEST(ThreadPool, ZeroMeansOnePerCore) {
  ThreadPool pool(0);
  EXPECT_GE(pool.n_threads(), 1);
}

TEST(ThreadPool, StartsAndStopsOftenWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace weft
