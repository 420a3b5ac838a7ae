#include "async/task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/system.h"

namespace weft {
namespace {

// Blocks threads until it is opened.
class Gate {
 public:
  std::function<void()> Work() {
    return [future = future_] { future.wait(); };
  }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> future_ = opened_.get_future().share();
};

TEST(TaskPool, RunsWhatIsPostedBeforeItStops) {
  std::atomic<int> ran{0};
  TaskPool pool({.max_threads = 3, .max_posted = 3, .max_waiting = 1000});
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(pool.Post("a", [&] { ++ran; }));
  pool.Stop();
  EXPECT_EQ(ran, 1000);
  EXPECT_FALSE(pool.Post("a", [] {}));
}

TEST(TaskPool, RefusesMoreThanMayWait) {
  Gate gate;
  std::atomic<int64_t> waiting{0};
  TaskPool pool({.max_threads = 4, .max_posted = 3, .max_waiting = 2, .waiting = &waiting});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool.Post("a", gate.Work())) << i;
  EXPECT_FALSE(pool.Post("a", gate.Work()));
  EXPECT_EQ(waiting, 2);
  gate.Open();
  pool.Stop();
  EXPECT_EQ(waiting, 0);
}

Task<void> WaitFor(Signal* signal, std::promise<void>* waits, std::promise<void>* went_on) {
  waits->set_value();
  co_await signal->Wait();
  went_on->set_value();
}

TEST(TaskPool, ATaskGoesOnWhilePostedWorkTakesLong) {
  Gate gate;
  TaskPool pool({.max_threads = 3, .max_posted = 2});
  Signal signal;
  std::promise<void> waits, went_on;
  ASSERT_TRUE(pool.Post("a", [&] { StartTask(WaitFor(&signal, &waits, &went_on)); }));
  waits.get_future().wait();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool.Post("a", gate.Work()));
  signal.Notify();
  went_on.get_future().wait();
  gate.Open();
}

TEST(TaskPool, StopsAThreadThatMayNotTakeWhatIsPosted) {
  Gate gate;
  TaskPool pool({.max_threads = 2, .max_posted = 1});
  Signal signal;
  std::promise<void> waits, went_on;
  ASSERT_TRUE(pool.Post("a", [&] { StartTask(WaitFor(&signal, &waits, &went_on)); }));
  waits.get_future().wait();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool.Post("a", gate.Work()));
  signal.Notify();
  went_on.get_future().wait();  // on a second thread, which is idle from now on
  std::thread stopper([&] { pool.Stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  gate.Open();
  stopper.join();
}

Task<void> Join(Signal* signal, std::atomic<int>* n_waiting, std::atomic<int>* n_ended) {
  ++*n_waiting;
  co_await signal->Wait();
  ++*n_ended;
}

TEST(TaskPool, TasksThatWaitHoldNoThread) {
  constexpr int kTasks = 5000;
  std::vector<std::unique_ptr<Signal>> signals;
  signals.reserve(kTasks);
  for (int i = 0; i < kTasks; ++i) signals.push_back(std::make_unique<Signal>());
  std::atomic<int> n_waiting{0}, n_ended{0};
  const int before = CountThreads();
  TaskPool pool({.max_threads = 4, .max_posted = 3, .max_waiting = kTasks});
  for (const auto& signal : signals) {
    ASSERT_TRUE(
        pool.Post("a", [&, s = signal.get()] { StartTask(Join(s, &n_waiting, &n_ended)); }));
  }
  while (n_waiting < kTasks) std::this_thread::yield();
  EXPECT_LE(CountThreads(), before + 4);
  // Idle threads end, except for one.
  while (CountThreads() > before + 1) std::this_thread::yield();
  for (const auto& signal : signals) signal->Notify();
  while (n_ended < kTasks) std::this_thread::yield();
}

TEST(TaskPool, TimersExpireInTheirOrderUnlessRemoved) {
  TaskPool pool({.max_threads = 1});
  std::vector<int> expired;
  std::promise<void> last;
  const auto now = TaskPool::Clock::now();
  const auto after = [&](int ms) { return now + std::chrono::milliseconds(ms); };
  ASSERT_TRUE(pool.Post("a", [&] {
    pool.AddTimer(after(20), [&] {
      expired.push_back(20);
      last.set_value();
    });
    pool.AddTimer(after(10), [&] { expired.push_back(10); });
    const auto removed = pool.AddTimer(after(5), [&] { expired.push_back(5); });
    pool.AddTimer(after(0), [&] { expired.push_back(0); });
    pool.RemoveTimer(removed);
  }));
  last.get_future().wait();
  EXPECT_EQ(expired, (std::vector<int>{0, 10, 20}));
}

TEST(TaskPool, NoTenantHoldsTheLastThread) {
  Gate gate;
  TaskPool pool({.max_threads = 3, .max_posted = 3});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool.Post("a", gate.Work()));
  std::promise<void> ran;
  ASSERT_TRUE(pool.Post("b", [&] { ran.set_value(); }));
  ran.get_future().wait();
  gate.Open();
}

TEST(TaskPool, TenantsTakeTurns) {
  Gate gate;
  TaskPool pool({.max_threads = 1});
  std::string order;
  ASSERT_TRUE(pool.Post("x", gate.Work()));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.Post("a", [&] { order += 'a'; }));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool.Post("b", [&] { order += 'b'; }));
  gate.Open();
  pool.Stop();
  EXPECT_EQ(order, "ababaa");
}

Task<void> EnterInTurn(TaskPool* pool, std::atomic<int>* entered, std::atomic<int>* refused) {
  const bool has_entered = co_await pool->EnterInTurn("a");
  ++(has_entered ? *entered : *refused);
  EXPECT_EQ(TaskPool::Current(), has_entered ? pool : nullptr);
}

TEST(TaskPool, ATaskWaitsForItsTenantsTurn) {
  Gate gate;
  TaskPool pool({.max_threads = 1, .max_waiting = 2});
  std::atomic<int> entered{0}, refused{0};
  ASSERT_TRUE(pool.Post("a", gate.Work()));
  for (int i = 0; i < 3; ++i) StartTask(EnterInTurn(&pool, &entered, &refused));
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(entered, 0);
  gate.Open();
  pool.Stop();
  EXPECT_EQ(entered, 2);
}

Task<void> Move(TaskPool* to, std::promise<std::pair<TaskPool*, TaskPool*>>* seen) {
  TaskPool* const before = TaskPool::Current();
  co_await to->Enter();
  seen->set_value(std::pair(before, TaskPool::Current()));
}

TEST(TaskPool, ATaskMayGoOnElsewhere) {
  TaskPool from({.max_threads = 1}), to({.max_threads = 1});
  std::promise<std::pair<TaskPool*, TaskPool*>> seen;
  ASSERT_TRUE(from.Post("a", [&] { StartTask(Move(&to, &seen)); }));
  EXPECT_EQ(seen.get_future().get(), std::pair(&from, &to));
  EXPECT_EQ(TaskPool::Current(), nullptr);
}

}  // namespace
}  // namespace weft
