// The cpu backend against the reference on a made-up model with every block and every rarer field
// of the spec, on every instruction set; and the promises that only this backend makes.
#include "compute/cpu/cpu_backend.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_io.h"
#include "base/files/mapped_file.h"
#include "base/half.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/packed_copy.h"
#include "compute/kernels/vector_ops.h"
#include "compute/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"
#include "tests/support/goldens.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tests/support/slow_build.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::LoadedModel;
using testing::MaxDifference;
using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunTokens;

constexpr int64_t kWidth = 64;
constexpr int64_t kVocab = 96;

// Random tensors for a model file in memory.
class Weightbox {
 public:
  explicit Weightbox(DType matrix_type) : matrix_type_(matrix_type) {}

  TensorRef Vector(const std::vector<int64_t>& dims, float mean, float spread) {
    int64_t n = 1;
    for (const int64_t dim : dims) n *= dim;
    std::normal_distribution<float> normal(mean, spread);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = normal(random_);
    return Add(DType::kF32, dims, std::as_bytes(std::span(values)));
  }

  // The bias of a fused tensor. Its first n_before values are NaN, because nobody may read them.
  TensorRef Bias(int64_t n_before, int64_t n) {
    std::vector<float> values(static_cast<size_t>(n_before),
                              std::numeric_limits<float>::quiet_NaN());
    std::normal_distribution<float> normal(0, 0.3f);
    for (int64_t i = 0; i < n; ++i) values.push_back(normal(random_));
    return Add(DType::kF32, {n_before + n}, std::as_bytes(std::span(values)));
  }

  // Rows of n_in values, scaled so that products stay near 1.
  TensorRef Matrix(std::vector<int64_t> dims) {
    const float spread = 1 / std::sqrt(static_cast<float>(dims[0]));
    if (matrix_type_ == DType::kF32) return Vector(dims, 0, spread);
    int64_t n_blocks = 1;
    for (const int64_t dim : dims) n_blocks *= dim;
    n_blocks /= 32;
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < n_blocks; ++i) {
      const uint16_t scale = F32ToF16(spread / 60);
      bytes.push_back(static_cast<std::byte>(scale & 0xFF));
      bytes.push_back(static_cast<std::byte>(scale >> 8));
      for (int j = 0; j < 32; ++j) bytes.push_back(static_cast<std::byte>(random_() & 0xFF));
    }
    return Add(DType::kQ8_0, dims, bytes);
  }

  TensorRef Add(DType type, const std::vector<int64_t>& dims, std::span<const std::byte> bytes) {
    kept_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
    writer_.AddTensor(StrCat("tensor.", kept_.size() - 1), type, dims, *kept_.back());
    return {static_cast<int>(kept_.size()) - 1};
  }

  // The file's bytes; the memory lives as long as this object.
  std::span<const std::byte> Bytes() {
    bytes_ = std::make_unique<std::string>(writer_.ToBytes());
    return std::as_bytes(std::span(*bytes_));
  }

  std::shared_ptr<const ModelFile> Build() {
    auto file = ModelFile::FromBytes("made-up", Bytes());
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

 private:
  const DType matrix_type_;
  std::mt19937 random_{5};
  GgufWriter writer_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
  std::unique_ptr<std::string> bytes_;
};

// Two models, because with all blocks in one model rounding errors would grow too large.
enum class Blocks { kUsual, kRarer };

// Builds a made-up model: see the functions of its layers.
class ModelMaker {
 public:
  explicit ModelMaker(DType matrix_type, Blocks blocks = Blocks::kUsual) : box_(matrix_type) {
    MakeSpec(blocks);
  }

  const ModelSpec& spec() const { return spec_; }
  Weightbox& box() { return box_; }
  std::shared_ptr<const ModelFile> Build() { return box_.Build(); }

 private:
  // The last two thirds of a tensor's rows, as in a fused tensor.
  Linear MakeLinear(int64_t n_in, int64_t n_out, bool bias = false) {
    Linear linear;
    linear.weight = box_.Matrix({n_in, n_out + n_out / 2});
    if (bias) linear.bias = box_.Bias(n_out / 2, n_out);
    linear.first_row = n_out / 2;
    linear.n_in = n_in;
    linear.n_out = n_out;
    return linear;
  }
  StackedLinear MakeStack(int64_t n_in, int64_t n_out, int64_t count, bool extras) {
    StackedLinear stack;
    stack.weight = box_.Matrix({n_in, n_out + 5, count});
    if (extras) stack.bias = box_.Vector({n_out, count}, 0, 0.3f);
    if (extras) stack.scale = box_.Vector({count}, 1, 0.2f);
    stack.first_row = 3;
    stack.n_in = n_in;
    stack.n_out = n_out;
    stack.count = count;
    return stack;
  }
  Norm MakeNorm(NormKind kind, int64_t width, int64_t weight_values) {
    Norm norm;
    norm.kind = kind;
    norm.weight = box_.Vector({weight_values}, 1, 0.2f);
    if (kind == NormKind::kLayer) norm.bias = box_.Vector({weight_values}, 0, 0.2f);
    norm.width = width;
    norm.epsilon = 1e-5f;
    norm.factor = 1.2f;
    return norm;
  }
  Norm Rms(int64_t width = kWidth) { return MakeNorm(NormKind::kRms, width, width); }

  Attention MakeAttention(int kv_layer, int n_heads, int rope) {
    const KvLayer& kv = spec_.kv_layers[kv_layer];
    Attention op;
    op.kv_layer = kv_layer;
    op.n_heads = n_heads;
    op.n_kv_heads = kv.n_heads;
    op.k_dim = kv.k_dim;
    op.v_dim = kv.v_dim;
    op.q = MakeLinear(kWidth, n_heads * kv.k_dim);
    op.k = MakeLinear(kWidth, kv.n_heads * kv.k_dim);
    op.v = MakeLinear(kWidth, kv.n_heads * kv.v_dim, true);
    op.out = MakeLinear(n_heads * kv.v_dim, kWidth);
    op.rope = rope;
    op.scale = 0.2f;
    return op;
  }

  int AddSlot(SlotKind kind, int64_t n_floats) {
    spec_.slots.push_back({kind, n_floats});
    return static_cast<int>(spec_.slots.size()) - 1;
  }
  Convolution MakeConvolution(int64_t n_channels, int64_t n_taps, bool bias) {
    Convolution convolution;
    convolution.kernel = box_.Vector({n_taps, n_channels}, 0.2f, 0.6f);
    if (bias) convolution.bias = box_.Vector({n_channels}, 0, 0.3f);
    convolution.n_channels = n_channels;
    convolution.n_taps = n_taps;
    convolution.slot = AddSlot(SlotKind::kConvolution, (n_taps - 1) * n_channels);
    return convolution;
  }
  GatedDeltaNet MakeDeltaNet(int n_k_heads, int n_v_heads, int64_t k_dim, int64_t v_dim) {
    GatedDeltaNet op;
    op.n_k_heads = n_k_heads;
    op.n_v_heads = n_v_heads;
    op.k_dim = k_dim;
    op.v_dim = v_dim;
    const int64_t n_channels = 2 * n_k_heads * k_dim + n_v_heads * v_dim;
    op.qkv = MakeLinear(kWidth, n_channels);
    op.gate = MakeLinear(kWidth, n_v_heads * v_dim);
    op.convolution = MakeConvolution(n_channels, 4, false);
    op.decay_bias = box_.Vector({n_v_heads}, 0, 1);
    op.decay_rate = box_.Vector({n_v_heads}, -0.5f, 0.1f);
    op.epsilon = 1e-6f;
    op.norm = Rms(v_dim);
    op.out = MakeLinear(n_v_heads * v_dim, kWidth);
    op.slot = AddSlot(SlotKind::kDeltaNet, n_v_heads * k_dim * v_dim);
    return op;
  }
  StateSpace MakeStateSpace(int n_heads, int n_groups, int64_t head_dim, int64_t state_dim) {
    StateSpace op;
    op.n_heads = n_heads;
    op.n_groups = n_groups;
    op.head_dim = head_dim;
    op.state_dim = state_dim;
    const int64_t inner = n_heads * head_dim, n_channels = inner + 2 * n_groups * state_dim;
    op.in = MakeLinear(kWidth, inner + n_channels + n_heads);
    op.convolution = MakeConvolution(n_channels, 3, true);
    op.step_bias = box_.Vector({n_heads}, 0, 1);
    op.rate = box_.Vector({1, n_heads}, -0.5f, 0.1f);
    op.skip = box_.Vector({1, n_heads}, 1, 0.3f);
    op.norm = MakeNorm(NormKind::kRms, inner / n_groups, inner);
    op.out = MakeLinear(inner, kWidth);
    op.slot = AddSlot(SlotKind::kStateSpace, inner * state_dim);
    return op;
  }

