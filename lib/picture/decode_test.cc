// What bad files and limits come to. Good files: pillow_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "picture/formats.h"
#include "picture/picture.h"

namespace weft::picture {
namespace {

using testing::HasSubstr;

StatusOr<Picture> Decode(std::string_view file, const Limits& limits = {}) {
  return DecodePicture(std::as_bytes(std::span(file)), limits);
}

std::string Little(uint32_t value, int n_bytes) {
  std::string bytes;
  for (int i = 0; i < n_bytes; ++i, value >>= 8) bytes += static_cast<char>(value & 255);
  return bytes;
}

// 24 bits per pixel; `pixels` are the rows from the bottom up.
std::string Bmp(int32_t width, int32_t height, const std::string& pixels) {
  return "BM" + Little(0, 8) + Little(54, 4) + Little(40, 4) +
         Little(static_cast<uint32_t>(width), 4) + Little(static_cast<uint32_t>(height), 4) +
         Little(1, 2) + Little(24, 2) + Little(0, 24) + pixels;
}

// Two by two pixels of four grey values.
std::string Gif(const std::string& packed) {
  const std::string palette("\0\0\0\1\1\1\2\2\2\3\3\3", 12);
  return "GIF89a" + Little(2, 2) + Little(2, 2) + "\x81" + Little(0, 2) + palette + "," +
         Little(0, 4) + Little(2, 2) + Little(2, 2) + Little(0, 1) + packed;
}

// A TIFF with one entry: the orientation.
std::string Tiff(int orientation) {
  return "II" + Little(42, 2) + Little(8, 4) + Little(1, 2) + Little(0x112, 2) + Little(3, 2) +
         Little(1, 4) + Little(static_cast<uint32_t>(orientation), 4);
}

std::vector<int> Reds(const Picture& picture) {
  std::vector<int> reds;
  for (size_t i = 0; i < picture.pixels.size(); i += kChannels) reds.push_back(picture.pixels[i]);
  return reds;
}

TEST(DecodeTest, AnUnknownFormatIsToldWithTheKnownOnes) {
  EXPECT_THAT(Decode("hello").status().message(), HasSubstr("not a PNG, JPEG, WebP, GIF or BMP"));
  EXPECT_EQ(Decode("").status().code(), StatusCode::kInvalidArgument);
}

TEST(DecodeTest, BmpRowsStandFromTheBottomUp) {
  const std::string pixels("\1\2\3\4\5\6\0\0\7\7\7\10\10\10\0\0", 16);
  const StatusOr<Picture> picture = Decode(Bmp(2, 2, pixels));
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_THAT(Reds(*picture), testing::ElementsAre(7, 8, 3, 6));
  const StatusOr<Picture> top_down = Decode(Bmp(2, -2, pixels));
  ASSERT_TRUE(top_down.ok()) << top_down.status();
  EXPECT_THAT(Reds(*top_down), testing::ElementsAre(3, 6, 7, 8));
}

TEST(DecodeTest, GifCodesAreRead) {
  // Clear (4), pixels 1 0 2 in 3 bits each; then pixel 3 and the end (5) in 4 bits each.
  const StatusOr<Picture> picture = Decode(Gif(std::string("\2\3\x0c\x34\x05\0", 6)));
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_THAT(Reds(*picture), testing::ElementsAre(1, 0, 2, 3));
}

TEST(DecodeTest, DamagedFilesAreToldByFormat) {
  for (const auto& [file, format] :
       {std::pair{std::string("\x89PNG\r\n\x1a\n\0\0\0", 11), "PNG"},
        std::pair{std::string("\xff\xd8\xff\xe0"), "JPEG"},
        std::pair{std::string("RIFF\4\0\0\0WEBP", 12), "WebP"},
        std::pair{std::string("GIF89a\1"), "GIF"}, std::pair{Gif("\2\1\xff"), "GIF"},
        std::pair{Gif("\11\1\xff"), "GIF"}, std::pair{std::string("BM12"), "BMP"},
        std::pair{Bmp(2, 2, "abc"), "BMP"}}) {
    SCOPED_TRACE(format);
    const Status status = Decode(file).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr(std::string("the ") + format + " picture cannot be read: "));
  }
}

TEST(DecodeTest, SizesAboveTheLimitsAreRefusedBeforeTheirPixelsAreRead) {
  const Status side = Decode(Bmp(40000, 1, "")).status();
  EXPECT_EQ(side.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(side.message(), HasSubstr("40000 by 1 pixels"));
  EXPECT_EQ(Decode(Bmp(32000, 32000, "")).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Decode(Bmp(0, 5, "")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Decode(Bmp(2, 2, ""), {.max_file_bytes = 10}).status().message(),
              HasSubstr("send at most 10"));
}

TEST(DecodeTest, OrientationIsReadFromATiff) {
  const auto orientation = [](const std::string& exif) {
    return OrientationOf(std::as_bytes(std::span(exif)));
  };
  EXPECT_EQ(orientation(Tiff(6)), 6);
  EXPECT_EQ(orientation(std::string("Exif\0\0", 6) + Tiff(3)), 3);
  EXPECT_EQ(orientation(Tiff(9)), 1);
  EXPECT_EQ(orientation(""), 1);
  EXPECT_EQ(orientation("II"), 1);
  EXPECT_EQ(orientation(Tiff(6).substr(0, 12)), 1);
}

TEST(DecodeTest, AlphaIsDrawnOverWhite) {
  EXPECT_EQ(OverWhite(10, 255), 10);
  EXPECT_EQ(OverWhite(10, 0), 255);
  EXPECT_EQ(OverWhite(0, 128), 127);
}

}  // namespace
}  // namespace weft::picture
