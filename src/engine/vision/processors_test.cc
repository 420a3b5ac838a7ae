// Preparation against the image processors that models publish (testdata/processor_cases.py), value
// by value on 50 pictures. Skipped without Transformers; WEFT_PYTHON names a Python that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "engine/vision/prepare.h"
#include "nlohmann/json.hpp"
#include "picture/picture.h"

namespace weft::vision {
namespace {

constexpr int kNoTransformers = 77;
constexpr int kCases = 200;
// The processors compute in other orders of float and double.
constexpr double kTolerance = 1e-5;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

PicturePreparation PreparationOf(const std::string& kind, const nlohmann::json& numbers) {
  static const std::map<std::string, std::pair<PictureFit, PictureFilter>> kKinds = {
      {"square", {PictureFit::kSquare, PictureFilter::kBilinear}},
      {"whole", {PictureFit::kWhole, PictureFilter::kBicubic}},
      {"within", {PictureFit::kWithin, PictureFilter::kBicubic}},
      {"tiles", {PictureFit::kTiles, PictureFilter::kLanczos}}};
  PicturePreparation preparation;
  preparation.fit = kKinds.at(kind).first;
  preparation.filter = kKinds.at(kind).second;
  preparation.patch = numbers.at("patch");
  preparation.unit = numbers.at("unit");
  preparation.side = numbers.value("side", preparation.patch);
  preparation.longest = numbers.value("longest", 0);
  preparation.min_pixels = numbers.value("min_pixels", 0);
  preparation.max_pixels = numbers.value("max_pixels", 0);
  preparation.mean = {0.48f, 0.46f, 0.41f};
  preparation.deviation = {0.27f, 0.26f, 0.28f};
  return preparation;
}

// A view's values channel by channel, rows from the top.
std::vector<float> Plane(const Grid& view, int64_t patch) {
  std::vector<float> plane(view.values.size());
  const int64_t width = view.columns * patch, height = view.rows * patch;
  for (int64_t i = 0; i < view.count(); ++i) {
    const float* from = view.row(i);
    for (int64_t c = 0; c < picture::kChannels; ++c) {
      for (int64_t y = 0; y < patch; ++y) {
        for (int64_t x = 0; x < patch; ++x) {
          plane[(c * height + i / view.columns * patch + y) * width + i % view.columns * patch +
                x] = *from++;
        }
      }
    }
  }
  return plane;
}

// The largest difference; infinite if there are more or fewer values.
double Difference(const std::vector<float>& values, const std::string& expected) {
  if (values.size() * sizeof(float) != expected.size()) return HUGE_VAL;
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    float value;
    std::memcpy(&value, expected.data() + i * sizeof(value), sizeof(value));
    largest = std::max(largest, std::fabs(double{value} - values[i]));
  }
  return largest;
}

// Prepares the picture of a case, whose numbers are in the file NAME.KIND.json.
void CheckCase(const std::filesystem::path& numbers_path) {
  SCOPED_TRACE(numbers_path.filename().string());
  const std::filesystem::path stem = numbers_path.parent_path() / numbers_path.stem();
  const nlohmann::json numbers = nlohmann::json::parse(ReadFile(numbers_path));
  const std::string kind = stem.extension().string().substr(1);
  const std::string file = ReadFile(std::filesystem::path(stem).replace_extension(".png"));
  auto picture = picture::DecodePicture(std::as_bytes(std::span(file)), {});
  ASSERT_TRUE(picture.ok()) << picture.status();
  const auto prepared = PreparePicture(PreparationOf(kind, numbers), *std::move(picture));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  std::vector<float> values;
  std::vector<std::vector<int64_t>> sizes;
  const int64_t patch = numbers.at("patch");
  for (const Grid& view : prepared->views) {
    const std::vector<float> plane = Plane(view, patch);
    values.insert(values.end(), plane.begin(), plane.end());
    sizes.push_back({view.columns * patch, view.rows * patch});
  }
  ASSERT_EQ(sizes, numbers.at("sizes").get<std::vector<std::vector<int64_t>>>());
  EXPECT_LE(Difference(values, ReadFile(stem.string() + ".f32")), kTolerance);
}

TEST(ProcessorsTest, ValuesAreThoseOfThePublishedProcessors) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "processor_cases";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const char* const python = std::getenv("WEFT_PYTHON");
  const std::string command = std::string(python != nullptr ? python : "python3") +
                              " " WEFT_SOURCE_DIR
                              "/src/engine/vision/testdata/processor_cases.py " +
                              folder.string() + " 2>/dev/null";
  const int result = WEXITSTATUS(std::system(command.c_str()));
  if (result == kNoTransformers) GTEST_SKIP() << "no Transformers with Pillow; see WEFT_PYTHON";
  ASSERT_EQ(result, 0) << "processor_cases.py failed";
  int n_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    CheckCase(entry.path());
    ++n_cases;
  }
  EXPECT_EQ(n_cases, kCases);
}

}  // namespace
}  // namespace weft::vision