  void AddBlock(Norm pre, std::vector<Path> paths) {
    Block block;
    block.pre = pre;
    block.paths = std::move(paths);
    spec_.layers.emplace_back().blocks.push_back(std::move(block));
  }
  Block& last_block() { return spec_.layers.back().blocks.back(); }

  // A KvLayer of the group that has no window.
  int AddKvLayer(int n_heads, int64_t k_dim, int64_t v_dim) {
    const int index = static_cast<int>(spec_.kv_layers.size());
    spec_.kv_layers.push_back({0, n_heads, k_dim, v_dim});
    spec_.kv_groups[0].kv_layers.push_back(index);
    return index;
  }
  LatentAttention MakeLatentAttention(int kv_layer);

  void MakeSpec(Blocks blocks);
  void AddRarerAttention();
  void AddChosenKeys();
  void AddRarerFeedForward();
  void AddChannelStates();
  void AddTimeMix();
  void AddSideStreams();
  void AddAttentionLayers();
  void AddLatentAttention();
  void AddRecurrentLayers();
  void AddFeedForwardLayers();
  void AddMixtures();

  Weightbox box_;
  ModelSpec spec_;
};

void ModelMaker::MakeSpec(Blocks blocks) {
  spec_.architecture = "made-up";
  spec_.n_vocab = kVocab;
  spec_.d_model = kWidth;
  spec_.context_tokens = 512;
  spec_.embedding = box_.Matrix({kWidth, kVocab});
  spec_.embedding_scale = 3;
  for (const auto& [pairs, count] :
       {std::pair(RopePairs::kHalves, 16), std::pair(RopePairs::kAdjacent, 7)}) {
    Rope rope;
    rope.pairs = pairs;
    for (int i = 0; i < count; ++i) rope.frequencies.push_back(std::pow(0.5, i));
    rope.magnitude = 1.1f;
    spec_.ropes.push_back(rope);
  }
  spec_.kv_layers = {{0, 2, 32, 32}, {1, 2, 48, 32}, {0, 1, 64, 0}, {1, 1, 32, 32}, {0, 1, 32, 32}};
  spec_.kv_groups = {{0, {0, 2, 4}}, {20, {1, 3}}};

  PerLayerInput input;
  input.table = box_.Matrix({2 * 32, kVocab});
  input.proj = MakeLinear(kWidth, 2 * 32);
  input.norm = Rms(32);
  input.width = 32;
  input.table_scale = 2;
  input.proj_scale = 0.4f;
  input.sum_scale = 0.7f;
  spec_.per_layer_input = input;

  if (blocks == Blocks::kUsual) {
    AddAttentionLayers();
    AddLatentAttention();
    AddRecurrentLayers();
    AddFeedForwardLayers();
    AddMixtures();
  } else {
    spec_.kv_layers = {};
    spec_.kv_groups = {{0, {}}, {20, {}}};
    AddRarerAttention();
    AddChosenKeys();
    AddRarerFeedForward();
    AddChannelStates();
    AddTimeMix();
    AddSideStreams();
  }
  spec_.output_norm = MakeNorm(NormKind::kLayer, kWidth, kWidth);
  spec_.output.weight = spec_.embedding;  // tied
  spec_.output.n_in = kWidth;
  spec_.output.n_out = kVocab;
  spec_.logit_scale = 2;
  spec_.logit_softcap = 30;
}

void ModelMaker::AddAttentionLayers() {
  // Gated queries, norms by head, sinks, softcap; a block with every scale.
  Attention gated = MakeAttention(0, 4, 0);
  gated.q = MakeLinear(kWidth, 4 * 2 * 32);
  gated.gated_query = true;
  gated.q_norm = Rms(32);
  gated.k_norm = Rms(32);
  gated.softcap = 5;
  gated.sinks = box_.Vector({4}, 0, 1);
  AddBlock(MakeNorm(NormKind::kLayer, kWidth, kWidth), {{Rms(), gated, Rms()}});
  last_block().post = Rms();
  last_block().residual_scale = 0.7f;
  last_block().stream_scale = box_.Vector({1}, 1.1f, 0.01f);

  // Norms over the whole width, or with a weight that spans it; a window.
  Attention windowed = MakeAttention(1, 6, 1);
  windowed.q_norm = Rms(6 * 48);
  windowed.k_norm = MakeNorm(NormKind::kRms, 48, 2 * 48);
  windowed.v_norm.kind = NormKind::kRms;
  windowed.v_norm.width = 32;
  AddBlock(Rms(), {{{}, windowed, {}}});

  // Reads another layer's KV cache.
  Attention reader = MakeAttention(0, 2, 0);
  reader.writes_kv = false;
  reader.k = reader.v = Linear();
  AddBlock(Rms(), {{{}, reader, {}}});

  // Values from the keys' projection; no rope; many heads on one kv head, which are split if there
  // are few rows.
  Attention shared = MakeAttention(3, 12, -1);
  shared.v = Linear();
  shared.v_from_k = true;
  shared.k_norm = Rms(32);
  AddBlock(Rms(), {{{}, shared, {}}});
}

void ModelMaker::AddLatentAttention() { AddBlock(Rms(), {{{}, MakeLatentAttention(2), {}}}); }

LatentAttention ModelMaker::MakeLatentAttention(int kv_layer) {
  LatentAttention op;
  op.kv_layer = kv_layer;
  op.n_heads = 3;
  op.nope_dim = 32;
  op.rope_dim = 32;
  op.latent_dim = 32;
  op.v_dim = 32;
  op.q_a = MakeLinear(kWidth, 32);
  op.q_a_norm = Rms(32);
  op.q_b = MakeLinear(32, 3 * 64);
  op.kv_a = MakeLinear(kWidth, 64);
  op.kv_norm = Rms(32);
  op.k_b = MakeStack(32, 32, 3, false);
  op.v_b = MakeStack(32, 32, 3, false);
  op.out = MakeLinear(3 * 32, kWidth);
  op.rope = 0;
  op.scale = 0.15f;
  return op;
}

void ModelMaker::AddRarerAttention() {
  // Norms after the rotation, gates per head, queries with a temperature; chunks within a window.
  spec_.kv_layers.push_back({1, 2, 32, 32});
  spec_.kv_groups[1].kv_layers = {0};
  Attention chunked = MakeAttention(0, 4, 1);
  chunked.norms_after_rope = true;
  chunked.q_norm = Rms(32);
  chunked.k_norm = MakeNorm(NormKind::kLayer, 32, 2 * 32);
  chunked.gate = MakeLinear(kWidth, 4);
  chunked.temperature = {.scale = 0.3f, .length = 7, .offset = 1};
  chunked.chunk = 20;
  AddBlock(Rms(), {{{}, chunked, Rms()}});
  last_block().paths[0].scale = 0.5f;

  // Gates per value.
  Attention gated = MakeAttention(AddKvLayer(2, 48, 32), 4, 0);
  gated.gate = MakeLinear(kWidth, 4 * 32);
  AddBlock(Rms(), {{{}, gated, {}}});
  last_block().residual_scale = 0.5f;

  UnfoldedLatentAttention op;
  op.kv_layer = AddKvLayer(3, 32 + 32, 32);
  op.n_heads = 3;
  op.nope_dim = op.rope_dim = op.latent_dim = op.v_dim = 32;
  op.q_a = MakeLinear(kWidth, 32);
  op.q_a_norm = Rms(32);
  op.q_b = MakeLinear(32, 3 * 64);
  op.kv_a = MakeLinear(kWidth, 64);
  op.kv_norm = Rms(32);
  op.kv_b = MakeLinear(32, 3 * 64);
  op.out = MakeLinear(3 * 32, kWidth);
  op.rope = 0;
  op.scale = 0.15f;
  AddBlock(Rms(), {{{}, op, {}}});
  last_block().residual_scale = 0.5f;
}

void ModelMaker::AddChosenKeys() {
  // Chooses the best keys; a layer that attends to the same keys; the best blocks per key head.
  LatentAttention chooser = MakeLatentAttention(AddKvLayer(1, 64, 0));
  chooser.temperature = {.scale = 0.2f, .length = 16, .offset = 0};
  chooser.choice = {.kind = KeyChoice::Kind::kKeys,
                    .count = 9,
                    .n_heads = 2,
                    .dim = 32,
                    .rope = 1,
                    .kv_layer = AddKvLayer(1, 32, 0)};
  chooser.index_q = MakeLinear(32, 2 * 32);
  chooser.index_k = MakeLinear(kWidth, 32);
  chooser.index_k_norm = MakeNorm(NormKind::kLayer, 32, 32);
  chooser.index_weights = MakeLinear(kWidth, 2);
  chooser.index_scale = 0.1f;
  LatentAttention follower = MakeLatentAttention(AddKvLayer(1, 64, 0));
  follower.choice = {.kind = KeyChoice::Kind::kAsBefore};
  for (const LatentAttention& op : {chooser, follower}) {
    AddBlock(Rms(), {{{}, op, {}}});
    last_block().residual_scale = 0.5f;
  }
  Attention blocks = MakeAttention(AddKvLayer(2, 32, 32), 6, 0);
  blocks.sinks = box_.Vector({6}, 0, 1);
  blocks.choice = {.kind = KeyChoice::Kind::kBlocks,
                   .count = 3,
                   .block = 5,
                   .n_local = 1,
                   .n_heads = 2,
                   .dim = 32,
                   .rope = 0,
                   .kv_layer = AddKvLayer(1, 32, 0)};
  blocks.index_q = MakeLinear(kWidth, 2 * 32);
  blocks.index_k = MakeLinear(kWidth, 32);
  blocks.index_q_norm = Rms(32);
  blocks.index_k_norm = Rms(32);
  AddBlock(Rms(), {{{}, blocks, {}}});
  last_block().residual_scale = 0.5f;
}

