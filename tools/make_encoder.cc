#include "tools/make_encoder.h"

#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "model/formats/gguf_writer.h"
#include "tools/random_weights.h"

namespace weft::tools {
namespace {

// clang-format off
constexpr EncoderShape kEncoders[] = {
    // name, architecture,
    //   layers, embd, ffn, heads, kv_heads, head_dim, vocab, context, pooling, window, labels
    {"tiny-bert", "bert", 3, 96, 160, 4, 4, 24, 512, 300, 1},
    {"tiny-nomic-bert", "nomic-bert", 3, 96, 160, 4, 4, 24, 512, 600, 1},
    {"tiny-jina-bert-v2", "jina-bert-v2", 3, 96, 160, 6, 6, 16, 512, 600, 1},
    {"tiny-modern-bert", "modern-bert", 4, 96, 160, 3, 3, 32, 512, 600, 2, 32},
    {"tiny-gemma-embedding", "gemma-embedding", 7, 96, 160, 4, 2, 32, 512, 600, 1, 48},
    {"tiny-reranker", "bert", 2, 96, 160, 4, 4, 24, 512, 300, 4, 0, 1},
};
// clang-format on

constexpr int64_t kTypes = 2;
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3;

class EncoderMaker {
 public:
  EncoderMaker(const EncoderShape& shape, const MakeModelOptions& options, DType type)
      : shape_(shape), type_(type), weights_(options.seed) {}

  StatusOr<MadeModel> Write(const std::string& path) {
    AddMetadata();
    AddVocabulary();
    AddEnds();
    for (int64_t layer = 0; layer < shape_.layers; ++layer) AddLayer(layer);
    WEFT_RETURN_IF_ERROR(writer_.Write(path));
    return made_;
  }

 private:
  bool is(std::string_view architecture) const { return shape_.architecture == architecture; }
  void AddMetadata();
  void AddVocabulary();
  void AddEnds();
  void AddLayer(int64_t layer);
  void AddAttention(const std::string& name);
  void AddFeedForward(const std::string& name);
  void AddMatrix(const std::string& name, int64_t n_in, int64_t n_out, bool with_bias);
  void AddTable(const std::string& name, int64_t n_in, int64_t n_out, DType type);
  void AddValues(const std::string& name, int64_t n, float low, float high);
  void AddNorm(const std::string& name, int64_t n, bool with_bias) {
    AddValues(name + ".weight", n, 0.8f, 1.2f);
    if (with_bias) AddValues(name + ".bias", n, -0.2f, 0.2f);
  }

