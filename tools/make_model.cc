#include "tools/make_model.h"

#include <cmath>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "model/formats/gguf_writer.h"
#include "tools/random_weights.h"
#include "tools/synthetic_vocabulary.h"

namespace weft::tools {
namespace {

// Of Qwen 3 VL: layers that add to a picture's rows.
constexpr int64_t kAddedParts = 2;

// What a matrix is for decides its type in a mix.
enum class Role { kPlain, kValueOrDown, kOutput };

// The types of a file: one for all matrices, or a better one for some.
struct Mix {
  DType main;
  DType better;
};

StatusOr<Mix> ParseMix(std::string_view name) {
  if (name == "Q4_K_M") return Mix{DType::kQ4_K, DType::kQ6_K};
  if (name == "Q5_K_M") return Mix{DType::kQ5_K, DType::kQ6_K};
  const DTypeInfo* info = FindDTypeByName(name);
  if (info == nullptr || !CanMake(info->type)) {
    return InvalidArgument("--type ", Printable(name),
                           " cannot be made: give a type such as F32, F16, Q8_0, Q4_0, Q4_K, or "
                           "the mixes Q4_K_M and Q5_K_M");
  }
  return Mix{info->type, info->type};
}

// The type of the same quality with blocks of 32, for row lengths that 256 does not divide.
DType WithShortBlocks(DType type) {
  switch (type) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    case DType::kIQ4_XS:
    case DType::kQ2_K:
    case DType::kQ3_K:
      return DType::kIQ4_NL;
    default:
      return type;
  }
}

class Maker {
 public:
  Maker(const ModelShape& shape, const MakeModelOptions& options, Mix mix)
      : shape_(shape), options_(options), mix_(mix), weights_(options.seed) {}

  StatusOr<MadeModel> Write(const std::string& path) {
    AddMetadata();
    WEFT_RETURN_IF_ERROR(AddVocabulary(shape_, &writer_));
    AddTensors();
    WEFT_RETURN_IF_ERROR(status_);
    WEFT_RETURN_IF_ERROR(writer_.Write(path));
    return made_;
  }

 private:
  void AddMetadata();
  void AddTensors();
  void AddLayer(int64_t layer);
  void AddRopeSections(int64_t n_values);
  void AddRecurrentMetadata();
  void AddAttention(int64_t layer);
  void AddConvolution(int64_t layer);
  void AddDeltaNet(int64_t layer);
  void AddStateSpace(int64_t layer);
  void AddFeedForward(int64_t layer);
  void AddPredictor(int64_t layer);
  void AddCompressedMetadata();
  void AddCompressedLayer(int64_t layer);
  void AddEntries(int64_t layer, std::string_view part, int64_t dim);
  void AddStreamMix(const std::string& name, int64_t n_out, int64_t n_scales);
  void AddNumbers(const std::string& name, std::vector<int64_t> dims, int64_t limit);
  void AddMatrix(const std::string& name, std::vector<int64_t> dims, Role role, int64_t layer);
  void AddTyped(const std::string& name, std::vector<int64_t> dims, DType type);
  void AddValues(const std::string& name, std::vector<int64_t> dims, float low, float high);
  void AddNorm(const std::string& name, int64_t n) { AddValues(name, {n}, 0.8f, 1.2f); }

  static std::string Name(int64_t layer, std::string_view part) {
    return StrCat("blk.", layer, ".", part);
  }
  // Sizes of DeepSeek V4 that no option changes.
  static constexpr int64_t kStreams = 4, kRank = 64, kOutputGroups = 2, kIndexHeads = 2;
  static constexpr int64_t kChosenEntries = 8;
  int64_t StrideOf(int64_t layer) const {
    const char mixer = shape_.MixerOf(layer);
    return mixer == 'x' ? 4 : mixer == 'h' ? 128 : 0;
  }
  bool is(std::string_view architecture) const { return shape_.architecture == architecture; }

  // The layers that get the better type: the ends, where errors cost most, and
  // every third between them.
  bool IsBetterLayer(int64_t layer) const {
    const int64_t eighth = shape_.layers / 8;
    return layer < eighth || layer >= shape_.layers - eighth || (layer - eighth) % 3 == 2;
  }

