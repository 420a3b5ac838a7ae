// What happens to rows between two stages of an encoder. Pure functions; any thread.
#ifndef WEFT_ENGINE_VISION_ROWS_H_
#define WEFT_ENGINE_VISION_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/vision/prepare.h"
#include "model/pictures/picture_spec.h"

namespace weft::vision {

Grid Change(const RowChange& change, Grid grid);

// Adds a row of a square table of `side` by `side` rows to each row: the table stretched to the
// grid, corner to corner, linear between its rows.
void AddPositions(std::span<const float> table, int64_t side, Grid* grid);

// The grid's rows by windows of `window` rows each way, windows and their rows in reading order. 0:
// one window.
std::vector<std::vector<int64_t>> WindowsOf(const Grid& grid, int64_t window);

}  // namespace weft::vision

#endif  // WEFT_ENGINE_VISION_ROWS_H_
