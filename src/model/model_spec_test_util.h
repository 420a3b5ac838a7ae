// Model files of a few values, made in memory, a judge of finished specs, and what
// tests of specs expect.
#ifndef WEFT_MODEL_MODEL_SPEC_TEST_UTIL_H_
#define WEFT_MODEL_MODEL_SPEC_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "formats/gguf_writer.h"
#include "model/model_spec.h"

namespace weft::testing {

// Keys and tensors that a test adds to, takes from and bends before it builds.
struct TinyModel {
  using Value = std::variant<int64_t, double, bool, std::string, std::vector<int32_t>>;
  std::string architecture;
  std::map<std::string, Value> keys;  // without "<architecture>."
  std::map<std::string, std::vector<int64_t>> tensors;
  std::map<std::string, DType> types;  // F32 where absent
  float fill = 1;

  std::string Bytes() const {
    GgufWriter writer;
    writer.AddString("general.architecture", architecture);
    for (const auto& [key, value] : keys) {
      const std::string full = architecture + "." + key;
      if (const auto* i = std::get_if<int64_t>(&value)) writer.AddUint64(full, *i);
      if (const auto* d = std::get_if<double>(&value)) {
        writer.AddFloat32(full, static_cast<float>(*d));
      }
      if (const auto* b = std::get_if<bool>(&value)) writer.AddBool(full, *b);
      if (const auto* s = std::get_if<std::string>(&value)) writer.AddString(full, *s);
      if (const auto* a = std::get_if<std::vector<int32_t>>(&value)) writer.AddInt32Array(full, *a);
    }
    for (const auto& [name, dims] : tensors) {
      const auto type = types.find(name);
      const DType dtype = type == types.end() ? DType::kF32 : type->second;
      writer.AddTensor(name, dtype, dims, [this](int64_t, std::span<std::byte> row) {
        for (size_t i = 0; i + sizeof(fill) <= row.size(); i += sizeof(fill)) {
          std::memcpy(row.data() + i, &fill, sizeof(fill));
        }
      });
    }
    return writer.ToBytes();
  }

  StatusOr<ModelSpec> Build(SpecOptions options = {}) const {
    const std::string bytes = Bytes();
    const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
    if (!file.ok()) return file.status();
    return BuildModelSpec(**file, options);
  }

  void AddLayerTensors(int64_t layer, const std::map<std::string, std::vector<int64_t>>& added) {
    for (const auto& [name, dims] : added)
      tensors["blk." + std::to_string(layer) + "." + name] = dims;
  }
};

// Two layers of two heads of 8 values, one key head, a feed-forward of 24.
inline TinyModel TinyLlama() {
  TinyModel model;
  model.architecture = "llama";
  model.keys = {{"block_count", int64_t{2}},
                {"context_length", int64_t{64}},
                {"embedding_length", int64_t{16}},
                {"feed_forward_length", int64_t{24}},
                {"attention.head_count", int64_t{2}},
                {"attention.head_count_kv", int64_t{1}},
                {"attention.layer_norm_rms_epsilon", 1e-5}};
  model.tensors = {
      {"token_embd.weight", {16, 10}}, {"output_norm.weight", {16}}, {"output.weight", {16, 10}}};
  for (int64_t layer = 0; layer < 2; ++layer) {
    model.AddLayerTensors(layer, {{"attn_norm.weight", {16}},
                                  {"attn_q.weight", {16, 16}},
                                  {"attn_k.weight", {16, 8}},
                                  {"attn_v.weight", {16, 8}},
                                  {"attn_output.weight", {16, 16}},
                                  {"ffn_norm.weight", {16}},
                                  {"ffn_gate.weight", {16, 24}},
                                  {"ffn_up.weight", {16, 24}},
                                  {"ffn_down.weight", {24, 16}}});
  }
  return model;
}

// Checks everything that a backend relies on without looking: that each reference
// names a tensor of the shape it is used with, that indices are in range, that sizes
// fit each other and numbers are finite.
class SpecJudge {
 public:
  SpecJudge(const ModelFile& file, const ModelSpec& spec) : file_(file), spec_(spec) {}

