// A picture as pixels, and how to get it from a file's bytes.
//
// DecodePicture reads PNG, JPEG, WebP, GIF (its first frame) and BMP into 8-bit RGB, upright as
// EXIF says. Transparent pixels are drawn over white. Whatever the bytes are, it ends in a picture
// or in a sentence, and takes no more memory and time than the limits allow. Pure functions; any
// thread.
#ifndef WEFT_PICTURE_PICTURE_H_
#define WEFT_PICTURE_PICTURE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::picture {

inline constexpr int kChannels = 3;

// Rows from top to bottom; each pixel is red, green, blue.
struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // height * width * kChannels

  Picture() = default;
  Picture(int its_width, int its_height)
      : width(its_width),
        height(its_height),
        pixels(static_cast<size_t>(its_width) * static_cast<size_t>(its_height) * kChannels) {}
  const uint8_t* row(int y) const { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  uint8_t* row(int y) { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  size_t row_bytes() const { return static_cast<size_t>(width) * kChannels; }
  bool operator==(const Picture&) const = default;
};

struct Limits {
  size_t max_file_bytes = size_t{32} << 20;
  // A decoder holds at most 8 bytes per pixel at one time; a progressive JPEG, 12.
  int64_t max_pixels = int64_t{48} << 20;
  int max_side = 1 << 15;
};

enum class Format { kUnknown, kPng, kJpeg, kWebp, kGif, kBmp };

// By the first bytes.
Format FormatOf(std::span<const std::byte> file);
std::string_view NameOf(Format format);

// INVALID_ARGUMENT names the format and the file's fault, RESOURCE_EXHAUSTED the limit.
StatusOr<Picture> DecodePicture(std::span<const std::byte> file, const Limits& limits);

}  // namespace weft::picture

#endif  // WEFT_PICTURE_PICTURE_H_
