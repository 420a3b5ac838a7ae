#include "picture/picture.h"

#include <cstring>
#include <new>
#include <utility>

#include "base/strings.h"
#include "picture/formats.h"

namespace weft::picture {
namespace {

bool StartsWith(Bytes file, std::string_view magic, size_t at = 0) {
  return file.size() >= at + magic.size() &&
         std::memcmp(file.data() + at, magic.data(), magic.size()) == 0;
}

StatusOr<Decoded> DecodeAs(Format format, Bytes file, const Limits& limits) {
  switch (format) {
    case Format::kPng:
      return DecodePng(file, limits);
    case Format::kJpeg:
      return DecodeJpeg(file, limits);
    case Format::kWebp:
      return DecodeWebp(file, limits);
    case Format::kGif:
      return DecodeGif(file, limits);
    case Format::kBmp:
      return DecodeBmp(file, limits);
    case Format::kUnknown:
      break;
  }
  return InvalidArgument("the picture is not a PNG, JPEG, WebP, GIF or BMP file");
}

}  // namespace

Format FormatOf(Bytes file) {
  if (StartsWith(file, "\x89PNG\r\n\x1a\n")) return Format::kPng;
  if (StartsWith(file, "\xff\xd8\xff")) return Format::kJpeg;
  if (StartsWith(file, "RIFF") && StartsWith(file, "WEBP", 8)) return Format::kWebp;
  if (StartsWith(file, "GIF87a") || StartsWith(file, "GIF89a")) return Format::kGif;
  if (StartsWith(file, "BM")) return Format::kBmp;
  return Format::kUnknown;
}

std::string_view NameOf(Format format) {
  constexpr std::string_view kNames[] = {"unknown", "PNG", "JPEG", "WebP", "GIF", "BMP"};
  return kNames[static_cast<size_t>(format)];
}

Status BadFile(Format format, std::string_view what) {
  return InvalidArgument("the ", NameOf(format), " picture cannot be read: ", what);
}

Status CheckSize(Format format, int64_t width, int64_t height, const Limits& limits) {
  if (width < 1 || height < 1) {
    return BadFile(format, StrCat("it is ", width, " by ", height, " pixels"));
  }
  if (width <= limits.max_side && height <= limits.max_side &&
      width * height <= limits.max_pixels) {
    return OkStatus();
  }
  return ResourceExhausted("the ", NameOf(format), " picture is ", width, " by ", height,
                           " pixels; send at most ", limits.max_pixels, " pixels, and ",
                           limits.max_side, " on a side");
}

void PutRgba(const uint8_t* rgba, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, rgba += 4, rgb += kChannels) {
    for (int c = 0; c < kChannels; ++c) rgb[c] = OverWhite(rgba[c], rgba[3]);
  }
}

StatusOr<Picture> DecodePicture(Bytes file, const Limits& limits) {
  if (file.size() > limits.max_file_bytes) {
    return ResourceExhausted("the picture's file has ", file.size(), " bytes; send at most ",
                             limits.max_file_bytes);
  }
  const Format format = FormatOf(file);
  try {
    WEFT_ASSIGN_OR_RETURN(Decoded decoded, DecodeAs(format, file, limits));
    return Upright(std::move(decoded.picture), OrientationOf(decoded.exif));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the pixels of the ", NameOf(format),
                             " picture; send a smaller one");
  }
}

}  // namespace weft::picture