  void Judge() {
    EXPECT_GT(spec_.n_vocab, 0);
    EXPECT_GT(spec_.d_model, 0);
    EXPECT_GT(spec_.context_tokens, 0);
    ExpectShape(spec_.embedding, {spec_.d_model, spec_.n_vocab});
    Check(spec_.output, spec_.d_model, spec_.n_vocab);
    Check(spec_.output_norm, spec_.d_model);
    EXPECT_TRUE(std::isfinite(spec_.embedding_scale) && std::isfinite(spec_.logit_scale));
    EXPECT_GE(spec_.logit_softcap, 0);
    for (const Rope& rope : spec_.ropes) {
      EXPECT_FALSE(rope.frequencies.empty());
      EXPECT_TRUE(std::isfinite(rope.magnitude));
      for (const double f : rope.frequencies) EXPECT_TRUE(std::isfinite(f));
    }
    JudgeState();
    if (spec_.per_layer_input) {
      const PerLayerInput& input = *spec_.per_layer_input;
      const int64_t n = static_cast<int64_t>(spec_.layers.size()) * input.width;
      ExpectShape(input.table, {n, spec_.n_vocab});
      Check(input.proj, spec_.d_model, n);
      Check(input.norm, input.width);
    }
    ASSERT_FALSE(spec_.layers.empty());
    for (const Layer& layer : spec_.layers) {
      EXPECT_FALSE(layer.blocks.empty());
      for (const Block& block : layer.blocks) JudgeBlock(block);
    }
  }

 private:
  void ExpectShape(TensorRef tensor, std::vector<int64_t> dims) {
    ASSERT_GE(tensor.index, 0);
    ASSERT_LT(tensor.index, static_cast<int>(file_.tensors().size()));
    dims.resize(4, 1);
    const TensorInfo& info = file_.tensors()[tensor.index];
    EXPECT_EQ(std::vector<int64_t>(info.dims, info.dims + 4), dims) << info.name;
  }
  void ExpectVector(TensorRef tensor, int64_t n) {
    if (!tensor) return;
    ExpectShape(tensor, {n});
    EXPECT_EQ(file_.tensors()[tensor.index].type, DType::kF32);
  }
  void Check(const Linear& linear, int64_t n_in, int64_t n_out) {
    EXPECT_EQ(linear.n_in, n_in);
    EXPECT_EQ(linear.n_out, n_out);
    ASSERT_TRUE(linear);
    const TensorInfo& info = file_.tensors()[linear.weight.index];
    EXPECT_EQ(info.dims[0], n_in) << info.name;
    EXPECT_GE(linear.first_row, 0);
    EXPECT_LE(linear.first_row + n_out, info.dims[1]) << info.name;
    EXPECT_EQ(info.dims[2] * info.dims[3], 1) << info.name;
    ExpectVector(linear.bias, n_out);
  }
  void Check(const StackedLinear& stack, int64_t n_in, int64_t n_out, int64_t count) {
    EXPECT_EQ(stack.n_in, n_in);
    EXPECT_EQ(stack.n_out, n_out);
    EXPECT_EQ(stack.count, count);
    ASSERT_TRUE(stack);
    const TensorInfo& info = file_.tensors()[stack.weight.index];
    EXPECT_EQ(info.dims[0], n_in) << info.name;
    EXPECT_LE(stack.first_row + n_out, info.dims[1]) << info.name;
    EXPECT_EQ(info.dims[2], count) << info.name;
    if (stack.bias) ExpectShape(stack.bias, {n_out, count});
    ExpectVector(stack.scale, count);
  }
  void Check(const Norm& norm, int64_t width) {
    if (!norm) return;
    EXPECT_EQ(norm.width, width);
    EXPECT_TRUE(norm.epsilon >= 0 && norm.epsilon <= 1);
    ExpectVector(norm.weight, width);
    ExpectVector(norm.bias, width);
  }
  void CheckHeads(const Norm& norm, int64_t n_heads, int64_t dim) {
    if (norm) Check(norm, norm.width == dim ? dim : n_heads * dim);
  }
  void CheckRope(int rope, int64_t dim) {
    if (rope == -1) return;
    ASSERT_GE(rope, 0);
    ASSERT_LT(rope, static_cast<int>(spec_.ropes.size()));
    EXPECT_LE(2 * static_cast<int64_t>(spec_.ropes[rope].frequencies.size()), dim);
  }
  const KvLayer& KvOf(int index) {
    static const KvLayer kNone;
    const bool in_range = index >= 0 && index < static_cast<int>(spec_.kv_layers.size());
    EXPECT_TRUE(in_range);
    return in_range ? spec_.kv_layers[index] : kNone;
  }

