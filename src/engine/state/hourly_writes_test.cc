#include "engine/state/hourly_writes.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr int64_t kMinute = 60 * int64_t{1'000'000};
constexpr int64_t kStart = 29'000'000 * kMinute + kMinute / 2;

TEST(HourlyWritesTest, CountsTheLastHour) {
  HourlyWrites writes;
  EXPECT_EQ(writes.Total(kStart), 0);
  writes.Add(kStart, 5);
  writes.Add(kStart + 20 * kMinute, 7);
  EXPECT_EQ(writes.Total(kStart + 20 * kMinute), 12);
  EXPECT_EQ(writes.Total(kStart + 60 * kMinute), 12);
  EXPECT_EQ(writes.Total(kStart + 61 * kMinute), 7);
  EXPECT_EQ(writes.Total(kStart + 81 * kMinute), 0);
}

TEST(HourlyWritesTest, ALongPauseEndsTheHour) {
  HourlyWrites writes;
  writes.Add(kStart, 5);
  EXPECT_EQ(writes.Total(kStart + 100'000 * kMinute), 0);
}

TEST(HourlyWritesTest, AClockSetBackStandsStill) {
  HourlyWrites writes;
  writes.Add(kStart, 5);
  const int64_t back = kStart - 5000 * kMinute;
  EXPECT_EQ(writes.Total(back), 5);
  writes.Add(back + 30 * kMinute, 2);
  EXPECT_EQ(writes.Total(back + 60 * kMinute), 7);
  EXPECT_EQ(writes.Total(back + 61 * kMinute), 2);
}

TEST(HourlyWritesTest, ARecordContinuesTheCount) {
  HourlyWrites writes;
  writes.Add(kStart, 5);
  writes.Add(kStart + 59 * kMinute, 7);
  auto next = HourlyWrites::From(writes.Record());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->Total(kStart + 60 * kMinute), 12);
  EXPECT_EQ(next->Total(kStart + 61 * kMinute), 7);
}

TEST(HourlyWritesTest, ADamagedRecordIsNone) {
  HourlyWrites writes;
  writes.Add(kStart, 5);
  const auto record = writes.Record();
  ASSERT_EQ(record.size(), HourlyWrites::kRecordBytes);
  for (size_t i = 0; i < record.size(); ++i) {
    auto damaged = record;
    damaged[i] ^= std::byte{0x10};
    EXPECT_FALSE(HourlyWrites::From(damaged).has_value()) << i;
    EXPECT_FALSE(HourlyWrites::From(std::span(record).first(i)).has_value()) << i;
  }
}

}  // namespace
}  // namespace weft