  const ModelShape& shape_;
  const MakeModelOptions& options_;
  const Mix mix_;
  RandomWeights weights_;
  GgufWriter writer_;
  std::deque<std::vector<float>> vectors_;    // bytes that `writer_` refers to
  std::deque<std::vector<int32_t>> numbers_;  // likewise
  MadeModel made_{};
  uint64_t written_bytes_ = 0;
  Status status_;
};

void Maker::AddMetadata() {
  const std::string arch(shape_.architecture);
  const auto add = [&](std::string_view key, int64_t value) {
    writer_.AddUint32(StrCat(arch, ".", key), static_cast<uint32_t>(value));
  };
  writer_.AddString("general.architecture", arch);
  writer_.AddString("general.name", StrCat(shape_.name, " with random weights"));
  writer_.AddUint32("general.quantization_version", 2);
  add("vocab_size", shape_.vocab);
  add("context_length", shape_.context);
  add("embedding_length", shape_.embd);
  add("block_count", shape_.layers + shape_.predictors);
  if (shape_.predictors > 0) add("nextn_predict_layers", shape_.predictors);
  add("feed_forward_length", shape_.ffn);
  add("attention.head_count", shape_.heads);
  if (shape_.heads > 0) {
    add("attention.key_length", shape_.head_dim);
    add("attention.value_length", shape_.head_dim);
    add("rope.dimension_count", shape_.rope_dim > 0 ? shape_.rope_dim : shape_.head_dim);
  }
  writer_.AddFloat32(arch + ".rope.freq_base", static_cast<float>(shape_.rope_base));
  writer_.AddFloat32(arch + ".attention.layer_norm_rms_epsilon",
                     static_cast<float>(shape_.norm_epsilon));
  if (shape_.window > 0) add("attention.sliding_window", shape_.window);
  if (is("qwen2vl") || is("qwen3vl")) AddRopeSections(shape_.head_dim);
  if (is("qwen3vl")) add("n_deepstack_layers", kAddedParts);
  if (shape_.experts > 0) {
    add("expert_count", shape_.experts);
    add("expert_used_count", shape_.experts_used);
    add("expert_feed_forward_length", shape_.expert_ffn);
  }
  if (is("deepseek4")) {
    AddCompressedMetadata();
  } else if (shape_.mixers.empty()) {
    add("attention.head_count_kv", shape_.kv_heads);
  } else {
    AddRecurrentMetadata();
  }
}

// Three parts of a rope's pairs for image coordinates, and an unused one.
void Maker::AddRopeSections(int64_t n_values) {
  const auto third = static_cast<int32_t>(n_values / 2 / 3);
  const auto rest = static_cast<int32_t>(n_values / 2) - 2 * third;
  writer_.AddInt32Array(StrCat(shape_.architecture, ".rope.dimension_sections"),
                        std::vector<int32_t>{rest, third, third, 0});
}

void Maker::AddRecurrentMetadata() {
  const auto key = [&](std::string_view name) { return StrCat(shape_.architecture, ".", name); };
  const auto add = [&](std::string_view name, int64_t value) {
    writer_.AddUint32(key(name), static_cast<uint32_t>(value));
  };
  if (is("lfm2")) {
    add("shortconv.l_cache", shape_.conv_taps);
  } else {
    add("ssm.conv_kernel", shape_.conv_taps);
    add("ssm.inner_size", shape_.state_heads * shape_.state_head_dim);
    add("ssm.state_size", shape_.state_dim);
    add("ssm.time_step_rank", shape_.state_heads);
    add("ssm.group_count", shape_.state_groups);
  }
  if (is("qwen35")) {
    AddRopeSections(shape_.rope_dim);
    add("full_attention_interval", static_cast<int64_t>(shape_.mixers.size()));
    add("attention.head_count_kv", shape_.kv_heads);
  } else if (!is("mamba2")) {
    std::vector<int32_t> kv_heads;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      kv_heads.push_back(shape_.MixerOf(layer) == 'a' ? static_cast<int32_t>(shape_.kv_heads) : 0);
    }
    writer_.AddInt32Array(key("attention.head_count_kv"), kv_heads);
  }
  if (is("granitehybrid")) {
    writer_.AddBool(key("rope.scaling.finetuned"), false);
    writer_.AddFloat32(key("logit_scale"), 4);
    writer_.AddFloat32(key("residual_scale"), 0.5f);
    writer_.AddFloat32(key("embedding_scale"), 6);
    writer_.AddFloat32(key("attention.scale"), 0.125f);
  }
}

void Maker::AddTensors() {
  AddMatrix("token_embd.weight", {shape_.embd, shape_.vocab},
            shape_.tied ? Role::kOutput : Role::kPlain, 0);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) AddLayer(layer);
  for (int64_t i = 0; i < shape_.predictors; ++i) AddPredictor(shape_.layers + i);
  if (is("deepseek4")) AddStreamMix("output_hc", kStreams, 1);
  AddNorm(is("lfm2") ? "token_embd_norm.weight" : "output_norm.weight", shape_.embd);
  if (!shape_.tied) AddMatrix("output.weight", {shape_.embd, shape_.vocab}, Role::kOutput, 0);
}

