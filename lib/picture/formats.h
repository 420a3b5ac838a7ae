// The decoders of picture.h, one per format. Each returns the file's own pixels, not yet upright.
#ifndef WEFT_PICTURE_FORMATS_H_
#define WEFT_PICTURE_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "picture/picture.h"

namespace weft::picture {

using Bytes = std::span<const std::byte>;

struct Decoded {
  Picture picture;
  Bytes exif = {};  // within the file; a TIFF, perhaps after "Exif\0\0"
};

StatusOr<Decoded> DecodePng(Bytes file, const Limits& limits);
StatusOr<Decoded> DecodeJpeg(Bytes file, const Limits& limits);
StatusOr<Decoded> DecodeWebp(Bytes file, const Limits& limits);
StatusOr<Decoded> DecodeGif(Bytes file, const Limits& limits);
StatusOr<Decoded> DecodeBmp(Bytes file, const Limits& limits);

// Whether a picture of this size may be decoded.
Status CheckSize(Format format, int64_t width, int64_t height, const Limits& limits);
// "<format>: <what>"
Status BadFile(Format format, std::string_view what);

// `value` over white; `alpha` 255 is opaque.
inline uint8_t OverWhite(uint8_t value, uint8_t alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}
// One row of red, green, blue and alpha, drawn over white.
void PutRgba(const uint8_t* rgba, int width, uint8_t* rgb);

// EXIF's orientation, 1 (upright) to 8; 1 if the bytes say nothing that can be understood.
int OrientationOf(Bytes exif);
// Turns a picture that is stored in this orientation.
Picture Upright(Picture picture, int orientation);

// Little-endian numbers of a file. Bytes after its end are zero, and make ok() false.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  void Seek(size_t at) {
    ok_ = ok_ && at <= bytes_.size();
    at_ = ok_ ? at : bytes_.size();
  }
  void Skip(size_t n) { n > left() ? Seek(bytes_.size() + 1) : Seek(at_ + n); }
  uint8_t U8() {
    if (left() == 0) return ok_ = false, uint8_t{0};
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  uint16_t U16() {
    const uint16_t low = U8();
    return static_cast<uint16_t>(low | U8() << 8);
  }
  uint32_t U32() {
    const uint32_t low = U16();
    return low | uint32_t{U16()} << 16;
  }
  // Fewer than n if the file ends before.
  Bytes Take(size_t n) {
    const Bytes taken = bytes_.subspan(at_, n < left() ? n : left());
    ok_ = ok_ && taken.size() == n;
    at_ += taken.size();
    return taken;
  }

 private:
  const Bytes bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace weft::picture

#endif  // WEFT_PICTURE_FORMATS_H_
