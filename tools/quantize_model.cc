#include "tools/quantize_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/thread_pool.h"
#include "compute/kernels/quants/quants.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/importance_matrix.h"
#include "tools/quantize_plan.h"

namespace weft::tools {
namespace {

// Rows are encoded in groups of about this many bytes of output.
constexpr int64_t kGroupBytes = int64_t{4} << 20;
constexpr std::string_view kFileTypeKey = "general.file_type";
constexpr std::string_view kVersionKey = "general.quantization_version";
constexpr std::string_view kImportanceKeys = "quantize.imatrix.";
constexpr uint32_t kQuantizationVersion = 2;

// --- Metadata ------------------------------------------------------------------

template <typename Narrow, typename Wide>
bool AllFit(const std::vector<Wide>& values) {
  return std::all_of(values.begin(), values.end(), [](Wide v) {
    if constexpr (std::is_floating_point_v<Wide>) {
      return std::isnan(v) || static_cast<Wide>(static_cast<Narrow>(v)) == v;
    } else {
      return v >= static_cast<Wide>(std::numeric_limits<Narrow>::lowest()) &&
             v <= static_cast<Wide>(std::numeric_limits<Narrow>::max());
    }
  });
}

template <typename Narrow, typename Wide>
std::vector<Narrow> Narrowed(const std::vector<Wide>& values) {
  return std::vector<Narrow>(values.begin(), values.end());
}

// Other readers insist on the 32-bit types that the field writes.
void CopyMeta(std::string_view key, const MetaValue& value, GgufWriter* writer) {
  if (const auto* u = std::get_if<uint64_t>(&value); u && AllFit<uint32_t>(std::vector{*u})) {
    return writer->AddUint32(key, static_cast<uint32_t>(*u));
  }
  if (const auto* i = std::get_if<int64_t>(&value); i && AllFit<int32_t>(std::vector{*i})) {
    return writer->AddInt32(key, static_cast<int32_t>(*i));
  }
  if (const auto* f = std::get_if<double>(&value); f && AllFit<float>(std::vector{*f})) {
    return writer->AddFloat32(key, static_cast<float>(*f));
  }
  if (const auto* array = std::get_if<MetaArray>(&value)) {
    const auto& items = array->items;
    if (const auto* u = std::get_if<std::vector<uint64_t>>(&items); u && AllFit<uint32_t>(*u)) {
      return writer->AddUint32Array(key, Narrowed<uint32_t>(*u));
    }
    if (const auto* i = std::get_if<std::vector<int64_t>>(&items); i && AllFit<int32_t>(*i)) {
      return writer->AddInt32Array(key, Narrowed<int32_t>(*i));
    }
    if (const auto* f = std::get_if<std::vector<double>>(&items); f && AllFit<float>(*f)) {
      return writer->AddFloat32Array(key, Narrowed<float>(*f));
    }
  }
  writer->AddMeta(key, value);
}

bool DescribesConversion(std::string_view key) {
  return key == kFileTypeKey || key == kVersionKey || key.starts_with("split.") ||
         key.starts_with(kImportanceKeys);
}

void CopyAllMeta(const ModelFile& file, const Recipe& recipe, const QuantizeOptions& options,
                 const ImportanceMatrix& importance, GgufWriter* writer) {
  for (const ModelFile::KeyValue& entry : file.metadata()) {
    if (!DescribesConversion(entry.key)) CopyMeta(entry.key, entry.value, writer);
  }
  writer->AddUint32(kFileTypeKey, recipe.file_type);
  writer->AddUint32(kVersionKey, kQuantizationVersion);
  if (options.importance.empty()) return;
  const auto add = [&](std::string_view key) { return StrCat(kImportanceKeys, key); };
  writer->AddString(add("file"), options.importance);
  if (!importance.texts.empty()) writer->AddString(add("dataset"), importance.texts[0]);
  writer->AddUint32(add("entries_count"), static_cast<uint32_t>(importance.entries.size()));
  writer->AddUint32(add("chunks_count"), static_cast<uint32_t>(importance.n_chunks));
}

// --- Tensors -------------------------------------------------------------------

StatusOr<std::vector<float>> MeansOf(const ImportanceMatrix& importance, const TensorInfo& tensor) {
  return importance.MeansOf(tensor.name, tensor.dims[0], tensor.dims[2] * tensor.dims[3]);
}

// Hands out the rows of the tensors in order, encoding ahead in groups of rows by
// all threads. The first value that is not finite is remembered: it would become
// zero silently.
class RowEncoder {
 public:
  RowEncoder(const ModelFile& file, const ImportanceMatrix& importance,
             const QuantizeOptions& options)
      : file_(file),
        importance_(importance),
        progress_(options.progress),
        pool_(options.n_threads) {
    for (const TensorInfo& tensor : file.tensors()) total_ += tensor.values();
  }

  void FillRow(const TensorInfo& tensor, DType type, int64_t row, std::span<std::byte> out) {
    if (error_.ok()) {
      if (row == 0) means_ = MeansOf(importance_, tensor).value_or(std::vector<float>());
      if (row == 0 || row >= group_end_) EncodeGroup(tensor, type, row);
      std::memcpy(out.data(), group_.data() + (row - group_begin_) * out.size(), out.size());
    } else {
      std::memset(out.data(), 0, out.size());  // the file is dropped
    }
    if (row + 1 == tensor.rows()) file_.Release(tensor, tensor.data);
  }

  // Counts a tensor that is copied.
  void Skip(const TensorInfo& tensor) { Advance(tensor.values()); }