void Maker::AddLayer(int64_t layer) {
  AddNorm(Name(layer, "attn_norm.weight"), shape_.embd);
  if (is("deepseek4")) return AddCompressedLayer(layer);
  switch (shape_.MixerOf(layer)) {
    case 'c':
      AddConvolution(layer);
      break;
    case 'd':
      AddDeltaNet(layer);
      break;
    case 's':
      AddStateSpace(layer);
      break;
    default:
      AddAttention(layer);
  }
  if (shape_.ffn > 0) AddFeedForward(layer);
}

// Shares embedding and output with the model.
void Maker::AddPredictor(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  AddMatrix(name("nextn.eh_proj"), {2 * shape_.embd, shape_.embd}, Role::kPlain, layer);
  AddNorm(name("nextn.enorm"), shape_.embd);
  AddNorm(name("nextn.hnorm"), shape_.embd);
  AddNorm(name("nextn.shared_head_norm"), shape_.embd);
  AddNorm(name("attn_norm"), shape_.embd);
  AddAttention(layer);
  AddFeedForward(layer);
}

void Maker::AddCompressedMetadata() {
  const auto key = [&](std::string_view name) { return StrCat(shape_.architecture, ".", name); };
  const auto add = [&](std::string_view name, int64_t value) {
    writer_.AddUint32(key(name), static_cast<uint32_t>(value));
  };
  add("attention.head_count_kv", shape_.kv_heads);
  add("attention.q_lora_rank", kRank);
  add("attention.output_group_count", kOutputGroups);
  add("attention.output_lora_rank", kRank);
  add("attention.indexer.head_count", kIndexHeads);
  add("attention.indexer.key_length", shape_.head_dim);
  add("attention.indexer.top_k", kChosenEntries);
  std::vector<int32_t> strides;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    strides.push_back(static_cast<int32_t>(StrideOf(layer)));
  }
  writer_.AddInt32Array(key("attention.compress_ratios"), strides);
  writer_.AddFloat32(key("attention.compress_rope_freq_base"), 160000);
  add("hyper_connection.count", kStreams);
  add("hyper_connection.sinkhorn_iterations", 20);
  writer_.AddFloat32(key("hyper_connection.epsilon"), 1e-6f);
  add("hash_layer_count", 1);
  add("expert_gating_func", 4);
  writer_.AddBool(key("expert_weights_norm"), true);
  writer_.AddFloat32(key("expert_weights_scale"), 1.5f);
  add("expert_shared_count", 1);
  writer_.AddFloat32(key("swiglu_clamp_exp"), 10);
}

void Maker::AddStreamMix(const std::string& name, int64_t n_out, int64_t n_scales) {
  AddTyped(name + "_fn.weight", {kStreams * shape_.embd, n_out}, DType::kF32);
  AddValues(name + "_base.weight", {n_out}, -1, 1);
  AddValues(name + "_scale.weight", {n_scales}, 0.5f, 1.5f);
}

void Maker::AddEntries(int64_t layer, std::string_view part, int64_t dim) {
  const auto name = [&](std::string_view ending) { return Name(layer, StrCat(part, ending)); };
  const int64_t stride = StrideOf(layer), width = stride == 4 ? 2 * dim : dim;
  AddMatrix(name("_compressor_kv.weight"), {shape_.embd, width}, Role::kPlain, layer);
  AddMatrix(name("_compressor_gate.weight"), {shape_.embd, width}, Role::kPlain, layer);
  AddValues(name("_compressor_ape.weight"), {width, stride}, -1, 1);
  AddNorm(name("_compressor_norm.weight"), dim);
}

