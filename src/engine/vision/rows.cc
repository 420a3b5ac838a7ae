#include "engine/vision/rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::vision {
namespace {

// Calls fn(value, place) for the values of the rows that become row `i` of `out`: place is the
// row's number among these, in reading order.
template <typename Fn>
void ForEachMember(const Grid& grid, int64_t factor, const Grid& out, int64_t i, Fn fn) {
  const int64_t top = i / out.columns * factor, left = i % out.columns * factor;
  for (int64_t place = 0; place < factor * factor; ++place) {
    const int64_t y = top + place / factor, x = left + place % factor;
    if (y < grid.rows && x < grid.columns) fn(grid.row(y * grid.columns + x), place);
  }
}

void Average(const Grid& grid, int64_t factor, int64_t i, Grid* out) {
  std::vector<double> sums(static_cast<size_t>(grid.width));
  ForEachMember(grid, factor, *out, i, [&](const float* row, int64_t) {
    for (int64_t v = 0; v < grid.width; ++v) sums[v] += row[v];
  });
  const auto n = static_cast<double>(factor * factor);
  std::ranges::transform(sums, out->row(i), [&](double sum) { return float(sum / n); });
}

struct Between {
  int64_t before, after;
  float share;  // for `after`
};
// Place `i` of n places, stretched over a side, corner to corner.
Between Stretch(int64_t i, int64_t n, int64_t side) {
  const float at = n > 1 ? static_cast<float>(i * (side - 1)) / static_cast<float>(n - 1) : 0;
  const auto before = static_cast<int64_t>(at);
  return {before, std::min(before + 1, side - 1), at - static_cast<float>(before)};
}

}  // namespace

Grid Change(const RowChange& change, Grid grid) {
  if (change.kind == RowChange::Kind::kNone) return grid;
  const int64_t f = change.factor, n = f * f;
  const bool averages = change.kind == RowChange::Kind::kAverage;
  Grid out((grid.rows + f - 1) / f, (grid.columns + f - 1) / f,
           averages ? grid.width : grid.width * n);
  for (int64_t i = 0; i < out.count(); ++i) {
    if (averages) {
      Average(grid, f, i, &out);
      continue;
    }
    const bool interleaves = change.kind == RowChange::Kind::kInterleave;
    ForEachMember(grid, f, out, i, [&](const float* row, int64_t place) {
      for (int64_t v = 0; v < grid.width; ++v) {
        out.row(i)[interleaves ? v * n + place : place * grid.width + v] = row[v];
      }
    });
  }
  return out;
}

void AddPositions(std::span<const float> table, int64_t side, Grid* grid) {
  for (int64_t i = 0; i < grid->count(); ++i) {
    const Between y = Stretch(i / grid->columns, grid->rows, side);
    const Between x = Stretch(i % grid->columns, grid->columns, side);
    const auto row = [&](int64_t row_no, int64_t column) {
      return table.data() + (row_no * side + column) * grid->width;
    };
    const float* const corners[] = {row(y.before, x.before), row(y.before, x.after),
                                    row(y.after, x.before), row(y.after, x.after)};
    const float shares[] = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share,
                            y.share * (1 - x.share), y.share * x.share};
    for (int64_t v = 0; v < grid->width; ++v) {
      float sum = 0;
      for (int c = 0; c < 4; ++c) sum += corners[c][v] * shares[c];
      grid->row(i)[v] += sum;
    }
  }
}

std::vector<std::vector<int64_t>> WindowsOf(const Grid& grid, int64_t window) {
  const int64_t height = window > 0 ? window : grid.rows;
  const int64_t width = window > 0 ? window : grid.columns;
  std::vector<std::vector<int64_t>> windows;
  for (int64_t top = 0; top < grid.rows; top += height) {
    for (int64_t left = 0; left < grid.columns; left += width) {
      std::vector<int64_t>& rows = windows.emplace_back();
      for (int64_t y = top; y < std::min(top + height, grid.rows); ++y) {
        for (int64_t x = left; x < std::min(left + width, grid.columns); ++x) {
          rows.push_back(y * grid.columns + x);
        }
      }
    }
  }
  return windows;
}

}  // namespace weft::vision
