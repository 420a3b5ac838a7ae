// Gemma 3n: four streams (AltUp), of which layers compute with the first; a residual of low rank
// beside attention, sparse gates in the first layers, inputs for every layer from a second table,
// and layers that read an earlier layer's keys and values.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

// What no file says, or files say as these models have it.
constexpr int64_t kStreams = 4, kLowRank = 64, kInputWidth = 256, kWindowPeriod = 5;
constexpr int64_t kOwnLayers = 20, kSparseLayers = 10;
constexpr float kSparsity = 1.6448536f;

struct Gemma3n {
  Dims dims;
  int64_t window = 0;
  std::vector<bool> is_local;
  int global_rope = -1, local_rope = -1;
  int64_t n_own = 0;  // the first layers, that store keys and values
  std::vector<float> sparsity;
  std::vector<int> kv_layers;  // one per layer so far
};

void ReadStreams(SpecBuilder& b, const Dims& dims) {
  if (b.IntOr("altup.num_inputs", kStreams, 1, 64) != kStreams ||
      b.IntOr("altup.active_idx", 0, 0, 64) != 0) {
    b.FailKey("altup.num_inputs", "and altup.active_idx are known as 4 and 0 alone");
  }
  b.spec().n_side_streams = static_cast<int>(kStreams - 1);
  const int64_t width = b.IntOr("embedding_length_per_layer_input", kInputWidth, 1);
  const int64_t n_values = width * dims.n_layers, n_vocab = b.spec().n_vocab;
  PerLayerInput input;
  input.table = b.MatrixRows("per_layer_token_embd", n_values, n_vocab, 0, n_vocab).weight;
  input.proj = b.Matrix("per_layer_model_proj", dims.d_model, n_values);
  input.norm = b.RmsNorm("per_layer_proj_norm", width, dims.epsilon);
  input.width = width;
  input.table_scale = std::sqrt(static_cast<float>(width));
  input.proj_scale = 1 / std::sqrt(static_cast<float>(dims.d_model));
  input.sum_scale = 1 / std::sqrt(2.0f);
  b.spec().per_layer_input = input;
}

Attention MakeGemma3nAttention(SpecBuilder& b, Gemma3n* model, int64_t layer) {
  const Dims& dims = model->dims;
  const bool local = model->is_local[layer];
  AttentionShape shape = b.ShapeOf(dims, layer);
  const int64_t source = layer < model->n_own ? layer : model->n_own - (local ? 2 : 1);
  if (source < 0 || model->is_local[source] != local) {
    b.FailKey("attention.shared_kv_layers",
              StrCat("leaves layer ", layer, " without a layer whose keys it could read"));
    return {};
  }
  Attention attention;
  if (source == layer) {
    shape.window = local ? model->window : 0;
    shape.norms = HeadNorms::kAlways;
    attention = b.MakeAttention(layer, dims, shape);
    attention.v_norm = PlainRmsNorm(dims.v_dim, dims.epsilon);
  } else {
    // Files still carry the weights of the keys that such a layer never computes.
    for (const char* unread : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}) {
      b.Ignore(LayerName(layer, unread));
    }
    attention.n_heads = static_cast<int>(shape.n_heads);
    attention.n_kv_heads = static_cast<int>(shape.n_kv_heads);
    attention.k_dim = shape.k_dim;
    attention.v_dim = shape.v_dim;
    attention.q = b.Matrix(LayerName(layer, "attn_q"), dims.d_model, shape.n_heads * shape.k_dim);
    attention.q_norm = b.RmsNorm(LayerName(layer, "attn_q_norm"), shape.k_dim, dims.epsilon);
    attention.out =
        b.Matrix(LayerName(layer, "attn_output"), shape.n_heads * shape.v_dim, dims.d_model);
    attention.writes_kv = false;
    attention.kv_layer = model->kv_layers[source];
  }
  model->kv_layers.push_back(attention.kv_layer);
  attention.rope = local ? model->local_rope : model->global_rope;
  attention.scale = 1;
  return attention;
}

// The streams' router, for both of a layer's operations on them.
template <typename Operation>
void ReadRouter(SpecBuilder& b, const Dims& dims, int64_t layer, Operation* op) {
  op->router = b.Matrix(LayerName(layer, "altup_router"), dims.d_model, kStreams);
  op->router_norm = b.StreamNorm(layer, "altup_router_norm", dims);
  op->router_norm.factor = 1 / static_cast<float>(dims.d_model);
}