void Maker::AddCompressedLayer(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  const int64_t embd = shape_.embd, heads = shape_.heads * shape_.head_dim;
  const int64_t n_mixes = (2 + kStreams) * kStreams, ffn = shape_.expert_ffn;
  const auto add = [&](std::string_view part, int64_t n_in, int64_t n_out) {
    AddMatrix(name(part), {n_in, n_out}, Role::kPlain, layer);
  };
  AddStreamMix(Name(layer, "hc_attn"), n_mixes, 3);
  AddStreamMix(Name(layer, "hc_ffn"), n_mixes, 3);
  add("attn_q_a", embd, kRank);
  AddNorm(name("attn_q_a_norm"), kRank);
  add("attn_q_b", kRank, heads);
  add("attn_kv", embd, shape_.head_dim);
  AddNorm(name("attn_kv_a_norm"), shape_.head_dim);
  AddValues(name("attn_sinks"), {shape_.heads}, -1, 1);
  add("attn_output_a", heads / kOutputGroups, kOutputGroups * kRank);
  add("attn_output_b", kOutputGroups * kRank, embd);
  if (StrideOf(layer) > 0) AddEntries(layer, "attn", shape_.head_dim);
  if (StrideOf(layer) == 4) {
    AddEntries(layer, "indexer", shape_.head_dim);
    add("indexer.proj", embd, kIndexHeads);
    add("indexer.attn_q_b", kRank, kIndexHeads * shape_.head_dim);
  }
  AddFeedForward(layer);
  add("ffn_gate_shexp", embd, ffn);
  add("ffn_up_shexp", embd, ffn);
  add("ffn_down_shexp", ffn, embd);
  if (layer == 0) {
    AddNumbers(name("ffn_gate_tid2eid"), {shape_.experts_used, shape_.vocab}, shape_.experts);
  } else {
    AddValues(Name(layer, "exp_probs_b.bias"), {shape_.experts}, -0.1f, 0.1f);
  }
}

void Maker::AddAttention(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  const int64_t embd = shape_.embd;
  const int64_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
  // Qwen 3.5's queries bring gates along.
  AddMatrix(name("attn_q"), {embd, is("qwen35") ? 2 * q : q}, Role::kPlain, layer);
  AddMatrix(name("attn_k"), {embd, kv}, Role::kPlain, layer);
  AddMatrix(name("attn_v"), {embd, kv}, Role::kValueOrDown, layer);
  AddMatrix(name("attn_output"), {q, embd}, Role::kPlain, layer);
  if (!is("llama") && !is("granitehybrid") && !is("qwen2vl")) {
    AddNorm(name("attn_q_norm"), shape_.head_dim);
    AddNorm(name("attn_k_norm"), shape_.head_dim);
  }
  if (is("gemma3")) AddNorm(name("post_attention_norm"), embd);
}

void Maker::AddConvolution(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  const int64_t embd = shape_.embd;
  AddMatrix(name("shortconv.in_proj"), {embd, 3 * embd}, Role::kPlain, layer);
  AddValues(name("shortconv.conv"), {shape_.conv_taps, embd}, -1, 1);
  AddMatrix(name("shortconv.out_proj"), {embd, embd}, Role::kPlain, layer);
}

void Maker::AddDeltaNet(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  const int64_t embd = shape_.embd, heads = shape_.state_heads;
  const int64_t values = heads * shape_.state_head_dim;
  const int64_t channels = values + 2 * shape_.state_groups * shape_.state_dim;
  AddMatrix(name("attn_qkv"), {embd, channels}, Role::kPlain, layer);
  AddMatrix(name("attn_gate"), {embd, values}, Role::kPlain, layer);
  AddMatrix(name("ssm_beta"), {embd, heads}, Role::kPlain, layer);
  AddMatrix(name("ssm_alpha"), {embd, heads}, Role::kPlain, layer);
  AddValues(name("ssm_conv1d"), {shape_.conv_taps, channels}, -1, 1);
  AddValues(Name(layer, "ssm_dt.bias"), {heads}, -1, 1);
  AddValues(Name(layer, "ssm_a"), {heads}, -0.5f, -0.01f);
  AddNorm(name("ssm_norm"), shape_.state_head_dim);
  AddMatrix(name("ssm_out"), {values, embd}, Role::kPlain, layer);
}

void Maker::AddStateSpace(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  const int64_t embd = shape_.embd, heads = shape_.state_heads, groups = shape_.state_groups;
  const int64_t inner = heads * shape_.state_head_dim;
  const int64_t channels = inner + 2 * groups * shape_.state_dim;
  AddMatrix(name("ssm_in"), {embd, inner + channels + heads}, Role::kPlain, layer);
  AddValues(name("ssm_conv1d"), {shape_.conv_taps, channels}, -1, 1);
  AddValues(Name(layer, "ssm_conv1d.bias"), {channels}, -0.2f, 0.2f);
  AddValues(Name(layer, "ssm_dt.bias"), {heads}, -1, 1);
  AddValues(Name(layer, "ssm_a"), {1, heads}, -0.5f, -0.01f);
  AddValues(Name(layer, "ssm_d"), {1, heads}, 0.5f, 1.5f);
  AddValues(name("ssm_norm"), {inner / groups, groups}, 0.8f, 1.2f);
  AddMatrix(name("ssm_out"), {inner, embd}, Role::kPlain, layer);
}

