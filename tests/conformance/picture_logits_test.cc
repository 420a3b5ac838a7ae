// Runs prompts with a picture through the engine and compares the logits after the picture with
// another implementation's (tools/golden_pictures.py): for rows that attend to each other, rows
// with positions on a plane, and rows to which layers add.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "engine/vision/encoder.h"
#include "engine/vision/prepare.h"
#include "engine/vision/span.h"
#include "model/formats/model_file.h"
#include "nlohmann/json.hpp"
#include "tests/conformance/picture_pattern.h"
#include "tests/support/engine_harness.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tools/make_model.h"
#include "tools/make_projector.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::testing {
namespace {

constexpr double kTolerance = 1e-3;
constexpr char kFolder[] = WEFT_SOURCE_DIR "/tests/conformance/testdata/pictures/";

struct Case {
  std::string backend;
  std::string name;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string_view backend : UsableBackends()) {
    const auto capabilities = (*FindBackend(backend))->capabilities();
    if (!capabilities.row_input || !capabilities.mutual) continue;
    for (const char* const name : {"gemma3", "qwen2.5vl", "qwen3vl"}) {
      cases.push_back({std::string(backend), name});
    }
  }
  return cases;
}

class PictureLogitsTest : public ::testing::TestWithParam<Case> {
 protected:
  PictureLogitsTest() { std::filesystem::create_directories(folder_); }
  ~PictureLogitsTest() override { std::filesystem::remove_all(folder_); }

  void SetUp() override {
    if (!std::filesystem::exists(FileOf(".json"))) {
      GTEST_SKIP() << "no figures of " << GetParam().name
                   << ": tools/make_goldens.py --pictures writes them";
    }
    std::ifstream in(FileOf(".json"));
    facts_ = nlohmann::json::parse(in);
    backend_ = *FindBackend(GetParam().backend);
    LoadModelFile();
    LoadProjector();
  }
  static std::string FileOf(std::string_view ending) {
    return std::string(kFolder).append(GetParam().name).append(ending);
  }

  // With the sizes of tools/golden_pictures.py.
  void LoadModelFile() {
    const std::string path = folder_ + "/model.gguf";
    auto shape = tools::FindShape(facts_.at("shape").get<std::string>());
    ASSERT_TRUE(shape.ok()) << shape.status();
    shape->embd = 32, shape->ffn = 64;
    shape->heads = 2, shape->kv_heads = 1, shape->head_dim = 16;
    ASSERT_TRUE(tools::MakeModel(*shape, {.type = "F32"}, path).ok());
    auto model = Model::Load(path, {.backend_object = backend_, .n_threads = 1});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void LoadProjector() {
    const std::string path = folder_ + "/projector.gguf";
    const auto* const shape = tools::FindProjectorShape(facts_.at("projector").get<std::string>());
    ASSERT_NE(shape, nullptr);
    ASSERT_TRUE(tools::MakeProjector(*shape, {.type = "F32"}, path).ok());
    const auto file = ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    auto spec = BuildPictureSpec(**file);
    ASSERT_TRUE(spec.ok()) << spec.status();
    auto encoder =
        vision::PictureEncoder::Load(*file, *std::move(spec), backend_, {.n_threads = 1});
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    encoder_ = *std::move(encoder);
  }

  // Tokens, the rows of a picture, and more tokens.
  std::vector<PromptPart> Prompt() const {
    PicturePreparation preparation = encoder_->spec().preparation;
    preparation.min_pixels = 1;
    auto prepared = vision::PreparePicture(
        preparation, Pattern(facts_.at("width").get<int>(), facts_.at("height").get<int>()));
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    auto views = encoder_->Encode(prepared->views, {.n_threads = 1, .max_step_tokens = 1024});
    EXPECT_TRUE(views.ok()) << views.status();
    vision::SpanPart span =
        vision::ArrangeSpan(encoder_->spec().frame, encoder_->row_end(), {.views = *views}).at(0);
    for (float& value : span.rows) value /= model_->spec().embedding_scale;
    return {{facts_.at("before").get<std::vector<int32_t>>(), std::move(span.rows), span.form},
            {.tokens = facts_.at("after").get<std::vector<int32_t>>()}};
  }

  // The logits of the last part's tokens.
  std::vector<float> LogitsOf(std::vector<PromptPart> parts) const {
    EngineOptions options;
    options.n_threads = 1;
    options.memory_bytes = int64_t{16} << 20;
    options.kv_type = KvType::kF32;
    auto engine = Engine::Start(model_, options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    std::vector<float> logits;
    const size_t n_after = parts.back().tokens.size();
    TurnOptions turn = Greedy({}, 0);
    turn.parts = std::make_shared<const std::vector<PromptPart>>(std::move(parts));
    size_t n_vocab = 0;
    turn.on_prompt_logits = [&](int64_t, std::span<const float> row) {
      n_vocab = row.size();
      logits.insert(logits.end(), row.begin(), row.end());
    };
    const auto session = (*engine)->CreateSession({});
    EXPECT_TRUE(session.ok()) << session.status();
    const Status status = RunTurn(engine->get(), *session, turn).done().status;
    EXPECT_TRUE(status.ok()) << status;
    return {logits.end() - static_cast<ptrdiff_t>(n_after * n_vocab), logits.end()};
  }

  const std::string folder_ =
      ::testing::TempDir() + "weft_picture_logits_" + std::to_string(getpid());
  nlohmann::json facts_;
  const Backend* backend_ = nullptr;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const vision::PictureEncoder> encoder_;
};

TEST_P(PictureLogitsTest, AreThoseOfAnotherImplementation) {
  const auto bytes = ReadFile(FileOf(".f32"), size_t{1} << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  std::vector<float> expected(bytes->size() / sizeof(float));
  std::memcpy(expected.data(), bytes->data(), expected.size() * sizeof(float));
  std::vector<PromptPart> prompt = Prompt();
  const double difference = MaxDifference(LogitsOf(prompt), expected);
  EXPECT_LE(difference, kTolerance);
  RecordProperty("difference", std::to_string(difference));
  // The figures tell whether rows are placed as the model says.
  prompt[0].form = {};
  EXPECT_GT(MaxDifference(LogitsOf(std::move(prompt)), expected), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, PictureLogitsTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.backend + "_" + info.param.name;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft::testing
