#include "engine/vision/span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/vision/picture_cache.h"

namespace weft::vision {
namespace {

using testing::ElementsAre;

// A view of one value per row, counting up from `first`.
Grid View(int64_t rows, int64_t columns, float first) {
  Grid view(rows, columns, 1);
  for (float& value : view.values) value = first++;
  return view;
}

TEST(ArrangeSpanTest, TheOnlyViewHasATextBeforeAndAfter) {
  const PictureFrame frame = {.before = "<a>", .after = "<b>"};
  EXPECT_THAT(ArrangeSpan(frame, {}, {{View(1, 2, 5)}}),
              ElementsAre(SpanPart{"<a>", {5, 6}}, SpanPart{"<b>", {}}));
}

TEST(ArrangeSpanTest, RowsHaveAnEmbeddingBetweenThem) {
  const float row_end[] = {-1};
  EXPECT_THAT(ArrangeSpan({.after = "<end>"}, row_end, {{View(3, 2, 0)}}),
              ElementsAre(SpanPart{"", {0, 1, -1, 2, 3, -1, 4, 5}}, SpanPart{"<end>", {}}));
}

TEST(ArrangeSpanTest, TilesAreNumberedAndTheWholeIsLast) {
  const PictureFrame frame = {.before = "<g>",
                              .after = "<f>",
                              .tile = "<f><row_{row}_col_{column}>",
                              .line_end = "\n",
                              .tiles_end = "\n"};
  const EncodedPicture picture = {
      {View(1, 1, 1), View(1, 1, 2), View(1, 1, 3), View(1, 1, 4), View(1, 1, 5)}, 2, 2};
  EXPECT_THAT(ArrangeSpan(frame, {}, picture),
              ElementsAre(SpanPart{"<f><row_1_col_1>", {1}}, SpanPart{"<f><row_1_col_2>", {2}},
                          SpanPart{"\n<f><row_2_col_1>", {3}}, SpanPart{"<f><row_2_col_2>", {4}},
                          SpanPart{"\n\n<g>", {5}}, SpanPart{"<f>", {}}));
}

TEST(PictureKeyTest, EverythingThatDecidesIsInTheKey) {
  picture::Picture picture(3, 2);
  PicturePreparation preparation;
  const PictureKey key = KeyOf(picture, preparation, "tenant");
  EXPECT_EQ(key, KeyOf(picture, preparation, "tenant"));
  EXPECT_NE(key, KeyOf(picture, preparation, "another"));
  preparation.mean[2] = 0.5f;
  EXPECT_NE(key, KeyOf(picture, preparation, "tenant"));
  preparation = {};
  preparation.max_pixels = 1;
  EXPECT_NE(key, KeyOf(picture, preparation, "tenant"));
  picture::Picture turned(2, 3);
  EXPECT_NE(key, KeyOf(turned, {}, "tenant"));
  picture.pixels[7] = 1;
  EXPECT_NE(key, KeyOf(picture, {}, "tenant"));
}

TEST(PictureCacheTest, WhatWasUsedLongestAgoLeavesFirst) {
  PictureCache cache(3 * sizeof(float));
  const PictureKey a = {0, 1}, b = {0, 2}, c = {0, 3};
  cache.Put(a, {{View(1, 1, 1)}});
  cache.Put(b, {{View(1, 1, 2)}});
  EXPECT_NE(cache.Find(a), nullptr);
  const auto kept = cache.Put(c, {{View(1, 2, 3)}});
  EXPECT_EQ(cache.Find(b), nullptr);
  EXPECT_NE(cache.Find(a), nullptr);
  EXPECT_EQ(cache.Find(c), kept);
  EXPECT_EQ(
      cache.stats(),
      (PictureCache::Stats{
          .pictures = 2, .bytes = 3 * sizeof(float), .hits = 3, .misses = 1, .evictions = 1}));
}

TEST(PictureCacheTest, PicturesThatAreTooLargeAreNotKept) {
  PictureCache cache(sizeof(float));
  const PictureKey key = {1, 1};
  cache.Put(key, {{View(1, 1, 1)}});
  const auto large = cache.Put(key, {{View(1, 2, 7)}});
  EXPECT_EQ(large->views[0].values[1], 8);
  EXPECT_EQ(cache.Find(key), nullptr);
  EXPECT_EQ(cache.stats().bytes, 0);
}

}  // namespace
}  // namespace weft::vision
