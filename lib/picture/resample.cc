#include "picture/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft::picture {
namespace {

// Weights are integers: this many bits after the point. A sum of 255 times weights, which are above
// 1 in places, fits 32 bits.
constexpr int kPointBits = 32 - 8 - 2;

double SincPi(double x) { return x == 0 ? 1 : std::sin(M_PI * x) / (M_PI * x); }

double Weight(Filter filter, double x) {
  x = std::fabs(x);
  switch (filter) {
    case Filter::kBilinear:
      return std::max(0.0, 1 - x);
    case Filter::kBicubic: {
      constexpr double a = -0.5;
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    }
    case Filter::kLanczos:
      return x < 3 ? SincPi(x) * SincPi(x / 3) : 0;
  }
  return 0;
}

double RadiusOf(Filter filter) {
  constexpr double kRadii[] = {1, 2, 3};
  return kRadii[static_cast<size_t>(filter)];
}

// The pixels that one pixel of the result is a sum of.
struct Taps {
  int first = 0;
  std::vector<int32_t> weights;
};

std::vector<Taps> TapsOf(int n_from, int n_to, Filter filter) {
  const double scale = static_cast<double>(n_from) / n_to;
  const double stretch = std::max(1.0, scale);
  const double radius = RadiusOf(filter) * stretch;
  std::vector<Taps> all(static_cast<size_t>(n_to));
  // As Pillow rounds: towards zero after adding a half, also below zero.
  const auto rounded = [](double x) { return static_cast<int>(x); };
  for (int i = 0; i < n_to; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, rounded(center - radius + 0.5));
    const int end = std::min(n_from, rounded(center + radius + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (int from = first; from < end; ++from) {
      weights.push_back(Weight(filter, (from - center + 0.5) * (1 / stretch)));
      sum += weights.back();
    }
    all[i].first = first;
    for (double weight : weights) {
      if (sum != 0) weight *= 1 / sum;
      const double scaled = weight * (1 << kPointBits);
      all[i].weights.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
    }
  }
  return all;
}

uint8_t Rounded(int64_t sum) {
  return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kPointBits, 0, 255));
}
constexpr int64_t kHalf = int64_t{1} << (kPointBits - 1);

Picture ResizeColumns(const Picture& from, int width, Filter filter) {
  const std::vector<Taps> taps = TapsOf(from.width, width, filter);
  Picture to(width, from.height);
  for (int y = 0; y < to.height; ++y) {
    uint8_t* out = to.row(y);
    for (const Taps& tap : taps) {
      const uint8_t* in = from.row(y) + static_cast<size_t>(tap.first) * kChannels;
      int64_t sums[kChannels] = {kHalf, kHalf, kHalf};
      for (const int32_t weight : tap.weights) {
        for (int64_t& sum : sums) sum += int64_t{weight} * *in++;
      }
      for (const int64_t sum : sums) *out++ = Rounded(sum);
    }
  }
  return to;
}

Picture ResizeRows(const Picture& from, int height, Filter filter) {
  const std::vector<Taps> taps = TapsOf(from.height, height, filter);
  Picture to(from.width, height);
  const size_t n = from.row_bytes();
  std::vector<int64_t> sums(n);
  for (int y = 0; y < height; ++y) {
    std::ranges::fill(sums, kHalf);
    int from_y = taps[y].first;
    for (const int32_t weight : taps[y].weights) {
      const uint8_t* const in = from.row(from_y++);
      for (size_t i = 0; i < n; ++i) sums[i] += int64_t{weight} * in[i];
    }
    std::ranges::transform(sums, to.row(y), Rounded);
  }
  return to;
}

}  // namespace

Picture Resize(const Picture& picture, int width, int height, Filter filter) {
  if (width == picture.width && height == picture.height) return picture;
  if (width == picture.width) return ResizeRows(picture, height, filter);
  const Picture columns = ResizeColumns(picture, width, filter);
  return height == picture.height ? columns : ResizeRows(columns, height, filter);
}

Picture Cut(const Picture& picture, int x, int y, int width, int height, const Color& color) {
  Picture out(width, height);
  for (int to_y = 0; to_y < height; ++to_y) {
    for (int to_x = 0; to_x < width; ++to_x) {
      const int from_x = x + to_x, from_y = y + to_y;
      const bool is_inside =
          from_x >= 0 && from_x < picture.width && from_y >= 0 && from_y < picture.height;
      const uint8_t* const from =
          is_inside ? picture.row(from_y) + static_cast<size_t>(from_x) * kChannels : color.data();
      std::copy_n(from, kChannels, out.row(to_y) + static_cast<size_t>(to_x) * kChannels);
    }
  }
  return out;
}

}  // namespace weft::picture
