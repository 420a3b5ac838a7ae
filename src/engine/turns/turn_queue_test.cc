#include "engine/turns/turn_queue.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

TurnEvent Token(int id) {
  TokenEvent event;
  event.token = id;
  return event;
}

TEST(TurnQueueTest, DeliversInOrderAcrossThreadsAndEnds) {
  TurnQueue queue(8, 1, [] {});
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) queue.Push(Token(i));
    queue.Finish(OkStatus());
  });
  int expected = 0;
  while (auto event = queue.Next()) EXPECT_EQ(std::get<TokenEvent>(*event).token, expected++);
  EXPECT_EQ(expected, 1000);
  producer.join();
}

TEST(TurnQueueTest, FullIsSaidOnceAndDrainedAtHalf) {
  int drained = 0;
  TurnQueue queue(4, 1, [&] { ++drained; });
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(queue.Full());
    queue.Push(Token(i));
  }
  EXPECT_TRUE(queue.Full());
  queue.Next();
  EXPECT_TRUE(queue.Full());  // until half is read
  queue.Next();
  EXPECT_FALSE(queue.Full());
  EXPECT_EQ(drained, 1);
  queue.Next();
  EXPECT_EQ(drained, 1);
}

TEST(TurnQueueTest, TryNextTellsEmptyFromFinished) {
  TurnQueue queue(4, 1, [] {});
  bool finished = true;
  EXPECT_FALSE(queue.TryNext(&finished).has_value());
  EXPECT_FALSE(finished);
  queue.Push(Token(1));
  queue.Finish(OkStatus());
  EXPECT_TRUE(queue.TryNext(&finished).has_value());
  EXPECT_TRUE(finished);
  EXPECT_FALSE(queue.TryNext(&finished).has_value());
}

TEST(TurnQueueTest, ReadyIsCalledWhenEventsComeAfterNone) {
  TurnQueue queue(4, 1, [] {});
  std::atomic<int> calls{0};
  queue.Push(Token(0));
  queue.SetReadyCallback([&] { ++calls; });
  EXPECT_EQ(calls, 1);  // there was something already
  queue.Push(Token(1));
  EXPECT_EQ(calls, 1);
  queue.Next();
  queue.Next();
  queue.Push(Token(2));
  EXPECT_EQ(calls, 2);
  queue.Finish(OkStatus());
  EXPECT_EQ(calls, 3);
}

TEST(TurnQueueTest, TheLastDoneComesWithTheEnd) {
  TurnQueue queue(4, 2, [] {});
  bool finished = true;
  queue.Push(DoneEvent{.choice = 1});
  queue.Push(DoneEvent{.choice = 0});
  auto event = queue.TryNext(&finished);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(std::get<DoneEvent>(*event).choice, 1);
  EXPECT_FALSE(queue.TryNext(&finished).has_value()) << "its turn has not ended yet";
  EXPECT_FALSE(finished);
  queue.Finish(OkStatus());
  event = queue.Next();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(std::get<DoneEvent>(*event).choice, 0);
  EXPECT_FALSE(queue.Next().has_value());
}

}  // namespace
}  // namespace weft
