#include "engine/turns/shared_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {

// Engines that compute in turn, by a clock that only their steps advance.
class SharedGateTest : public ::testing::Test {
 protected:
  using Place = std::unique_ptr<StepGate::Place>;

  // Runs steps of these costs, one engine each, until the first has run `n_steps`. All of them
  // want to compute all the time. Returns who ran, in order.
  std::string Run(const std::vector<int>& costs, int n_steps) {
    const Place first = gate_->NewPlace();
    first->Enter();
    std::string order;
    std::atomic<bool> is_over{false};
    std::vector<std::thread> engines;
    for (size_t i = 0; i < costs.size(); ++i) {
      engines.emplace_back([&, i] {
        const Place place = gate_->NewPlace();
        for (int steps = 0; !is_over; ++steps) {
          if (i == 0 && steps == n_steps) {
            is_over = true;
            break;
          }
          place->Enter();
          // The others have come back from their last step.
          while (!is_over && gate_->waiting() + 1 < std::ssize(costs)) std::this_thread::yield();
          order += static_cast<char>('a' + i);
          now_us_ += costs[i];
          place->PassOn();
        }
      });
      while (gate_->waiting() <= static_cast<int>(i)) std::this_thread::yield();
    }
    first->Leave();
    for (std::thread& engine : engines) engine.join();
    return order;
  }

  std::atomic<int64_t> now_us_{0};
  const std::shared_ptr<SharedGate> gate_ =
      std::make_shared<SharedGate>([this] { return now_us_.load(); });
};

TEST_F(SharedGateTest, EqualStepsAlternate) {
  EXPECT_EQ(Run({10, 10, 10}, 3).substr(0, 7), "abcabca");
}

TEST_F(SharedGateTest, TheTimeIsSharedNotTheSteps) {
  EXPECT_EQ(Run({10, 50}, 11).substr(0, 13), "abaaaabaaaaab");
}

TEST_F(SharedGateTest, WhoeverComesIsWantedAtOnceHoweverLongTheOtherHasComputed) {
  const Place busy = gate_->NewPlace();
  EXPECT_EQ(busy->Enter(), 0);
  now_us_ += 1'000'000;
  EXPECT_FALSE(busy->IsWanted());
  busy->PassOn();
  EXPECT_EQ(busy->Enter(), 0);
  EXPECT_EQ(busy->others(), 0);
  int64_t waited_us = 0;
  std::thread other([&] {
    const Place place = gate_->NewPlace();
    waited_us = place->Enter();
    place->Leave();
  });
  while (gate_->waiting() == 0) std::this_thread::yield();
  EXPECT_TRUE(busy->IsWanted());
  EXPECT_EQ(busy->others(), 1);
  now_us_ += 7;
  busy->PassOn();
  other.join();
  EXPECT_EQ(waited_us, 7);
  EXPECT_EQ(busy->Enter(), 0);
  EXPECT_EQ(busy->others(), 0);
}

TEST_F(SharedGateTest, NobodySavesTimeUp) {
  const Place idle = gate_->NewPlace();
  idle->Enter();
  idle->Leave();
  const Place busy = gate_->NewPlace();
  busy->Enter();
  now_us_ += 1'000'000;
  busy->Leave();
  EXPECT_EQ(Run({10, 10}, 3).substr(0, 5), "ababa");
  // The one that was idle takes one step, and is asked to make way for the other again.
  idle->Enter();
  std::thread other([&] { busy->Enter(); });
  while (gate_->waiting() == 0) std::this_thread::yield();
  now_us_ += 10;
  EXPECT_TRUE(idle->IsWanted());
  idle->PassOn();
  other.join();
}

TEST_F(SharedGateTest, AnEngineThatEndsGivesItsTurnUp) {
  Place first = gate_->NewPlace();
  first->Enter();
  std::thread other([&] { gate_->NewPlace()->Enter(); });
  while (gate_->waiting() == 0) std::this_thread::yield();
  first.reset();
  other.join();
  EXPECT_EQ(gate_->NewPlace()->Enter(), 0);
}

}  // namespace
}  // namespace weft
