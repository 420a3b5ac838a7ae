#include "compute/page_memory.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr int64_t kPageBytes = 5000;

TEST(PageMemoryTest, PagesAreAlignedApartAndStay) {
  PageMemory memory(kPageBytes);
  ASSERT_TRUE(memory.Grow(3).ok());
  std::byte* const first = memory.page(0);
  for (PageId id = 0; id < 3; ++id) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.page(id)) % 64, 0u);
    memory.Touch(id);
    std::memset(memory.page(id), id + 1, kPageBytes);
  }
  ASSERT_TRUE(memory.Grow(20000).ok());  // several slabs
  EXPECT_EQ(memory.n_pages(), 20000);
  EXPECT_EQ(memory.page(0), first);
  memory.Touch(19999);
  std::memset(memory.page(19999), 7, kPageBytes);
  for (PageId id = 0; id < 3; ++id) {
    EXPECT_EQ(memory.page(id)[0], std::byte(id + 1));
    EXPECT_EQ(memory.page(id)[kPageBytes - 1], std::byte(id + 1));
  }
}

TEST(PageMemoryTest, CountsWhatIsTouchedAndGivesItBack) {
  PageMemory memory(kPageBytes);
  EXPECT_EQ(memory.held_bytes(), 0);
  ASSERT_TRUE(memory.Grow(10000).ok());
  EXPECT_EQ(memory.held_bytes(), 0);
  std::vector<PageId> ids;
  for (PageId id : {9000, 4, 5, 6, 4095, 4096}) {
    memory.Touch(id);
    memory.Touch(id);
    std::memset(memory.page(id), 1, kPageBytes);
    ids.push_back(id);
  }
  const int64_t held = memory.held_bytes();
  EXPECT_GE(held, 6 * kPageBytes);
  memory.Discard(std::vector<PageId>{5, 7});  // 7 was never written
  EXPECT_EQ(memory.held_bytes(), held / 6 * 5);
  // Neighbours keep their contents; the discarded page reads as fresh memory.
  EXPECT_EQ(memory.page(4)[kPageBytes - 1], std::byte(1));
  EXPECT_EQ(memory.page(6)[0], std::byte(1));
  EXPECT_EQ(memory.page(5)[0], std::byte(0));
  memory.Discard(ids);
  EXPECT_EQ(memory.held_bytes(), 0);
}

TEST(PageMemoryTest, RefusesWhatTheMachineDoesNotHave) {
  PageMemory memory(kPageBytes);
  ASSERT_TRUE(memory.Grow(5).ok());
  for (const int64_t n :
       {std::numeric_limits<int64_t>::max(), int64_t{1} << 50, int64_t{1} << 31}) {
    const Status status = memory.Grow(n);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << n;
    EXPECT_EQ(memory.n_pages(), 5);
  }
  PageMemory wide(int64_t{1} << 40);  // one page larger than the machine's memory
  EXPECT_EQ(wide.Grow(int64_t{1} << 30).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(wide.n_pages(), 0);
}

TEST(PageMemoryTest, GrowingBackwardsChangesNothing) {
  PageMemory memory(1);
  ASSERT_TRUE(memory.Grow(8).ok());
  ASSERT_TRUE(memory.Grow(2).ok());
  ASSERT_TRUE(memory.Grow(-1).ok());
  EXPECT_EQ(memory.n_pages(), 8);
}

}  // namespace
}  // namespace weft
