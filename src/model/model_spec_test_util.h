// Tiny model files in memory, a check of finished specs, and expectations for tests of specs.
#ifndef WEFT_MODEL_MODEL_SPEC_TEST_UTIL_H_
#define WEFT_MODEL_MODEL_SPEC_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/strings.h"
#include "model/formats/gguf_writer.h"
#include "model/model_spec.h"

namespace weft::testing {

// Keys and tensors that a test adds, removes or changes before it builds the model.
struct TinyModel {
  using Value = std::variant<int64_t, double, bool, std::string, std::vector<int32_t>>;
  std::string architecture;
  std::map<std::string, Value> keys;  // without "<architecture>."
  std::map<std::string, std::vector<int64_t>> tensors;
  std::map<std::string, DType> types;  // default: F32
  float fill = 1;
  std::string tokenizer;  // tokenizer.ggml.model; empty: not in the file

  std::string Bytes() const {
    GgufWriter writer;
    writer.AddString("general.architecture", architecture);
    if (!tokenizer.empty()) writer.AddString("tokenizer.ggml.model", tokenizer);
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

// A model of `architecture` with TinyLlama's attention and four experts of 12 values.
inline TinyModel TinyExperts(std::string architecture) {
  TinyModel model = TinyLlama();
  model.architecture = std::move(architecture);
  model.keys["expert_count"] = int64_t{4};
  model.keys["expert_used_count"] = int64_t{2};
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      model.tensors.erase(StrCat("blk.", layer, ".", name, ".weight"));
    }
    model.AddLayerTensors(layer, {{"ffn_gate_inp.weight", {16, 4}},
                                  {"ffn_gate_exps.weight", {16, 12, 4}},
                                  {"ffn_up_exps.weight", {16, 12, 4}},
                                  {"ffn_down_exps.weight", {12, 16, 4}}});
  }
  return model;
}

// Latent attention with a low-rank query; the first layer is dense, the second has grouped sigmoid
// routing and a shared expert.
inline TinyModel TinyDeepSeek() {
  TinyModel model = TinyExperts("deepseek2");
  model.keys.insert({{"rope.dimension_count", int64_t{4}},
                     {"attention.key_length", int64_t{14}},
                     {"attention.key_length_mla", int64_t{10}},
                     {"attention.value_length_mla", int64_t{5}},
                     {"attention.kv_lora_rank", int64_t{7}},
                     {"attention.q_lora_rank", int64_t{9}},
                     {"leading_dense_block_count", int64_t{1}},
                     {"expert_feed_forward_length", int64_t{12}},
                     {"expert_shared_count", int64_t{1}},
                     {"expert_gating_func", int64_t{2}},
                     {"expert_weights_norm", true},
                     {"expert_weights_scale", 2.5},
                     {"expert_group_count", int64_t{2}},
                     {"expert_group_used_count", int64_t{1}}});
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      model.tensors.erase(StrCat("blk.", layer, ".", name, ".weight"));
    }
    model.AddLayerTensors(layer, {{"attn_q_a.weight", {16, 9}},
                                  {"attn_q_a_norm.weight", {9}},
                                  {"attn_q_b.weight", {9, 20}},
                                  {"attn_kv_a_mqa.weight", {16, 11}},
                                  {"attn_kv_a_norm.weight", {7}},
                                  {"attn_k_b.weight", {6, 7, 2}},
                                  {"attn_v_b.weight", {7, 5, 2}},
                                  {"attn_output.weight", {10, 16}}});
  }
  for (const char* name : {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    model.tensors.erase(StrCat("blk.0.", name, ".weight"));
  }
  model.AddLayerTensors(
      0,
      {{"ffn_gate.weight", {16, 24}}, {"ffn_up.weight", {16, 24}}, {"ffn_down.weight", {24, 16}}});
  model.AddLayerTensors(1, {{"exp_probs_b.bias", {4}},
                            {"ffn_gate_shexp.weight", {16, 12}},
                            {"ffn_up_shexp.weight", {16, 12}},
                            {"ffn_down_shexp.weight", {12, 16}}});
  return model;
}

