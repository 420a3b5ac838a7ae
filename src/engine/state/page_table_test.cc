#include "engine/state/page_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<PageId> Pages(const PageTable& table) {
  return {table.pages().begin(), table.pages().end()};
}

TEST(PagePoolTest, HandsOutTheLowestFreeId) {
  PagePool pool("page", 10);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(*pool.Allocate(), i);
  pool.Unref(3);
  pool.Unref(1);
  EXPECT_EQ(*pool.Allocate(), 1);
  EXPECT_EQ(*pool.Allocate(), 3);
  EXPECT_EQ(*pool.Allocate(), 5);
  EXPECT_EQ(pool.extent(), 6);
  EXPECT_EQ(pool.in_use(), 6);
}

TEST(PagePoolTest, RefusesBeyondItsBudgetAndSaysWhat) {
  PagePool pool("page of layer group 1", 2);
  ASSERT_TRUE(pool.Allocate().ok());
  ASSERT_TRUE(pool.Allocate().ok());
  const auto third = pool.Allocate();
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(third.status())), HasSubstr("page of layer group 1"));
  pool.set_budget(1);
  EXPECT_EQ(pool.available(), 0);
  pool.Unref(0);
  EXPECT_FALSE(pool.Allocate().ok());
  pool.Unref(1);
  EXPECT_TRUE(pool.Allocate().ok());
  EXPECT_EQ(pool.high_water(), 2);
}

TEST(PagePoolTest, TakeFreedLeavesOutWhatIsUsedAgain) {
  PagePool pool("page", 10);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.Allocate().ok());
  pool.Ref(2);
  EXPECT_FALSE(pool.Unref(2));
  EXPECT_TRUE(pool.Unref(2));
  EXPECT_TRUE(pool.Unref(0));
  EXPECT_TRUE(pool.Unref(3));
  EXPECT_EQ(*pool.Allocate(), 0);
  EXPECT_THAT(pool.TakeFreed(), ElementsAre(2, 3));
  EXPECT_TRUE(pool.TakeFreed().empty());
  // Freed, used and freed again between two calls: listed once.
  EXPECT_EQ(*pool.Allocate(), 2);
  pool.Unref(2);
  EXPECT_EQ(*pool.Allocate(), 2);
  pool.Unref(2);
  EXPECT_THAT(pool.TakeFreed(), ElementsAre(2));
}

TEST(PagePoolTest, IntegrityComparesWithTheOwnersCounts) {
  PagePool pool("page", 10);
  ASSERT_TRUE(pool.Allocate().ok());
  ASSERT_TRUE(pool.Allocate().ok());
  pool.Ref(1);
  EXPECT_TRUE(pool.CheckIntegrity(std::vector<int32_t>{1, 2}).ok());
  EXPECT_TRUE(pool.CheckIntegrity(std::vector<int32_t>{1, 2, 0}).ok());
  EXPECT_FALSE(pool.CheckIntegrity(std::vector<int32_t>{1, 1}).ok());
  EXPECT_FALSE(pool.CheckIntegrity(std::vector<int32_t>{1, 2, 1}).ok());
  EXPECT_FALSE(pool.CheckIntegrity({}).ok());
}

TEST(PagePoolTest, CountsWhatIsOnlyCached) {
  PagePool pool("page", 10);
  ASSERT_TRUE(pool.Allocate().ok());
  ASSERT_TRUE(pool.Allocate().ok());
  pool.RefCached(0);
  pool.RefCached(0);
  EXPECT_EQ(pool.use_count(0), 3);
  EXPECT_EQ(pool.cached_count(0), 2);
  EXPECT_EQ(pool.only_cached(), 0) << "another owner holds it";
  EXPECT_FALSE(pool.Unref(0));
  EXPECT_EQ(pool.only_cached(), 1);
  pool.Ref(0);
  EXPECT_EQ(pool.only_cached(), 0);
  EXPECT_FALSE(pool.UnrefCached(0));
  EXPECT_FALSE(pool.Unref(0));
  EXPECT_EQ(pool.only_cached(), 1);
  EXPECT_TRUE(pool.CheckIntegrity(std::vector<int32_t>{1, 1}).ok());
  EXPECT_TRUE(pool.UnrefCached(0));
  EXPECT_EQ(pool.only_cached(), 0);
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_EQ(*pool.Allocate(), 0);
  EXPECT_EQ(pool.cached_count(0), 0);
  EXPECT_TRUE(pool.CheckIntegrity(std::vector<int32_t>{1, 1}).ok());
}

