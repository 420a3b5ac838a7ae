// DeepSeek V4: four streams joined by hyper-connections; attention to the last positions and to
// compressed entries of the earlier ones, which an index chooses where they are many; experts that
// the token's id chooses in the first layers.
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

// Runs of this many positions overlap and have an index.
constexpr int64_t kIndexedStride = 4;

struct DeepSeek4 {
  Dims dims;
  int64_t window = 0;
  int64_t q_rank = 0;
  int64_t n_groups = 1, group_rank = 0;  // of the heads' outputs
  std::vector<int64_t> strides;          // by layer; 0: no entries
  int plain_rope = -1, entry_rope = -1;
  int n_index_heads = 0;
  int64_t index_dim = 0, n_chosen = 0;
  GatherSides gather;  // without tensors
  MixtureOfExperts experts;
  int64_t n_ff_expert = 0, n_ff_shared = 0;
  int64_t n_by_token = 0;  // layers whose experts the token's id chooses
  std::vector<float> expert_limits, shared_limits;
};

void ReadRopes(SpecBuilder& b, DeepSeek4* model) {
  RopeShape shape = b.ReadRopeShape(RopePairs::kAdjacent, model->dims);
  model->plain_rope = b.AddRope(MakeRope(shape, RopeScaling(), {}));
  RopeScaling scaling = b.ReadRopeScaling();
  shape.base = b.Float("attention.compress_rope_freq_base", 1.000001, 1e15);
  // Cosine and sine stay as they are: without the file's factor, and without YaRN's growth.
  scaling.magnitude = 1;
  if (scaling.kind == RopeScalingKind::kYarn) scaling.magnitude_multiplier = 0.1;
  model->entry_rope = b.AddRope(MakeRope(shape, scaling, {}));
}

void ReadAttention(SpecBuilder& b, DeepSeek4* model) {
  const Dims& dims = model->dims;
  model->window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  model->q_rank = b.Int("attention.q_lora_rank", 1);
  model->n_groups = b.Int("attention.output_group_count", 1, dims.n_heads[0]);
  model->group_rank = b.Int("attention.output_lora_rank", 1);
  model->strides = b.FirstInts("attention.compress_ratios", dims.n_layers, 0, 128);
  for (const int64_t stride : model->strides) {
    if (stride == 0 || stride == kIndexedStride || stride == 128) continue;
    b.FailKey("attention.compress_ratios", StrCat("holds ", stride, ", expected 0, 4 or 128"));
  }
  model->n_index_heads = static_cast<int>(b.Int("attention.indexer.head_count", 1, 1 << 16));
  model->index_dim = b.Int("attention.indexer.key_length", 1, SpecBuilder::kMaxHeadDim);
  model->n_chosen = b.Int("attention.indexer.top_k", 1);
  if (b.ok() && model->index_dim < dims.n_rot) {
    b.FailKey("attention.indexer.key_length", "is less than rope.dimension_count");
  }
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    if (dims.n_kv_heads[layer] != 1) b.FailKey("attention.head_count_kv", "is not 1");
    if (dims.n_heads[layer] % model->n_groups != 0) {
      b.FailKey("attention.output_group_count", "does not divide the number of heads");
    }
  }
  if (b.ok() && dims.v_dim != dims.k_dim) {
    b.FailKey("attention.value_length", "is not that of keys, which are the values");
  }
}

void ReadStreams(SpecBuilder& b, DeepSeek4* model) {
  GatherSides& gather = model->gather;
  gather.n = static_cast<int>(b.Int("hyper_connection.count", 1, 64));
  gather.n_rounds = static_cast<int>(b.Int("hyper_connection.sinkhorn_iterations", 1, 1000));
  gather.mix_epsilon = static_cast<float>(b.Float("hyper_connection.epsilon", 0, 1));
  gather.epsilon = model->dims.epsilon;
  if (b.ok() && gather.n_coefficients() > model->dims.d_model) {
    b.FailKey("hyper_connection.count", "is too large for such narrow streams");
  }
  b.spec().n_side_streams = gather.n + 1;
}