void ModelMaker::AddRarerFeedForward() {
  const auto add = [&](Activation activation, bool gate, ActivationNumbers numbers,
                       float sparsity) {
    DenseFfn op;
    if (gate) op.gate = MakeLinear(kWidth, 96, true);
    op.up = MakeLinear(kWidth, 96, true);
    op.down = MakeLinear(96, kWidth);
    op.activation = activation;
    op.numbers = numbers;
    op.sparsity = sparsity;
    AddBlock(Rms(), {{{}, op, {}}});
  };
  add(Activation::kClampedSilu, true, {.limit = 0.4f}, 0);
  last_block().keeps_input = true;
  add(Activation::kXielu, false, {.limit = -1e-6f, .rise = 0.4f, .fall = 0.6f, .slope = 0.3f}, 0);
  add(Activation::kGeluTanh, true, {}, 0.8f);
  last_block().stream_factor = 0.7f;

  // Routed by the stream of an earlier block; weights applied to the experts' inputs.
  MixtureOfExperts op;
  op.router = MakeLinear(kWidth, 12);
  op.weights = RouterWeights::kSigmoid;
  op.n_experts = 12;
  op.n_used = 3;
  op.routes_kept = op.weighs_inputs = true;
  op.gate = MakeStack(kWidth, 32, 12, false);
  op.up = MakeStack(kWidth, 32, 12, false);
  op.down = MakeStack(32, kWidth, 12, true);
  AddBlock(Rms(), {{{}, op, {}}});
}

void ModelMaker::AddChannelStates() {
  // Columns that do not fill whole tiles.
  constexpr int64_t kHeads = 2, kDim = 24, kAll = kHeads * kDim;
  ChannelDeltaNet net;
  net.n_heads = static_cast<int>(kHeads);
  net.head_dim = kDim;
  net.q = MakeLinear(kWidth, kAll);
  net.k = MakeLinear(kWidth, kAll);
  net.v = MakeLinear(kWidth, kAll);
  net.q_convolution = MakeConvolution(kAll, 4, false);
  net.k_convolution = MakeConvolution(kAll, 3, true);
  net.v_convolution = MakeConvolution(kAll, 2, false);
  net.decay_a = MakeLinear(kWidth, 32);
  net.decay_b = MakeLinear(32, kAll);
  net.gate_a = MakeLinear(kWidth, 32);
  net.gate_b = MakeLinear(32, kAll);
  net.beta = MakeLinear(kWidth, kHeads);
  net.decay_bias = box_.Vector({kAll}, 0, 1);
  net.decay_rate = box_.Vector({1, kHeads}, -0.5f, 0.1f);
  net.epsilon = 1e-6f;
  net.norm = Rms(kDim);
  net.out.weight = box_.Vector({kAll, kWidth}, 0, 0.14f);
  net.out.n_in = kAll;
  net.out.n_out = kWidth;
  net.slot = AddSlot(SlotKind::kDeltaNet, kAll * kDim);
  AddBlock(Rms(), {{{}, net, {}}});
  last_block().residual_scale = 0.5f;

  // More channels than one task computes, and states that do not fill whole vectors.
  constexpr int64_t kChannels = 96, kState = 22, kRank = 32;
  SelectiveScan scan;
  scan.n_channels = kChannels;
  scan.state_dim = kState;
  scan.in = MakeLinear(kWidth, 2 * kChannels);
  scan.convolution = MakeConvolution(kChannels, 4, true);
  scan.select = MakeLinear(kChannels, kRank + 2 * kState);
  scan.step_norm = Rms(kRank);
  scan.b_norm = Rms(kState);
  scan.step = MakeLinear(kRank, kChannels, true);
  scan.rate = box_.Vector({kState, kChannels}, -1, 0.2f);
  scan.skip = box_.Vector({kChannels}, 1, 0.3f);
  scan.out = MakeLinear(kChannels, kWidth);
  scan.slot = AddSlot(SlotKind::kStateSpace, kChannels * kState);
  AddBlock(Rms(), {{{}, scan, {}}});
  last_block().residual_scale = 0.5f;
}

void ModelMaker::AddTimeMix() {
  const auto vector = [&](float mean) { return box_.Vector({kWidth}, mean, 0.3f); };
  const auto square = [&] { return MakeLinear(kWidth, kWidth); };
  for (const bool is_first : {true, false}) {
    TimeMix op;
    op.n_heads = 2;
    op.head_dim = kWidth / 2;
    op.is_first = is_first;
    op.lerp = box_.Vector({kWidth, 6}, 0.5f, 0.2f);
    op.receptance = square();
    op.key = square();
    op.value = square();
    for (auto [a, b] : {std::pair(&op.decay_a, &op.decay_b), std::pair(&op.rate_a, &op.rate_b),
                        std::pair(&op.gate_a, &op.gate_b), std::pair(&op.mix_a, &op.mix_b)}) {
      if (is_first && a == &op.mix_a) continue;
      *a = MakeLinear(kWidth, 32);
      *b = MakeLinear(32, kWidth);
    }
    op.decay_bias = vector(0);
    op.rate_bias = vector(0);
    if (!is_first) op.mix_bias = vector(0);
    op.removal = vector(0.8f);
    op.renewal = vector(0.5f);
    op.bonus = vector(0);
    op.norm = MakeNorm(NormKind::kLayer, op.head_dim, kWidth);
    op.out = square();
    op.slot = AddSlot(SlotKind::kDeltaNet, kWidth * op.head_dim);
    op.shift_slot = AddSlot(SlotKind::kConvolution, kWidth);
    AddBlock(Rms(), {{{}, op, {}}});
    last_block().residual_scale = 0.5f;
    ChannelMix mix;
    mix.lerp = vector(0.5f);
    mix.key = MakeLinear(kWidth, 96);
    mix.value = MakeLinear(96, kWidth);
    mix.shift_slot = AddSlot(SlotKind::kConvolution, kWidth);
    AddBlock(Rms(), {{{}, mix, {}}});
    last_block().residual_scale = 0.5f;
  }
}

void ModelMaker::AddSideStreams() {
  constexpr int64_t kStreams = 3, kSides = kStreams - 1;
  spec_.n_side_streams = static_cast<int>(kSides);
  const auto small = [&](int64_t n_in, int64_t n_out) {  // too small for 8-bit weights
    Linear linear;
    linear.weight = box_.Vector({n_in, n_out}, 0, 0.3f);
    linear.n_in = n_in;
    linear.n_out = n_out;
    return linear;
  };
  EnterSides enter;
  enter.enter = MakeStack(kWidth, kWidth, kSides, false);
  AddBlock({}, {{{}, enter, {}}});
  PredictSides predict;
  predict.router_norm = Rms();
  predict.router = small(kWidth, kStreams);
  predict.coefficients = small(kStreams, kStreams * kStreams);
  AddBlock({}, {{{}, predict, {}}});
  LowRank low_rank;
  low_rank.down = MakeLinear(kWidth, 32);
  low_rank.up = MakeLinear(32, kWidth);
  low_rank.norm = Rms();
  AddBlock(Rms(), {{{}, low_rank, {}}});
  last_block().keeps_input = true;
  CorrectSides correct;
  correct.layer = 1;
  correct.router_norm = Rms();
  correct.router = small(kWidth, kStreams);
  correct.coefficients = small(kStreams, kStreams);
  correct.scale = box_.Vector({kWidth}, 1, 0.2f);
  correct.gate = MakeLinear(kWidth, 32);
  correct.proj = MakeLinear(32, kWidth);
  correct.post_norm = Rms();
  AddBlock({}, {{{}, correct, {}}});
  LeaveSides leave;
  leave.leave = MakeStack(kWidth, kWidth, kSides, false);
  AddBlock({}, {{{}, leave, {}}});
}

