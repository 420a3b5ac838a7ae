// PNG, by libpng. Errors come back by longjmp, so the functions that call libpng have no objects
// with destructors.
#include <png.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "picture/formats.h"

namespace weft::picture {
namespace {

// Bytes that a chunk other than pixels may unpack to.
constexpr png_alloc_size_t kMaxChunkBytes = 4 << 20;
constexpr png_uint_32 kMaxChunks = 1000;

struct Source {
  Bytes file;
  size_t at = 0;
  char error[160] = {};
};

void ReadBytes(png_structp png, png_bytep to, size_t n) {
  auto* const source = static_cast<Source*>(png_get_io_ptr(png));
  if (n > source->file.size() - source->at) png_error(png, "the file ends too early");
  std::memcpy(to, source->file.data() + source->at, n);
  source->at += n;
}

void Fail(png_structp png, png_const_charp message) {
  auto* const source = static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(source->error, message, sizeof(source->error) - 1);
  png_longjmp(png, 1);
}

void Ignore(png_structp, png_const_charp) {}

// libpng's objects.
class Png {
 public:
  explicit Png(Bytes file) : source_{file} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, Fail, Ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) throw std::bad_alloc();
    png_set_read_fn(png_, &source_, ReadBytes);
  }
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  Status Error() const { return BadFile(Format::kPng, source_.error); }

  // Everything before the pixels, which come as 8-bit RGBA.
  bool ReadHead(const Limits& limits) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    // Sizes beyond ours are told with their numbers, by the caller.
    png_set_user_limits(png_, PNG_USER_WIDTH_MAX, PNG_USER_HEIGHT_MAX);
    png_set_chunk_malloc_max(png_, kMaxChunkBytes);
    png_set_chunk_cache_max(png_, kMaxChunks);
    png_read_info(png_, info_);
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_add_alpha(png_, 255, PNG_FILLER_AFTER);
    n_passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  png_uint_32 width() const { return png_get_image_width(png_, info_); }
  png_uint_32 height() const { return png_get_image_height(png_, info_); }
  bool is_interlaced() const { return n_passes_ > 1; }

  bool ReadRow(uint8_t* row) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }
  bool ReadAll(uint8_t** rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }
  Bytes Exif() const {
    png_bytep exif = nullptr;
    png_uint_32 n = 0;
    if (png_get_eXIf_1(png_, info_, &n, &exif) == 0) return {};
    return std::as_bytes(std::span(exif, n));
  }

 private:
  Source source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int n_passes_ = 1;
};

// An interlaced picture is there only as a whole.
Status ReadInterlaced(Png* png, Picture* picture) {
  const size_t row_bytes = size_t{4} * static_cast<size_t>(picture->width);
  std::vector<uint8_t> rgba(row_bytes * static_cast<size_t>(picture->height));
  std::vector<uint8_t*> rows(static_cast<size_t>(picture->height));
  for (int y = 0; y < picture->height; ++y) rows[y] = rgba.data() + row_bytes * y;
  if (!png->ReadAll(rows.data())) return png->Error();
  for (int y = 0; y < picture->height; ++y) PutRgba(rows[y], picture->width, picture->row(y));
  return OkStatus();
}

Status ReadRows(Png* png, Picture* picture) {
  std::vector<uint8_t> rgba(size_t{4} * static_cast<size_t>(picture->width));
  for (int y = 0; y < picture->height; ++y) {
    if (!png->ReadRow(rgba.data())) return png->Error();
    PutRgba(rgba.data(), picture->width, picture->row(y));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Decoded> DecodePng(Bytes file, const Limits& limits) {
  Png png(file);
  if (!png.ReadHead(limits)) return png.Error();
  WEFT_RETURN_IF_ERROR(CheckSize(Format::kPng, png.width(), png.height(), limits));
  Decoded decoded{Picture(static_cast<int>(png.width()), static_cast<int>(png.height()))};
  WEFT_RETURN_IF_ERROR(png.is_interlaced() ? ReadInterlaced(&png, &decoded.picture)
                                           : ReadRows(&png, &decoded.picture));
  // libpng owns these bytes: turn the picture while they live.
  decoded.picture = Upright(std::move(decoded.picture), OrientationOf(png.Exif()));
  return decoded;
}

}  // namespace weft::picture
