// From a picture's pixels to the patches that an encoder takes. Pure functions; any thread.
#ifndef WEFT_ENGINE_VISION_PREPARE_H_
#define WEFT_ENGINE_VISION_PREPARE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/pictures/picture_spec.h"
#include "picture/picture.h"

namespace weft::vision {

// Rows of floats on a grid, in reading order.
struct Grid {
  int64_t rows = 0, columns = 0;
  int64_t width = 0;          // values of a row
  std::vector<float> values;  // rows * columns * width

  Grid() = default;
  Grid(int64_t its_rows, int64_t its_columns, int64_t its_width)
      : rows(its_rows),
        columns(its_columns),
        width(its_width),
        values(static_cast<size_t>(its_rows * its_columns * its_width)) {}
  int64_t count() const { return rows * columns; }
  float* row(int64_t i) { return values.data() + i * width; }
  const float* row(int64_t i) const { return values.data() + i * width; }
};

// A picture's sizes, as its preparation chooses them.
struct PicturePlan {
  struct Size {
    int64_t width = 0, height = 0;
    bool operator==(const Size&) const = default;
  };
  std::vector<Size> resizes;                // one after the other
  int64_t tile_rows = 0, tile_columns = 0;  // 0: the last size is the only view
  int64_t n_patches = 0;                    // in all views
};

// INVALID_ARGUMENT if the picture is so narrow that nothing would be left of its shorter side.
StatusOr<PicturePlan> PlanPicture(const PicturePreparation& preparation, int64_t width,
                                  int64_t height);

struct PreparedPicture {
  // Tiles in reading order, then the whole. Rows are patches: for each channel, the patch's pixels
  // in reading order.
  std::vector<Grid> views;
  int64_t tile_rows = 0, tile_columns = 0;
};

StatusOr<PreparedPicture> PreparePicture(const PicturePreparation& preparation,
                                         picture::Picture picture);

}  // namespace weft::vision

#endif  // WEFT_ENGINE_VISION_PREPARE_H_
