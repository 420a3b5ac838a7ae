// A picture whose pixels tools outside of this program can make, too.
#ifndef WEFT_TESTS_CONFORMANCE_PICTURE_PATTERN_H_
#define WEFT_TESTS_CONFORMANCE_PICTURE_PATTERN_H_

#include <cstdint>

#include "picture/picture.h"

namespace weft::testing {

inline picture::Picture Pattern(int width, int height) {
  picture::Picture picture(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < picture::kChannels; ++c) {
        const int value = x * 31 + y * 17 + c * 71 + x * y % 53 * (c + 1);
        picture.row(y)[x * picture::kChannels + c] = static_cast<uint8_t>(value % 256);
      }
    }
  }
  return picture;
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_CONFORMANCE_PICTURE_PATTERN_H_