void ModelMaker::AddRecurrentLayers() {
  // Halves each layer's output, so that rounding errors stay small over so many layers.
  const auto add = [&](std::vector<Path> paths) {
    AddBlock(Rms(), std::move(paths));
    last_block().residual_scale = 0.5f;
  };
  ShortConvolution convolution;
  convolution.in = MakeLinear(kWidth, 3 * 96);
  convolution.convolution = MakeConvolution(96, 5, true);
  convolution.out = MakeLinear(96, kWidth);
  add({{{}, convolution, {}}});

  // Columns that do not fill whole tiles; tiled key heads, separate gates.
  GatedDeltaNet tiled = MakeDeltaNet(2, 4, 20, 24);
  tiled.beta = MakeLinear(kWidth, 4);
  tiled.decay = MakeLinear(kWidth, 4);
  add({{{}, tiled, {}}});

  // Few heads of many columns, which several threads share; gates in one matrix.
  GatedDeltaNet interleaved = MakeDeltaNet(1, 2, 32, 128);
  interleaved.key_heads = KeyHeads::kInterleaved;
  interleaved.beta_decay = MakeLinear(kWidth, 4);
  add({{{}, interleaved, {}}});

  // In parallel with attention, and alone.
  add({{{}, MakeAttention(4, 2, 1), {}}, {Rms(), MakeStateSpace(4, 2, 24, 17), {}}});
  StateSpace plain = MakeStateSpace(2, 1, 64, 32);
  plain.norm = Norm();
  add({{{}, plain, {}}});
}

void ModelMaker::AddFeedForwardLayers() {
  const auto add = [&](Activation activation, bool gate, bool output_gate) {
    DenseFfn op;
    if (gate) op.gate = MakeLinear(kWidth, 96, true);
    op.up = MakeLinear(kWidth, 96, true);
    op.down = MakeLinear(96, kWidth);
    if (output_gate) op.output_gate = MakeLinear(kWidth, 1);
    op.activation = activation;
    op.numbers.limit = 1;
    AddBlock(Rms(), {{{}, op, {}}});
  };
  add(Activation::kSilu, true, true);
  add(Activation::kGeluTanh, true, false);
  add(Activation::kGeluErf, false, false);
  add(Activation::kRelu, false, true);
  add(Activation::kReluSquared, false, false);
  add(Activation::kClampedSwiglu, true, false);

  PerLayerGate gate;
  gate.gate = MakeLinear(kWidth, 32);
  gate.proj = MakeLinear(32, kWidth);
  gate.layer = 1;
  AddBlock({}, {{{}, gate, Rms()}});
}

void ModelMaker::AddMixtures() {
  const auto make = [&](RouterWeights weights, bool extras) {
    MixtureOfExperts op;
    op.router = MakeLinear(kWidth, 12);
    op.weights = weights;
    op.n_experts = 12;
    op.n_used = 3;
    op.gate = MakeStack(kWidth, 32, 12, extras);
    op.up = MakeStack(kWidth, 32, 12, extras);
    op.down = MakeStack(32, kWidth, 12, extras);
    return op;
  };
  // In parallel with a dense path; routed by a norm of the raw stream.
  MixtureOfExperts grouped = make(RouterWeights::kSigmoid, true);
  grouped.selection_bias = box_.Vector({12}, 0, 0.3f);
  grouped.n_groups = 4;
  grouped.n_groups_used = 2;
  grouped.renormalize = true;
  grouped.weight_scale = 1.5f;
  grouped.router_norm = Rms();
  DenseFfn beside;
  beside.gate = MakeLinear(kWidth, 64);
  beside.up = MakeLinear(kWidth, 64);
  beside.down = MakeLinear(64, kWidth);
  AddBlock(Rms(), {{Rms(), grouped, Rms()}, {{}, beside, Rms()}});

  MixtureOfExperts chosen = make(RouterWeights::kSoftmaxOfChosen, true);
  chosen.activation = Activation::kClampedSwiglu;
  chosen.numbers.limit = 2;
  AddBlock(Rms(), {{{}, chosen, {}}});
  AddBlock(Rms(), {{{}, make(RouterWeights::kSoftmax, false), {}}});
}

std::vector<TokenId> Tokens(size_t n) {
  std::mt19937 random(11);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % kVocab);
  return tokens;
}

// All types and some pairs, except in builds where that would take minutes.
std::vector<KvTypes> TestedKvTypes() {
  if (testing::kSlowBuild) return {DType::kF16, DType::kQ8_0};
  return {DType::kF16,
          DType::kF32,
          DType::kBF16,
          DType::kQ8_0,
          {DType::kQ5_0, DType::kQ4_0},
          DType::kQ4_0,
          {DType::kQ8_0, DType::kQ5_0}};
}

// The made-up model on the cpu backend with the kernels of one instruction set.
LoadedModel OnCpu(const std::shared_ptr<const ModelFile>& file, const ModelSpec& spec, Isa isa) {
  auto weights = cpu::CpuWeights::Load(file, spec, {.n_threads = 2}, isa);
  EXPECT_TRUE(weights.ok()) << weights.status();
  return {CpuBackend(), *weights};
}

class CpuBackendTest : public ::testing::Test {
 protected:
  // One model per matrix type, shared by all tests.
  struct Made {
    explicit Made(DType type, Blocks blocks = Blocks::kUsual)
        : maker(type, blocks), file(maker.Build()) {}
    ModelMaker maker;
    std::shared_ptr<const ModelFile> file;
  };
  static const Made& Floats() {
    static const Made& made = *new Made(DType::kF32);
    return made;
  }
  static const Made& Quantized() {
    static const Made& made = *new Made(DType::kQ8_0);
    return made;
  }
  static const Made& Rarer() {
    static const Made& made = *new Made(DType::kF32, Blocks::kRarer);
    return made;
  }
  static const Made& RarerQuantized() {
    static const Made& made = *new Made(DType::kQ8_0, Blocks::kRarer);
    return made;
  }
  static LoadedModel Load(const Made& made, Isa isa = PreferredIsa()) {
    return OnCpu(made.file, made.maker.spec(), isa);
  }
  static std::vector<float> Run(const LoadedModel& model, const RunnerOptions& options = {},
                                std::vector<int64_t> chunks = {}) {
    const auto logits = RunTokens(model, Tokens(70), chunks, options);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? *logits : std::vector<float>();
  }
};

TEST_F(CpuBackendTest, EveryBlockMatchesTheReferenceOnEveryInstructionSet) {
  for (const Made* made : {&Floats(), &Rarer()}) {
    const auto weights = ReferenceBackend()->Load(made->file, made->maker.spec(), {});
    ASSERT_TRUE(weights.ok()) << weights.status();
    const std::vector<float> expected = Run({ReferenceBackend(), *weights});
    for (const Isa isa : AvailableIsas()) {
      const std::vector<float> logits = Run(Load(*made, isa));
      EXPECT_LE(MaxDifference(logits, expected), 1e-3) << NameOf(isa);
    }
  }
}

// The biases affect the choice but not the weights: logits stay finite, and show which experts were
// chosen.
TEST_F(CpuBackendTest, ChoosesExpertsLikeTheReferenceWhereScoresAreNoNumbers) {
  for (const std::vector<size_t>& broken : {std::vector<size_t>{0}, {3}, {4, 7, 8}, {9, 10, 11}}) {
    ModelMaker maker(DType::kF32);
    std::vector<float> bias(12, 0.1f);
    for (const size_t expert : broken) bias[expert] = std::numeric_limits<float>::quiet_NaN();
    const TensorRef tensor = maker.box().Add(DType::kF32, {12}, std::as_bytes(std::span(bias)));
    ModelSpec spec = maker.spec();
    int n_biased = 0;
    for (Layer& layer : spec.layers) {
      auto* op = std::get_if<MixtureOfExperts>(&layer.blocks[0].paths[0].op);
      if (op == nullptr || !op->selection_bias) continue;
      op->selection_bias = tensor;
      ++n_biased;
    }
    ASSERT_EQ(n_biased, 1);
    const auto file = maker.Build();
    const auto weights = ReferenceBackend()->Load(file, spec, {});
    ASSERT_TRUE(weights.ok()) << weights.status();
    const std::vector<float> expected = Run({ReferenceBackend(), *weights});
    EXPECT_TRUE(std::ranges::all_of(expected, [](float v) { return std::isfinite(v); }));
    EXPECT_LE(MaxDifference(Run(OnCpu(file, spec, PreferredIsa())), expected), 1e-3);
  }
}

TEST_F(CpuBackendTest, EightBitActivationsStayCloseToTheReference) {
  const auto weights = ReferenceBackend()->Load(Quantized().file, Quantized().maker.spec(), {});
  ASSERT_TRUE(weights.ok()) << weights.status();
  const std::vector<float> expected = Run({ReferenceBackend(), *weights});
  const std::vector<float> logits = Run(Load(Quantized()));
  // Most of the divergence: rounding chooses another expert if a router's scores are close.
  EXPECT_LE(testing::MeanKl(expected, logits, kVocab), 0.06);
}