void Maker::AddFeedForward(int64_t layer) {
  const auto name = [&](std::string_view part) { return Name(layer, StrCat(part, ".weight")); };
  const int64_t embd = shape_.embd;
  AddNorm(name(is("qwen35") || is("glm4moe") ? "post_attention_norm" : "ffn_norm"), embd);
  if (shape_.experts > 0) {
    const int64_t n = shape_.experts, ffn = shape_.expert_ffn;
    AddTyped(name("ffn_gate_inp"), {embd, n}, DType::kF32);
    AddMatrix(name("ffn_gate_exps"), {embd, ffn, n}, Role::kPlain, layer);
    AddMatrix(name("ffn_up_exps"), {embd, ffn, n}, Role::kPlain, layer);
    AddMatrix(name("ffn_down_exps"), {ffn, embd, n}, Role::kValueOrDown, layer);
  } else {
    AddMatrix(name("ffn_gate"), {embd, shape_.ffn}, Role::kPlain, layer);
    AddMatrix(name("ffn_up"), {embd, shape_.ffn}, Role::kPlain, layer);
    AddMatrix(name("ffn_down"), {shape_.ffn, embd}, Role::kValueOrDown, layer);
  }
  if (is("gemma3")) AddNorm(name("post_ffw_norm"), embd);
}

void Maker::AddMatrix(const std::string& name, std::vector<int64_t> dims, Role role,
                      int64_t layer) {
  const bool better = role == Role::kOutput || (role == Role::kValueOrDown && IsBetterLayer(layer));
  DType type = better ? mix_.better : mix_.main;
  // A table has no factor.
  const bool is_table = role == Role::kOutput || name == "token_embd.weight";
  if (type == DType::kNVFP4 && is_table) type = DType::kQ8_0;
  if (dims[0] % InfoOf(type).block_values != 0) type = WithShortBlocks(type);
  if (dims[0] % InfoOf(type).block_values != 0) {
    status_ = InvalidArgument("tensor ", name, " has rows of ", dims[0],
                              " values, which are not whole blocks of --type ", NameOf(type));
    return;
  }
  AddTyped(name, std::move(dims), type);
}

void Maker::AddTyped(const std::string& name, std::vector<int64_t> dims, DType type) {
  // A variance of 1 / inputs keeps that of the activations.
  const float limit = std::sqrt(3.0f / static_cast<float>(dims[0]));
  const RandomWeights::Matrix matrix = weights_.MakeMatrix(name, type, dims[0], limit);
  int64_t values = 1;
  for (const int64_t size : dims) values *= size;
  made_.parameters += values;
  made_.weight_bytes += static_cast<uint64_t>(RowBytes(type, values));
  if (const float factor = FactorOf(type, limit); factor != 1) {
    const std::string base = name.substr(0, name.size() - std::string_view("weight").size());
    AddValues(base + "scale", {dims.size() > 2 ? dims[2] : 1}, factor, factor);
  }
  writer_.AddTensor(name, type, dims, [this, matrix](int64_t row, std::span<std::byte> bytes) {
    matrix.FillRow(row, bytes);
    constexpr uint64_t kReportBytes = uint64_t{16} << 20;
    const uint64_t before = std::exchange(written_bytes_, written_bytes_ + bytes.size());
    if (options_.progress && before / kReportBytes != written_bytes_ / kReportBytes) {
      options_.progress(written_bytes_, made_.weight_bytes);
    }
  });
}

void Maker::AddValues(const std::string& name, std::vector<int64_t> dims, float low, float high) {
  int64_t n = 1;
  for (const int64_t size : dims) n *= size;
  vectors_.push_back(weights_.MakeVector(name, n, low, high));
  made_.parameters += n;
  writer_.AddTensor(name, DType::kF32, dims, std::as_bytes(std::span(vectors_.back())));
}

void Maker::AddNumbers(const std::string& name, std::vector<int64_t> dims, int64_t limit) {
  const std::vector<float> values =
      weights_.MakeVector(name, dims[0] * dims[1], 0, static_cast<float>(limit));
  std::vector<int32_t>& numbers = numbers_.emplace_back();
  for (const float value : values) numbers.push_back(static_cast<int32_t>(value));
  writer_.AddTensor(name, DType::kI32, dims, std::as_bytes(std::span(numbers)));
}

}  // namespace

StatusOr<MadeModel> MakeModel(const ModelShape& shape, const MakeModelOptions& options,
                              const std::string& path) {
  WEFT_RETURN_IF_ERROR(CheckShape(shape));
  WEFT_ASSIGN_OR_RETURN(const Mix mix, ParseMix(options.type));
  return Maker(shape, options, mix).Write(path);
}

}  // namespace weft::tools
