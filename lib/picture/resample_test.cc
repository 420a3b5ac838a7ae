#include "picture/resample.h"

#include <gtest/gtest.h>

namespace weft::picture {
namespace {

Picture Grey(int width, int height, const std::vector<uint8_t>& values) {
  Picture picture(width, height);
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t c = 0; c < kChannels; ++c) picture.pixels[i * kChannels + c] = values[i];
  }
  return picture;
}

TEST(ResampleTest, ShrinkingWithTheTriangleWeighsAllPixels) {
  // The triangle is 2 pixels wide on each side: weights 1/8, 3/8, 3/8, 1/8 around each center, and
  // 3/7, 3/7, 1/7 at the edges.
  const Picture small = Resize(Grey(4, 1, {0, 70, 140, 210}), 2, 1, Filter::kBilinear);
  EXPECT_EQ(small, Grey(2, 1, {50, 160}));
}

TEST(ResampleTest, EvenColorsStayEvenWithEveryFilter) {
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic, Filter::kLanczos}) {
    const Picture even = Grey(7, 5, std::vector<uint8_t>(35, 77));
    EXPECT_EQ(Resize(even, 3, 11, filter), Grey(3, 11, std::vector<uint8_t>(33, 77)));
  }
}

TEST(ResampleTest, CutReachesOverTheEdges) {
  const Picture picture = Grey(2, 2, {1, 2, 3, 4});
  EXPECT_EQ(Cut(picture, 1, 0, 1, 2, {}), Grey(1, 2, {2, 4}));
  EXPECT_EQ(Cut(picture, -1, 1, 4, 2, {9, 9, 9}), Grey(4, 2, {9, 3, 4, 9, 9, 9, 9, 9}));
}

}  // namespace
}  // namespace weft::picture
