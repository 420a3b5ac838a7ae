#include "cli/bench/machine_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "base/strings.h"
#include "tools/make_model.h"

namespace weft::cli {
namespace {

// Whether a step multiplies by it.
bool IsMatrix(const TensorInfo& tensor, bool tied) {
  if (tensor.name == "token_embd.weight") return tied;
  // Kernels of convolutions, vectors of values for every head, and tables that rows are taken from.
  for (const std::string_view other : {"conv.weight", "conv1d.weight", "ssm_a", "ssm_d",
                                       "norm.weight", "_ape.weight", "tid2eid.weight"}) {
    if (tensor.name.ends_with(other)) return false;
  }
  return tensor.n_dims > 1;
}

TEST(LimitOfStage, IsTheSlowerOfReadingAndMultiplying) {
  const MachineLimits limits = {
      .read_bytes_per_s = 100, .int8_macs_per_s = 1000, .float_macs_per_s = 50};
  const StageLimit reads = LimitOfStage(limits, 2, 100, 500, 0);
  EXPECT_EQ(reads.kind, LimitKind::kReading);
  EXPECT_EQ(reads.share, 0.5);
  const StageLimit multiplies = LimitOfStage(limits, 10, 100, 3000, 100);
  EXPECT_EQ(multiplies.kind, LimitKind::kMultiplying);
  EXPECT_EQ(multiplies.share, 0.5);
  // Without a measurement there is no limit.
  EXPECT_EQ(LimitOfStage(limits, 0, 100, 500, 0).kind, LimitKind::kUnknown);
  EXPECT_EQ(LimitOfStage(limits, 1, 100, 0, 0).kind, LimitKind::kUnknown);
  EXPECT_EQ(LimitOfStage({.read_bytes_per_s = 100, .int8_macs_per_s = 1}, 1, 1, 1, 1).kind,
            LimitKind::kUnknown);
}

TEST(DecodeLimit, ReadingBindsFewRowsAndMultiplyingMany) {
  const ModelCost cost = {.macs_per_row = 100, .output_macs = 100, .dense_bytes = 100};
  const MachineLimits limits = {.read_bytes_per_s = 100, .int8_macs_per_s = 400};
  const RateLimit one = DecodeLimit(cost, limits, 1, 0);
  EXPECT_EQ(one.kind, LimitKind::kReading);
  EXPECT_EQ(one.tokens_per_s, 1);
  const RateLimit eight = DecodeLimit(cost, limits, 8, 0);
  EXPECT_EQ(eight.kind, LimitKind::kMultiplying);
  EXPECT_EQ(eight.tokens_per_s, 2);
}

TEST(CostOf, CountsEveryMatrixOfTheFile) {
  const std::string path = StrCat(::testing::TempDir(), "weft_cost_", getpid(), ".gguf");
  int n_shapes = 0;
  for (const tools::ModelShape& shape : tools::KnownShapes()) {
    // An MTP head is no part of the model's own step.
    if (!shape.name.starts_with("tiny-") || shape.predictors > 0) continue;
    ++n_shapes;
    ASSERT_TRUE(tools::MakeModel(shape, {.type = "Q8_0"}, path).ok());
    const auto file = ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto spec = BuildModelSpec(**file, {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    double bytes = 0, macs = 0;
    for (const TensorInfo& tensor : (*file)->tensors()) {
      if (!IsMatrix(tensor, shape.tied)) continue;
      bytes += static_cast<double>(tensor.data.size());
      const int64_t n_used = tensor.n_dims == 3 ? shape.experts_used : 1;
      macs += static_cast<double>(tensor.dims[0] * tensor.dims[1] * n_used);
    }
    const ModelCost cost = CostOf(**file, *spec);
    EXPECT_NEAR(cost.StepBytes(1e6), bytes, 1) << shape.name << ": all experts are read";
    EXPECT_EQ(cost.macs_per_row + cost.output_macs, macs) << shape.name;
    EXPECT_EQ(cost.n_experts, shape.experts) << shape.name;
    EXPECT_LE(cost.macs_without_logits, cost.macs_per_row) << shape.name;
    EXPECT_EQ(cost.StepBytes(1) < bytes - 1, shape.experts > 0) << shape.name;
  }
  EXPECT_GT(n_shapes, 2);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weft::cli