TEST_F(CpuBackendTest, AllInstructionSetsGiveTheSameBits) {
  for (const Made* made : {&Floats(), &Quantized(), &Rarer(), &RarerQuantized()}) {
    for (const KvTypes kv_type : TestedKvTypes()) {
      RunnerOptions options;
      options.state.kv_type = kv_type;
      const std::vector<float> scalar = Run(Load(*made, Isa::kScalar), options);
      for (const Isa isa : AvailableIsas()) {
        EXPECT_EQ(MaxDifference(Run(Load(*made, isa), options), scalar), 0)
            << NameOf(isa) << ", KV " << NameOf(kv_type);
      }
    }
  }
}

TEST_F(CpuBackendTest, TheSameBitsHoweverItIsRun) {
  for (const Made* made : {&Floats(), &Quantized(), &Rarer(), &RarerQuantized()}) {
    const LoadedModel model = Load(*made);
    for (const KvTypes kv_type : TestedKvTypes()) {
      RunnerOptions options;
      options.state.kv_type = kv_type;
      const std::vector<float> whole = Run(model, options);
      for (const int page_tokens : CpuBackend()->capabilities().page_tokens) {
        options.state.page_tokens = page_tokens;
        options.executor.n_threads = 1 + page_tokens / 16 % 4;
        options.page_seed = static_cast<uint64_t>(page_tokens);
        options.drop_behind_window = page_tokens == 16;
        EXPECT_EQ(MaxDifference(Run(model, options, {13, 1, 5}), whole), 0)
            << page_tokens << " per page, KV " << NameOf(kv_type);
      }
    }
  }
}

// Contexts of several spans, which threads share if there are few rows. Some sequences share the
// others' pages, and end earlier.
TEST_F(CpuBackendTest, TheSameBitsHoweverLongHistoriesAreShared) {
  constexpr int64_t kShort = kAttentionSpan + 88, kLong = 2 * kAttentionSpan + 16, kSteps = 8;
  const std::vector<TokenId> tokens = Tokens(kLong + 3 * kSteps);
  const LoadedModel model = Load(Quantized());
  for (const KvTypes kv_type :
       {KvTypes(DType::kF16), KvTypes(DType::kQ8_0), KvTypes(DType::kQ5_0, DType::kQ4_0)}) {
    RunnerOptions options;
    options.state.kv_type = kv_type;
    const auto whole = RunTokens(model, tokens, std::vector<int64_t>{200}, options);
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const int n_threads : {1, 2, 4}) {
      options.executor.n_threads = n_threads;
      auto runner = ModelRunner::New(model, options);
      ASSERT_TRUE(runner.ok()) << runner.status();
      // Six sequences of two lengths.
      std::vector<int> sequences = {(*runner)->Add()};
      std::vector<int64_t> lengths = {kLong};
      const auto feed = [&](int64_t begin, int64_t end) {
        const auto fed = (*runner)->Feed(
            sequences[0], std::span(tokens).subspan(begin, end - begin), std::vector<int64_t>{512});
        ASSERT_TRUE(fed.ok()) << fed.status();
      };
      const auto fork = [&](int64_t length) {
        const auto forked = (*runner)->Fork(sequences[0], /*share=*/true);
        ASSERT_TRUE(forked.ok()) << forked.status();
        sequences.push_back(*forked);
        lengths.push_back(length);
      };
      feed(0, kShort);
      for (int i = 0; i < 2; ++i) fork(kShort);
      feed(kShort, kLong);
      for (int i = 0; i < 3; ++i) fork(kLong);
      for (int step = 0; step < kSteps; ++step) {
        for (const int64_t n : {1, 2}) {  // rows per sequence
          for (const size_t n_sequences : {size_t{1}, size_t{3}, sequences.size()}) {
            if (n_sequences < sequences.size() && step % 2 == 0) continue;
            std::vector<ModelRunner::Part> parts;
            for (size_t s = 0; s < n_sequences; ++s) {
              parts.push_back({sequences[s], std::span(tokens).subspan(lengths[s], n)});
            }
            const auto logits = (*runner)->Step(parts);
            ASSERT_TRUE(logits.ok()) << logits.status();
            for (size_t s = 0; s < n_sequences; ++s) {
              const auto expected = std::span(*whole).subspan(lengths[s] * kVocab, n * kVocab);
              const auto own = std::span(*logits).subspan(s * n * kVocab, n * kVocab);
              ASSERT_EQ(MaxDifference(own, expected), 0)
                  << n_threads << " threads, KV " << NameOf(kv_type) << ", " << n_sequences
                  << " sequences, number " << s << " at " << lengths[s];
              lengths[s] += n;
            }
          }
          if (step % 2 == 1) break;
        }
      }
    }
  }
}

// Rows without wanted logits are dropped after the last operation that writes state, whatever its
// kind: the model is cut after each of its layers in turn.
TEST_F(CpuBackendTest, TheSameBitsWhoeverWantsLogits) {
  const std::vector<TokenId> tokens = Tokens(21);
  const std::span<const TokenId> all(tokens);
  for (const Made* made : {&Floats(), &Quantized()}) {
    ModelSpec spec = made->maker.spec();
    for (; !spec.layers.empty(); spec.layers.pop_back()) {
      RunnerOptions options;
      options.executor.n_threads = 2;
      auto runner = ModelRunner::New(OnCpu(made->file, spec, PreferredIsa()), options);
      ASSERT_TRUE(runner.ok()) << runner.status();
      const auto expected = (*runner)->Feed((*runner)->Add(), tokens);
      ASSERT_TRUE(expected.ok()) << expected.status();
      const int a = (*runner)->Add(), b = (*runner)->Add(), c = (*runner)->Add();
      const std::vector<std::vector<ModelRunner::Part>> steps = {
          {{a, all.first(17), 0}, {b, all.first(20), 3}, {c, all.first(9), 1}},
          {{a, all.subspan(17, 3), 2}, {c, all.subspan(9, 9), 0}},
          {{c, all.subspan(18, 2), 0}},
          {{a, all.last(1), 1}, {b, all.last(1), 1}, {c, all.last(1), 1}}};
      const std::vector<std::vector<int64_t>> positions = {
          {17, 18, 19, 8}, {18, 19}, {}, {20, 20, 20}};
      for (size_t i = 0; i < steps.size(); ++i) {
        const auto logits = (*runner)->Step(steps[i]);
        ASSERT_TRUE(logits.ok()) << logits.status();
        ASSERT_EQ(logits->size(), positions[i].size() * kVocab);
        for (size_t row = 0; row < positions[i].size(); ++row) {
          const auto row_of = [](const std::vector<float>& rows, int64_t r) {
            return std::span(rows).subspan(static_cast<size_t>(r * kVocab), kVocab);
          };
          EXPECT_EQ(MaxDifference(row_of(*logits, static_cast<int64_t>(row)),
                                  row_of(*expected, positions[i][row])),
                    0)
              << spec.layers.size() << " layers, step " << i << ", row " << row;
        }
      }
    }
  }
}

// A long step pauses between any two blocks while others run, one of them with more rows than
// threads.
TEST_F(CpuBackendTest, TheSameBitsBesideAPausedStep) {
  const std::vector<TokenId> tokens = Tokens(21);
  const std::span<const TokenId> all(tokens);
  for (const Made* made : {&Floats(), &Quantized()}) {
    RunnerOptions options;
    options.executor.n_threads = 2;
    options.executor.max_beside_tokens = 8;
    auto made_runner = ModelRunner::New(Load(*made), options);
    ASSERT_TRUE(made_runner.ok()) << made_runner.status();
    ModelRunner& runner = **made_runner;
    const auto expected = runner.Feed(runner.Add(), tokens);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const int paused = runner.Add(), beside = runner.Add();
    std::vector<float> said;
    size_t next = 0;
    int pauses = 0;
    const auto logits = runner.Step(std::vector<ModelRunner::Part>{{paused, all}}, [&] {
      ++pauses;
      const size_t n = std::min<size_t>(pauses % 3 == 0 ? 7 : 1, all.size() - next);
      if (n == 0) return;
      const auto rows = runner.Step(std::vector<ModelRunner::Part>{{beside, all.subspan(next, n)}});
      ASSERT_TRUE(rows.ok()) << rows.status();
      said.insert(said.end(), rows->begin(), rows->end());
      next += n;
    });
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(pauses, runner.executor().pause_points());
    EXPECT_GT(next, 7u);
    EXPECT_EQ(MaxDifference(*logits, *expected), 0);
    EXPECT_EQ(MaxDifference(said, std::span(*expected).first(said.size())), 0);
  }
}

