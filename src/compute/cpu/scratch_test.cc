#include "compute/cpu/scratch.h"

#include <cstdint>

#include "base/aligned_buffer.h"
#include "gtest/gtest.h"

namespace weft::cpu {
namespace {

struct Views {
  Arena* arena;
  RowsView narrow = arena->Rows(3);
  Int8View bytes = arena->Int8(64);
  RowsView pairs = arena->Rows(20, 2 * arena->n_rows());
};

TEST(ArenaTest, GivesWhatItPlans) {
  for (const int64_t n_rows : {1, 4, 5, 17}) {
    Arena plan(n_rows);
    const Views planned{&plan};
    EXPECT_EQ(planned.narrow.values, nullptr);
    AlignedBuffer memory(plan.bytes());
    Arena arena(n_rows, memory.As<std::byte>());
    const Views views{&arena};
    EXPECT_EQ(arena.bytes(), plan.bytes());
    for (const void* begin :
         {static_cast<void*>(views.narrow.values), static_cast<void*>(views.bytes.blocks),
          static_cast<void*>(views.pairs.values)}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % kCacheLineBytes, 0u);
    }
    // Views do not overlap.
    EXPECT_LE(static_cast<void*>(views.narrow.row(n_rows)), views.bytes.blocks);
    EXPECT_LE(static_cast<void*>(views.bytes.Panel(WholePanels(n_rows))), views.pairs.values);
    EXPECT_LE(static_cast<void*>(views.pairs.row(2 * n_rows)), memory.data() + memory.size());
  }
}

TEST(ArenaTest, FewerRowsTakeNoMore) {
  Arena all(17), few(5);
  const Views for_all{&all}, for_few{&few};
  EXPECT_GE(all.bytes(), few.bytes());
  EXPECT_EQ(for_all.pairs.width, for_few.pairs.width);
}

TEST(ArenaDeathTest, MoreThanPlannedIsAMistake) {
  Arena plan(2);
  const Views planned{&plan};
  AlignedBuffer memory(plan.bytes());
  Arena arena(planned.arena->n_rows() + 20, memory.As<std::byte>());
  EXPECT_DEATH(static_cast<void>(Views{&arena}), "planned");
}

}  // namespace
}  // namespace weft::cpu