CorrectSides MakeCorrection(SpecBuilder& b, const Dims& dims, int64_t layer) {
  const int64_t width = b.spec().per_layer_input ? b.spec().per_layer_input->width : 1;
  CorrectSides op;
  op.layer = static_cast<int>(layer);
  ReadRouter(b, dims, layer, &op);
  op.coefficients = b.Matrix(LayerName(layer, "altup_correct_coef"), kStreams, kStreams);
  op.scale = b.Vector(LayerName(layer, "altup_correct_scale.weight"), dims.d_model);
  op.gate = b.Matrix(LayerName(layer, "inp_gate"), dims.d_model, width);
  op.proj = b.Matrix(LayerName(layer, "proj"), width, dims.d_model);
  op.post_norm = b.StreamNorm(layer, "post_norm", dims);
  return op;
}

Layer MakeGemma3nLayer(SpecBuilder& b, Gemma3n* model, int64_t layer) {
  const Dims& dims = model->dims;
  const auto norm = [&](std::string_view name) { return b.StreamNorm(layer, name, dims); };
  PredictSides predict;
  ReadRouter(b, dims, layer, &predict);
  predict.coefficients =
      b.Matrix(LayerName(layer, "altup_predict_coef"), kStreams, kStreams * kStreams);

  LowRank low_rank;
  low_rank.down = b.Matrix(LayerName(layer, "laurel_l"), dims.d_model, kLowRank);
  low_rank.up = b.Matrix(LayerName(layer, "laurel_r"), kLowRank, dims.d_model);
  low_rank.norm = norm("laurel_post_norm");
  Block attention;
  attention.keeps_input = true;
  attention.pre = norm("attn_norm");
  attention.paths.push_back(
      {Norm(), MakeGemma3nAttention(b, model, layer), norm("post_attention_norm")});
  attention.paths.push_back({Norm(), low_rank, Norm()});
  attention.stream_factor = 1 / std::sqrt(2.0f);

  DenseFfn ffn = b.MakeFfn(layer, dims, dims.n_ff[layer], Activation::kGeluTanh);
  ffn.sparsity = model->sparsity[layer];
  return {{MakeBlock(Norm(), predict), std::move(attention),
           MakeBlock(norm("ffn_norm"), ffn, norm("post_ffw_norm")),
           MakeBlock(Norm(), MakeCorrection(b, dims, layer))}};
}

}  // namespace

void BuildGemma3n(SpecBuilder& b) {
  Gemma3n model;
  model.dims = b.ReadDims();
  const Dims& dims = model.dims;
  b.ReadEnds(dims);
  b.spec().embedding_scale = std::sqrt(static_cast<float>(dims.d_model));
  b.spec().logit_softcap = static_cast<float>(b.FloatOr("final_logit_softcapping", 30, 0, 1e6));
  ReadStreams(b, dims);
  model.window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  model.is_local = b.ReadWindowPattern(dims.n_layers, kWindowPeriod);
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  model.global_rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", 10000, 1.000001, 1e15);
  model.local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  const int64_t n_shared = std::max<int64_t>(0, dims.n_layers - kOwnLayers);
  model.n_own =
      dims.n_layers - b.IntOr("attention.shared_kv_layers", n_shared, 0, dims.n_layers - 1);
  model.sparsity.assign(static_cast<size_t>(dims.n_layers), 0);
  std::fill_n(model.sparsity.begin(), std::min(kSparseLayers, dims.n_layers), kSparsity);
  if (b.HasKey("activation_sparsity_scale")) {
    model.sparsity = b.FloatsOr("activation_sparsity_scale", dims.n_layers, 0, 0, 100);
  }

  EnterSides enter;
  enter.enter = b.Stack("altup_proj", dims.d_model, dims.d_model, kStreams - 1);
  LeaveSides leave;
  leave.leave = b.Stack("altup_unembd_proj", dims.d_model, dims.d_model, kStreams - 1);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Layer out = MakeGemma3nLayer(b, &model, layer);
    if (layer == 0) out.blocks.insert(out.blocks.begin(), MakeBlock(Norm(), enter));
    if (layer == dims.n_layers - 1) out.blocks.push_back(MakeBlock(Norm(), leave));
    b.spec().layers.push_back(std::move(out));
  }
}

}  // namespace weft