  const EncoderShape& shape_;
  const DType type_;
  RandomWeights weights_;
  GgufWriter writer_;
  std::deque<std::vector<float>> vectors_;  // bytes that `writer_` refers to
  MadeModel made_{};
};

void EncoderMaker::AddMetadata() {
  const auto key = [&](std::string_view name) { return StrCat(shape_.architecture, ".", name); };
  const auto add = [&](std::string_view name, int64_t value) {
    writer_.AddUint32(key(name), static_cast<uint32_t>(value));
  };
  writer_.AddString("general.architecture", shape_.architecture);
  writer_.AddString("general.name", StrCat(shape_.name, " with random weights"));
  add("context_length", shape_.context);
  add("embedding_length", shape_.embd);
  add("block_count", shape_.layers);
  add("feed_forward_length", shape_.ffn);
  add("attention.head_count", shape_.heads);
  if (shape_.kv_heads != shape_.heads) add("attention.head_count_kv", shape_.kv_heads);
  if (shape_.heads * shape_.head_dim != shape_.embd) {
    add("attention.key_length", shape_.head_dim);
    add("attention.value_length", shape_.head_dim);
  }
  writer_.AddFloat32(key(is("gemma-embedding") ? "attention.layer_norm_rms_epsilon"
                                               : "attention.layer_norm_epsilon"),
                     1e-5f);
  writer_.AddBool(key("attention.causal"), false);
  add("pooling_type", shape_.pooling);
  if (is("gemma-embedding")) {
    add("dense_2_feat_in", shape_.embd);
    add("dense_2_feat_out", 2 * shape_.embd);
    add("dense_3_feat_in", 2 * shape_.embd);
    add("dense_3_feat_out", shape_.embd);
  }
  if (is("nomic-bert")) writer_.AddFloat32(key("rope.freq_base"), 1000);
  if (shape_.window == 0) return;
  add("attention.sliding_window", shape_.window);
  writer_.AddFloat32(key("rope.freq_base"), 160000);
  writer_.AddFloat32(key("rope.freq_base_swa"), 10000);
}

// Pieces of words of printable characters: those that begin one have a mark, and pairs of
// letters follow.
void EncoderMaker::AddVocabulary() {
  constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::vector<int32_t> types = {kControl, kUnknown, kControl, kControl, kControl};
  const auto size = static_cast<size_t>(shape_.vocab);
  const auto add = [&](std::string token) {
    if (tokens.size() == size) return;
    tokens.push_back(std::move(token));
    types.push_back(kNormal);
  };
  for (char c = '!'; c <= '~'; ++c) {
    if (c >= 'A' && c <= 'Z') continue;
    add(StrCat(kMark, std::string_view(&c, 1)));
    add(std::string(1, c));
  }
  for (char first = 'a'; first <= 'z'; ++first) {
    for (char second = 'a'; second <= 'z'; ++second) add({first, second});
  }
  writer_.AddString("tokenizer.ggml.model", "bert");
  writer_.AddUint32("tokenizer.ggml.token_type_count", kTypes);
  writer_.AddStringArray("tokenizer.ggml.tokens", tokens);
  writer_.AddInt32Array("tokenizer.ggml.token_type", types);
  writer_.AddUint32("tokenizer.ggml.padding_token_id", 0);
  writer_.AddUint32("tokenizer.ggml.unknown_token_id", 1);
  writer_.AddUint32("tokenizer.ggml.cls_token_id", 2);
  writer_.AddUint32("tokenizer.ggml.bos_token_id", 2);
  writer_.AddUint32("tokenizer.ggml.seperator_token_id", 3);
  writer_.AddUint32("tokenizer.ggml.mask_token_id", 4);
}

void EncoderMaker::AddEnds() {
  const int64_t embd = shape_.embd;
  AddTable("token_embd.weight", embd, shape_.vocab, type_);
  const bool is_gemma = is("gemma-embedding"), is_modern = is("modern-bert");
  if (is("bert")) AddTable("position_embd.weight", embd, shape_.context, DType::kF32);
  if (!is_gemma && !is_modern) AddTable("token_types.weight", embd, kTypes, DType::kF32);
  if (!is_gemma) AddNorm("token_embd_norm", embd, /*with_bias=*/!is_modern);
  if (is_gemma || is_modern) AddNorm("output_norm", embd, /*with_bias=*/false);
  if (is_gemma) {
    AddTable("dense_2.weight", embd, 2 * embd, type_);
    AddTable("dense_3.weight", 2 * embd, embd, type_);
  }
  if (shape_.labels == 0) return;
  AddMatrix("cls", embd, embd, /*with_bias=*/true);
  AddMatrix("cls.output", embd, shape_.labels, /*with_bias=*/true);
}

void EncoderMaker::AddLayer(int64_t layer) {
  const std::string name = StrCat("blk.", layer, ".");
  const int64_t embd = shape_.embd;
  const bool is_gemma = is("gemma-embedding"), is_modern = is("modern-bert");
  if (is_gemma || (is_modern && layer > 0)) AddNorm(name + "attn_norm", embd, false);
  AddAttention(name);
  if (is_gemma) {
    AddNorm(name + "attn_q_norm", shape_.head_dim, false);
    AddNorm(name + "attn_k_norm", shape_.head_dim, false);
    AddNorm(name + "post_attention_norm", embd, false);
    AddNorm(name + "post_ffw_norm", embd, false);
  }
  if (is_gemma || is_modern) AddNorm(name + "ffn_norm", embd, false);
  AddFeedForward(name);
  if (is_gemma || is_modern) return;
  AddNorm(name + "attn_output_norm", embd, true);
  AddNorm(name + "layer_output_norm", embd, true);
  if (!is("jina-bert-v2")) return;
  AddNorm(name + "attn_q_norm", embd, true);
  AddNorm(name + "attn_k_norm", embd, true);
}

void EncoderMaker::AddAttention(const std::string& name) {
  const int64_t embd = shape_.embd;
  const int64_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
  const bool with_bias = is("bert") || is("jina-bert-v2");
  if (is("nomic-bert") || is("modern-bert")) {
    AddMatrix(name + "attn_qkv", embd, q + 2 * kv, false);
  } else {
    AddMatrix(name + "attn_q", embd, q, with_bias);
    AddMatrix(name + "attn_k", embd, kv, with_bias);
    AddMatrix(name + "attn_v", embd, kv, with_bias);
  }
  AddMatrix(name + "attn_output", q, embd, with_bias);
}

void EncoderMaker::AddFeedForward(const std::string& name) {
  const int64_t embd = shape_.embd, ffn = shape_.ffn;
  const bool with_bias = is("bert"), fused = is("modern-bert");
  AddMatrix(name + "ffn_up", embd, fused ? 2 * ffn : ffn, with_bias);
  if (!with_bias && !fused) AddMatrix(name + "ffn_gate", embd, ffn, false);
  AddMatrix(name + "ffn_down", ffn, embd, with_bias || is("jina-bert-v2"));
}

void EncoderMaker::AddMatrix(const std::string& name, int64_t n_in, int64_t n_out, bool with_bias) {
  AddTable(name + ".weight", n_in, n_out, type_);
  if (with_bias) AddValues(name + ".bias", n_out, -0.2f, 0.2f);
}

void EncoderMaker::AddTable(const std::string& name, int64_t n_in, int64_t n_out, DType type) {
  // Larger than keeping the activations' variance would need, so that attention can distinguish
  // tokens.
  const float limit = 2 * std::sqrt(3.0f / static_cast<float>(n_in));
  const RandomWeights::Matrix matrix = weights_.MakeMatrix(name, type, n_in, limit);
  made_.parameters += n_in * n_out;
  made_.weight_bytes += static_cast<uint64_t>(RowBytes(type, n_in) * n_out);
  writer_.AddTensor(
      name, type, std::vector<int64_t>{n_in, n_out},
      [matrix](int64_t row, std::span<std::byte> bytes) { matrix.FillRow(row, bytes); });
}

void EncoderMaker::AddValues(const std::string& name, int64_t n, float low, float high) {
  vectors_.push_back(weights_.MakeVector(name, n, low, high));
  made_.parameters += n;
  writer_.AddTensor(name, DType::kF32, std::vector<int64_t>{n},
                    std::as_bytes(std::span(vectors_.back())));
}

}  // namespace

std::span<const EncoderShape> KnownEncoders() { return kEncoders; }

const EncoderShape* FindEncoder(std::string_view name) {
  for (const EncoderShape& shape : kEncoders) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

StatusOr<MadeModel> MakeEncoder(const EncoderShape& shape, const MakeModelOptions& options,
                                const std::string& path) {
  const DTypeInfo* const info = FindDTypeByName(options.type);
  if (info == nullptr || !CanMake(info->type) || shape.embd % info->block_values != 0 ||
      shape.ffn % info->block_values != 0) {
    return InvalidArgument("--type ", Printable(options.type),
                           " cannot be made for an encoder: give F32, F16, BF16 or Q8_0");
  }
  return EncoderMaker(shape, options, info->type).Write(path);
}

}  // namespace weft::tools