  // An error if any value was wrong.
  Status Finish() const {
    WEFT_RETURN_IF_ERROR(file_.CheckUnchanged());
    return error_;
  }

 private:
  void EncodeGroup(const TensorInfo& tensor, DType type, int64_t begin) {
    const int64_t n = tensor.dims[0], out_bytes = RowBytes(type, n);
    const int64_t rows =
        std::min(tensor.rows() - begin, std::max<int64_t>(kGroupBytes / out_bytes, 1));
    group_begin_ = begin;
    group_end_ = begin + rows;
    group_.resize(static_cast<size_t>(rows * out_bytes));
    std::atomic<int64_t> broken_row{-1};
    pool_.ParallelFor(rows, 1, [&](int64_t first, int64_t last, int) {
      std::vector<float> values(static_cast<size_t>(n));
      for (int64_t r = first; r < last; ++r) {
        Dequantize(tensor.type, tensor.data.data() + (begin + r) * tensor.row_bytes(), n,
                   values.data());
        if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
          broken_row = begin + r;
        }
        const int64_t matrix = (begin + r) / tensor.dims[1];
        Quantize(type, values.data(), n, means_.empty() ? nullptr : means_.data() + matrix * n,
                 group_.data() + r * out_bytes);
      }
    });
    if (broken_row >= 0) {
      error_ = file_.TensorError(tensor.name, StrCat("row ", broken_row.load(),
                                                     " holds a value that is infinite or not a "
                                                     "number; fetch or convert the file again"));
    }
    Advance(rows * n);
  }

  void Advance(int64_t values) {
    done_ += values;
    if (progress_) progress_(done_, total_);
  }

  const ModelFile& file_;
  const ImportanceMatrix& importance_;
  const std::function<void(uint64_t, uint64_t)> progress_;
  ThreadPool pool_;
  Status error_;
  std::vector<std::byte> group_;  // rows [group_begin_, group_end_) of the tensor at hand
  int64_t group_begin_ = 0, group_end_ = 0;
  std::vector<float> means_;  // for that tensor's inputs; empty: unknown
  uint64_t done_ = 0, total_ = 0;
};

Status AddTensors(const ModelFile& file, const std::vector<DType>& types,
                  const ImportanceMatrix& importance, RowEncoder* encoder, GgufWriter* writer,
                  QuantizedModel* result) {
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    const DType type = types[i];
    const std::span<const int64_t> dims(tensor.dims, tensor.n_dims);
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> means, MeansOf(importance, tensor));
    if (!means.empty()) ++result->known_tensors;
    if (type == tensor.type) {
      encoder->Skip(tensor);
      writer->AddTensor(tensor.name, type, dims, tensor.data);
    } else if (CanDequantize(tensor.type)) {
      writer->AddTensor(tensor.name, type, dims,
                        [&tensor, type, encoder](int64_t row, std::span<std::byte> out) {
                          encoder->FillRow(tensor, type, row, out);
                        });
    } else {
      return file.TensorError(tensor.name, StrCat("its type ", NameOf(tensor.type),
                                                  " cannot be decoded; start from a file in F32, "
                                                  "F16 or BF16"));
    }
    result->values += tensor.values();
    result->source_bytes += tensor.data.size();
    result->bytes += tensor.rows() * RowBytes(type, tensor.dims[0]);
    ++result->tensors_of_type[NameOf(type)];
  }
  if (!importance.entries.empty() && result->known_tensors == 0) {
    return InvalidArgument("the importance matrix has none of the matrices of ", file.path(),
                           "; compute it from this model");
  }
  return OkStatus();
}

// Writes under another name first: what the encoder found out is known at the end.
Status WriteChecked(const GgufWriter& writer, const RowEncoder& encoder, const std::string& path) {
  const std::string aside = path + ".unfinished";
  WEFT_RETURN_IF_ERROR(CheckReplaceable(path));
  WEFT_RETURN_IF_ERROR(writer.Write(aside));
  std::error_code error;
  Status status = encoder.Finish();
  if (status.ok()) {
    std::filesystem::rename(aside, path, error);
    if (!error) return OkStatus();
    status = ErrnoStatus(error.value(), StrCat("cannot rename ", aside));
  }
  std::filesystem::remove(aside, error);
  return status;
}

}  // namespace

Status CheckQuantizeOptions(const QuantizeOptions& options) {
  return FindRecipe(options.type, options.pure).status();
}

StatusOr<QuantizedModel> QuantizeModel(const std::string& in, const std::string& out,
                                       const QuantizeOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(options.type, options.pure));
  std::error_code ignored;
  if (std::filesystem::equivalent(in, out, ignored)) {
    return InvalidArgument(Printable(out, 200), " is the file to read: choose another name");
  }
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const ModelFile> file, ModelFile::Open(in));
  ImportanceMatrix importance;
  if (!options.importance.empty()) {
    WEFT_ASSIGN_OR_RETURN(importance, ImportanceMatrix::Read(options.importance));
  }
  GgufWriter writer;
  CopyAllMeta(*file, recipe, options, importance, &writer);
  RowEncoder encoder(*file, importance, options);
  QuantizedModel result;
  const auto types = PlanTypes(*file, recipe, options.pure, !importance.entries.empty());
  WEFT_RETURN_IF_ERROR(AddTensors(*file, types, importance, &encoder, &writer, &result));
  WEFT_RETURN_IF_ERROR(WriteChecked(writer, encoder, out));
  return result;
}

}  // namespace weft::tools