TEST_F(CpuBackendTest, OneStepOfLimitedSizeGoesBesideAPausedOne) {
  RunnerOptions options;
  options.executor.max_beside_tokens = 4;
  auto made_runner = ModelRunner::New(Load(Floats()), options);
  ASSERT_TRUE(made_runner.ok()) << made_runner.status();
  ModelRunner& runner = **made_runner;
  const std::vector<TokenId> tokens = Tokens(6);
  const std::span<const TokenId> all(tokens);
  const int a = runner.Add(), b = runner.Add(), c = runner.Add();
  const auto step = [&](int sequence, int64_t n, const std::function<void()>& between = {}) {
    const ModelRunner::Part part{sequence, all.first(static_cast<size_t>(n))};
    return runner.Step(std::span(&part, 1), between).status();
  };
  bool asked = false;
  EXPECT_TRUE(step(a, 6, [&] {
                if (std::exchange(asked, true)) return;
                EXPECT_EQ(step(b, 5).code(), StatusCode::kInvalidArgument);
                EXPECT_TRUE(step(b, 4, [&] {
                              EXPECT_EQ(step(c, 1).code(), StatusCode::kFailedPrecondition);
                            }).ok());
              }).ok());
  EXPECT_TRUE(asked);
  EXPECT_TRUE(step(c, 6).ok());
}

TEST_F(CpuBackendTest, TellsOfAFileThatBecameShorter) {
  ModelMaker maker(DType::kQ8_0);
  const std::string path = StrCat(::testing::TempDir(), "weft_shorter_", getpid(), ".gguf");
  ASSERT_TRUE(WriteFile(path, maker.box().Bytes()).ok());
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const LoadedModel model = OnCpu(*file, maker.spec(), PreferredIsa());
  EXPECT_EQ(MaxDifference(Run(model), Run(Load(Quantized()))), 0);
  std::filesystem::resize_file(path, 4096);
  const auto logits = RunTokens(model, Tokens(70));
  EXPECT_EQ(logits.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(logits.status())), HasSubstr(path));
  std::filesystem::remove(path);
}

// A model in a file, and a folder for its packed copies.
class PackedCopyTest : public CpuBackendTest {
 protected:
  PackedCopyTest() {
    std::filesystem::create_directory(folder_);
    EXPECT_TRUE(WriteFile(ModelPath(), maker_.box().Bytes()).ok());
  }
  ~PackedCopyTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path& folder() const { return folder_; }
  static std::filesystem::path ModelIn(const std::filesystem::path& folder) {
    return folder / "model.gguf";
  }
  static std::filesystem::path CopiesIn(const std::filesystem::path& folder) {
    return folder / "a" / "copies";
  }
  std::string ModelPath() const { return ModelIn(folder_); }
  std::filesystem::path CopyFolder() const { return CopiesIn(folder_); }

  struct Loaded {
    LoadedModel model;
    bool was_packed = false;
  };
  Loaded LoadFile(const ModelSpec& spec = Quantized().maker.spec(),
                  int64_t max_bytes = int64_t{1} << 30) const {
    return LoadWith({CopyFolder(), max_bytes}, spec);
  }
  Loaded LoadWith(const PackedCopyOptions& copies,
                  const ModelSpec& spec = Quantized().maker.spec()) const {
    Loaded loaded;
    const auto file = ModelFile::Open(ModelPath());
    EXPECT_TRUE(file.ok()) << file.status();
    LoadOptions options;
    options.packed_copies = copies;
    options.progress = [&](double) { loaded.was_packed = true; };
    const auto weights = CpuBackend()->Load(*file, spec, options);
    EXPECT_TRUE(weights.ok()) << weights.status();
    loaded.model = {CpuBackend(), *weights};
    return loaded;
  }
  std::vector<std::filesystem::path> Copies() const {
    std::vector<std::filesystem::path> copies;
    for (const auto& entry : std::filesystem::directory_iterator(CopyFolder())) {
      if (entry.path().extension() == ".packed") copies.push_back(entry.path());
    }
    std::ranges::sort(copies);
    return copies;
  }

 private:
  ModelMaker maker_{DType::kQ8_0};  // as Quantized
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / StrCat("weft_copies_", getpid());
};

TEST_F(PackedCopyTest, GivesTheSameBits) {
  const std::vector<float> expected = Run(Load(Quantized()));
  const Loaded first = LoadFile(), second = LoadFile();
  EXPECT_TRUE(first.was_packed);
  EXPECT_FALSE(second.was_packed);
  EXPECT_EQ(Copies().size(), 1u);
  EXPECT_EQ(MaxDifference(Run(first.model), expected), 0);
  EXPECT_EQ(MaxDifference(Run(second.model), expected), 0);
  EXPECT_EQ(second.model.weights->memory_bytes(), first.model.weights->memory_bytes());
  EXPECT_EQ(first.model.weights->mapped_bytes(), 0);
  EXPECT_GT(second.model.weights->mapped_bytes(), second.model.weights->memory_bytes() / 2);
  EXPECT_LE(second.model.weights->mapped_bytes(), second.model.weights->memory_bytes());
}

TEST_F(PackedCopyTest, IsOfOneFileAlone) {
  LoadFile();
  // The same name and size, but written later.
  std::filesystem::last_write_time(
      ModelPath(), std::filesystem::last_write_time(ModelPath()) + std::chrono::nanoseconds(1000));
  EXPECT_TRUE(LoadFile().was_packed);
  EXPECT_EQ(Copies().size(), 2u);
  EXPECT_FALSE(LoadFile().was_packed);
}

TEST_F(PackedCopyTest, IsOfOneOrderOfMatricesAlone) {
  LoadFile();
  ModelSpec spec = Quantized().maker.spec();
  std::reverse(spec.layers.begin(), spec.layers.end());
  const auto expected = Run(OnCpu(Quantized().file, spec, PreferredIsa()));
  const Loaded other = LoadFile(spec);
  EXPECT_TRUE(other.was_packed);
  EXPECT_EQ(MaxDifference(Run(other.model), expected), 0);
  const Loaded again = LoadFile(spec);
  EXPECT_FALSE(again.was_packed);
  EXPECT_EQ(MaxDifference(Run(again.model), expected), 0);
  spec.layers.pop_back();
  EXPECT_TRUE(LoadFile(spec).was_packed);
  EXPECT_TRUE(LoadFile().was_packed);
}

TEST_F(PackedCopyTest, AnyDamageIsFound) {
  LoadFile();
  const std::filesystem::path path = Copies().front();
  const auto whole = ReadFile(path, size_t{1} << 30);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto load_from = [&](const std::string& bytes) {
    EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(bytes))).ok());
    return LoadFile();
  };
  EXPECT_FALSE(load_from(*whole).was_packed);
  for (const size_t length : {size_t{0}, size_t{39}, size_t{4096}, whole->size() - 64}) {
    EXPECT_TRUE(load_from(whole->substr(0, length)).was_packed) << length;
    EXPECT_FALSE(LoadFile().was_packed) << length;
  }
  EXPECT_TRUE(load_from(*whole + std::string(64, '\0')).was_packed);
  const std::vector<float> expected = Run(Load(Quantized()));
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    // Each field of the head, the table, and the body; not the padding of the head's last page.
    const size_t at = i < 5   ? static_cast<size_t>(8 * i + i)
                      : i < 8 ? 40 + random() % 8
                              : 4096 + random() % (whole->size() - 4096);
    std::string damaged = *whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    const Loaded loaded = load_from(damaged);
    EXPECT_TRUE(loaded.was_packed) << at;
    if (i % 10 != 0) continue;
    EXPECT_EQ(MaxDifference(Run(loaded.model), expected), 0) << at;
  }
}

TEST_F(PackedCopyTest, TellsOfACopyThatBecameShorter) {
  LoadFile();
  const Loaded loaded = LoadFile();
  EXPECT_TRUE(loaded.model.weights->CheckUnchanged().ok());
  std::filesystem::resize_file(Copies().front(), 4096);
  (void)RunTokens(loaded.model, Tokens(5));  // reads as zeros, but does not crash
  EXPECT_EQ(loaded.model.weights->CheckUnchanged().code(), StatusCode::kDataLoss);
}

TEST_F(PackedCopyTest, CopiesMakeRoom) {
  LoadFile();
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(Copies().front()));
  const std::string first = Copies().front();
  const auto rewrite = [&](int n) {
    std::filesystem::last_write_time(ModelPath(),
                                     std::filesystem::file_time_type() + std::chrono::hours(n));
  };
  rewrite(1);
  LoadFile(Quantized().maker.spec(), 2 * bytes);
  EXPECT_EQ(Copies().size(), 2u);
  rewrite(2);
  LoadFile(Quantized().maker.spec(), 2 * bytes);
  EXPECT_EQ(Copies().size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(first));
  // Use the older of the two.
  rewrite(1);
  EXPECT_FALSE(LoadFile(Quantized().maker.spec(), 2 * bytes).was_packed);
  rewrite(3);
  LoadFile(Quantized().maker.spec(), 2 * bytes);
  rewrite(1);
  EXPECT_FALSE(LoadFile(Quantized().maker.spec(), 2 * bytes).was_packed);
  rewrite(2);
  EXPECT_TRUE(LoadFile(Quantized().maker.spec(), 2 * bytes).was_packed);
  // A copy larger than the limit evicts nothing.
  rewrite(4);
  EXPECT_TRUE(LoadFile(Quantized().maker.spec(), bytes - 1).was_packed);
  EXPECT_EQ(Copies().size(), 2u);
}

