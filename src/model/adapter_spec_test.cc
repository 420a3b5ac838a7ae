#include "model/adapter_spec.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TinyExperts;
using testing::TinyLlama;
using testing::TinyModel;

// An adapter file that a test changes before it is read.
struct TinyAdapter {
  std::map<std::string, std::string> texts = {
      {"general.type", "adapter"}, {"general.architecture", "llama"}, {"adapter.type", "lora"}};
  float alpha = 8;
  std::optional<std::vector<uint32_t>> invocation = std::nullopt;
  std::map<std::string, std::vector<int64_t>> tensors = {{"blk.1.attn_q.weight.lora_a", {16, 4}},
                                                         {"blk.1.attn_q.weight.lora_b", {4, 16}}};

  std::string Bytes() const {
    GgufWriter writer;
    for (const auto& [key, value] : texts) writer.AddString(key, value);
    if (alpha != 0) writer.AddFloat32("adapter.lora.alpha", alpha);
    if (invocation) writer.AddUint32Array("adapter.alora.invocation_tokens", *invocation);
    for (const auto& [name, dims] : tensors) {
      writer.AddTensor(name, DType::kF32, dims, [](int64_t, std::span<std::byte> row) {
        std::ranges::fill(row, std::byte{0});
      });
    }
    return writer.ToBytes();
  }

  StatusOr<AdapterSpec> Read(const TinyModel& model = TinyLlama()) const {
    const std::string bytes = Bytes(), base_bytes = model.Bytes();
    const auto file = ModelFile::FromBytes("adapter.gguf", std::as_bytes(std::span(bytes)));
    const auto base = ModelFile::FromBytes("base.gguf", std::as_bytes(std::span(base_bytes)));
    if (!file.ok()) return file.status();
    if (!base.ok()) return base.status();
    WEFT_ASSIGN_OR_RETURN(const ModelSpec spec, BuildModelSpec(**base, {}));
    return BuildAdapterSpec(**file, **base, spec);
  }

  std::string Refusal(const TinyModel& model = TinyLlama()) const {
    return std::string(Message(Read(model).status()));
  }
};

TEST(AdapterSpecTest, PairsWithTheirTargets) {
  const TinyModel model = TinyLlama();
  TinyAdapter adapter;
  adapter.tensors["output.weight.lora_a"] = {16, 2};
  adapter.tensors["output.weight.lora_b"] = {2, 10};
  adapter.tensors["token_embd.weight.lora_a"] = {4, 10};
  adapter.tensors["token_embd.weight.lora_b"] = {4, 16};
  const auto spec = adapter.Read(model);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->matrices.size(), 2);
  for (const LowRankPair& pair : spec->matrices) {
    EXPECT_EQ(spec->Find(pair.target), &pair);
    EXPECT_EQ(pair.factor, 8.0f / static_cast<float>(pair.rank));
  }
  EXPECT_EQ(spec->Find({spec->embedding->target}), nullptr);
  ASSERT_TRUE(spec->embedding.has_value());
  EXPECT_EQ(spec->embedding->rank, 4);
}

TEST(AdapterSpecTest, WithoutAlphaProductsAreTakenAsTheyAre) {
  TinyAdapter adapter;
  adapter.alpha = 0;
  const auto spec = adapter.Read();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->matrices[0].factor, 1);
}

TEST(AdapterSpecTest, AnInvocationIsTokensOfTheModel) {
  TinyAdapter adapter;
  EXPECT_TRUE(adapter.Read()->invocation.empty());
  adapter.invocation = {1, 9, 1};
  const auto spec = adapter.Read();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->invocation, ::testing::ElementsAre(1, 9, 1));
  adapter.invocation = {1, 10};
  EXPECT_THAT(adapter.Refusal(), AllOf(HasSubstr("invocation_tokens"), HasSubstr("token 10")));
  for (const size_t n : {0, 1025}) {
    adapter.invocation = std::vector<uint32_t>(n, 1);
    EXPECT_THAT(adapter.Refusal(), AllOf(HasSubstr("invocation_tokens"), HasSubstr("1 to 1024")));
  }
}

TEST(AdapterSpecTest, OtherFilesAreRefusedWithWhatToDo) {
  TinyAdapter adapter;
  adapter.texts["general.type"] = "model";
  EXPECT_THAT(adapter.Refusal(), AllOf(HasSubstr("general.type"), HasSubstr("convert_lora")));
  adapter = {};
  adapter.texts["adapter.type"] = "dora";
  EXPECT_THAT(adapter.Refusal(), AllOf(HasSubstr("adapter.type"), HasSubstr("dora")));
  adapter = {};
  adapter.texts["general.architecture"] = "qwen3";
  EXPECT_THAT(adapter.Refusal(), AllOf(HasSubstr("qwen3"), HasSubstr("base.gguf is llama")));
  adapter = {};
  adapter.alpha = std::numeric_limits<float>::infinity();
  EXPECT_THAT(adapter.Refusal(), HasSubstr("adapter.lora.alpha"));
  adapter = {};
  adapter.tensors.clear();
  EXPECT_THAT(adapter.Refusal(), HasSubstr("no tensors"));
}

TEST(AdapterSpecTest, TensorsThatFitNothingAreRefusedByName) {
  const auto refusal = [](const std::string& name, const std::vector<int64_t>& a,
                          const std::vector<int64_t>& b, const TinyModel& model = TinyLlama()) {
    TinyAdapter adapter;
    adapter.texts["general.architecture"] = model.architecture;
    if (!a.empty()) adapter.tensors[name + ".lora_a"] = a;
    if (!b.empty()) adapter.tensors[name + ".lora_b"] = b;
    return adapter.Refusal(model);
  };
  EXPECT_THAT(refusal("blk.7.attn_q.weight", {16, 4}, {4, 16}), HasSubstr("blk.7.attn_q.weight"));
  EXPECT_THAT(refusal("blk.0.attn_k.weight", {16, 4}, {}), HasSubstr("lacks its .lora_b"));
  EXPECT_THAT(refusal("blk.0.attn_k.weight", {}, {4, 8}), HasSubstr("lacks its .lora_a"));
  for (const auto& [a, b] : {std::pair<std::vector<int64_t>, std::vector<int64_t>>{{8, 4}, {4, 8}},
                             {{16, 4}, {4, 16}},
                             {{16, 4}, {5, 8}},
                             {{16, 4, 2}, {4, 8, 2}}}) {
    EXPECT_THAT(refusal("blk.0.attn_k.weight", a, b),
                AllOf(HasSubstr("blk.0.attn_k.weight"), HasSubstr("does not fit")));
  }
  EXPECT_THAT(refusal("token_embd.weight", {16, 4}, {4, 10}), HasSubstr("does not fit"));
  EXPECT_THAT(refusal("output_norm.weight", {16, 4}, {4, 1}), HasSubstr("multiplies no rows"));
  EXPECT_THAT(refusal("blk.0.ffn_up_exps.weight", {16, 4, 4}, {4, 12, 4}, TinyExperts("qwen3moe")),
              HasSubstr("blk.0"));
  TinyAdapter replacing;
  replacing.tensors["blk.0.attn_norm.weight"] = {16};
  EXPECT_THAT(replacing.Refusal(), AllOf(HasSubstr("attn_norm"), HasSubstr("modules_to_save")));
}

}  // namespace
}  // namespace weft
