// GIF: the first frame, on its canvas.
#include <algorithm>
#include <array>
#include <vector>

#include "picture/formats.h"

namespace weft::picture {
namespace {

constexpr int kMaxCodes = 4096;  // LZW codes have at most 12 bits

struct Palette {
  std::array<uint8_t, 256 * kChannels> colors = {};
  int n_colors = 0;
};

struct Frame {
  int x = 0, y = 0, width = 0, height = 0;
  bool interlaced = false;
  int transparent = -1;  // a color's number; -1: none
  Palette palette;
};

Palette ReadPalette(Reader* in, int flags) {
  Palette palette;
  palette.n_colors = 2 << (flags & 7);
  for (int i = 0; i < palette.n_colors * kChannels; ++i) palette.colors[i] = in->U8();
  return palette;
}

void SkipBlocks(Reader* in) {
  while (in->ok()) {
    const uint8_t n = in->U8();
    if (n == 0) return;
    in->Skip(n);
  }
}

// The bits of a sequence of blocks, lowest first.
class CodeBits {
 public:
  explicit CodeBits(Reader* in) : in_(*in) {}
  // -1 at the end.
  int Next(int n_bits) {
    while (n_held_ < n_bits) {
      if (block_left_ == 0) block_left_ = in_.U8();
      if (block_left_ == 0 || !in_.ok()) return -1;
      held_ |= uint32_t{in_.U8()} << n_held_;
      if (!in_.ok()) return -1;
      --block_left_;
      n_held_ += 8;
    }
    const int code = static_cast<int>(held_ & ((1U << n_bits) - 1));
    held_ >>= n_bits;
    n_held_ -= n_bits;
    return code;
  }

 private:
  Reader& in_;
  uint32_t held_ = 0;
  int n_held_ = 0, block_left_ = 0;
};

// LZW: a code stands for the string of an earlier code and one more pixel.
class CodeTable {
 public:
  explicit CodeTable(int n_colors) : clear_(n_colors) { Clear(); }
  int clear_code() const { return clear_; }
  int end_code() const { return clear_ + 1; }
  int n_bits() const { return n_bits_; }

  void Clear() {
    n_codes_ = clear_ + 2;
    for (n_bits_ = 1; (1 << n_bits_) < n_codes_;) ++n_bits_;
    last_ = -1;
  }
  // Appends the code's string to `out`. False: there is no such code.
  bool Expand(int code, std::vector<uint8_t>* out) {
    if (last_ < 0 ? code >= clear_ : code > n_codes_) return false;
    // The code that is about to be made: the last string, and its own first pixel.
    const bool is_next = code == n_codes_;
    const size_t begin = out->size();
    for (int c = is_next ? last_ : code; c >= 0; c = c < clear_ ? -1 : before_[c]) {
      out->push_back(c < clear_ ? static_cast<uint8_t>(c) : pixel_[c]);
    }
    std::reverse(out->begin() + static_cast<std::ptrdiff_t>(begin), out->end());
    const uint8_t first = (*out)[begin];
    if (is_next) out->push_back(first);
    if (last_ >= 0) Add(first);
    last_ = code;
    return true;
  }

 private:
  void Add(uint8_t pixel) {
    if (n_codes_ >= kMaxCodes) return;
    before_[n_codes_] = static_cast<int16_t>(last_);
    pixel_[n_codes_++] = pixel;
    if (n_codes_ == 1 << n_bits_ && n_bits_ < 12) ++n_bits_;
  }