// Checks everything that a backend relies on without checking it: that each reference names a
// tensor of the expected shape, that indices are in range, that sizes match and numbers are finite.
class SpecJudge : public OperationVisitor {
 public:
  SpecJudge(const ModelFile& file, const ModelSpec& spec) : file_(file), spec_(spec) {}

  void Judge() {
    EXPECT_GT(spec_.n_vocab, 0);
    EXPECT_GT(spec_.d_model, 0);
    EXPECT_GT(spec_.context_tokens, 0);
    const bool embeds = !spec_.hidden_input || spec_.embedding;
    if (embeds) ExpectShape(spec_.embedding, {spec_.d_model, spec_.n_vocab});
    Tensor(
        spec_.output,
        {.n_in = spec_.d_model, .n_out = spec_.n_vocab, .needed = !spec_.text_vector.has_value()});
    if (spec_.positions) ExpectShape(spec_.positions, {spec_.d_model, spec_.context_tokens});
    if (spec_.token_types) {
      ExpectShape(spec_.token_types.table, {spec_.d_model, spec_.token_types.n_types});
    }
    Tensor(spec_.input_norm, {.n_in = spec_.d_model});
    JudgeHead();
    Tensor(spec_.output_norm, {.n_in = spec_.d_model});
    EXPECT_TRUE(std::isfinite(spec_.embedding_scale) && std::isfinite(spec_.logit_scale));
    EXPECT_GE(spec_.logit_softcap, 0);
    for (const Rope& rope : spec_.ropes) {
      EXPECT_FALSE(rope.frequencies.empty());
      EXPECT_TRUE(std::isfinite(rope.magnitude));
      for (const double f : rope.frequencies) EXPECT_TRUE(std::isfinite(f));
    }
    JudgeState();
    if (spec_.hidden_input) {
      Tensor(spec_.hidden_input->token_norm, {.n_in = spec_.d_model});
      Tensor(spec_.hidden_input->hidden_norm, {.n_in = spec_.d_model});
      const int64_t n_in = embeds ? 2 * spec_.d_model : HiddenWidth(spec_);
      Tensor(spec_.hidden_input->proj, {.n_in = n_in, .n_out = spec_.d_model});
      Tensor(spec_.hidden_input->back,
             {.n_in = spec_.d_model, .n_out = n_in / 2, .needed = !embeds});
    }
    if (spec_.prediction_head) SpecJudge(file_, *spec_.prediction_head).Judge();
    if (spec_.per_layer_input) {
      const PerLayerInput& input = *spec_.per_layer_input;
      const int64_t n = static_cast<int64_t>(spec_.layers.size()) * input.width;
      ExpectShape(input.table, {n, spec_.n_vocab});
      Tensor(input.proj, {.n_in = spec_.d_model, .n_out = n});
      Tensor(input.norm, {.n_in = input.width});
    }
    ASSERT_FALSE(spec_.layers.empty());
    for (const Layer& layer : spec_.layers) {
      EXPECT_FALSE(layer.blocks.empty());
      for (const Block& block : layer.blocks) JudgeBlock(block);
    }
    VisitOperations(spec_, *this);
  }

