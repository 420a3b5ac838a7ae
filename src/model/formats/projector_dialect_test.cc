#include "model/formats/projector_dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "model/formats/gguf_writer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// A projector file whose tensors count up from 0, each value of `type`.
class ProjectorDialectTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ModelFile> Open(const std::string& projector,
                                        const std::map<std::string, std::vector<int64_t>>& tensors,
                                        DType type = DType::kF32) {
    GgufWriter writer;
    writer.AddString("general.architecture", "clip");
    writer.AddString("clip.projector_type", projector);
    for (const auto& [name, dims] : tensors) {
      writer.AddTensor(name, type, dims, [dims = dims](int64_t row, std::span<std::byte> bytes) {
        for (int64_t i = 0; i < dims[0]; ++i) {
          const auto value = static_cast<float>(row * dims[0] + i);
          // The first bits of a float are a bfloat16.
          const size_t n = bytes.size() / static_cast<size_t>(dims[0]);
          std::memcpy(bytes.data() + static_cast<size_t>(i) * n,
                      reinterpret_cast<const std::byte*>(&value) + sizeof(value) - n, n);
        }
      });
    }
    bytes_ = writer.ToBytes();
    auto file = ModelFile::FromBytes("tiny", std::as_bytes(std::span(bytes_)));
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  static std::vector<float> Floats(const TensorInfo& tensor) {
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
  }

  std::string bytes_;
};

TEST_F(ProjectorDialectTest, AKernelIsAMatrix) {
  const auto file = Open("idefics3", {{"v.patch_embd.weight", {2, 2, 3, 5}}}, DType::kBF16);
  ASSERT_NE(file, nullptr);
  const TensorInfo& kernel = file->tensors()[0];
  EXPECT_EQ(kernel.n_dims, 2);
  EXPECT_THAT(kernel.dims, ElementsAre(12, 5, 1, 1));
  EXPECT_EQ(kernel.row_bytes(), 24);
}

TEST_F(ProjectorDialectTest, KernelsOfTwoFramesAreAdded) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto file = Open(
        "qwen2vl_merger",
        {{"v.patch_embd.weight", {1, 1, 3, 2}}, {"v.patch_embd.weight.1", {1, 1, 3, 2}}}, type);
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(file->tensors().size(), 1U);
    EXPECT_THAT(Floats(file->tensors()[0]), ElementsAre(0, 2, 4, 6, 8, 10));
  }
}

TEST_F(ProjectorDialectTest, OnlyGemma3sProjectionIsTurned) {
  const auto turned = Open("gemma3", {{"mm.input_projection.weight", {2, 3}}});
  ASSERT_NE(turned, nullptr);
  EXPECT_THAT(turned->tensors()[0].dims, ElementsAre(3, 2, 1, 1));
  EXPECT_THAT(Floats(turned->tensors()[0]), ElementsAre(0, 2, 4, 1, 3, 5));
  const auto other = Open("gemma4v", {{"mm.input_projection.weight", {2, 3}}});
  ASSERT_NE(other, nullptr);
  EXPECT_THAT(other->tensors()[0].dims, ElementsAre(2, 3, 1, 1));
}

}  // namespace
}  // namespace weft
