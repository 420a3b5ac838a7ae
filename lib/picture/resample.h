// Making a picture larger or smaller, cutting and padding it. Pure functions; any thread.
#ifndef WEFT_PICTURE_RESAMPLE_H_
#define WEFT_PICTURE_RESAMPLE_H_

#include <array>
#include <cstdint>

#include "picture/picture.h"

namespace weft::picture {

enum class Filter {
  kBilinear,
  kBicubic,  // with a = -0.5
  kLanczos,  // with 3 lobes
};

// Resizes with a filter that widens as the picture shrinks, so that no pixel is left out: the
// values of Pillow's Image.resize, bit for bit. Columns first, rounded to 8 bits, then rows. (From
// version 13 on, Pillow takes the rows first where a picture is squeezed flat.) REQUIRES: the new
// sizes are positive.
Picture Resize(const Picture& picture, int width, int height, Filter filter);

using Color = std::array<uint8_t, kChannels>;

// The part of `picture` that begins at (x, y); where it reaches over an edge, `color`.
Picture Cut(const Picture& picture, int x, int y, int width, int height, const Color& color);

}  // namespace weft::picture

#endif  // WEFT_PICTURE_RESAMPLE_H_
