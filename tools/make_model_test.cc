#include "tools/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/files/mapped_file.h"
#include "compute/kernels/quants/quants.h"
#include "model/formats/model_file.h"
#include "tools/synthetic_vocabulary.h"

namespace weft::tools {
namespace {

using ::testing::HasSubstr;

class MakeModelTest : public ::testing::Test {
 protected:
  MakeModelTest() : dir_(StrCat(::testing::TempDir(), "weft_make_model_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~MakeModelTest() override { std::filesystem::remove_all(dir_); }

  Status Make(std::string_view shape_name, std::string type, uint64_t seed = 1,
              std::string_view file = "m.gguf") {
    WEFT_ASSIGN_OR_RETURN(const ModelShape shape, FindShape(shape_name));
    MakeModelOptions options;
    options.type = std::move(type);
    options.seed = seed;
    return MakeModel(shape, options, StrCat(dir_, "/", file)).status();
  }
  std::shared_ptr<const ModelFile> Open(std::string_view file = "m.gguf") {
    auto opened = ModelFile::Open(StrCat(dir_, "/", file));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }

  const std::string dir_;
};

const TensorInfo& Tensor(const ModelFile& file, std::string_view name) {
  const int index = file.FindTensor(name);
  EXPECT_GE(index, 0) << name;
  return file.tensors()[static_cast<size_t>(std::max(0, index))];
}

TEST_F(MakeModelTest, TinyShapesHaveTheirTensors) {
  for (const ModelShape& shape : KnownShapes()) {
    if (!shape.name.starts_with("tiny-")) continue;
    const Status status = Make(shape.name, "F16");
    ASSERT_TRUE(status.ok()) << status;
    const auto file = Open();
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(*file->GetString("general.architecture"), shape.architecture);
    EXPECT_EQ(*file->GetInt(StrCat(shape.architecture, ".block_count")),
              shape.layers + shape.predictors);
    for (int64_t i = 0; i < shape.predictors; ++i) {
      const std::string head = StrCat("blk.", shape.layers + i, ".nextn.eh_proj.weight");
      EXPECT_EQ(Tensor(*file, head).dims[0], 2 * shape.embd);
    }
    const TensorInfo& embd = Tensor(*file, "token_embd.weight");
    EXPECT_EQ(embd.dims[0], shape.embd);
    EXPECT_EQ(embd.dims[1], shape.vocab);
    EXPECT_EQ(embd.type, DType::kF16);
    EXPECT_EQ(file->FindTensor("output.weight") < 0, shape.tied);
    EXPECT_EQ(Tensor(*file, "blk.0.attn_norm.weight").type, DType::kF32);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      if (shape.MixerOf(layer) != 'a') continue;
      EXPECT_EQ(Tensor(*file, StrCat("blk.", layer, ".attn_k.weight")).dims[1],
                shape.kv_heads * shape.head_dim);
    }
    if (shape.architecture == "deepseek4") {
      EXPECT_EQ(Tensor(*file, "blk.0.ffn_gate_tid2eid.weight").type, DType::kI32);
      EXPECT_EQ(Tensor(*file, "blk.2.attn_compressor_ape.weight").dims[1], 128);
    }
    if (shape.ffn == 0) {
      EXPECT_EQ(Tensor(*file, "blk.2.ssm_out.weight").dims[0],
                shape.state_heads * shape.state_head_dim);
    } else if (shape.experts > 0) {
      EXPECT_EQ(Tensor(*file, "blk.2.ffn_down_exps.weight").dims[2], shape.experts);
      EXPECT_EQ(Tensor(*file, "blk.2.ffn_gate_inp.weight").type, DType::kF32);
    } else {
      EXPECT_EQ(Tensor(*file, "blk.3.ffn_down.weight").dims[0], shape.ffn);
    }
  }
}

// The variance of a matrix is one over its inputs, whatever type stores it.
TEST_F(MakeModelTest, WeightsHaveTheSizeTheyShould) {
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "NVFP4"}) {
    const Status status = Make("tiny-llama", type);
    ASSERT_TRUE(status.ok()) << status;
    const auto file = Open();
    ASSERT_NE(file, nullptr);
    const TensorInfo& tensor = Tensor(*file, "blk.1.ffn_down.weight");
    ASSERT_EQ(NameOf(tensor.type), type);
    float scale = 1;
    if (tensor.type == DType::kNVFP4) {
      std::memcpy(&scale, Tensor(*file, "blk.1.ffn_down.scale").data.data(), sizeof(scale));
    }
    std::vector<float> row(static_cast<size_t>(tensor.dims[0]));
    double sum = 0, squares = 0;
    std::set<std::string_view> rows;
    for (int64_t r = 0; r < tensor.rows(); ++r) {
      const std::byte* bytes = tensor.data.data() + r * tensor.row_bytes();
      rows.insert({reinterpret_cast<const char*>(bytes), static_cast<size_t>(tensor.row_bytes())});
      Dequantize(tensor.type, bytes, tensor.dims[0], row.data());
      for (const float value : row) {
        ASSERT_TRUE(std::isfinite(value));
        sum += scale * value;
        squares += scale * value * scale * value;
      }
    }
    const double n = static_cast<double>(tensor.values());
    EXPECT_NEAR(sum / n * std::sqrt(512.0), 0, 0.02) << type;
    EXPECT_NEAR(squares / n * 512, 1, 0.03) << type;
    EXPECT_EQ(static_cast<int64_t>(rows.size()), tensor.rows()) << "no two rows are equal";
  }
}

TEST_F(MakeModelTest, MixesUseTheBetterTypeInPlaces) {
  ASSERT_TRUE(Make("tiny-llama", "Q4_K_M").ok());
  const auto file = Open();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(Tensor(*file, "output.weight").type, DType::kQ6_K);
  EXPECT_EQ(Tensor(*file, "token_embd.weight").type, DType::kQ4_K);
  EXPECT_EQ(Tensor(*file, "blk.0.attn_q.weight").type, DType::kQ4_K);
  EXPECT_EQ(Tensor(*file, "blk.0.attn_v.weight").type, DType::kQ4_K);
  EXPECT_EQ(Tensor(*file, "blk.2.attn_v.weight").type, DType::kQ6_K);
  EXPECT_EQ(Tensor(*file, "blk.2.ffn_down.weight").type, DType::kQ6_K);
}

TEST_F(MakeModelTest, TheSameArgumentsGiveTheSameBytes) {
  ASSERT_TRUE(Make("tiny-moe", "Q8_0", 5, "a").ok());
  ASSERT_TRUE(Make("tiny-moe", "Q8_0", 5, "b").ok());
  ASSERT_TRUE(Make("tiny-moe", "Q8_0", 6, "c").ok());
  const std::string a = *ReadFile(dir_ + "/a", 1 << 30);
  EXPECT_EQ(a, *ReadFile(dir_ + "/b", 1 << 30));
  EXPECT_NE(a, *ReadFile(dir_ + "/c", 1 << 30));
}

TEST_F(MakeModelTest, ImpossibleModelsAreRefused) {
  const ModelShape good = *FindShape("tiny-llama");
  const auto error = [&](auto change, std::string type = "F16") {
    ModelShape shape = good;
    change(&shape);
    MakeModelOptions options;
    options.type = std::move(type);
    const auto made = MakeModel(shape, options, dir_ + "/m.gguf");
    return made.ok() ? std::string() : std::string(Message(made.status()));
  };
  EXPECT_THAT(error([](ModelShape* s) { s->layers = 0; }), HasSubstr("--layers"));
  EXPECT_THAT(error([](ModelShape* s) { s->embd = int64_t{1} << 40; }), HasSubstr("--embd"));
  EXPECT_THAT(error([](ModelShape* s) { s->kv_heads = 3; }), HasSubstr("--kv-heads"));
  EXPECT_THAT(error([](ModelShape* s) { s->head_dim = 63; }), HasSubstr("--head-dim"));
  EXPECT_THAT(error([](ModelShape* s) { s->experts = 4; }), HasSubstr("no experts"));
  EXPECT_THAT(error([](ModelShape* s) { s->predictors = 1; }), HasSubstr("--predictors"));
  EXPECT_THAT(error([](ModelShape* s) { s->vocab = 100; }), HasSubstr("--vocab"));
  EXPECT_THAT(error([](ModelShape* s) { s->vocab = 900'000; }), HasSubstr("--vocab"));
  EXPECT_THAT(error([](ModelShape* s) { s->embd = 100; }, "Q8_0"), HasSubstr("rows of 100"));
  EXPECT_THAT(error([](ModelShape* s) {}, "Q99"), HasSubstr("Q99"));
  EXPECT_THAT(error([](ModelShape* s) {}, "I32"), HasSubstr("I32"));
  EXPECT_THAT(Message(FindShape("none").status()), HasSubstr("tiny-llama"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST(SyntheticVocabulary, EndsWithTheTokensThatFillInTheMiddle) {
  for (const VocabularyKind kind : {VocabularyKind::kPieces, VocabularyKind::kBytePairs}) {
    ModelShape shape = *FindShape("tiny-llama");
    shape.vocabulary = kind;
    shape.fill_in = true;
    GgufWriter writer;
    ASSERT_TRUE(AddVocabulary(shape, &writer).ok());
    const std::string bytes = writer.ToBytes();
    auto file = *ModelFile::FromBytes("m.gguf", std::as_bytes(std::span(bytes)));
    const auto tokens = *file->GetStringArray("tokenizer.ggml.tokens");
    EXPECT_EQ(static_cast<int64_t>(tokens.size()), shape.vocab);
    EXPECT_EQ(tokens.back(), "<|file_sep|>");
    EXPECT_EQ(tokens[tokens.size() - 5], "<|fim_prefix|>");
  }
}

// Sizes of real models, without their weights.
TEST(SyntheticVocabulary, IsUniqueAndConsistent) {
  for (const ModelShape& shape : KnownShapes()) {
    GgufWriter writer;
    const Status status = AddVocabulary(shape, &writer);
    ASSERT_TRUE(status.ok()) << status;
    const std::string bytes = writer.ToBytes();
    auto file = *ModelFile::FromBytes("m.gguf", std::as_bytes(std::span(bytes)));
    const auto tokens = *file->GetStringArray("tokenizer.ggml.tokens");
    ASSERT_EQ(static_cast<int64_t>(tokens.size()), shape.vocab);
    const std::set<std::string_view> known(tokens.begin(), tokens.end());
    EXPECT_EQ(known.size(), tokens.size()) << shape.name << " has a token twice";
    EXPECT_EQ(file->GetIntArray("tokenizer.ggml.token_type")->size(), tokens.size());
    EXPECT_TRUE(known.contains("<|im_start|>") && known.contains("<|im_end|>"));
    if (shape.vocabulary == VocabularyKind::kPieces) {
      EXPECT_EQ(file->GetFloatArray("tokenizer.ggml.scores")->size(), tokens.size());
      continue;
    }
    const auto merges = *file->GetStringArray("tokenizer.ggml.merges");
    EXPECT_EQ(merges.size(), tokens.size() - 256 - 3);
    std::set<std::string> merged;
    for (const std::string_view merge : merges) {
      const auto sides = StrSplit(merge, ' ');
      ASSERT_EQ(sides.size(), 2u) << merge;
      ASSERT_TRUE(known.contains(sides[0]) && known.contains(sides[1])) << merge;
      ASSERT_TRUE(known.contains(StrCat(sides[0], sides[1]))) << merge;
      ASSERT_TRUE(merged.insert(StrCat(sides[0], sides[1])).second) << merge;
    }
  }
}

}  // namespace
}  // namespace weft::tools
