// Picture encoders on every backend against the figures of another implementation
// (picture_figures.json: llama.cpp's mtmd, with pixels and GELU in float, and the projectors' GELU
// by the error function as in the published models), and against the promise that a picture gives
// the same bits whatever is encoded next to it.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/vision/encoder.h"
#include "engine/vision/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/conformance/picture_pattern.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tools/make_projector.h"

namespace weft::testing {
namespace {

using tools::KnownProjectorShapes;
using tools::ProjectorShape;
using vision::Grid;
using vision::PictureEncoder;

// Independent computations in float.
constexpr double kTolerance = 1e-4;

struct Case {
  std::string backend;
  std::string projector;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string_view backend : UsableBackends()) {
    for (const ProjectorShape& shape : KnownProjectorShapes()) {
      cases.push_back({std::string(backend), std::string(shape.name)});
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.backend + "_" + info.param.projector;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

class PicturesTest : public ::testing::TestWithParam<Case> {
 protected:
  PicturesTest()
      : path_(::testing::TempDir() + "weft_projector_" + std::to_string(getpid()) + ".gguf") {}
  ~PicturesTest() override { std::filesystem::remove(path_); }

  void SetUp() override {
    const StatusOr<const Backend*> backend = FindBackend(GetParam().backend);
    ASSERT_TRUE(backend.ok()) << backend.status();
    if (!(*backend)->capabilities().row_input) GTEST_SKIP() << "computes no picture encoders";
    const ProjectorShape* const shape = tools::FindProjectorShape(GetParam().projector);
    ASSERT_NE(shape, nullptr);
    const auto made = tools::MakeProjector(*shape, {.type = "F32"}, path_);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto file = ModelFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    StatusOr<PictureSpec> spec = BuildPictureSpec(**file);
    ASSERT_TRUE(spec.ok()) << spec.status();
    auto encoder = PictureEncoder::Load(*file, *std::move(spec), *backend, {.n_threads = 2});
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    encoder_ = *std::move(encoder);
  }

  // The one view of the pattern in a size that needs no other.
  Grid View(int width, int height) const {
    PicturePreparation preparation = encoder_->spec().preparation;
    preparation.fit = PictureFit::kWhole;
    preparation.min_pixels = 1, preparation.max_pixels = 1 << 20;
    auto prepared = vision::PreparePicture(preparation, Pattern(width, height));
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_EQ(prepared->views[0].count() * preparation.patch * preparation.patch, width * height);
    return std::move(prepared->views[0]);
  }

  std::vector<Grid> Encode(const std::vector<Grid>& views, int64_t max_step_tokens = 8192,
                           int n_threads = 1) const {
    auto embeddings =
        encoder_->Encode(views, {.n_threads = n_threads, .max_step_tokens = max_step_tokens});
    EXPECT_TRUE(embeddings.ok()) << embeddings.status();
    return embeddings.ok() ? *std::move(embeddings) : std::vector<Grid>(views.size());
  }

  const std::string path_;
  std::shared_ptr<const PictureEncoder> encoder_;
};

TEST_P(PicturesTest, EmbeddingsAreThoseOfAnotherImplementation) {
  std::ifstream in(WEFT_SOURCE_DIR "/tests/conformance/picture_figures.json");
  const nlohmann::json figures = nlohmann::json::parse(in).at(GetParam().projector);
  const Grid embeddings =
      Encode({View(figures.at("width").get<int>(), figures.at("height").get<int>())}).at(0);
  const auto expected = figures.at("embeddings").get<std::vector<float>>();
  ASSERT_EQ(embeddings.values.size(), expected.size());
  EXPECT_LE(MaxDifference(embeddings.values, expected), kTolerance);
}

TEST_P(PicturesTest, AViewHasTheSameBitsBesideOthersAndInAnySteps) {
  const PicturePreparation& preparation = encoder_->spec().preparation;
  const bool is_square =
      preparation.fit == PictureFit::kSquare || preparation.fit == PictureFit::kTiles;
  const auto side = static_cast<int>(preparation.side);
  const auto unit = static_cast<int>(preparation.unit);
  const std::vector<Grid> views = {is_square ? View(side, side) : View(5 * unit, 3 * unit),
                                   is_square ? View(side, side) : View(unit, 7 * unit)};
  const Grid alone = Encode({views[0]}).at(0);
  for (const auto& [max_rows, n_threads] : {std::pair{8192, 2}, std::pair{1, 1}}) {
    const std::vector<Grid> together = Encode({views[1], views[0], views[1]}, max_rows, n_threads);
    ASSERT_EQ(together[1].values.size(), alone.values.size());
    EXPECT_EQ(std::memcmp(together[1].values.data(), alone.values.data(),
                          alone.values.size() * sizeof(float)),
              0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PicturesTest, ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace weft::testing
