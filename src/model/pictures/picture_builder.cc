#include "model/pictures/picture_builder.h"

#include <cmath>
#include <utility>

#include "base/strings.h"

namespace weft {
namespace {

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kColors = 3;

std::string LayerOf(int64_t layer) { return StrCat("v.blk.", layer, "."); }

}  // namespace

Rope PlaneRope(RopePairs pairs, int64_t k_dim, double base, double first_of_columns) {
  Rope rope;
  rope.pairs = pairs;
  for (const uint8_t axis : {kRowAxis, kColumnAxis}) {
    const double first = axis == kColumnAxis ? first_of_columns : 0;
    for (int64_t j = 0; j < k_dim / 4; ++j) {
      const double exponent = first + 4 * static_cast<double>(j) / static_cast<double>(k_dim);
      rope.frequencies.push_back(std::pow(base, -exponent));
      rope.axes.push_back(axis);
    }
  }
  return rope;
}

PictureBuilder::PictureBuilder(const ModelFile& file, std::string projector)
    : file_(file), reader_(file, {}, "clip") {
  spec_.projector = std::move(projector);
  spec_.name = reader_.spec().name;
  n_layers_ = reader_.Int("vision.block_count", 1, kMaxLayers);
  d_model_ = reader_.Int("vision.embedding_length", 1);
  n_heads_ = reader_.Int("vision.attention.head_count", 1, SpecBuilder::kMaxHeadDim);
  epsilon_ = static_cast<float>(reader_.Float("vision.attention.layer_norm_epsilon", 0, 1));
  if (ok() && d_model_ % n_heads_ != 0) {
    reader_.FailKey("vision.attention.head_count",
                    StrCat("is ", n_heads_, ", which does not part ", d_model_, " values"));
  }
  activation_ = ReadActivation();
  ReadPreparation();
}

void PictureBuilder::ReadPreparation() {
  PicturePreparation& preparation = spec_.preparation;
  preparation.patch = reader_.Int("vision.patch_size", 1, 256);
  preparation.unit = preparation.patch;
  preparation.side = reader_.Int("vision.image_size", preparation.patch, kMaxSide);
  const std::vector<float> means = reader_.PlainFloats("clip.vision.image_mean", kColors, -10, 10);
  const std::vector<float> deviations =
      reader_.PlainFloats("clip.vision.image_std", kColors, 1e-6, 1e3);
  for (size_t c = 0; c < kColors; ++c) {
    preparation.mean[c] = means[c];
    preparation.deviation[c] = deviations[c];
  }
}

Activation PictureBuilder::ReadActivation() {
  const bool gelu = reader_.BoolOr("use_gelu", false), silu = reader_.BoolOr("use_silu", false);
  if (gelu == silu) {
    reader_.FailKey("use_gelu", gelu
                                    ? "and use_silu are both true, expected one of them"
                                    : "and use_silu are both false: an encoder of that kind is not "
                                      "known here");
  }
  return silu ? Activation::kSilu : Activation::kGeluTanh;
}

Norm PictureBuilder::NormOf(const std::string& name, int64_t width, NormKind kind) {
  if (kind == NormKind::kRms) return reader_.RmsNorm(name, width, epsilon_);
  return reader_.LayerNorm(name, width, epsilon_);
}

ModelSpec PictureBuilder::TakeStage() {
  ModelSpec next;
  next.architecture = reader_.spec().architecture;
  next.d_model = d_model_;
  std::swap(next, reader_.spec());
  return next;
}

void PictureBuilder::AddPatches() {
  const int64_t n_values = patch() * patch() * kColors;
  reader_.spec().d_model = d_model_;
  RowInput input;
  input.proj = reader_.Matrix("v.patch_embd", n_values, d_model_);
  reader_.spec().row_input = input;
  spec_.stages.push_back({.spec = TakeStage()});
}

void PictureBuilder::BeginLayers() {
  open_ = {};
  open_.input = static_cast<int>(spec_.stages.size()) - 1;
  reader_.spec().row_input = RowInput();
}

void PictureBuilder::AddPositions(int64_t n_positions) {
  open_.positions = reader_.Matrix("v.position_embd", d_model_, n_positions).weight;
  open_.n_positions = n_positions;
}

void PictureBuilder::AddFirstNorm() {
  reader_.spec().row_input->norm = NormOf("v.pre_ln", d_model_);
}

void PictureBuilder::AddLastNorm(const std::string& name) {
  reader_.spec().output_norm = NormOf(name, d_model_);
}

int PictureBuilder::EndLayers(int64_t window) {
  open_.window = window;
  open_.spec = TakeStage();
  spec_.stages.push_back(std::move(open_));
  return static_cast<int>(spec_.stages.size()) - 1;
}

BidirectionalAttention PictureBuilder::ReadAttention(const std::string& layer, const Rope& rope) {
  BidirectionalAttention attention;
  attention.n_heads = attention.n_kv_heads = static_cast<int>(n_heads_);
  attention.k_dim = attention.v_dim = k_dim();
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(k_dim())));
  if (!rope.frequencies.empty()) attention.rope = reader_.AddRope(rope);
  const int64_t n = d_model_;
  if (reader_.HasTensor(layer + "attn_qkv.weight")) {
    attention.q = reader_.MatrixRows(layer + "attn_qkv", n, 3 * n, 0, n);
    attention.k = reader_.MatrixRows(layer + "attn_qkv", n, 3 * n, n, n);
    attention.v = reader_.MatrixRows(layer + "attn_qkv", n, 3 * n, 2 * n, n);
  } else {
    attention.q = reader_.Matrix(layer + "attn_q", n, n);
    attention.k = reader_.Matrix(layer + "attn_k", n, n);
    attention.v = reader_.Matrix(layer + "attn_v", n, n);
  }
  attention.out = reader_.Matrix(layer + "attn_out", n, n);
  return attention;
}

