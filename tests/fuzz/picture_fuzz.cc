// Pictures from anywhere. Each must end in pixels within the limits, or in a sentence.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "picture/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::picture::Limits limits;
  limits.max_pixels = 1 << 16;
  const auto picture = weft::picture::DecodePicture(std::as_bytes(std::span(data, size)), limits);
  if (!picture.ok()) {
    WEFT_CHECK(!picture.status().message().empty(), "a sentence");
    return 0;
  }
  WEFT_CHECK(int64_t{picture->width} * picture->height <= limits.max_pixels, "within the limits");
  WEFT_CHECK(picture->pixels.size() == picture->row_bytes() * picture->height, "all pixels");
  return 0;
}