TEST(PoolRefTest, GivesItsReferenceBack) {
  SlotPool pool("slot", 2);
  {
    PoolRef first = PoolRef::Adopt(&pool, *pool.Allocate());
    PoolRef second = first.Share();
    EXPECT_EQ(pool.use_count(0), 2);
    first = std::move(second);
    EXPECT_EQ(pool.use_count(0), 1);
    EXPECT_FALSE(second);  // NOLINT(bugprone-use-after-move): empty, as documented
  }
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(PageTableTest, HoldsThePagesOfItsTokensAndNoMore) {
  PagePool pool("page", 100);
  PageTable table(&pool, {.page_tokens = 4});
  EXPECT_EQ(table.PagesToAppend(5), 2);
  ASSERT_TRUE(table.Append(5).ok());
  EXPECT_THAT(Pages(table), ElementsAre(0, 1));
  EXPECT_EQ(table.PagesToAppend(3), 0);
  ASSERT_TRUE(table.Append(3).ok());
  EXPECT_EQ(pool.in_use(), 2);
  table.TruncateTo(4);
  EXPECT_EQ(pool.in_use(), 1);
  table.Release();
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(PageTableTest, AppendIsAllOrNothing) {
  PagePool pool("page", 3);
  PageTable table(&pool, {.page_tokens = 4});
  ASSERT_TRUE(table.Append(4).ok());
  EXPECT_EQ(table.Append(12).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table.n_tokens(), 4);
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_TRUE(table.Append(8).ok());
}

TEST(PageTableTest, ForkCopiesOnlyThePartlyFilledPageAndOnlyOnWrite) {
  PagePool pool("page", 100);
  PageTable trunk(&pool, {.page_tokens = 4});
  ASSERT_TRUE(trunk.Append(10).ok());
  PageTable fork = trunk.Share(10);
  EXPECT_EQ(pool.in_use(), 3);
  for (const PageId page : fork.pages()) EXPECT_EQ(pool.use_count(page), 2);

  EXPECT_EQ(fork.PagesToAppend(1), 1);
  const PageCopy copy = *fork.MakeWritable();
  ASSERT_TRUE(copy.needed());
  EXPECT_EQ(copy.from, 2);
  EXPECT_EQ(copy.to, 3);
  EXPECT_EQ(copy.n_tokens, 2);
  EXPECT_THAT(Pages(fork), ElementsAre(0, 1, 3));
  EXPECT_THAT(Pages(trunk), ElementsAre(0, 1, 2));
  // Each is now the only holder of its last page.
  EXPECT_FALSE((*fork.MakeWritable()).needed());
  EXPECT_FALSE((*trunk.MakeWritable()).needed());
  EXPECT_TRUE(fork.Append(1).ok());
}

TEST(PageTableTest, ForkAtAPageBoundaryCopiesNothing) {
  PagePool pool("page", 100);
  PageTable trunk(&pool, {.page_tokens = 4});
  ASSERT_TRUE(trunk.Append(10).ok());
  PageTable fork = trunk.Share(8);
  EXPECT_FALSE((*fork.MakeWritable()).needed());
  ASSERT_TRUE(fork.Append(1).ok());
  EXPECT_THAT(Pages(fork), ElementsAre(0, 1, 3));
}

TEST(PageTableTest, UndoIntoASharedPageCopiesIt) {
  PagePool pool("page", 100);
  PageTable table(&pool, {.page_tokens = 4});
  ASSERT_TRUE(table.Append(12).ok());
  PageTable other = table.Share(8);
  table.TruncateTo(6);
  const PageCopy copy = *table.MakeWritable();
  EXPECT_EQ(copy.from, 1);
  EXPECT_EQ(copy.n_tokens, 2);
}

TEST(PageTableTest, MakeWritableWithoutRoomChangesNothing) {
  PagePool pool("page", 1);
  PageTable table(&pool, {.page_tokens = 4});
  ASSERT_TRUE(table.Append(3).ok());
  PageTable fork = table.Share(3);
  EXPECT_EQ(fork.MakeWritable().status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.use_count(0), 2);
  EXPECT_THAT(Pages(fork), ElementsAre(0));
}

TEST(PageTableTest, WindowGivesBackWhatNobodySees) {
  PagePool pool("page", 100);
  // The token at position p sees positions from p - 5 on.
  PageTable table(&pool, {.page_tokens = 4, .window = 6});
  ASSERT_TRUE(table.Append(12).ok());
  table.DropBehindWindow();  // position 12 sees positions from 7 on: page 0 goes
  EXPECT_THAT(Pages(table), ElementsAre(kNoPage, 1, 2));
  EXPECT_TRUE(table.Covers(12));
  EXPECT_TRUE(table.Covers(9));   // sees from 4 on
  EXPECT_FALSE(table.Covers(8));  // sees from 3 on
  EXPECT_TRUE(table.Covers(0));   // nothing to see
  table.TruncateTo(9);
  EXPECT_TRUE(table.Append(1).ok());
  EXPECT_TRUE(table.CheckIntegrity().ok());
  EXPECT_EQ(pool.in_use(), 2);
}

TEST(PageTableTest, WindowOfOneTokenNeedsNoEarlierPage) {
  PagePool pool("page", 100);
  PageTable table(&pool, {.page_tokens = 4, .window = 1});
  ASSERT_TRUE(table.Append(8).ok());
  table.DropBehindWindow();
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_TRUE(table.Covers(8));
  EXPECT_TRUE(table.Append(1).ok());
}

TEST(PageTableTest, RestoredStateStartsBehindTheWindow) {
  PagePool pool("page", 2);
  PageTable table(&pool, {.page_tokens = 4, .window = 6});
  EXPECT_EQ(table.Refill(14, 1).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.CheckIntegrity().ok());
  EXPECT_EQ(pool.in_use(), 0);
  ASSERT_TRUE(table.Refill(14, 2).ok());
  EXPECT_THAT(Pages(table), ElementsAre(kNoPage, kNoPage, 0, 1));
  EXPECT_TRUE(table.Append(2).ok());
  EXPECT_TRUE(table.CheckIntegrity().ok());
}

TEST(PageTableTest, ReplacedPagesChangeOwners) {
  PagePool pool("page", 100);
  PageTable first(&pool, {.page_tokens = 4});
  PageTable second(&pool, {.page_tokens = 4});
  ASSERT_TRUE(first.Append(4).ok());
  ASSERT_TRUE(second.Append(5).ok());
  second.ReplacePage(0, first.pages()[0]);
  EXPECT_EQ(pool.use_count(0), 2);
  EXPECT_THAT(pool.TakeFreed(), ElementsAre(1));
}

}  // namespace
}  // namespace weft
