#include "tools/make_adapter.h"

#include <cmath>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/strings.h"
#include "model/adapter_spec.h"
#include "model/formats/gguf_writer.h"
#include "model/model_spec.h"
#include "tools/random_weights.h"

namespace weft::tools {
namespace {

// alpha / rank, and how large the change of a product is beside the product itself.
constexpr double kFactor = 2, kStrength = 0.5;

// Writes one adapter; a temporary.
class AdapterMaker {
 public:
  AdapterMaker(const MakeAdapterOptions& options, DType type)
      : options_(options), type_(type), weights_(options.seed) {}

  void AddKeys(std::string_view architecture);
  // For a matrix with rows of n_in values.
  void AddPair(std::string_view name, int64_t n_in, int64_t n_out);
  // For an embedding of n_vocab tokens.
  void AddEmbedding(std::string_view name, int64_t width, int64_t n_vocab);
  const GgufWriter& writer() const { return writer_; }

 private:
  void AddMatrix(const std::string& name, int64_t n_in, int64_t n_out, double limit);
  double limit_of_b() const {
    return kStrength / kFactor / std::sqrt(static_cast<double>(options_.rank) / 3);
  }

  const MakeAdapterOptions& options_;
  const DType type_;
  RandomWeights weights_;
  GgufWriter writer_;
};

void AdapterMaker::AddKeys(std::string_view architecture) {
  writer_.AddString("general.architecture", architecture);
  writer_.AddString("general.type", "adapter");
  writer_.AddString("general.name", "an adapter with random weights");
  writer_.AddString("adapter.type", "lora");
  writer_.AddFloat32("adapter.lora.alpha",
                     static_cast<float>(kFactor * static_cast<double>(options_.rank)));
  if (options_.invocation.empty()) return;
  writer_.AddUint32Array("adapter.alora.invocation_tokens", options_.invocation);
}

void AdapterMaker::AddMatrix(const std::string& name, int64_t n_in, int64_t n_out, double limit) {
  const RandomWeights::Matrix matrix =
      weights_.MakeMatrix(name, type_, n_in, static_cast<float>(limit));
  writer_.AddTensor(
      name, type_, std::vector<int64_t>{n_in, n_out},
      [matrix](int64_t row, std::span<std::byte> bytes) { matrix.FillRow(row, bytes); });
}

void AdapterMaker::AddPair(std::string_view name, int64_t n_in, int64_t n_out) {
  AddMatrix(StrCat(name, ".lora_a"), n_in, options_.rank,
            std::sqrt(3.0 / static_cast<double>(n_in)));
  AddMatrix(StrCat(name, ".lora_b"), options_.rank, n_out, limit_of_b());
}

void AdapterMaker::AddEmbedding(std::string_view name, int64_t width, int64_t n_vocab) {
  constexpr double kEmbeddingLimit = 0.05;
  AddMatrix(StrCat(name, ".lora_a"), options_.rank, n_vocab, kEmbeddingLimit);
  AddMatrix(StrCat(name, ".lora_b"), options_.rank, width, limit_of_b());
}

StatusOr<AdapterMaker> MakerOf(const ModelFile& base, const MakeAdapterOptions& options) {
  const DTypeInfo* const type = FindDTypeByName(options.type);
  if (type == nullptr || !CanMake(type->type) || options.rank < 1 || options.rank > 4096 ||
      options.rank % type->block_values != 0) {
    return InvalidArgument("an adapter of rank ", options.rank, " and type ", options.type,
                           " cannot be made; use F16 or F32, and a rank from 1 to 4096");
  }
  WEFT_ASSIGN_OR_RETURN(const ModelSpec spec, BuildModelSpec(base, {}));
  AdapterMaker maker(options, type->type);
  maker.AddKeys(spec.architecture);
  for (const TensorRef matrix : AdaptableMatrices(spec)) {
    const TensorInfo& tensor = base.tensors()[static_cast<size_t>(matrix.index)];
    if (matrix != spec.embedding) maker.AddPair(tensor.name, tensor.dims[0], tensor.dims[1]);
  }
  if (spec.embedding && spec.output.weight != spec.embedding) {
    const TensorInfo& table = base.tensors()[static_cast<size_t>(spec.embedding.index)];
    maker.AddEmbedding(table.name, table.dims[0], table.dims[1]);
  }
  return maker;
}

}  // namespace

StatusOr<std::string> AdapterBytes(const ModelFile& base, const MakeAdapterOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const AdapterMaker maker, MakerOf(base, options));
  return maker.writer().ToBytes();
}

Status MakeAdapter(const std::string& base_path, const MakeAdapterOptions& options,
                   const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto base, ModelFile::Open(base_path));
  WEFT_ASSIGN_OR_RETURN(const AdapterMaker maker, MakerOf(*base, options));
  return maker.writer().Write(path);
}

}  // namespace weft::tools
