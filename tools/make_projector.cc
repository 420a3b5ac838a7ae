#include "tools/make_projector.h"

#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "model/formats/gguf_writer.h"
#include "tools/random_weights.h"

namespace weft::tools {
namespace {

// clang-format off
constexpr ProjectorShape kProjectorShapes[] = {
    // name, projector, layers, embd, ffn, heads, patch, image_size, factor, width
    {"tiny-gemma3-mmproj", "gemma3", 3, 96, 160, 4, 14, 112, 4, 32},
    {"tiny-idefics3-mmproj", "idefics3", 3, 96, 160, 4, 14, 84, 2, 32},
    {"tiny-qwen2.5vl-mmproj", "qwen2.5vl_merger", 4, 96, 160, 4, 14, 560, 2, 32},
    {"tiny-qwen3vl-mmproj", "qwen3vl_merger", 4, 96, 160, 4, 14, 112, 2, 32},
    {"tiny-pixtral-mmproj", "pixtral", 3, 96, 160, 4, 14, 560, 1, 32},
    {"tiny-mistral3-mmproj", "pixtral", 3, 96, 160, 4, 14, 560, 2, 32},
};
// clang-format on

constexpr int64_t kColors = 3;
constexpr int64_t kWindowPeriod = 2;         // one layer in this many sees the whole picture
constexpr int64_t kGivingLayers[] = {0, 2};  // whose rows go into the language model's layers

class ProjectorMaker {
 public:
  ProjectorMaker(const ProjectorShape& shape, const MakeModelOptions& options, DType type)
      : shape_(shape), type_(type), weights_(options.seed) {}

  StatusOr<MadeModel> Write(const std::string& path) {
    AddMetadata();
    AddEnds();
    for (int64_t layer = 0; layer < shape_.layers; ++layer) AddLayer(layer);
    AddProjection();
    WEFT_RETURN_IF_ERROR(writer_.Write(path));
    return made_;
  }

 private:
  bool is(std::string_view projector) const { return shape_.projector == projector; }
  bool has_gate() const { return is("qwen2.5vl_merger") || is("pixtral"); }
  bool has_rms() const { return has_gate(); }
  bool is_qwen() const { return is("qwen2.5vl_merger") || is("qwen3vl_merger"); }
  int64_t merged() const { return shape_.embd * shape_.factor * shape_.factor; }
  void AddMetadata();
  void AddEnds();
  void AddLayer(int64_t layer);
  void AddProjection();
  void AddMatrix(const std::string& name, int64_t n_in, int64_t n_out, bool with_bias);
  void AddTable(const std::string& name, const std::vector<int64_t>& dims);
  void AddValues(const std::string& name, int64_t n, float low, float high);
  void AddNorm(const std::string& name, int64_t n) {
    AddValues(name + ".weight", n, 0.8f, 1.2f);
    if (!has_rms()) AddValues(name + ".bias", n, -0.2f, 0.2f);
  }

