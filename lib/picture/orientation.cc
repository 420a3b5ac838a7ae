// EXIF's orientation: where it stands in a TIFF, and turning a picture by it.
#include <algorithm>
#include <utility>

#include "picture/formats.h"

namespace weft::picture {
namespace {

constexpr uint16_t kOrientationTag = 0x0112;
constexpr int kUpright = 1;

// Numbers of a TIFF in its byte order; 0 after its end.
struct Tiff {
  Bytes bytes;
  bool big_endian = false;

  uint32_t Number(size_t at, int n_bytes) const {
    uint32_t number = 0;
    for (int i = 0; i < n_bytes; ++i) {
      const size_t from = at + static_cast<size_t>(big_endian ? i : n_bytes - 1 - i);
      number = number << 8 | (from < bytes.size() ? static_cast<uint32_t>(bytes[from]) : 0);
    }
    return number;
  }
};

bool IsAt(Bytes bytes, size_t at, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (at + i >= bytes.size() || static_cast<char>(bytes[at + i]) != text[i]) return false;
  }
  return true;
}

}  // namespace

int OrientationOf(Bytes exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (IsAt(exif, 0, kPrefix)) exif = exif.subspan(kPrefix.size());
  Tiff tiff{exif, IsAt(exif, 0, "MM")};
  if ((!tiff.big_endian && !IsAt(exif, 0, "II")) || tiff.Number(2, 2) != 42) return kUpright;
  const size_t directory = tiff.Number(4, 4);
  const uint32_t n_entries = tiff.Number(directory, 2);
  for (uint32_t i = 0; i < n_entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (entry >= exif.size()) break;
    if (tiff.Number(entry, 2) != kOrientationTag) continue;
    const uint32_t orientation = tiff.Number(entry + 8, 2);
    return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : kUpright;
  }
  return kUpright;
}

Picture Upright(Picture picture, int orientation) {
  if (orientation == kUpright) return picture;
  // Rows are columns from 5 on. The others mirror: 2 and 3 the columns, 3 and 4 the rows; 6 and 7
  // the stored rows, 7 and 8 the stored columns.
  const bool turned = orientation >= 5;
  const bool mirrors_x =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrors_y =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Picture out(turned ? picture.height : picture.width, turned ? picture.width : picture.height);
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      int from_x = turned ? y : x, from_y = turned ? x : y;
      if (mirrors_x) from_x = picture.width - 1 - from_x;
      if (mirrors_y) from_y = picture.height - 1 - from_y;
      std::copy_n(picture.row(from_y) + static_cast<size_t>(from_x) * kChannels, kChannels,
                  out.row(y) + static_cast<size_t>(x) * kChannels);
    }
  }
  return out;
}

}  // namespace weft::picture