DenseFfn PictureBuilder::ReadFfn(const std::string& layer) {
  std::string up = layer + "ffn_up", down = layer + "ffn_down";
  // Older files have these two names the other way round.
  const int index = file_.FindTensor(down + ".weight");
  const bool is_swapped = index >= 0 && file_.tensors()[index].dims[0] == d_model_ &&
                          file_.tensors()[index].dims[1] != d_model_;
  if (is_swapped) std::swap(up, down);
  DenseFfn ffn;
  ffn.activation = activation_;
  const int64_t n_ff = std::max<int64_t>(1, reader_.RowsOf(up));
  ffn.up = reader_.Matrix(up, d_model_, n_ff);
  if (reader_.HasTensor(layer + "ffn_gate.weight")) {
    ffn.gate = reader_.Matrix(layer + "ffn_gate", d_model_, n_ff);
  }
  ffn.down = reader_.Matrix(down, n_ff, d_model_);
  return ffn;
}

void PictureBuilder::AddLayer(int64_t layer, const Rope& rope) {
  const std::string name = LayerOf(layer);
  Norm before_attention = NormOf(name + "ln1", d_model_);
  BidirectionalAttention attention = ReadAttention(name, rope);
  Norm before_ffn = NormOf(name + "ln2", d_model_);
  reader_.spec().layers.push_back(
      {{MakeBlock(before_attention, std::move(attention)), MakeBlock(before_ffn, ReadFfn(name))}});
}

int PictureBuilder::AddProjection(const Projection& projection) {
  ModelSpec& stage = reader_.spec();
  RowInput input;
  input.norm = projection.norm;
  input.proj = projection.first;
  if (projection.second) input.activation = projection.activation;
  stage.row_input = input;
  stage.d_model = projection.first.n_out;
  stage.output = projection.second;
  stage.n_vocab = projection.second.n_out;
  spec_.stages.push_back(
      {.spec = TakeStage(), .input = projection.input, .change = projection.change});
  return static_cast<int>(spec_.stages.size()) - 1;
}

void PictureBuilder::AddOutput(const Projection& projection) {
  spec_.outputs.push_back(AddProjection(projection));
  spec_.width += projection.second ? projection.second.n_out : projection.first.n_out;
}

StatusOr<PictureSpec> PictureBuilder::Finish() {
  WEFT_RETURN_IF_ERROR(reader_.Finish().status());
  return std::move(spec_);
}

}  // namespace weft