void ReadExperts(SpecBuilder& b, DeepSeek4* model) {
  const int64_t n_blocks = b.n_blocks();
  model->experts = b.ReadMoe({.weights = RouterWeights::kRootSoftplus});
  model->n_ff_expert = b.Int("expert_feed_forward_length", 1);
  model->n_ff_shared = model->n_ff_expert * b.IntOr("expert_shared_count", 0, 0, 1024);
  model->n_by_token = b.Int("hash_layer_count", 0, SpecBuilder::kMaxSize);
  if (model->n_by_token > 0 && model->experts.n_groups > 1) {
    b.FailKey("expert_group_count", "is not 1, though the token's id chooses experts");
  }
  model->expert_limits = b.FloatsOr("swiglu_clamp_exp", n_blocks, 0, 0, 1e9);
  model->shared_limits = b.HasKey("swiglu_clamp_shexp")
                             ? b.FloatsOr("swiglu_clamp_shexp", n_blocks, 0, 0, 1e9)
                             : model->expert_limits;
}

GatherSides MakeGather(SpecBuilder& b, const DeepSeek4& model, const std::string& name, bool ends) {
  GatherSides gather = model.gather;
  gather.ends = ends;
  const int64_t n_out = ends ? gather.n : gather.n_coefficients();
  gather.map = b.Matrix(name + "_fn", gather.n * model.dims.d_model, n_out);
  gather.scale = b.Vector(name + "_scale.weight", ends ? 1 : 3);
  gather.base = b.Vector(name + "_base.weight", n_out);
  return gather;
}

// `name`: of the tensors, "blk.0.attn" for example.
EntrySeries MakeSeries(SpecBuilder& b, const DeepSeek4& model, const std::string& name,
                       int64_t stride, int64_t dim, EntryTensors<InFile>* tensors) {
  EntrySeries series;
  series.stride = stride;
  series.dim = dim;
  series.overlaps = stride == kIndexedStride;
  const int64_t width = series.width(), d_model = model.dims.d_model;
  series.recent_layer = b.AddKvLayer(series.reach(), 1, width, width);
  b.spec().kv_layers[static_cast<size_t>(series.recent_layer)].exact = true;
  series.entry_layer = b.AddKvLayer(0, 1, dim, 0);
  b.spec().kv_layers[static_cast<size_t>(series.entry_layer)].stride = stride;
  tensors->content = b.Matrix(name + "_compressor_kv", d_model, width);
  tensors->gate = b.Matrix(name + "_compressor_gate", d_model, width);
  tensors->offsets = b.Table(name + "_compressor_ape.weight", width, stride);
  tensors->norm = b.RmsNorm(name + "_compressor_norm", dim, model.dims.epsilon);
  return series;
}

CompressedAttention MakeAttention(SpecBuilder& b, const DeepSeek4& model, int64_t layer) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  const Dims& dims = model.dims;
  const int64_t n_heads = dims.n_heads[layer], dim = dims.k_dim, stride = model.strides[layer];
  CompressedAttention op;
  op.n_heads = static_cast<int>(n_heads);
  op.dim = dim;
  op.rope_dim = dims.n_rot;
  op.rope = stride > 0 ? model.entry_rope : model.plain_rope;
  op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  op.kv_layer = b.AddKvLayer(model.window, 1, dim, 0);
  op.q_a = b.Matrix(name("attn_q_a"), dims.d_model, model.q_rank);
  op.q_a_norm = b.RmsNorm(name("attn_q_a_norm"), model.q_rank, dims.epsilon);
  op.q_b = b.Matrix(name("attn_q_b"), model.q_rank, n_heads * dim);
  op.q_norm = PlainRmsNorm(dim, dims.epsilon);
  op.kv = b.Matrix(name("attn_kv"), dims.d_model, dim);
  op.kv_norm = b.RmsNorm(name("attn_kv_a_norm"), dim, dims.epsilon);
  op.sinks = b.Vector(name("attn_sinks.weight"), n_heads);
  const int64_t n_inner = model.n_groups * model.group_rank;
  // The groups' matrices lie one after the other.
  op.out_a.n_in = n_heads * dim / model.n_groups;
  op.out_a.weight = b.Table(name("attn_output_a.weight"), op.out_a.n_in, n_inner);
  op.out_a.n_out = model.group_rank;
  op.out_a.count = model.n_groups;
  op.out_b = b.Matrix(name("attn_output_b"), n_inner, dims.d_model);
  if (stride == 0) return op;
  op.series = MakeSeries(b, model, name("attn"), stride, dim, &op.entries);
  if (stride != kIndexedStride) return op;
  op.index = MakeSeries(b, model, name("indexer"), stride, model.index_dim, &op.index_entries);
  op.n_index_heads = model.n_index_heads;
  op.count = model.n_chosen;
  op.index_q =
      b.Matrix(name("indexer.attn_q_b"), model.q_rank, model.n_index_heads * model.index_dim);
  op.index_weights = b.Matrix(name("indexer.proj"), dims.d_model, model.n_index_heads);
  return op;
}