  const int clear_;
  int n_codes_ = 0, n_bits_ = 0, last_ = -1;
  std::array<int16_t, kMaxCodes> before_;
  std::array<uint8_t, kMaxCodes> pixel_;
};

StatusOr<std::vector<uint8_t>> ReadPixels(Reader* in, size_t n_pixels) {
  const int n_bits = in->U8();
  if (!in->ok() || n_bits < 1 || n_bits > 8) {
    return BadFile(Format::kGif, "its pixels are packed in an unknown way");
  }
  CodeTable table(1 << n_bits);
  CodeBits bits(in);
  std::vector<uint8_t> pixels;
  pixels.reserve(n_pixels + kMaxCodes);
  while (pixels.size() < n_pixels) {
    const int code = bits.Next(table.n_bits());
    if (code < 0 || code == table.end_code()) break;
    if (code == table.clear_code()) {
      table.Clear();
    } else if (!table.Expand(code, &pixels)) {
      return BadFile(Format::kGif, "it is damaged");
    }
  }
  if (pixels.size() < n_pixels) return BadFile(Format::kGif, "it ends too early");
  return pixels;
}

// The rows of an interlaced frame, in the order of the file.
std::vector<int> RowOrder(int height, bool interlaced) {
  std::vector<int> rows;
  const auto add = [&](int first, int step) {
    for (int y = first; y < height; y += step) rows.push_back(y);
  };
  if (!interlaced) return add(0, 1), rows;
  add(0, 8), add(4, 8), add(2, 4), add(1, 2);
  return rows;
}

void PutFrame(const Frame& frame, const std::vector<uint8_t>& pixels, Picture* canvas) {
  auto pixel = pixels.begin();
  for (const int y : RowOrder(frame.height, frame.interlaced)) {
    uint8_t* to = canvas->row(frame.y + y) + static_cast<size_t>(frame.x) * kChannels;
    for (int x = 0; x < frame.width; ++x, ++pixel, to += kChannels) {
      if (*pixel == frame.transparent) continue;
      std::copy_n(frame.palette.colors.begin() + *pixel * kChannels, kChannels, to);
    }
  }
}

// Reads up to the first frame's pixels.
StatusOr<Frame> ReadFrameHead(Reader* in, const Palette& palette) {
  constexpr uint8_t kExtension = '!', kFrame = ',', kGraphicControl = 0xf9;
  Frame frame;
  frame.palette = palette;
  for (uint8_t kind = in->U8(); kind != kFrame; kind = in->U8()) {
    if (!in->ok() || kind != kExtension) return BadFile(Format::kGif, "it has no frame");
    if (in->U8() == kGraphicControl && in->U8() == 4) {
      const bool is_transparent = (in->U8() & 1) != 0;
      in->Skip(2);  // the delay
      const int color = in->U8();
      frame.transparent = is_transparent ? color : -1;
    }
    SkipBlocks(in);
  }
  frame.x = in->U16(), frame.y = in->U16();
  frame.width = in->U16(), frame.height = in->U16();
  const int flags = in->U8();
  frame.interlaced = (flags & 0x40) != 0;
  if ((flags & 0x80) != 0) frame.palette = ReadPalette(in, flags);
  return frame;
}

}  // namespace

StatusOr<Decoded> DecodeGif(Bytes file, const Limits& limits) {
  Reader in(file);
  in.Skip(6);  // "GIF89a"
  int width = in.U16(), height = in.U16();
  const int flags = in.U8();
  in.Skip(2);  // background, aspect ratio
  Palette palette;
  if ((flags & 0x80) != 0) palette = ReadPalette(&in, flags);
  WEFT_ASSIGN_OR_RETURN(const Frame frame, ReadFrameHead(&in, palette));
  if (!in.ok()) return BadFile(Format::kGif, "it ends too early");
  if (frame.palette.n_colors == 0) return BadFile(Format::kGif, "it has no colors");
  // Viewers show a frame that is larger than the canvas as a whole.
  width = std::max(width, frame.x + frame.width);
  height = std::max(height, frame.y + frame.height);
  WEFT_RETURN_IF_ERROR(CheckSize(Format::kGif, width, height, limits));
  WEFT_RETURN_IF_ERROR(CheckSize(Format::kGif, frame.width, frame.height, limits));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<uint8_t> pixels,
      ReadPixels(&in, static_cast<size_t>(frame.width) * static_cast<size_t>(frame.height)));
  Decoded decoded{Picture(width, height)};
  std::fill(decoded.picture.pixels.begin(), decoded.picture.pixels.end(), uint8_t{255});
  PutFrame(frame, pixels, &decoded.picture);
  return decoded;
}

}  // namespace weft::picture