  void JudgeState() {
    std::vector<int> seen(spec_.kv_layers.size(), 0);
    for (size_t g = 0; g < spec_.kv_groups.size(); ++g) {
      EXPECT_GE(spec_.kv_groups[g].window, 0);
      EXPECT_FALSE(spec_.kv_groups[g].kv_layers.empty());
      for (const int layer : spec_.kv_groups[g].kv_layers) {
        EXPECT_EQ(KvOf(layer).group, static_cast<int>(g));
        ++seen[layer];
      }
      for (size_t other = 0; other < g; ++other) {
        EXPECT_NE(spec_.kv_groups[g].window, spec_.kv_groups[other].window);
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
    for (const SlotState& slot : spec_.slots) EXPECT_GT(slot.n_floats, 0);
  }
  void CheckSlot(int index, SlotKind kind, int64_t n_floats) {
    ASSERT_GE(index, 0);
    ASSERT_LT(index, static_cast<int>(spec_.slots.size()));
    EXPECT_EQ(spec_.slots[index].kind, kind);
    EXPECT_EQ(spec_.slots[index].n_floats, n_floats);
  }
  void CheckConvolution(const Convolution& convolution, int64_t n_channels) {
    EXPECT_EQ(convolution.n_channels, n_channels);
    EXPECT_GE(convolution.n_taps, 2);
    ExpectShape(convolution.kernel, {convolution.n_taps, n_channels});
    EXPECT_EQ(file_.tensors()[convolution.kernel.index].type, DType::kF32);
    ExpectVector(convolution.bias, n_channels);
    CheckSlot(convolution.slot, SlotKind::kConvolution, (convolution.n_taps - 1) * n_channels);
  }
  // F32, of any shape.
  void ExpectValues(TensorRef tensor, int64_t n) {
    ASSERT_TRUE(tensor);
    EXPECT_EQ(file_.tensors()[tensor.index].values(), n);
    EXPECT_EQ(file_.tensors()[tensor.index].type, DType::kF32);
  }

  void JudgeBlock(const Block& block) {
    Check(block.pre, spec_.d_model);
    Check(block.post, spec_.d_model);
    ExpectVector(block.stream_scale, 1);
    EXPECT_TRUE(std::isfinite(block.residual_scale));
    EXPECT_FALSE(block.paths.empty());
    for (const Path& path : block.paths) {
      Check(path.pre, spec_.d_model);
      Check(path.post, spec_.d_model);
      std::visit([&](const auto& op) { JudgeOp(op); }, path.op);
    }
  }

  void JudgeOp(const Attention& op) {
    ASSERT_GT(op.n_kv_heads, 0);
    EXPECT_EQ(op.n_heads % op.n_kv_heads, 0);
    EXPECT_GT(op.n_heads, 0);
    EXPECT_GT(op.k_dim, 0);
    EXPECT_GT(op.v_dim, 0);
    const KvLayer& kv = KvOf(op.kv_layer);
    EXPECT_EQ(kv.n_heads, op.n_kv_heads);
    EXPECT_EQ(kv.k_dim, op.k_dim);
    EXPECT_EQ(kv.v_dim, op.v_dim);
    Check(op.q, spec_.d_model, op.n_heads * op.k_dim * (op.gated_query ? 2 : 1));
    Check(op.out, op.n_heads * op.v_dim, spec_.d_model);
    if (op.writes_kv) {
      Check(op.k, spec_.d_model, op.n_kv_heads * op.k_dim);
      if (op.v_from_k) {
        EXPECT_FALSE(op.v);
        EXPECT_EQ(op.k_dim, op.v_dim);
      } else {
        Check(op.v, spec_.d_model, op.n_kv_heads * op.v_dim);
      }
    }
    CheckHeads(op.q_norm, op.n_heads, op.k_dim);
    CheckHeads(op.k_norm, op.n_kv_heads, op.k_dim);
    CheckHeads(op.v_norm, op.n_kv_heads, op.v_dim);
    CheckRope(op.rope, op.k_dim);
    EXPECT_TRUE(std::isfinite(op.scale));
    EXPECT_GE(op.softcap, 0);
    ExpectVector(op.sinks, op.n_heads);
  }

  void JudgeOp(const LatentAttention& op) {
    const KvLayer& kv = KvOf(op.kv_layer);
    EXPECT_EQ(kv.n_heads, 1);
    EXPECT_EQ(kv.k_dim, op.latent_dim + op.rope_dim);
    EXPECT_EQ(kv.v_dim, 0);
    const int64_t n_q = op.n_heads * (op.nope_dim + op.rope_dim);
    if (op.q) {
      Check(op.q, spec_.d_model, n_q);
    } else {
      Check(op.q_a, spec_.d_model, op.q_b.n_in);
      Check(op.q_a_norm, op.q_b.n_in);
      Check(op.q_b, op.q_a.n_out, n_q);
    }
    Check(op.kv_a, spec_.d_model, op.latent_dim + op.rope_dim);
    Check(op.kv_norm, op.latent_dim);
    Check(op.k_b, op.nope_dim, op.latent_dim, op.n_heads);
    Check(op.v_b, op.latent_dim, op.v_dim, op.n_heads);
    Check(op.out, op.n_heads * op.v_dim, spec_.d_model);
    CheckRope(op.rope, op.rope_dim);
    EXPECT_TRUE(std::isfinite(op.scale));
  }

  void JudgeOp(const ShortConvolution& op) {
    const int64_t n = op.convolution.n_channels;
    Check(op.in, spec_.d_model, 3 * n);
    CheckConvolution(op.convolution, n);
    Check(op.out, n, spec_.d_model);
  }

  void JudgeOp(const GatedDeltaNet& op) {
    ASSERT_GT(op.n_k_heads, 0);
    EXPECT_GT(op.n_v_heads, 0);
    EXPECT_EQ(op.n_v_heads % op.n_k_heads, 0);
    EXPECT_GT(op.k_dim, 0);
    EXPECT_GT(op.v_dim, 0);
    const int64_t n_values = op.n_v_heads * op.v_dim;
    Check(op.qkv, spec_.d_model, 2 * op.n_k_heads * op.k_dim + n_values);
    Check(op.gate, spec_.d_model, n_values);
    if (op.beta_decay) {
      EXPECT_EQ(op.key_heads, KeyHeads::kInterleaved);
      Check(op.beta_decay, spec_.d_model, int64_t{2} * op.n_v_heads);
    } else {
      Check(op.beta, spec_.d_model, op.n_v_heads);
      Check(op.decay, spec_.d_model, op.n_v_heads);
    }
    CheckConvolution(op.convolution, op.qkv.n_out);
    ExpectValues(op.decay_bias, op.n_v_heads);
    ExpectValues(op.decay_rate, op.n_v_heads);
    EXPECT_TRUE(op.epsilon >= 0 && op.epsilon <= 1);
    Check(op.norm, op.v_dim);
    Check(op.out, n_values, spec_.d_model);
    CheckSlot(op.slot, SlotKind::kDeltaNet, n_values * op.k_dim);
  }

  void JudgeOp(const StateSpace& op) {
    ASSERT_GT(op.n_groups, 0);
    EXPECT_GT(op.n_heads, 0);
    EXPECT_EQ(op.n_heads % op.n_groups, 0);
    EXPECT_GT(op.head_dim, 0);
    EXPECT_GT(op.state_dim, 0);
    const int64_t inner = op.n_heads * op.head_dim;
    const int64_t n_channels = inner + 2 * op.n_groups * op.state_dim;
    Check(op.in, spec_.d_model, inner + n_channels + op.n_heads);
    CheckConvolution(op.convolution, n_channels);
    for (const TensorRef values : {op.step_bias, op.rate, op.skip}) {
      ExpectValues(values, op.n_heads);
    }
    if (op.norm) {
      EXPECT_EQ(op.norm.width, inner / op.n_groups);
      ExpectValues(op.norm.weight, inner);
    }
    Check(op.out, inner, spec_.d_model);
    CheckSlot(op.slot, SlotKind::kStateSpace, inner * op.state_dim);
  }

  void JudgeOp(const DenseFfn& op) {
    EXPECT_GT(op.up.n_out, 0);
    if (op.gate) Check(op.gate, spec_.d_model, op.up.n_out);
    Check(op.up, spec_.d_model, op.up.n_out);
    Check(op.down, op.up.n_out, spec_.d_model);
    if (op.output_gate) Check(op.output_gate, spec_.d_model, 1);
  }

  void JudgeOp(const MixtureOfExperts& op) {
    EXPECT_GE(op.n_used, 1);
    EXPECT_LE(op.n_used, op.n_experts);
    ASSERT_GE(op.n_groups, 1);
    EXPECT_LE(op.n_groups_used, op.n_groups);
    EXPECT_EQ(op.n_experts % op.n_groups, 0);
    EXPECT_LE(op.n_used, op.n_groups_used * (op.n_experts / op.n_groups));
    Check(op.router, spec_.d_model, op.n_experts);
    Check(op.router_norm, spec_.d_model);
    ExpectVector(op.selection_bias, op.n_experts);
    if (op.gate) Check(op.gate, spec_.d_model, op.up.n_out, op.n_experts);
    Check(op.up, spec_.d_model, op.up.n_out, op.n_experts);
    Check(op.down, op.up.n_out, spec_.d_model, op.n_experts);
    EXPECT_TRUE(std::isfinite(op.weight_scale));
  }

  void JudgeOp(const PerLayerGate& op) {
    ASSERT_TRUE(spec_.per_layer_input);
    EXPECT_LT(op.layer, static_cast<int>(spec_.layers.size()));
    Check(op.gate, spec_.d_model, spec_.per_layer_input->width);
    Check(op.proj, spec_.per_layer_input->width, spec_.d_model);
  }

  const ModelFile& file_;
  const ModelSpec& spec_;
};

// The operation of one path of a block.
template <typename T>
const T& OpOf(const ModelSpec& spec, int layer, int block, int path = 0) {
  return std::get<T>(spec.layers.at(layer).blocks.at(block).paths.at(path).op);
}

// The error of a model that must not build says both.
inline void ExpectError(const TinyModel& model, std::string_view name, std::string_view what) {
  SCOPED_TRACE(name);
  const auto spec = model.Build();
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(Message(spec.status()), ::testing::AllOf(::testing::HasSubstr("tiny.gguf"),
                                                       ::testing::HasSubstr(std::string(name)),
                                                       ::testing::HasSubstr(std::string(what))));
}

}  // namespace weft::testing

#endif  // WEFT_MODEL_MODEL_SPEC_TEST_UTIL_H_
