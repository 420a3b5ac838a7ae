#include "async/task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task_pool.h"
#include "async/wait_for_task.h"
#include "tests/support/await.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::Await;

Task<int> Number(int number) { co_return number; }

Task<std::string> Text(std::string text) { co_return text + "!"; }

TEST(Task, ReturnsValues) {
  EXPECT_EQ(Await(Number(3)), 3);
  EXPECT_EQ(Await(Text("a text that is too long for the string itself")),
            "a text that is too long for the string itself!");
}

Task<std::unique_ptr<int>> Owned(std::unique_ptr<int> number) { co_return number; }

TEST(Task, MovesWhatCannotBeCopied) { EXPECT_EQ(*Await(Owned(std::make_unique<int>(7))), 7); }

// Tells of its end.
struct Guest {
  std::atomic<int>* n_gone;
  ~Guest() { ++*n_gone; }
};

Task<TaskPool*> PoolAfterWait(std::unique_ptr<Guest> guest) {
  Signal signal;
  const auto soon = std::chrono::steady_clock::now() + milliseconds(1);
  (void)co_await signal.WaitUntil(soon);
  co_return TaskPool::Current();
}

TEST(WaitForTask, RunsInThePoolAndLeavesNothingOfTheTask) {
  TaskPool pool({.max_threads = 1});
  std::atomic<int> n_gone = 0;
  for (int i = 1; i <= 100; ++i) {
    std::unique_ptr<Guest> guest(new Guest{&n_gone});
    EXPECT_EQ(WaitForTask(pool, PoolAfterWait(std::move(guest))), &pool);
    EXPECT_EQ(n_gone, i);
  }
  EXPECT_EQ(TaskPool::Current(), nullptr);
}

Task<int64_t> SumTo(int n) {
  int64_t sum = 0;
  for (int i = 1; i <= n; ++i) {
    const int number = co_await Number(i);
    sum += number;
  }
  co_return sum;
}

TEST(Task, ALongLoopOverTasksThatEndAtOnceNeedsNoStack) {
  EXPECT_EQ(Await(SumTo(1'000'000)), int64_t{500'000'500'000});
}

Task<int> Failing() {
  throw std::runtime_error("no number");
  co_return 1;
}

Task<std::string> Caught() {
  try {
    const int number = co_await Failing();
    co_return std::to_string(number);
  } catch (const std::runtime_error& error) {
    co_return error.what();
  }
}

TEST(Task, ExceptionsReachWhoAwaits) { EXPECT_EQ(Await(Caught()), "no number"); }

TEST(Task, OneThatIsNeverAwaitedDoesNothing) {
  bool ran = false;
  const auto run = [](bool* out) -> Task<void> {
    *out = true;
    co_return;
  };
  { Task<void> task = run(&ran); }
  EXPECT_FALSE(ran);
}

// --- signals ---------------------------------------------------------------------------

Task<int> CountTo(int n, std::atomic<int>* count, Signal* signal) {
  while (*count < n) co_await signal->Wait();
  co_return count->load();
}

TEST(Signal, NothingIsMissed) {
  constexpr int kMax = 20'000;
  Signal signal;
  std::atomic<int> count{0};
  std::thread counter([&] {
    for (int i = 0; i < kMax; ++i) {
      ++count;
      signal.Notify();
    }
  });
  EXPECT_EQ(Await(CountTo(kMax, &count, &signal)), kMax);
  counter.join();
}

Task<std::pair<bool, bool>> WaitTwice(Signal* signal, milliseconds patience) {
  const bool first = co_await signal->WaitUntil(TaskPool::Clock::now() + patience);
  const bool second = co_await signal->WaitUntil(TaskPool::Clock::now() + patience);
  co_return std::pair(first, second);
}

TEST(Signal, AWaitEndsAtItsDeadline) {
  Signal signal;
  signal.Notify();
  signal.Notify();
  EXPECT_EQ(Await(WaitTwice(&signal, milliseconds(1))), std::pair(true, false))
      << "two notifications count as one";
}

// Deadlines that race with notifications.
Task<int> ManyWaits(Signal* signal, int n) {
  int notified = 0;
  for (int i = 0; i < n; ++i) {
    const auto deadline = TaskPool::Clock::now() + std::chrono::microseconds(i % 50);
    const bool was_notified = co_await signal->WaitUntil(deadline);
    notified += was_notified;
  }
  co_return notified;
}

TEST(Signal, DeadlinesAndNotificationsMayMeet) {
  Signal signal;
  std::atomic<bool> ended{false};
  std::thread notifier([&] {
    while (!ended) {
      signal.Notify();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  EXPECT_GT(Await(ManyWaits(&signal, 2000)), 0);
  ended = true;
  notifier.join();
}

TEST(Signal, ANotifierMayOutliveIt) {
  std::function<void()> notify;
  {
    Signal signal;
    notify = signal.Notifier();
  }
  notify();
}

Task<int> Asked(std::vector<std::thread>* threads) {
  int sum = 0;
  for (int i = 0; i < 100; ++i) {
    const auto ask = [&](std::function<void(int)> done) {
      threads->emplace_back([i, done = std::move(done)] { done(i); });
    };
    const int answer = co_await AnswerOf<int>(ask);
    sum += answer;
  }
  co_return sum;
}

TEST(AnswerOf, WaitsForACallbackFromAnyThread) {
  std::vector<std::thread> threads;
  EXPECT_EQ(Await(Asked(&threads)), 4950);
  for (std::thread& thread : threads) thread.join();
}

Task<int> AnsweredAtOnce() {
  const auto ask = [](const std::function<void(int)>& done) { done(5); };
  const int answer = co_await AnswerOf<int>(ask);
  co_return answer;
}

TEST(AnswerOf, TheCallbackMayComeAtOnce) { EXPECT_EQ(Await(AnsweredAtOnce()), 5); }

}  // namespace
}  // namespace weft