// Tells the process that is to be killed the folder of the one that waits for it.
constexpr char kKilledIn[] = "WEFT_TEST_KILLED_IN";

class KilledPackedCopyTest : public PackedCopyTest {
 protected:
  KilledPackedCopyTest() { setenv(kKilledIn, folder().c_str(), /*overwrite=*/0); }
  ~KilledPackedCopyTest() override { unsetenv(kKilledIn); }

  std::vector<std::string> UnfinishedFiles() const {
    std::vector<std::string> unfinished;
    for (const auto& entry : std::filesystem::directory_iterator(CopyFolder())) {
      std::string name = entry.path().filename();
      if (name.starts_with(AtomicFile::kTempPrefix)) unfinished.push_back(std::move(name));
    }
    return unfinished;
  }
  // Most of the copy has been written when the process dies.
  [[noreturn]] void LoadAndDie() const {
    std::filesystem::remove_all(folder());  // nothing of this process is cleaned up later
    const std::filesystem::path waiting = std::getenv(kKilledIn);
    LoadOptions options;
    options.packed_copies = {CopiesIn(waiting), int64_t{1} << 30};
    options.progress = [](double fraction) {
      if (fraction > 0.8) kill(getpid(), SIGKILL);
    };
    const auto file = ModelFile::Open(ModelIn(waiting));
    if (file.ok()) (void)CpuBackend()->Load(*file, Quantized().maker.spec(), options);
    std::exit(0);
  }
};

TEST_F(KilledPackedCopyTest, LeavesNoHalfCopy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LoadAndDie(), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_TRUE(Copies().empty());
  EXPECT_EQ(UnfinishedFiles().size(), 1u);
  const std::vector<float> expected = Run(Load(Quantized()));
  const Loaded next = LoadFile();
  EXPECT_TRUE(next.was_packed);
  EXPECT_TRUE(UnfinishedFiles().empty());
  EXPECT_EQ(Copies().size(), 1u);
  EXPECT_EQ(MaxDifference(Run(next.model), expected), 0);
  // Also by a start that writes none, and by hand.
  std::ofstream(CopyFolder() / StrCat(AtomicFile::kTempPrefix, "1-1")) << "half";
  EXPECT_FALSE(LoadFile().was_packed);
  EXPECT_TRUE(UnfinishedFiles().empty());
  std::ofstream(CopyFolder() / StrCat(AtomicFile::kTempPrefix, "1-2")) << "half";
  const auto freed = cpu::RemovePackedCopies(CopyFolder());
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_GT(*freed, 4);
  EXPECT_TRUE(UnfinishedFiles().empty());
  EXPECT_TRUE(Copies().empty());
}

TEST_F(PackedCopyTest, FilesOfOthersStay) {
  LoadFile();
  const std::vector<std::filesystem::path> foreign = {
      CopyFolder() / StrCat(AtomicFile::kTempPrefix, "notes"),
      CopyFolder() / StrCat(AtomicFile::kTempPrefix, "1-"),
      CopyFolder() / StrCat(AtomicFile::kTempPrefix, "1-2-3"), CopyFolder() / "mine.packed",
      CopyFolder() / StrCat(std::string(32, 'g'), ".packed")};
  for (const auto& path : foreign) std::ofstream(path) << "theirs";
  LoadFile();
  const auto freed = cpu::RemovePackedCopies(CopyFolder());
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_GT(*freed, 0);
  for (const auto& path : foreign) EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

TEST_F(PackedCopyTest, OnlyLargeModelsHaveOneByDefault) {
  PackedCopyOptions copies{CopyFolder(), int64_t{1} << 30, /*is_default=*/true};
  LoadWith(copies);
  EXPECT_FALSE(std::filesystem::exists(CopyFolder()));
  std::filesystem::resize_file(ModelPath(), size_t{256} << 20);
  copies.dir = ModelPath() + "/copies";
  EXPECT_TRUE(LoadWith(copies).was_packed) << "a folder that cannot be is no error";
  copies.dir = CopyFolder();
  EXPECT_TRUE(LoadWith(copies).was_packed);
  EXPECT_FALSE(LoadWith(copies).was_packed);
  EXPECT_EQ(Copies().size(), 1u);
}

TEST_F(PackedCopyTest, AFolderThatCannotBeIsAnError) {
  LoadOptions options;
  options.packed_copies = {ModelPath() + "/copies", int64_t{1} << 30};
  const auto file = ModelFile::Open(ModelPath());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto weights = CpuBackend()->Load(*file, Quantized().maker.spec(), options);
  EXPECT_THAT(std::string(Message(weights.status())), HasSubstr("/copies"));
}

TEST_F(CpuBackendTest, NarrowKvTypesStayClose) {
  const LoadedModel model = Load(Floats());
  const std::vector<float> wide = Run(model);
  const auto difference = [&](KvTypes kv_type) {
    RunnerOptions options;
    options.state.kv_type = kv_type;
    return testing::MeanKl(wide, Run(model, options), kVocab);
  };
  EXPECT_LE(difference(DType::kF16), 1e-3);
  EXPECT_LE(difference(DType::kBF16), 1e-2);
  EXPECT_LE(difference(DType::kQ8_0), 1e-2);
  EXPECT_GT(difference(DType::kQ8_0), 0);
  // Steps of 8 and 16 times the size; random weights make this model sensitive to any.
  EXPECT_GT(difference(DType::kQ5_0), difference(DType::kQ8_0));
  EXPECT_LE(difference({DType::kQ5_0, DType::kQ4_0}), 0.5);
}

TEST_F(CpuBackendTest, SharedMatricesArePackedOnce) {
  ModelSpec spec = Floats().maker.spec();
  const int64_t tied = Load(Floats()).weights->memory_bytes();
  const auto& block = spec.layers.back().blocks.front();
  spec.layers.emplace_back().blocks.push_back(block);
  EXPECT_EQ(OnCpu(Floats().file, spec, PreferredIsa()).weights->memory_bytes(), tied);
}

TEST_F(CpuBackendTest, RefusesWhatItCannotCompute) {
  ModelMaker maker(DType::kF32);
  const std::vector<std::byte> bytes(kWidth * kVocab * 4);
  const TensorRef integers = maker.box().Add(DType::kI32, {kWidth, kVocab}, bytes);
  const auto file = maker.Build();
  ModelSpec spec = maker.spec();
  spec.output.weight = integers;
  const auto typed = CpuBackend()->Load(file, spec, {});
  EXPECT_EQ(typed.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(Message(typed.status())),
              AllOf(HasSubstr(StrCat("tensor.", integers.index)), HasSubstr("I32")));

  spec = maker.spec();
  for (Layer& layer : spec.layers) {
    auto* op = std::get_if<ShortConvolution>(&layer.blocks[0].paths[0].op);
    if (op != nullptr) op->convolution.n_taps = 65;
  }
  EXPECT_EQ(CpuBackend()->Load(file, spec, {}).status().code(), StatusCode::kUnimplemented);
}

TEST_F(CpuBackendTest, RefusesOptionsOutsideItsCapabilities) {
  const LoadedModel model = Load(Floats());
  const auto refused_state = [&](const StateOptions& options) {
    return CpuBackend()->NewState(*model.weights, options).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused_state({.kv_type = DType::kQ4_1}));
  EXPECT_TRUE(refused_state({.kv_type = {DType::kQ5_0, DType::kF16}}));
  EXPECT_TRUE(refused_state({.page_tokens = 24}));
  const auto state = CpuBackend()->NewState(*model.weights, {});
  ASSERT_TRUE(state.ok()) << state.status();
  const auto refused = [&](const ExecutorOptions& options) {
    return CpuBackend()->NewExecutor(model.weights, state->get(), options).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.max_step_tokens = 0}));
  EXPECT_TRUE(refused({.max_step_tokens = int64_t{1} << 40}));
  EXPECT_TRUE(refused({.n_threads = -1}));
  EXPECT_FALSE(refused({.n_threads = 1}));
}

// 0 if the system does not list them.
int64_t ThreadsOfThisProcess() {
  std::error_code error;
  const std::filesystem::directory_iterator threads("/proc/self/task", error);
  return error ? 0 : std::distance(begin(threads), end(threads));
}

