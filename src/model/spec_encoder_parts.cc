// The parts of SpecBuilder for text vectors: encoders' inputs, pooling, heads.
#include <string>
#include <utility>

#include "base/strings.h"
#include "model/spec_builder.h"

namespace weft {
namespace {

// The values of pooling_type in files.
enum PoolingInFile { kFileNone = 0, kFileMean, kFileCls, kFileLast, kFileRank, kFilePoolings };

Pooling PoolingOf(int64_t in_file) {
  switch (in_file) {
    case kFileMean:
      return Pooling::kMean;
    case kFileCls:
      return Pooling::kFirst;
    case kFileLast:
      return Pooling::kLast;
    default:
      return Pooling::kNone;
  }
}

// The separator of files with token types that do not name it.
constexpr int64_t kUsualSeparator = 102;

}  // namespace

Dims SpecBuilder::ReadEncoderDims(NormKind norms) {
  Dims dims = ReadSizes(HeadCounts::kAlways);
  if (BoolOr("attention.causal", false)) {
    Fail(Unimplemented(Message(file_.KeyError(
        Key("attention.causal"),
        "is true, but in this architecture tokens are known here to see those that follow"))));
  }
  dims.norms = norms;
  dims.epsilon = ReadEpsilon(norms);
  return dims;
}

Norm SpecBuilder::LayerNorm(const std::string& name, int64_t width, float epsilon) {
  Norm norm;
  norm.kind = NormKind::kLayer;
  norm.weight = Vector(name + ".weight", width);
  norm.bias = OptionalVector(name + ".bias", width);
  norm.width = width;
  norm.epsilon = epsilon;
  return norm;
}

Norm SpecBuilder::OptionalLayerNorm(const std::string& name, int64_t width, float epsilon) {
  return HasTensor(name + ".weight") ? LayerNorm(name, width, epsilon) : Norm();
}

void SpecBuilder::ReadEncoderInput(const Dims& dims) {
  ReadEmbedding(dims);
  if (HasTensor("position_embd.weight")) {
    spec_.positions = Matrix("position_embd", dims.d_model, spec_.context_tokens).weight;
  }
  if (const int index = file_.FindTensor("token_types.weight"); index >= 0) {
    TokenTypes& types = spec_.token_types;
    types.n_types = file_.tensors()[index].dims[1];
    types.table = Matrix("token_types", dims.d_model, types.n_types).weight;
  }
  spec_.input_norm = OptionalLayerNorm("token_embd_norm", dims.d_model, dims.epsilon);
}

void SpecBuilder::AddHeadLayer(const std::string& name, int64_t n_in, int64_t n_out,
                               HeadActivation activation) {
  HeadLayer layer;
  layer.linear = Matrix(name, n_in, n_out);
  layer.activation = activation;
  spec_.text_vector->head.push_back(layer);
}

// Reads the layers from pooled rows to scores: an optional layer of the model's width, and one with
// a row per label.
void SpecBuilder::ReadClassifier() {
  TextVector& vector = *spec_.text_vector;
  vector.scores = true;
  const bool is_modern = spec_.architecture == "modern-bert";
  const bool is_causal = !NeedsWholeTexts(spec_);
  vector.pooling = is_causal ? Pooling::kLast : Pooling::kFirst;
  if (is_modern) {
    vector.pooling = PoolingOf(IntOr("classifier.pooling_type", kFileMean, kFileMean, kFileCls));
  }
  // Pairs of other tokenizers, such as RoBERTa's, have one type throughout.
  const auto tokenizer = file_.GetStringOr("tokenizer.ggml.model", "bert");
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  if (spec_.token_types.n_types > 1 && *tokenizer == "bert") {
    const StatusOr<int64_t> separator =
        file_.GetIntOr("tokenizer.ggml.seperator_token_id", kUsualSeparator);
    if (!separator.ok()) return Fail(separator.status());
    spec_.token_types.separator = *separator;
  }
  const int output = file_.FindTensor("cls.output.weight");
  if (output < 0) {
    return FailKey("pooling_type", "is 4, for scores, but there is no tensor cls.output.weight");
  }
  const int64_t d_model = spec_.d_model;
  if (HasTensor("cls.weight")) {
    AddHeadLayer("cls", d_model, d_model,
                 is_modern ? HeadActivation::kGeluErf : HeadActivation::kTanh);
    vector.head.back().norm = OptionalLayerNorm(
        "cls.norm", d_model,
        is_modern ? static_cast<float>(FloatOr("attention.layer_norm_epsilon", 1e-5, 0, 1)) : 0);
  }
  AddHeadLayer("cls.output", d_model, file_.tensors()[output].dims[1], HeadActivation::kNone);
  vector.softmax = is_causal;  // over "yes" and "no"
}

void SpecBuilder::ReadTextVector() {
  if (!ok()) return;
  if (!HasKey("pooling_type")) {
    // A model that writes no text is for vectors.
    if (!spec_.output) spec_.text_vector = TextVector{.pooling = Pooling::kNone};
    return;
  }
  const int64_t in_file = Int("pooling_type", kFileNone, kFilePoolings - 1);
  if (in_file == kFileNone && spec_.output) return;
  spec_.text_vector = TextVector{.pooling = PoolingOf(in_file)};
  if (in_file == kFileRank) return ReadClassifier();
  // Layers after the pooling in sentence-transformers' files.
  int64_t width = spec_.d_model;
  for (const char* const name : {"dense_2", "dense_3"}) {
    const int index = file_.FindTensor(StrCat(name, ".weight"));
    if (index < 0) continue;
    const int64_t n_out = file_.tensors()[index].dims[1];
    AddHeadLayer(name, width, n_out, HeadActivation::kNone);
    width = n_out;
  }
}

}  // namespace weft