  // Checks the parts that an operation reports.
  void Tensor(const Linear& linear, const Shape& shape) {
    if (!linear && !shape.needed) return;
    EXPECT_EQ(linear.n_in, shape.n_in);
    EXPECT_EQ(linear.n_out, shape.n_out);
    ASSERT_TRUE(linear);
    const TensorInfo& info = file_.tensors()[linear.weight.index];
    EXPECT_EQ(info.dims[0], shape.n_in) << info.name;
    EXPECT_GE(linear.first_row, 0);
    EXPECT_LE(linear.first_row + shape.n_out, info.dims[1]) << info.name;
    EXPECT_EQ(info.dims[2] * info.dims[3], 1) << info.name;
    Tensor(linear.bias, {.n_in = info.dims[1], .needed = false});
  }
  void Tensor(const StackedLinear& stack, const Shape& shape) {
    if (!stack && !shape.needed) return;
    EXPECT_EQ(stack.n_in, shape.n_in);
    EXPECT_EQ(stack.n_out, shape.n_out);
    EXPECT_EQ(stack.count, shape.count);
    EXPECT_TRUE(shape.n_used >= 1 && shape.n_used <= shape.count);
    ASSERT_TRUE(stack);
    const TensorInfo& info = file_.tensors()[stack.weight.index];
    EXPECT_EQ(info.dims[0], shape.n_in) << info.name;
    EXPECT_EQ(info.rows() % shape.count, 0) << info.name;
    EXPECT_LE(stack.first_row + shape.n_out, info.rows() / shape.count) << info.name;
    if (stack.bias) ExpectShape(stack.bias, {shape.n_out, shape.count});
    Tensor(stack.scale, {.n_in = shape.count, .needed = false});
  }
  // Either over each group, with a shared or separate weight, or over all groups as one.
  void Tensor(const Norm& norm, const Shape& shape) {
    if (!norm) return;
    const int64_t whole = shape.n_in * shape.n_out;
    EXPECT_TRUE(norm.width == shape.n_in || norm.width == whole) << norm.width;
    EXPECT_TRUE(norm.epsilon >= 0 && norm.epsilon <= 1);
    for (const TensorRef values : {norm.weight, norm.bias}) {
      if (!values) continue;
      const bool is_whole = file_.tensors()[values.index].values() == whole;
      Tensor(values, {.n_in = is_whole ? whole : norm.width});
    }
  }
  // Optional vectors are a single row.
  void Tensor(TensorRef vector, const Shape& shape) {
    if (!vector && !shape.needed) return;
    ASSERT_TRUE(vector);
    const TensorInfo& info = file_.tensors()[vector.index];
    EXPECT_EQ(info.values(), shape.n_in) << info.name;
    if (!shape.needed) ExpectShape(vector, {shape.n_in});
    EXPECT_EQ(info.type, DType::kF32) << info.name;
  }
  void Table(TensorRef table, int64_t n_in, int64_t n_rows) {
    if (table) ExpectShape(table, {n_in, n_rows});
  }
  void Tensor(const Convolution& convolution, const Shape& shape) {
    EXPECT_GE(convolution.n_taps, 2);
    const bool is_flat = file_.tensors()[convolution.kernel.index].dims[1] == shape.n_out;
    ExpectShape(convolution.kernel, is_flat ? std::vector<int64_t>{shape.n_in, shape.n_out}
                                            : std::vector<int64_t>{shape.n_in, 1, shape.n_out});
    Tensor(convolution.kernel, {.n_in = shape.n_in * shape.n_out});
    Tensor(convolution.bias, {.n_in = shape.n_out, .needed = false});
  }
  void Kv(const KvUse& use) {
    const KvLayer& kv = KvOf(use.layer);
    EXPECT_EQ(kv.n_heads, use.n_kv_heads);
    EXPECT_EQ(kv.k_dim, use.k_dim);
    EXPECT_EQ(kv.v_dim, use.v_in_k ? 0 : use.v_dim);
    EXPECT_EQ(kv.stride, use.stride);
    EXPECT_EQ(kv.exact, use.exact);
    EXPECT_TRUE(kv.stride > 0 && (kv.stride & (kv.stride - 1)) == 0) << "pages are powers of two";
  }
  void Slot(const SlotUse& use) {
    ASSERT_GE(use.slot, 0);
    ASSERT_LT(use.slot, static_cast<int>(spec_.slots.size()));
    EXPECT_EQ(spec_.slots[use.slot].kind, use.kind);
    EXPECT_EQ(spec_.slots[use.slot].n_floats, use.n_heads * use.n_rows * use.n_columns);
  }
  void UsesRope(int rope, int64_t dim) {
    if (rope == -1) return;
    ASSERT_GE(rope, 0);
    ASSERT_LT(rope, static_cast<int>(spec_.ropes.size()));
    EXPECT_LE(2 * static_cast<int64_t>(spec_.ropes[rope].frequencies.size()), dim);
  }
  void UsesLayerInput(int layer, int64_t width) {
    ASSERT_TRUE(spec_.per_layer_input);
    EXPECT_EQ(width, spec_.per_layer_input->width);
    EXPECT_LT(layer, static_cast<int>(spec_.layers.size()));
  }
  void UsesSides(int64_t n) { EXPECT_EQ(n, spec_.n_side_streams); }
  void Require(bool holds, std::string_view what) { EXPECT_TRUE(holds) << what; }

