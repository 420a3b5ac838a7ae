#include "compute/host_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Two groups of pages, and slots. A position takes four bytes of a page.
class PlainState : public HostState {
 public:
  explicit PlainState(const std::vector<int64_t>& slot_floats) : HostState(16, slot_floats) {
    AddGroup(64);
    AddGroup(64);
  }
  int64_t slot_bytes() const { return layout().slot_bytes; }
  std::byte* PageOf(int group, PageId id) const { return page(group, id); }

 private:
  void CopyTokens(int /*group*/, const std::byte* from, std::byte* to,
                  int n_tokens) const override {
    std::copy_n(from, n_tokens * 4, to);
  }
  void ClearFrom(int /*group*/, int n_tokens, std::byte* page) const override {
    std::fill(page + n_tokens * 4, page + 64, std::byte{0});
  }
};

std::vector<float> Floats(const PlainState& memory, SlotId slot, int index, int64_t n) {
  const float* const values = memory.SlotValues(slot, index);
  return {values, values + n};
}

TEST(HostStateTest, StatesLieApartInEverySlot) {
  PlainState memory({3, 20000, 1});
  ASSERT_TRUE(memory.GrowSlots(4).ok());
  EXPECT_EQ(memory.n_slots(), 4);
  EXPECT_GE(memory.slot_bytes(), 20004 * 4);
  const int64_t sizes[] = {3, 20000, 1};
  for (SlotId slot = 0; slot < 4; ++slot) {
    memory.TouchSlot(slot);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.SlotValues(slot, i)) % 64, 0u);
      std::fill_n(memory.SlotValues(slot, i), sizes[i], static_cast<float>(slot * 3 + i));
    }
  }
  for (SlotId slot = 0; slot < 4; ++slot) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(Floats(memory, slot, i, sizes[i]),
                  ::testing::Each(static_cast<float>(slot * 3 + i)));
    }
  }
}

TEST(HostStateTest, ClearedIsZeroAndHoldsNothing) {
  PlainState memory({5000});
  ASSERT_TRUE(memory.GrowSlots(2).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
  EXPECT_THAT(Floats(memory, 0, 0, 5000), ::testing::Each(0.0f));
  memory.TouchSlot(1);
  std::fill_n(memory.SlotValues(1, 0), 5000, 7.0f);
  EXPECT_GE(memory.held_bytes(), memory.slot_bytes());
  ASSERT_TRUE(memory.ClearSlot(1).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
  EXPECT_THAT(Floats(memory, 1, 0, 5000), ::testing::Each(0.0f));
  ASSERT_TRUE(memory.ClearSlot(1).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
}

TEST(HostStateTest, CopiesReadsAndWritesWholeSlots) {
  PlainState memory({10, 10});
  ASSERT_TRUE(memory.GrowSlots(3).ok());
  memory.TouchSlot(0);
  std::fill_n(memory.SlotValues(0, 0), 10, 1.0f);
  std::fill_n(memory.SlotValues(0, 1), 10, 2.0f);
  ASSERT_TRUE(memory.CopySlot(0, 2).ok());
  EXPECT_THAT(Floats(memory, 2, 1, 10), ::testing::Each(2.0f));
  std::fill_n(memory.SlotValues(0, 0), 10, 5.0f);  // the copy is its own
  EXPECT_THAT(Floats(memory, 2, 0, 10), ::testing::Each(1.0f));

  std::vector<std::byte> bytes(static_cast<size_t>(memory.slot_bytes()));
  ASSERT_TRUE(memory.ReadSlot(0, bytes).ok());
  PlainState other({10, 10});
  ASSERT_TRUE(other.GrowSlots(2).ok());
  ASSERT_TRUE(other.WriteSlot(1, bytes).ok());
  EXPECT_THAT(Floats(other, 1, 0, 10), ::testing::Each(5.0f));
  EXPECT_THAT(Floats(other, 1, 1, 10), ::testing::Each(2.0f));
  EXPECT_GE(other.held_bytes(), other.slot_bytes());
}

TEST(HostStateTest, RefusesWhatDoesNotExist) {
  PlainState memory({10});
  ASSERT_TRUE(memory.GrowSlots(2).ok());
  std::vector<std::byte> bytes(static_cast<size_t>(memory.slot_bytes()));
  const std::span<std::byte> one_short = std::span(bytes).first(bytes.size() - 1);
  for (const Status& status :
       {memory.ClearSlot(2), memory.ClearSlot(kNoSlot), memory.CopySlot(0, 2),
        memory.CopySlot(-1, 0), memory.ReadSlot(2, bytes), memory.WriteSlot(2, bytes),
        memory.ReadSlot(0, one_short), memory.WriteSlot(0, one_short)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(memory.GrowSlots(int64_t{1} << 40).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.n_slots(), 2);

  PlainState none({});
  EXPECT_EQ(none.slot_bytes(), 0);
  EXPECT_TRUE(none.GrowSlots(0).ok());
  EXPECT_EQ(none.GrowSlots(1).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(none.ClearSlot(0).code(), StatusCode::kUnimplemented);
}

TEST(HostStateTest, PagesAreCopiedReadAndWrittenToTheToken) {
  PlainState state({});
  ASSERT_TRUE(state.GrowPages(1, 3).ok());
  EXPECT_EQ(state.n_pages(0), 0);
  EXPECT_EQ(state.n_pages(1), 3);
  const std::vector<std::byte> ones(64, std::byte{1});
  ASSERT_TRUE(state.WritePage(1, 0, ones).ok());
  ASSERT_TRUE(state.WritePage(1, 2, std::vector<std::byte>(64, std::byte{2})).ok());
  ASSERT_TRUE(state.CopyPage(1, 0, 2, 5).ok());
  EXPECT_EQ(state.PageOf(1, 2)[19], std::byte{1});
  EXPECT_EQ(state.PageOf(1, 2)[20], std::byte{2});
  std::vector<std::byte> out(64);
  ASSERT_TRUE(state.ReadPage(1, 2, 6, out).ok());
  EXPECT_EQ(out[23], std::byte{2});
  EXPECT_EQ(out[24], std::byte{0});

  const int64_t held = state.held_bytes();
  EXPECT_GE(held, 2 * 64);
  const std::vector<PageId> pages = {0, 1};
  state.DiscardPages(1, pages);
  EXPECT_EQ(state.held_bytes(), held / 2);
}

TEST(HostStateTest, RefusesPagesThatDoNotExist) {
  PlainState state({});
  ASSERT_TRUE(state.GrowPages(0, 2).ok());
  std::vector<std::byte> page(64);
  const std::span<std::byte> one_short = std::span(page).first(63);
  for (const Status& status :
       {state.GrowPages(2, 1), state.GrowPages(-1, 1), state.CopyPage(0, 0, 2, 1),
        state.CopyPage(0, -1, 0, 1), state.CopyPage(1, 0, 0, 1), state.CopyPage(0, 0, 1, 17),
        state.ReadPage(0, 2, 1, page), state.ReadPage(0, 0, -1, page),
        state.ReadPage(0, 0, 1, one_short), state.WritePage(0, 2, page),
        state.WritePage(2, 0, page), state.WritePage(0, 0, one_short)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(state.GrowPages(0, int64_t{1} << 40).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(state.held_bytes(), 0);
}

}  // namespace
}  // namespace weft