TEST_F(CpuBackendTest, ExecutorsMayShareThreads) {
  const LoadedModel model = Load(Floats());
  RunnerOptions options;
  options.executor.n_threads = 3;
  auto first = ModelRunner::New(model, options);
  ASSERT_TRUE(first.ok());
  const int64_t n_threads = ThreadsOfThisProcess();
  options.executor.shares_threads_with = &(*first)->executor();
  auto second = ModelRunner::New(model, options);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(ThreadsOfThisProcess(), n_threads);
  const auto logits = (*first)->Feed((*first)->Add(), Tokens(9));
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ(*(*second)->Feed((*second)->Add(), Tokens(9)), *logits);
  first->reset();
  EXPECT_EQ(*(*second)->Feed((*second)->Add(), Tokens(9)), *logits);
}

TEST_F(CpuBackendTest, ReportsProgressUpToOne) {
  std::vector<double> fractions;
  LoadOptions options;
  options.progress = [&](double fraction) { fractions.push_back(fraction); };
  ASSERT_TRUE(CpuBackend()->Load(Floats().file, Floats().maker.spec(), options).ok());
  ASSERT_FALSE(fractions.empty());
  EXPECT_TRUE(std::ranges::is_sorted(fractions));
  EXPECT_EQ(fractions.back(), 1);
}

TEST_F(CpuBackendTest, PagesReadTheSameWhateverTheyHeldBefore) {
  const LoadedModel model = Load(Floats());
  for (const KvTypes kv_type : TestedKvTypes()) {
    RunnerOptions options;
    options.state.kv_type = kv_type;
    options.pool_pages = 4;
    auto clean = ModelRunner::New(model, options), dirty = ModelRunner::New(model, options);
    ASSERT_TRUE(clean.ok() && dirty.ok());
    const std::vector<TokenId> tokens = Tokens(20);
    std::vector<std::vector<std::byte>> pages;
    for (const bool fill : {false, true}) {
      ModelRunner& runner = fill ? **dirty : **clean;
      StateStore& state = runner.state();
      const auto& page_bytes = state.layout().page_bytes;
      for (int group = 0; fill && group < static_cast<int>(page_bytes.size()); ++group) {
        const std::vector<std::byte> noise(static_cast<size_t>(page_bytes[group]), std::byte{0xFF});
        for (PageId page = 0; page < 4; ++page) {
          ASSERT_TRUE(state.WritePage(group, page, noise).ok());
        }
      }
      ASSERT_TRUE(runner.Feed(runner.Add(), tokens).ok());
      for (int group = 0; group < static_cast<int>(page_bytes.size()); ++group) {
        std::vector<std::byte> page(static_cast<size_t>(page_bytes[group]), std::byte{1});
        ASSERT_TRUE(state.ReadPage(group, 0, 20, page).ok());
        pages.push_back(page);
        ASSERT_TRUE(state.ReadPage(group, 0, 0, page).ok());
        EXPECT_TRUE(std::ranges::all_of(page, [](std::byte b) { return b == std::byte{0}; }));
      }
    }
    for (size_t i = 0; i < pages.size() / 2; ++i) {
      EXPECT_EQ(pages[i], pages[i + pages.size() / 2]) << NameOf(kv_type);
    }
  }
}

TEST_F(CpuBackendTest, SlotsReadTheSameWhereverTheyLie) {
  const LoadedModel model = Load(Floats());
  std::vector<std::vector<std::byte>> slots;
  for (const uint64_t seed : {0, 3}) {  // from the second round on: after use, in any order
    RunnerOptions options;
    options.page_seed = seed;
    options.executor.n_threads = 1 + static_cast<int>(seed);
    auto runner = ModelRunner::New(model, options);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const int sequence = (*runner)->Add();
    const std::vector<int64_t> chunks = {5, 1, 9};
    ASSERT_TRUE(
        (*runner)->Feed(sequence, Tokens(20), seed == 0 ? std::vector<int64_t>() : chunks).ok());
    StateStore& state = (*runner)->state();
    std::vector<std::byte> bytes(static_cast<size_t>(state.layout().slot_bytes));
    ASSERT_TRUE(state.ReadSlot((*runner)->SlotOf(sequence), bytes).ok());
    slots.push_back(bytes);
    const int64_t held = state.held_bytes();
    ASSERT_TRUE(state.ClearSlot((*runner)->SlotOf(sequence)).ok());
    EXPECT_LE(state.held_bytes(), held - state.layout().slot_bytes);
  }
  EXPECT_EQ(slots[0], slots[1]);
  EXPECT_TRUE(std::ranges::any_of(slots[0], [](std::byte b) { return b != std::byte{0}; }));
}

TEST_F(CpuBackendTest, StageStatisticsGrowWithSteps) {
  const LoadedModel model = Load(Floats());
  auto runner = ModelRunner::New(model, {});
  ASSERT_TRUE(runner.ok());
  const Executor& executor = (*runner)->executor();
  const int sequence = (*runner)->Add();
  ASSERT_TRUE((*runner)->Feed(sequence, Tokens(40)).ok());
  const StageStats after_one = executor.stage_stats();
  EXPECT_EQ(after_one.steps, 1);
  EXPECT_EQ(after_one.rows, 40);
  EXPECT_GT(after_one.weight_bytes, 0);
  EXPECT_GT(after_one.kv_bytes, 0);
  EXPECT_GE(after_one.total_ns, after_one.matmul_ns + after_one.attention_ns);
  EXPECT_GT(after_one.float_macs, 0);
  EXPECT_EQ(after_one.int8_macs, 0);
  ASSERT_TRUE((*runner)->Feed(sequence, Tokens(3)).ok());
  EXPECT_EQ(executor.stage_stats().steps, 2);
  EXPECT_GT(executor.stage_stats().total_ns, after_one.total_ns);
}

TEST_F(CpuBackendTest, StageStatisticsCountMultiplyAdds) {
  const LoadedModel model = Load(Floats());
  auto runner = ModelRunner::New(model, {});
  ASSERT_TRUE(runner.ok());
  const Executor& executor = (*runner)->executor();
  const int sequence = (*runner)->Add();
  // The third and the fourth row cost the same, except for one more position to attend to.
  std::vector<StageStats> stats;
  for (const int n : {2, 1, 1}) {
    ASSERT_TRUE((*runner)->Feed(sequence, Tokens(n)).ok());
    stats.push_back(executor.stage_stats());
  }
  EXPECT_EQ(stats[2].float_macs - stats[1].float_macs, stats[1].float_macs - stats[0].float_macs);
  EXPECT_EQ(stats[2].attention_int8_macs, 0);
  const int64_t of_third = stats[1].attention_macs - stats[0].attention_macs;
  const int64_t of_fourth = stats[2].attention_macs - stats[1].attention_macs;
  EXPECT_EQ(of_third % 3, 0);
  EXPECT_EQ(of_fourth, of_third / 3 * 4);
}

// More operations than in floats, because a value's weight takes two bytes; a score takes one
// product.
TEST_F(CpuBackendTest, StageStatisticsCountAttentionInIntegersApart) {
  const LoadedModel model = Load(Floats());
  const auto stats_with = [&](DType kv_type) {
    RunnerOptions options;
    options.state.kv_type = kv_type;
    auto runner = ModelRunner::New(model, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    const int sequence = (*runner)->Add();
    EXPECT_TRUE((*runner)->Feed(sequence, Tokens(3)).ok());
    return (*runner)->executor().stage_stats();
  };
  const StageStats floats = stats_with(DType::kF16), integers = stats_with(DType::kQ8_0);
  EXPECT_EQ(integers.attention_macs, 0);
  EXPECT_GT(integers.attention_int8_macs, floats.attention_macs);
  EXPECT_LT(integers.attention_int8_macs, 2 * floats.attention_macs);
}

// On the reference models, every instruction set gives the bits of the scalar kernels.
TEST(CpuGoldens, AllInstructionSetsGiveTheSameBits) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* name :
       {"models/gemma4", "models/deepseek2", "models/phi3", "models/olmo2", "models/lfm2",
        "models/qwen35", "models/qwen3next", "models/falcon-h1", "quantized/llama.Q4_K_M",
        "quantized/llama.Q2_K", "quantized/qwen3.IQ4_XS", "quantized/gpt-oss.MXFP4_MOE"}) {
    const auto file = ModelFile::Open(StrCat(testing::GoldensDir(), "/", name, ".gguf"));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto spec = BuildModelSpec(**file, {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto run = [&](Isa isa) { return RunTokens(OnCpu(*file, *spec, isa), Tokens(24)); };
    const auto scalar = run(Isa::kScalar);
    ASSERT_TRUE(scalar.ok()) << scalar.status();
    for (const Isa isa : AvailableIsas()) {
      EXPECT_EQ(MaxDifference(*run(isa), *scalar), 0) << name << " on " << NameOf(isa);
    }
  }
}

}  // namespace
}  // namespace weft