 private:
  void ExpectShape(TensorRef tensor, std::vector<int64_t> dims) {
    ASSERT_GE(tensor.index, 0);
    ASSERT_LT(tensor.index, static_cast<int>(file_.tensors().size()));
    dims.resize(4, 1);
    const TensorInfo& info = file_.tensors()[tensor.index];
    EXPECT_EQ(std::vector<int64_t>(info.dims, info.dims + 4), dims) << info.name;
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
  void JudgeHead() {
    if (!spec_.text_vector) return;
    int64_t width = spec_.d_model;
    for (const HeadLayer& layer : spec_.text_vector->head) {
      Tensor(layer.linear, {.n_in = width, .n_out = layer.linear.n_out});
      width = layer.linear.n_out;
      Tensor(layer.norm, {.n_in = width});
    }
    EXPECT_TRUE(!spec_.text_vector->scores || !spec_.text_vector->head.empty());
  }
  void JudgeBlock(const Block& block) {
    const Shape vector = {.n_in = spec_.d_model, .needed = false};
    Tensor(block.pre, vector);
    Tensor(block.post, vector);
    Tensor(block.stream_scale, {.n_in = 1, .needed = false});
    Tensor(block.stream_norm, vector);
    EXPECT_TRUE(std::isfinite(block.residual_scale));
    if (block.replaces_stream) {
      EXPECT_TRUE(block.residual_scale == 1 && block.stream_factor == 1);
      EXPECT_TRUE(!block.stream_scale && !block.stream_norm);
    }
    EXPECT_FALSE(block.paths.empty());
    for (const Path& path : block.paths) {
      Tensor(path.pre, vector);
      Tensor(path.post, vector);
    }
  }

  const ModelFile& file_;
  const ModelSpec& spec_;
};

// Flips bits of a file's header; if that still gives a spec, backends must be able to rely on it.
inline void JudgeFlippedBits(
    std::string bytes, const std::string& architecture, std::mt19937* random, int* n_specs,
    int* n_errors,
    FunctionRef<StatusOr<ModelSpec>(const ModelFile&)> build = [](const ModelFile& file) {
      return BuildModelSpec(file, {});
    }) {
  // The architecture's keys come first; each flip is shortly after one.
  const std::string key = architecture + ".";
  std::vector<size_t> starts;
  for (size_t at = bytes.find(key); at != std::string::npos && starts.size() < 64;
       at = bytes.find(key, at + 1)) {
    starts.push_back(at);
  }
  ASSERT_FALSE(starts.empty());
  for (int i = 0; i < 150; ++i) {
    const size_t at = starts[(*random)() % starts.size()] + (*random)() % 64;
    const char before = bytes[at];
    bytes[at] = static_cast<char>(before ^ (1 << (*random)() % 8));
    const auto file = ModelFile::FromBytes("flipped", std::as_bytes(std::span(bytes)));
    if (file.ok()) {
      const auto spec = build(**file);
      ++(spec.ok() ? *n_specs : *n_errors);
      if (spec.ok()) SpecJudge(**file, *spec).Judge();
    }
    bytes[at] = before;
  }
}

// The operation of one path of a block.
template <typename T>
const T& OpOf(const ModelSpec& spec, int layer, int block, int path = 0) {
  return std::get<T>(spec.layers.at(layer).blocks.at(block).paths.at(path).op);
}

// The model must not build, and the error must contain both strings.
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
