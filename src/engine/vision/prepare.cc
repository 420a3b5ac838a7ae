#include "engine/vision/prepare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "picture/resample.h"

namespace weft::vision {
namespace {

using picture::Picture;
using Size = PicturePlan::Size;

// The longer side of a picture is at most this multiple of the shorter one.
constexpr int64_t kMaxAspect = 200;

int64_t RoundedUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
double AsDouble(int64_t n) { return static_cast<double>(n); }

// Sides as multiples of the unit, with the picture's aspect as near as may be, within the limits of
// pixels. Halves go to the even multiple.
Size WholeSize(const PicturePreparation& preparation, Size size) {
  const double unit = AsDouble(preparation.unit);
  const auto nearest = [&](int64_t n) {
    return static_cast<int64_t>(std::nearbyint(AsDouble(n) / unit) * unit);
  };
  const double pixels = AsDouble(size.width) * AsDouble(size.height);
  const Size near = {nearest(size.width), nearest(size.height)};
  if (near.width * near.height > preparation.max_pixels) {
    const double shrink = std::sqrt(pixels / AsDouble(preparation.max_pixels));
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(std::max(unit, std::floor(AsDouble(n) / shrink / unit) * unit));
    };
    return {below(size.width), below(size.height)};
  }
  if (near.width * near.height < preparation.min_pixels) {
    const double grow = std::sqrt(AsDouble(preparation.min_pixels) / pixels);
    const auto above = [&](int64_t n) {
      return static_cast<int64_t>(std::ceil(AsDouble(n) * grow / unit) * unit);
    };
    return {above(size.width), above(size.height)};
  }
  return near;
}

Size WithinSize(const PicturePreparation& preparation, Size size) {
  const double ratio = AsDouble(std::max(size.width, size.height)) / AsDouble(preparation.longest);
  const auto fitted = [&](int64_t n) {
    const int64_t within = ratio > 1 ? static_cast<int64_t>(AsDouble(n) / ratio) : n;
    return RoundedUp(std::max<int64_t>(1, within), preparation.unit);
  };
  return {fitted(size.width), fitted(size.height)};
}

// The longer side as `longest`, the other by the aspect.
Size Stretched(Size size, int64_t longest, bool to_even) {
  const double aspect = AsDouble(size.width) / AsDouble(size.height);
  const bool is_wide = size.width >= size.height;
  const double exact = is_wide ? AsDouble(longest) / aspect : AsDouble(longest) * aspect;
  auto other = std::max<int64_t>(1, static_cast<int64_t>(exact));
  if (to_even) other += other % 2;
  return is_wide ? Size{longest, other} : Size{other, longest};
}

PicturePlan PlanTiles(const PicturePreparation& preparation, Size size) {
  PicturePlan plan;
  const Size large = Stretched(size, preparation.longest, /*to_even=*/true);
  const int64_t side = preparation.side;
  Size whole = Stretched(large, RoundedUp(preparation.longest, side), /*to_even=*/false);
  whole = {RoundedUp(whole.width, side), RoundedUp(whole.height, side)};
  plan.resizes = {large, whole};
  if (whole == Size{side, side}) return plan;
  plan.tile_rows = whole.height / side;
  plan.tile_columns = whole.width / side;
  return plan;
}

int64_t PatchesOf(const PicturePlan& plan, const PicturePreparation& preparation) {
  const Size view = plan.resizes.back();
  const int64_t of_all = (view.width / preparation.patch) * (view.height / preparation.patch);
  const int64_t side_patches = preparation.side / preparation.patch;
  return plan.tile_rows > 0 ? of_all + side_patches * side_patches : of_all;
}

Picture Resized(const Picture& picture, Size size, PictureFilter filter) {
  constexpr picture::Filter kFilters[] = {picture::Filter::kBilinear, picture::Filter::kBicubic,
                                          picture::Filter::kLanczos};
  return picture::Resize(picture, static_cast<int>(size.width), static_cast<int>(size.height),
                         kFilters[static_cast<size_t>(filter)]);
}

Grid PatchesOf(const Picture& view, const PicturePreparation& preparation) {
  const int64_t patch = preparation.patch;
  Grid grid(view.height / patch, view.width / patch, patch * patch * picture::kChannels);
  for (int64_t i = 0; i < grid.count(); ++i) {
    float* to = grid.row(i);
    const int64_t left = i % grid.columns * patch, top = i / grid.columns * patch;
    for (size_t c = 0; c < picture::kChannels; ++c) {
      const float mean = preparation.mean[c], deviation = preparation.deviation[c];
      for (int64_t y = top; y < top + patch; ++y) {
        const uint8_t* from = view.row(static_cast<int>(y)) + left * picture::kChannels + c;
        for (int64_t x = 0; x < patch; ++x, from += picture::kChannels) {
          *to++ = (static_cast<float>(*from) / 255 - mean) / deviation;
        }
      }
    }
  }
  return grid;
}

}  // namespace

StatusOr<PicturePlan> PlanPicture(const PicturePreparation& preparation, int64_t width,
                                  int64_t height) {
  if (std::max(width, height) > kMaxAspect * std::min(width, height)) {
    return InvalidArgument("the picture is ", width, " by ", height,
                           " pixels; its longer side may have at most ", kMaxAspect,
                           " times the pixels of the shorter one");
  }
  PicturePlan plan;
  switch (preparation.fit) {
    case PictureFit::kSquare:
      plan.resizes = {{preparation.side, preparation.side}};
      break;
    case PictureFit::kWhole:
      plan.resizes = {WholeSize(preparation, {width, height})};
      break;
    case PictureFit::kWithin:
      plan.resizes = {WithinSize(preparation, {width, height})};
      break;
    case PictureFit::kTiles:
      plan = PlanTiles(preparation, {width, height});
      break;
  }
  plan.n_patches = PatchesOf(plan, preparation);
  return plan;
}

StatusOr<PreparedPicture> PreparePicture(const PicturePreparation& preparation, Picture picture) {
  WEFT_ASSIGN_OR_RETURN(const PicturePlan plan,
                        PlanPicture(preparation, picture.width, picture.height));
  for (const Size size : plan.resizes) picture = Resized(picture, size, preparation.filter);
  PreparedPicture prepared;
  prepared.tile_rows = plan.tile_rows, prepared.tile_columns = plan.tile_columns;
  const auto side = static_cast<int>(preparation.side);
  for (int row = 0; row < plan.tile_rows; ++row) {
    for (int column = 0; column < plan.tile_columns; ++column) {
      prepared.views.push_back(
          PatchesOf(picture::Cut(picture, column * side, row * side, side, side, {}), preparation));
    }
  }
  if (plan.tile_rows > 0) picture = Resized(picture, {side, side}, preparation.filter);
  prepared.views.push_back(PatchesOf(picture, preparation));
  return prepared;
}

}  // namespace weft::vision
