// JPEG, by libjpeg-turbo. Errors come back by longjmp, so the functions that call it have no
// objects with destructors.
#include <csetjmp>
#include <cstdio>
// Needs size_t and FILE to be known.
#include <jpeglib.h>

#include <algorithm>
#include <new>
#include <vector>

#include "picture/formats.h"

namespace weft::picture {
namespace {

// A progressive file may ask for the whole picture to be gone through again by every few bytes.
constexpr int kMaxScans = 100;
constexpr long kMemoryBytesPerPixel = 8;
constexpr int kExifMarker = JPEG_APP0 + 1;

struct State {
  jpeg_error_mgr errors;  // the first member: libjpeg knows only this
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  bool too_many_scans = false;
  char message[JMSG_LENGTH_MAX] = {};
};

State* StateOf(j_common_ptr jpeg) { return reinterpret_cast<State*>(jpeg->err); }

[[noreturn]] void Fail(j_common_ptr jpeg) {
  State* const state = StateOf(jpeg);
  jpeg->err->format_message(jpeg, state->message);
  std::longjmp(state->escape, 1);
}

void Ignore(j_common_ptr) {}

void CountScans(j_common_ptr jpeg) {
  const auto* const decompress = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decompress->input_scan_number <= kMaxScans) return;
  StateOf(jpeg)->too_many_scans = true;
  std::longjmp(StateOf(jpeg)->escape, 1);
}

// libjpeg's object.
class Jpeg {
 public:
  explicit Jpeg(Bytes file) {
    jpeg_.err = jpeg_std_error(&state_.errors);
    state_.errors.error_exit = Fail;
    state_.errors.output_message = Ignore;
    state_.progress.progress_monitor = CountScans;
    if (setjmp(state_.escape) != 0) throw std::bad_alloc();
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &state_.progress;
    jpeg_save_markers(&jpeg_, kExifMarker, 0xffff);
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  }
  ~Jpeg() { jpeg_destroy_decompress(&jpeg_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  Status Error() const {
    return BadFile(Format::kJpeg, state_.too_many_scans ? "it has more than 100 scans; save it anew"
                                                        : state_.message);
  }
  bool ReadHead() {
    if (setjmp(state_.escape) != 0) return false;
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }
  bool Start() {
    if (setjmp(state_.escape) != 0) return false;
    const bool has_black = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = has_black ? JCS_CMYK : JCS_RGB;
    jpeg_.mem->max_memory_to_use = (1L << 20) + kMemoryBytesPerPixel *
                                                    static_cast<long>(jpeg_.image_width) *
                                                    static_cast<long>(jpeg_.image_height);
    jpeg_start_decompress(&jpeg_);
    return true;
  }
  bool ReadRow(uint8_t* row) {
    if (setjmp(state_.escape) != 0) return false;
    jpeg_read_scanlines(&jpeg_, &row, 1);
    return true;
  }
  int64_t width() const { return jpeg_.image_width; }
  int64_t height() const { return jpeg_.image_height; }
  bool is_cmyk() const { return jpeg_.out_color_space == JCS_CMYK; }
  // Adobe's programs store ink as its absence.
  bool is_inverted() const { return jpeg_.saw_Adobe_marker != FALSE; }
  int64_t n_warnings() const { return state_.errors.num_warnings; }
  Bytes Exif() const {
    for (auto* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
      const Bytes data = std::as_bytes(std::span(marker->data, marker->data_length));
      if (marker->marker == kExifMarker && data.size() > 6 && data[0] == std::byte{'E'})
        return data;
    }
    return {};
  }

 private:
  State state_ = {};
  jpeg_decompress_struct jpeg_ = {};
};

// a * b / 255, rounded.
int Share(int a, int b) { return (a * b + 127) / 255; }

void PutCmyk(const uint8_t* cmyk, bool inverted, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += kChannels) {
    const int light = inverted ? cmyk[3] : 255 - cmyk[3];
    for (int c = 0; c < kChannels; ++c) {
      const int ink = inverted ? 255 - cmyk[c] : cmyk[c];
      rgb[c] = static_cast<uint8_t>(light - Share(ink, light));
    }
  }
}

}  // namespace

StatusOr<Decoded> DecodeJpeg(Bytes file, const Limits& limits) {
  Jpeg jpeg(file);
  if (!jpeg.ReadHead()) return jpeg.Error();
  WEFT_RETURN_IF_ERROR(CheckSize(Format::kJpeg, jpeg.width(), jpeg.height(), limits));
  if (!jpeg.Start()) return jpeg.Error();
  Decoded decoded{Picture(static_cast<int>(jpeg.width()), static_cast<int>(jpeg.height()))};
  Picture& picture = decoded.picture;
  std::vector<uint8_t> cmyk(jpeg.is_cmyk() ? size_t{4} * static_cast<size_t>(picture.width) : 0);
  for (int y = 0; y < picture.height; ++y) {
    if (!jpeg.ReadRow(jpeg.is_cmyk() ? cmyk.data() : picture.row(y))) return jpeg.Error();
    if (jpeg.is_cmyk()) {
      PutCmyk(cmyk.data(), jpeg.is_inverted(), picture.width, picture.row(y));
    }
    // libjpeg would fill the rest with grey.
    if (jpeg.n_warnings() > 0) return BadFile(Format::kJpeg, "it is damaged, or ends too early");
  }
  // libjpeg owns these bytes: turn the picture while they live.
  picture = Upright(std::move(picture), OrientationOf(jpeg.Exif()));
  return decoded;
}

}  // namespace weft::picture
