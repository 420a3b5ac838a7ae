// Decoding and resizing against Pillow, which makes the pictures (testdata/pillow_cases.py).
// Skipped without it; WEFT_PYTHON names a Python that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "picture/picture.h"
#include "picture/resample.h"

namespace weft::picture {
namespace {

constexpr int kNoPillow = 77;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

StatusOr<Picture> DecodeFile(const std::filesystem::path& path) {
  const std::string file = ReadFile(path);
  return DecodePicture(std::as_bytes(std::span(file)), Limits());
}

int LargestDifference(const Picture& picture, const std::string& rgb) {
  int largest = 0;
  for (size_t i = 0; i < rgb.size(); ++i) {
    largest = std::max(largest, std::abs(picture.pixels[i] - static_cast<uint8_t>(rgb[i])));
  }
  return largest;
}

class PillowTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::path(testing::TempDir()) / "pillow_cases";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const char* const python = std::getenv("WEFT_PYTHON");
    const std::string command = std::string(python != nullptr ? python : "python3") + " " +
                                WEFT_SOURCE_DIR "/lib/picture/testdata/pillow_cases.py " +
                                folder_.string();
    result_ = WEXITSTATUS(std::system(command.c_str()));
  }
  void SetUp() override {
    if (result_ == kNoPillow) GTEST_SKIP() << "this Python has no Pillow; see WEFT_PYTHON";
    ASSERT_EQ(result_, 0) << "pillow_cases.py failed";
  }
  // Files of the folder whose names begin and end so.
  static std::vector<std::filesystem::path> Files(const std::string& begin,
                                                  const std::string& end) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(begin) && name.ends_with(end)) files.push_back(entry.path());
    }
    return files;
  }

  static std::filesystem::path folder_;
  static int result_;
};

std::filesystem::path PillowTest::folder_;
int PillowTest::result_ = 0;

TEST_F(PillowTest, PicturesHaveThePixelsThatPillowReads) {
  int n_cases = 0;
  for (const auto& file : Files("", ".file")) {
    for (const auto& expected : Files(file.stem().string() + ".", ".rgb")) {
      SCOPED_TRACE(expected.filename().string());
      int width = 0, height = 0, tolerance = 0;
      const std::string numbers = expected.filename().string().substr(file.stem().string().size());
      ASSERT_EQ(std::sscanf(numbers.c_str(), ".%dx%d.%d.rgb", &width, &height, &tolerance), 3);
      const StatusOr<Picture> picture = DecodeFile(file);
      ASSERT_TRUE(picture.ok()) << picture.status();
      ASSERT_EQ(picture->width, width);
      ASSERT_EQ(picture->height, height);
      EXPECT_LE(LargestDifference(*picture, ReadFile(expected)), tolerance);
      ++n_cases;
    }
  }
  EXPECT_GE(n_cases, 40);
}

TEST_F(PillowTest, ResizedPicturesHaveThePixelsOfPillow) {
  const StatusOr<Picture> source = DecodeFile(folder_ / "source.file");
  ASSERT_TRUE(source.ok()) << source.status();
  int n_cases = 0;
  for (const auto& expected : Files("resize.", ".rgb")) {
    SCOPED_TRACE(expected.filename().string());
    int width = 0, height = 0;
    char name[16] = {};
    ASSERT_EQ(std::sscanf(expected.filename().c_str(), "resize.%dx%d.%15[a-z].rgb", &width, &height,
                          name),
              3);
    const Filter filter = name == std::string("bilinear")  ? Filter::kBilinear
                          : name == std::string("bicubic") ? Filter::kBicubic
                                                           : Filter::kLanczos;
    const Picture resized = Resize(*source, width, height, filter);
    ASSERT_EQ(resized.width, width);
    ASSERT_EQ(resized.height, height);
    EXPECT_EQ(LargestDifference(resized, ReadFile(expected)), 0);
    ++n_cases;
  }
  EXPECT_EQ(n_cases, 21);
}

}  // namespace
}  // namespace weft::picture
