#include "engine/vision/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/vision/rows.h"

namespace weft::vision {
namespace {

using Size = PicturePlan::Size;
using testing::ElementsAre;

PicturePreparation Whole() {
  PicturePreparation preparation;
  preparation.fit = PictureFit::kWhole;
  preparation.filter = PictureFilter::kBicubic;
  preparation.patch = 14, preparation.unit = 28;
  preparation.min_pixels = 8 * 28 * 28, preparation.max_pixels = 4096 * 28 * 28;
  preparation.deviation = {1, 1, 1};
  return preparation;
}

PicturePreparation Tiles() {
  PicturePreparation preparation;
  preparation.fit = PictureFit::kTiles;
  preparation.filter = PictureFilter::kLanczos;
  preparation.patch = 16, preparation.unit = 64;
  preparation.side = 512, preparation.longest = 2048;
  preparation.deviation = {1, 1, 1};
  return preparation;
}

std::vector<Size> Resizes(const PicturePreparation& preparation, int64_t width, int64_t height) {
  const StatusOr<PicturePlan> plan = PlanPicture(preparation, width, height);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? plan->resizes : std::vector<Size>();
}

TEST(PreparePictureTest, WholePicturesHaveMultiplesOfTheUnit) {
  EXPECT_THAT(Resizes(Whole(), 640, 480), ElementsAre(Size{644, 476}));
  // Halves go to the even multiple: 2.5 and 3.5 units.
  EXPECT_THAT(Resizes(Whole(), 280 + 14, 280 + 42), ElementsAre(Size{280, 336}));
}

TEST(PreparePictureTest, WholePicturesStayWithinTheirLimits) {
  // 100 by 20 pixels are fewer than 8 units: sqrt(6272 / 2000) = 1.77 times as many each way.
  EXPECT_THAT(Resizes(Whole(), 100, 20), ElementsAre(Size{196, 56}));
  PicturePreparation small = Whole();
  small.max_pixels = 100 * 28 * 28;
  EXPECT_THAT(Resizes(small, 1000, 500), ElementsAre(Size{392, 196}));
}

TEST(PreparePictureTest, ThinPicturesAreRefused) {
  const Status status = PlanPicture(Whole(), 1, 201).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("1 by 201 pixels"));
}

TEST(PreparePictureTest, PicturesWithinALongestSideAreRoundedUp) {
  PicturePreparation preparation = Whole();
  preparation.fit = PictureFit::kWithin;
  preparation.unit = 16, preparation.patch = 16, preparation.longest = 1024;
  EXPECT_THAT(Resizes(preparation, 100, 33), ElementsAre(Size{112, 48}));
  EXPECT_THAT(Resizes(preparation, 4096, 1000), ElementsAre(Size{1024, 256}));
}

TEST(PreparePictureTest, TilesCoverTheLargePicture) {
  const StatusOr<PicturePlan> plan = PlanPicture(Tiles(), 1000, 400);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 2048 / 2.5 = 819, and to even.
  EXPECT_THAT(plan->resizes, ElementsAre(Size{2048, 820}, Size{2048, 1024}));
  EXPECT_EQ(plan->tile_columns, 4);
  EXPECT_EQ(plan->tile_rows, 2);
  EXPECT_EQ(plan->n_patches, 9 * 32 * 32);
}

TEST(PreparePictureTest, APictureOfOneTileHasOneView) {
  PicturePreparation preparation = Tiles();
  preparation.longest = 512;
  picture::Picture picture(300, 300);
  const auto prepared = PreparePicture(preparation, picture);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->views.size(), 1U);
  EXPECT_EQ(prepared->tile_rows, 0);
}

TEST(PreparePictureTest, PatchesHoldTheirPixelsByChannel) {
  PicturePreparation preparation = Whole();
  preparation.patch = 2, preparation.unit = 2, preparation.min_pixels = 1;
  preparation.mean = {0, 0.5f, 1}, preparation.deviation = {1, 0.5f, 0.25f};
  picture::Picture picture(4, 2);
  for (int x = 0; x < 4; ++x) {
    picture.row(0)[3 * x] = static_cast<uint8_t>(51 * x);  // reds, in fifths
    picture.row(1)[3 * x + 1] = 255;                       // greens of the second row
  }
  const auto prepared = PreparePicture(preparation, picture);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_EQ(prepared->views.size(), 1U);
  const Grid& view = prepared->views[0];
  EXPECT_EQ(view.rows, 1);
  EXPECT_EQ(view.columns, 2);
  const std::vector<float> second(view.row(1), view.row(1) + view.width);
  EXPECT_THAT(second,
              testing::Pointwise(testing::FloatEq(), std::vector<float>{0.4f, 0.6f, 0, 0, -1, -1, 1,
                                                                        1, -4, -4, -4, -4}));
}

Grid Numbered(int64_t rows, int64_t columns, int64_t width) {
  Grid grid(rows, columns, width);
  for (size_t i = 0; i < grid.values.size(); ++i) grid.values[i] = static_cast<float>(i);
  return grid;
}

TEST(RowsTest, SquaresBecomeOneRow) {
  const Grid grid = Numbered(2, 4, 2);
  using Kind = RowChange::Kind;
  const Grid average = Change({Kind::kAverage, 2}, grid);
  EXPECT_THAT(average.values, ElementsAre(5, 6, 9, 10));
  const Grid merged = Change({Kind::kMerge, 2}, grid);
  EXPECT_EQ(merged.columns, 2);
  EXPECT_THAT(merged.values, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15));
  const Grid interleaved = Change({Kind::kInterleave, 2}, grid);
  EXPECT_THAT(std::vector<float>(interleaved.row(0), interleaved.row(1)),
              ElementsAre(0, 2, 8, 10, 1, 3, 9, 11));
}

TEST(RowsTest, MissingRowsAreZeros) {
  const Grid merged = Change({RowChange::Kind::kMerge, 2}, Numbered(1, 3, 1));
  EXPECT_THAT(merged.values, ElementsAre(0, 1, 0, 0, 2, 0, 0, 0));
}

TEST(RowsTest, PositionsStretchFromCornerToCorner) {
  const std::vector<float> table = {0, 10, 20, 30};
  Grid grid(3, 2, 1);
  AddPositions(table, 2, &grid);
  EXPECT_THAT(grid.values, ElementsAre(0, 10, 10, 20, 20, 30));
  Grid one(1, 1, 1);
  AddPositions(table, 2, &one);
  EXPECT_THAT(one.values, ElementsAre(0));
}

TEST(RowsTest, WindowsAreCutOffAtTheEdges) {
  EXPECT_THAT(WindowsOf(Grid(3, 3, 1), 2), ElementsAre(ElementsAre(0, 1, 3, 4), ElementsAre(2, 5),
                                                       ElementsAre(6, 7), ElementsAre(8)));
  EXPECT_THAT(WindowsOf(Grid(1, 2, 1), 0), ElementsAre(ElementsAre(0, 1)));
}

}  // namespace
}  // namespace weft::vision