  const ProjectorShape& shape_;
  const DType type_;
  RandomWeights weights_;
  GgufWriter writer_;
  std::deque<std::vector<float>> vectors_;  // bytes that `writer_` refers to
  MadeModel made_{};
};

void ProjectorMaker::AddMetadata() {
  const auto add = [&](std::string_view name, int64_t value) {
    writer_.AddUint32(StrCat("clip.vision.", name), static_cast<uint32_t>(value));
  };
  writer_.AddString("general.architecture", "clip");
  writer_.AddString("general.name", StrCat(shape_.name, " with random weights"));
  writer_.AddBool("clip.has_vision_encoder", true);
  writer_.AddString("clip.projector_type", shape_.projector);
  writer_.AddBool(has_gate() ? "clip.use_silu" : "clip.use_gelu", true);
  add("image_size", shape_.image_size);
  add("patch_size", shape_.patch);
  add("embedding_length", shape_.embd);
  add("feed_forward_length", shape_.ffn);
  add("block_count", shape_.layers);
  add("attention.head_count", shape_.heads);
  add("projection_dim", shape_.width);
  writer_.AddFloat32("clip.vision.attention.layer_norm_epsilon", 1e-6f);
  writer_.AddFloat32Array("clip.vision.image_mean", std::vector<float>{0.5f, 0.45f, 0.4f});
  writer_.AddFloat32Array("clip.vision.image_std", std::vector<float>{0.5f, 0.3f, 0.25f});
  add(is_qwen() || is("pixtral") ? "spatial_merge_size" : "projector.scale_factor", shape_.factor);
  if (is("qwen2.5vl_merger")) add("n_wa_pattern", kWindowPeriod);
}

void ProjectorMaker::AddEnds() {
  const int64_t embd = shape_.embd, side = shape_.image_size / shape_.patch;
  const std::vector<int64_t> kernel = {shape_.patch, shape_.patch, kColors, embd};
  AddTable("v.patch_embd.weight", kernel);
  if (is_qwen()) AddTable("v.patch_embd.weight.1", kernel);
  if (is("pixtral")) {
    AddNorm("v.pre_ln", embd);
    return;
  }
  if (!is("qwen2.5vl_merger")) {
    AddValues("v.patch_embd.bias", embd, -0.2f, 0.2f);
    AddTable("v.position_embd.weight", {embd, side * side});
  }
  AddNorm("v.post_ln", embd);
}

void ProjectorMaker::AddLayer(int64_t layer) {
  const std::string name = StrCat("v.blk.", layer, ".");
  const int64_t embd = shape_.embd, ffn = shape_.ffn;
  const bool with_bias = !is("pixtral");
  AddNorm(name + "ln1", embd);
  if (is("qwen3vl_merger")) {
    AddMatrix(name + "attn_qkv", embd, 3 * embd, with_bias);
  } else {
    for (const char* const part : {"attn_q", "attn_k", "attn_v"}) {
      AddMatrix(name + part, embd, embd, with_bias);
    }
  }
  AddMatrix(name + "attn_out", embd, embd, with_bias);
  AddNorm(name + "ln2", embd);
  AddMatrix(name + "ffn_up", embd, ffn, with_bias);
  if (has_gate()) AddMatrix(name + "ffn_gate", embd, ffn, with_bias);
  AddMatrix(name + "ffn_down", ffn, embd, with_bias);
}

void ProjectorMaker::AddProjection() {
  const int64_t width = shape_.width;
  if (is("gemma3")) {
    AddValues("mm.soft_emb_norm.weight", shape_.embd, 0.8f, 1.2f);
    AddTable("mm.input_projection.weight", {width, shape_.embd});
  } else if (is("idefics3")) {
    AddMatrix("mm.model.fc", merged(), width, /*with_bias=*/false);
  } else if (is_qwen()) {
    AddMatrix("mm.0", merged(), merged(), true);
    AddMatrix("mm.2", merged(), width, true);
    if (is("qwen2.5vl_merger")) return;
    for (const int64_t layer : kGivingLayers) {
      const std::string name = StrCat("v.deepstack.", layer, ".");
      AddNorm(name + "norm", merged());
      AddMatrix(name + "fc1", merged(), merged(), true);
      AddMatrix(name + "fc2", merged(), width, true);
    }
  } else {
    AddValues("v.token_embd.img_break", width, -1, 1);
    if (shape_.factor > 1) {
      AddValues("mm.input_norm.weight", shape_.embd, 0.8f, 1.2f);
      AddMatrix("mm.patch_merger", merged(), shape_.embd, false);
    }
    AddMatrix("mm.1", shape_.embd, width, false);
    AddMatrix("mm.2", width, width, false);
  }
}

void ProjectorMaker::AddMatrix(const std::string& name, int64_t n_in, int64_t n_out,
                               bool with_bias) {
  AddTable(name + ".weight", {n_in, n_out});
  if (with_bias) AddValues(name + ".bias", n_out, -0.2f, 0.2f);
}

void ProjectorMaker::AddTable(const std::string& name, const std::vector<int64_t>& dims) {
  // Rows of a kernel are short: what a product reads for one output are all but the last dimension.
  int64_t n_in = 1, n_rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) n_in *= dims[i];
  for (size_t i = 1; i < dims.size(); ++i) n_rows *= dims[i];
  const float limit = std::sqrt(3.0f / static_cast<float>(n_in));
  const RandomWeights::Matrix matrix = weights_.MakeMatrix(name, type_, dims[0], limit);
  made_.parameters += dims[0] * n_rows;
  made_.weight_bytes += static_cast<uint64_t>(RowBytes(type_, dims[0]) * n_rows);
  writer_.AddTensor(name, type_, dims, [matrix](int64_t row, std::span<std::byte> bytes) {
    matrix.FillRow(row, bytes);
  });
}

void ProjectorMaker::AddValues(const std::string& name, int64_t n, float low, float high) {
  vectors_.push_back(weights_.MakeVector(name, n, low, high));
  made_.parameters += n;
  writer_.AddTensor(name, DType::kF32, std::vector<int64_t>{n},
                    std::as_bytes(std::span(vectors_.back())));
}

}  // namespace

std::span<const ProjectorShape> KnownProjectorShapes() { return kProjectorShapes; }

const ProjectorShape* FindProjectorShape(std::string_view name) {
  for (const ProjectorShape& shape : kProjectorShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

StatusOr<MadeModel> MakeProjector(const ProjectorShape& shape, const MakeModelOptions& options,
                                  const std::string& path) {
  const DTypeInfo* const info = FindDTypeByName(options.type);
  if (info == nullptr || !CanMake(info->type) || info->block_values != 1) {
    return InvalidArgument("--type ", Printable(options.type),
                           " cannot be made for a projector: give F32, F16 or BF16");
  }
  return ProjectorMaker(shape, options, info->type).Write(path);
}

}  // namespace weft::tools