// A limit of 0 is none.
void Clamp(float limit, Activation* activation, ActivationNumbers* numbers) {
  if (limit <= 0) return;
  *activation = Activation::kSiluOfClamped;
  numbers->limit = limit;
}

Block MakeFeedForward(SpecBuilder& b, const DeepSeek4& model, int64_t layer) {
  const Dims& dims = model.dims;
  Block block;
  block.pre = b.StreamNorm(layer, "ffn_norm", dims);
  MixtureOfExperts experts = model.experts;
  b.AddExperts(layer, dims, model.n_ff_expert, &experts);
  Clamp(model.expert_limits[layer], &experts.activation, &experts.numbers);
  if (layer < model.n_by_token) {
    experts.n_tokens = b.spec().n_vocab;
    experts.by_token = b.NumberTable(LayerName(layer, "ffn_gate_tid2eid.weight"), experts.n_used,
                                     experts.n_tokens, experts.n_experts);
    if (experts.selection_bias) {
      b.FailTensor(LayerName(layer, "exp_probs_b.bias"),
                   "is in a layer whose experts the token's id chooses");
    }
  }
  // It chooses experts for pictures, which are not read here.
  b.Ignore(LayerName(layer, "exp_probs_b_vl.bias"));
  block.paths.push_back({Norm(), std::move(experts), Norm()});
  if (model.n_ff_shared < 1) return block;
  DenseFfn shared = b.MakeFfn(layer, dims, model.n_ff_shared, Activation::kSilu, "_shexp");
  Clamp(model.shared_limits[layer], &shared.activation, &shared.numbers);
  block.paths.push_back({Norm(), std::move(shared), Norm()});
  return block;
}

// Puts the block between the gathering and the spreading of the streams.
void AddBetweenStreams(const GatherSides& gather, Block block, Layer* layer) {
  Block mix = MakeBlock(Norm(), gather), spread = MakeBlock(Norm(), SpreadSides());
  std::get<SpreadSides>(spread.paths[0].op).n = gather.n;
  for (Block* part : {&mix, &block, &spread}) {
    part->replaces_stream = true;
    layer->blocks.push_back(std::move(*part));
  }
}

}  // namespace

void BuildDeepSeek4(SpecBuilder& b) {
  DeepSeek4 model;
  model.dims = b.ReadDims();
  b.ReadEnds(model.dims);
  ReadRopes(b, &model);
  ReadAttention(b, &model);
  ReadStreams(b, &model);
  ReadExperts(b, &model);
  for (int64_t layer = 0; b.ok() && layer < model.dims.n_layers; ++layer) {
    GatherSides gather = MakeGather(b, model, LayerName(layer, "hc_attn"), false);
    gather.begins = layer == 0;
    Layer out;
    AddBetweenStreams(
        gather,
        MakeBlock(b.StreamNorm(layer, "attn_norm", model.dims), MakeAttention(b, model, layer)),
        &out);
    AddBetweenStreams(MakeGather(b, model, LayerName(layer, "hc_ffn"), false),
                      MakeFeedForward(b, model, layer), &out);
    if (layer == model.dims.n_layers - 1) {
      Block mix = MakeBlock(Norm(), MakeGather(b, model, "output_hc", true));
      mix.replaces_stream = true;
      out.blocks.push_back(std::move(mix));
    }
    b.spec().layers.push_back(std::move(out));
  }
}

}  // namespace weft
