#include "engine/drafting/hidden_rows.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

std::vector<float> RowsOf(const HiddenRows& rows) {
  const auto values = rows.Rows(rows.begin(), rows.end() - rows.begin());
  return {values.begin(), values.end()};
}

TEST(HiddenRowsTest, GoOnAndGoBack) {
  HiddenRows rows(1, 8);
  EXPECT_EQ(rows.end(), 0);
  rows.Put(0, std::vector<float>{1, 2, 3});
  rows.Put(3, std::vector<float>{4});
  EXPECT_THAT(RowsOf(rows), ElementsAre(1, 2, 3, 4));
  rows.Put(2, std::vector<float>{9, 8, 7});
  EXPECT_EQ(rows.begin(), 0);
  EXPECT_THAT(RowsOf(rows), ElementsAre(1, 2, 9, 8, 7));
  EXPECT_THAT(rows.Rows(1, 2), ElementsAre(2, 9));
}

TEST(HiddenRowsTest, NothingStaysBesideAGap) {
  HiddenRows rows(1, 8);
  rows.Put(5, std::vector<float>{1, 2});
  EXPECT_EQ(rows.begin(), 5);
  rows.Put(9, std::vector<float>{3});
  EXPECT_EQ(rows.begin(), 9);
  EXPECT_THAT(RowsOf(rows), ElementsAre(3));
  rows.Put(4, std::vector<float>{6});
  EXPECT_EQ(rows.begin(), 4);
  EXPECT_THAT(RowsOf(rows), ElementsAre(6));
}

TEST(HiddenRowsTest, ForgetsWhatIsTooMuch) {
  HiddenRows rows(2, 2);
  rows.Put(0, std::vector<float>{1, 1, 2, 2, 3, 3});
  EXPECT_EQ(rows.end() - rows.begin(), 3);  // rows of one call are all kept
  rows.Put(3, std::vector<float>{4, 4});
  EXPECT_EQ(rows.begin(), 1);
  EXPECT_THAT(RowsOf(rows), ElementsAre(2, 2, 3, 3, 4, 4));
  rows.ForgetBefore(3);
  EXPECT_THAT(RowsOf(rows), ElementsAre(4, 4));
  rows.ForgetBefore(100);
  EXPECT_EQ(rows.begin(), 4);
  EXPECT_EQ(rows.end(), 4);
}

TEST(HiddenRowsTest, PadsWithZeros) {
  HiddenRows rows(1, 8);
  rows.Put(3, std::vector<float>{5});
  rows.PadFrom(1);
  EXPECT_EQ(rows.begin(), 1);
  EXPECT_THAT(RowsOf(rows), ElementsAre(0, 0, 5));
  rows.PadFrom(1);
  EXPECT_EQ(rows.end(), 4);
}

}  // namespace
}  // namespace weft
