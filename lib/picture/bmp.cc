// BMP: 1 to 32 bits per pixel, with palettes, bit masks and run lengths.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <vector>

#include "picture/formats.h"

namespace weft::picture {
namespace {

enum Packing : uint32_t { kPlain = 0, kRuns8 = 1, kRuns4 = 2, kMasks = 3, kMasksWithAlpha = 6 };

constexpr uint32_t kFileHeaderBytes = 14;
constexpr uint32_t kOldHeaderBytes = 12;  // sizes of 16 bits, colors of 3 bytes
constexpr uint32_t kHeaderBytes = 40;
constexpr uint32_t kHeaderWithAlpha = 56;

struct Header {
  uint32_t pixels_at = 0, header_bytes = 0;
  int64_t width = 0, height = 0;
  bool top_down = false;
  int n_bits = 0;
  uint32_t packing = kPlain;
  std::array<uint32_t, 4> masks = {};  // red, green, blue, alpha
  std::vector<uint8_t> palette;        // blue, green, red for each color
};

void SetUsualMasks(Header* header) {
  if (header->n_bits == 16) header->masks = {0x7c00, 0x03e0, 0x001f, 0};
  if (header->n_bits == 32) header->masks = {0xff0000, 0x00ff00, 0x0000ff, 0};
}

// Bit masks of 16 and 32 bits per pixel stand after the header, or are its end.
void ReadMasks(Reader* in, Header* header) {
  SetUsualMasks(header);
  if (header->packing != kMasks && header->packing != kMasksWithAlpha) return;
  const bool has_alpha =
      header->packing == kMasksWithAlpha || header->header_bytes >= kHeaderWithAlpha;
  in->Seek(kFileHeaderBytes + kHeaderBytes);
  for (size_t i = 0; i < (has_alpha ? 4U : 3U); ++i) header->masks[i] = in->U32();
}

void ReadPalette(Reader* in, uint32_t n_colors, Header* header) {
  if (header->n_bits > 8) return;
  const uint32_t most = 1U << header->n_bits;
  const bool is_old = header->header_bytes == kOldHeaderBytes;
  in->Seek(size_t{kFileHeaderBytes} + header->header_bytes);
  header->palette.resize(most * kChannels);
  for (uint32_t i = 0; i < (n_colors == 0 ? most : std::min(n_colors, most)); ++i) {
    for (uint32_t c = 0; c < kChannels; ++c) header->palette[i * kChannels + c] = in->U8();
    if (!is_old) in->Skip(1);
  }
}

StatusOr<Header> ReadHeader(Reader* in) {
  Header header;
  in->Skip(10);
  header.pixels_at = in->U32();
  header.header_bytes = in->U32();
  uint32_t n_colors = 0;
  if (header.header_bytes == kOldHeaderBytes) {
    header.width = in->U16(), header.height = in->U16();
    in->Skip(2);
    header.n_bits = in->U16();
  } else {
    header.width = static_cast<int32_t>(in->U32());
    const int64_t height = static_cast<int32_t>(in->U32());
    header.height = std::abs(height), header.top_down = height < 0;
    in->Skip(2);
    header.n_bits = in->U16();
    header.packing = in->U32();
    in->Skip(12);
    n_colors = in->U32();
  }
  constexpr std::array kBits = {1, 4, 8, 16, 24, 32};
  const bool has_header =
      header.header_bytes == kOldHeaderBytes || header.header_bytes >= kHeaderBytes;
  if (!in->ok() || !has_header || std::ranges::count(kBits, header.n_bits) == 0) {
    return BadFile(Format::kBmp, "its header is damaged or of an unknown kind");
  }
  ReadMasks(in, &header);
  ReadPalette(in, n_colors, &header);
  if (!in->ok()) return BadFile(Format::kBmp, "it ends too early");
  return header;
}

// A pixel's part under `mask`, as 8 bits.
uint8_t Part(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const uint64_t most = mask >> std::countr_zero(mask);
  const uint64_t part = (pixel & mask) >> std::countr_zero(mask);
  return static_cast<uint8_t>((part * 255 + most / 2) / most);
}

void PutColor(const Header& header, uint32_t number, uint8_t* rgb) {
  for (size_t c = 0; c < kChannels; ++c) {
    rgb[c] = header.palette[number * kChannels + (kChannels - 1 - c)];
  }
}

void PutPixel(const Header& header, Bytes row, size_t x, uint8_t* rgb) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(row[i]); };
  const auto bits = static_cast<size_t>(header.n_bits);
  if (bits <= 8) {
    const size_t first_bit = x * bits;
    const uint32_t shift = 8 - static_cast<uint32_t>(bits + first_bit % 8);
    PutColor(header, byte(first_bit / 8) >> shift & ((1U << bits) - 1), rgb);
  } else if (bits == 24) {
    for (size_t c = 0; c < kChannels; ++c) rgb[c] = static_cast<uint8_t>(row[3 * x + 2 - c]);
  } else {
    uint32_t pixel = 0;
    for (size_t i = bits / 8; i > 0; --i) pixel = pixel << 8 | byte(x * bits / 8 + i - 1);
    const uint8_t alpha = header.masks[3] != 0 ? Part(pixel, header.masks[3]) : uint8_t{255};
    for (size_t c = 0; c < kChannels; ++c) rgb[c] = OverWhite(Part(pixel, header.masks[c]), alpha);
  }
}

