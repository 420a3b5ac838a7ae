#include "backend/slot_memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

std::vector<float> Floats(const SlotMemory& memory, SlotId slot, int index, int64_t n) {
  const float* const values = memory.State(slot, index);
  return {values, values + n};
}

TEST(SlotMemoryTest, StatesLieApartInEverySlot) {
  SlotMemory memory({3, 20000, 1});
  ASSERT_TRUE(memory.Grow(4).ok());
  EXPECT_EQ(memory.n_slots(), 4);
  EXPECT_GE(memory.slot_bytes(), 20004 * 4);
  const int64_t sizes[] = {3, 20000, 1};
  for (SlotId slot = 0; slot < 4; ++slot) {
    memory.Touch(slot);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.State(slot, i)) % 64, 0u);
      std::fill_n(memory.State(slot, i), sizes[i], static_cast<float>(slot * 3 + i));
    }
  }
  for (SlotId slot = 0; slot < 4; ++slot) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(Floats(memory, slot, i, sizes[i]),
                  ::testing::Each(static_cast<float>(slot * 3 + i)));
    }
  }
}

TEST(SlotMemoryTest, ClearedIsZeroAndHoldsNothing) {
  SlotMemory memory({5000});
  ASSERT_TRUE(memory.Grow(2).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
  EXPECT_THAT(Floats(memory, 0, 0, 5000), ::testing::Each(0.0f));
  memory.Touch(1);
  std::fill_n(memory.State(1, 0), 5000, 7.0f);
  EXPECT_GE(memory.held_bytes(), memory.slot_bytes());
  ASSERT_TRUE(memory.Clear(1).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
  EXPECT_THAT(Floats(memory, 1, 0, 5000), ::testing::Each(0.0f));
  ASSERT_TRUE(memory.Clear(1).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
}

TEST(SlotMemoryTest, CopiesReadsAndWritesWholeSlots) {
  SlotMemory memory({10, 10});
  ASSERT_TRUE(memory.Grow(3).ok());
  memory.Touch(0);
  std::fill_n(memory.State(0, 0), 10, 1.0f);
  std::fill_n(memory.State(0, 1), 10, 2.0f);
  ASSERT_TRUE(memory.Copy(0, 2).ok());
  EXPECT_THAT(Floats(memory, 2, 1, 10), ::testing::Each(2.0f));
  std::fill_n(memory.State(0, 0), 10, 5.0f);  // the copy is its own
  EXPECT_THAT(Floats(memory, 2, 0, 10), ::testing::Each(1.0f));

  std::vector<std::byte> bytes(static_cast<size_t>(memory.slot_bytes()));
  ASSERT_TRUE(memory.Read(0, bytes).ok());
  SlotMemory other({10, 10});
  ASSERT_TRUE(other.Grow(2).ok());
  ASSERT_TRUE(other.Write(1, bytes).ok());
  EXPECT_THAT(Floats(other, 1, 0, 10), ::testing::Each(5.0f));
  EXPECT_THAT(Floats(other, 1, 1, 10), ::testing::Each(2.0f));
  EXPECT_GE(other.held_bytes(), other.slot_bytes());
}

TEST(SlotMemoryTest, RefusesWhatDoesNotExist) {
  SlotMemory memory({10});
  ASSERT_TRUE(memory.Grow(2).ok());
  std::vector<std::byte> bytes(static_cast<size_t>(memory.slot_bytes()));
  const std::span<std::byte> one_short = std::span(bytes).first(bytes.size() - 1);
  for (const Status& status : {memory.Clear(2), memory.Clear(kNoSlot), memory.Copy(0, 2),
                               memory.Copy(-1, 0), memory.Read(2, bytes), memory.Write(2, bytes),
                               memory.Read(0, one_short), memory.Write(0, one_short)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(memory.Grow(int64_t{1} << 40).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.n_slots(), 2);

  SlotMemory none({});
  EXPECT_EQ(none.slot_bytes(), 0);
  EXPECT_TRUE(none.Grow(0).ok());
  EXPECT_EQ(none.Grow(1).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(none.Clear(0).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weft