Status ReadPlain(const Header& header, Reader* in, Picture* picture) {
  const auto row_bits = static_cast<size_t>(header.width) * static_cast<size_t>(header.n_bits);
  const size_t row_bytes = (row_bits + 31) / 32 * 4;
  // The last row may lack its padding.
  const size_t used_bytes = (row_bits + 7) / 8;
  for (int i = 0; i < picture->height; ++i) {
    const Bytes row = in->Take(std::min(row_bytes, std::max(in->left(), used_bytes)));
    if (!in->ok()) return BadFile(Format::kBmp, "it ends too early");
    uint8_t* to = picture->row(header.top_down ? i : picture->height - 1 - i);
    for (int x = 0; x < picture->width; ++x, to += kChannels) PutPixel(header, row, x, to);
  }
  return OkStatus();
}

// Run lengths: (count, color), or 0 and a command. Pixels outside of the picture are dropped.
class Runs {
 public:
  Runs(const Header& header, Reader* in, Picture* picture)
      : header_(header), in_(*in), picture_(*picture) {}

  Status Read() {
    enum Command : uint8_t { kEndOfRow = 0, kEnd = 1, kMove = 2 };
    while (in_.ok() && y_ < picture_.height) {
      const int count = in_.U8();
      const uint8_t what = in_.U8();
      if (count > 0) {
        PutRun(count, what);
      } else if (what == kEndOfRow) {
        x_ = 0, ++y_;
      } else if (what == kEnd) {
        return OkStatus();
      } else if (what == kMove) {
        x_ += in_.U8(), y_ += in_.U8();
      } else {
        PutSingly(what);
      }
    }
    return in_.ok() ? OkStatus() : BadFile(Format::kBmp, "it ends too early");
  }

 private:
  bool is_4_bits() const { return header_.packing == kRuns4; }
  // Pixel `i` of a byte that is repeated.
  uint32_t Color(uint8_t what, int i) const {
    if (!is_4_bits()) return what;
    return i % 2 == 0 ? what >> 4 : what & 15;
  }
  void Put(uint32_t color) {
    if (x_ < picture_.width && y_ < picture_.height) {
      PutColor(header_, color,
               picture_.row(picture_.height - 1 - y_) + static_cast<size_t>(x_) * kChannels);
    }
    ++x_;
  }
  void PutRun(int count, uint8_t what) {
    const int64_t end = x_ + count;
    for (int i = 0; i < count && x_ < picture_.width; ++i) Put(Color(what, i));
    x_ = end;
  }
  void PutSingly(int count) {
    uint8_t what = 0;
    for (int i = 0; i < count; ++i) {
      if (!is_4_bits() || i % 2 == 0) what = in_.U8();
      Put(Color(what, i));
    }
    const int n_bytes = is_4_bits() ? (count + 1) / 2 : count;
    if (n_bytes % 2 != 0) in_.Skip(1);
  }

  const Header& header_;
  Reader& in_;
  Picture& picture_;
  int64_t x_ = 0;
  int y_ = 0;
};

Status CheckPacking(const Header& header) {
  const bool masks = header.packing == kMasks || header.packing == kMasksWithAlpha;
  const bool fits = header.packing == kPlain ||
                    (header.packing == kRuns8 && header.n_bits == 8 && !header.top_down) ||
                    (header.packing == kRuns4 && header.n_bits == 4 && !header.top_down) ||
                    (masks && (header.n_bits == 16 || header.n_bits == 32));
  return fits ? OkStatus() : BadFile(Format::kBmp, "its pixels are packed in an unknown way");
}

}  // namespace

StatusOr<Decoded> DecodeBmp(Bytes file, const Limits& limits) {
  Reader in(file);
  WEFT_ASSIGN_OR_RETURN(const Header header, ReadHeader(&in));
  WEFT_RETURN_IF_ERROR(CheckPacking(header));
  WEFT_RETURN_IF_ERROR(CheckSize(Format::kBmp, header.width, header.height, limits));
  Decoded decoded{Picture(static_cast<int>(header.width), static_cast<int>(header.height))};
  in.Seek(header.pixels_at);
  if (header.packing == kRuns8 || header.packing == kRuns4) {
    // Pixels that no run reaches have the first color.
    for (size_t i = 0; i < decoded.picture.pixels.size(); i += kChannels) {
      PutColor(header, 0, decoded.picture.pixels.data() + i);
    }
    WEFT_RETURN_IF_ERROR(Runs(header, &in, &decoded.picture).Read());
  } else {
    WEFT_RETURN_IF_ERROR(ReadPlain(header, &in, &decoded.picture));
  }
  return decoded;
}

}  // namespace weft::picture
