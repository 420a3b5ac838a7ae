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
#include "formats/gguf_writer.h"
#include "kernels/quants/quants.h"

namespace weft::tools {
namespace {

// Matrices with fewer values stay F32: they cost nothing.
constexpr int64_t kSmallValues = 4096;
// Rows are encoded in groups of about this many bytes of output.
constexpr int64_t kGroupBytes = int64_t{4} << 20;
constexpr std::string_view kFileTypeKey = "general.file_type";
constexpr std::string_view kVersionKey = "general.quantization_version";
constexpr uint32_t kQuantizationVersion = 2;

// What is asked for, and the number that the field's readers know it by.
struct Recipe {
  std::string_view name;
  DType type;
  uint32_t file_type;
  bool mix = false;  // some matrices get more bits: see MixedType
};

constexpr Recipe kRecipes[] = {
    {"F32", DType::kF32, 0},
    {"F16", DType::kF16, 1},
    {"BF16", DType::kBF16, 32},
    {"Q8_0", DType::kQ8_0, 7},
    {"Q6_K", DType::kQ6_K, 18},
    {"Q5_K_M", DType::kQ5_K, 17, true},
    {"Q5_K", DType::kQ5_K, 16},
    {"Q5_1", DType::kQ5_1, 9},
    {"Q5_0", DType::kQ5_0, 8},
    {"Q4_K_M", DType::kQ4_K, 15, true},
    {"Q4_K", DType::kQ4_K, 14},
    {"Q4_1", DType::kQ4_1, 3},
    {"Q4_0", DType::kQ4_0, 2},
    {"IQ4_NL", DType::kIQ4_NL, 25},
    {"IQ4_XS", DType::kIQ4_XS, 30},
    {"MXFP4", DType::kMXFP4, 38},
    {"Q3_K_M", DType::kQ3_K, 12, true},
    {"Q3_K", DType::kQ3_K, 11},
    {"Q2_K", DType::kQ2_K, 10, true},
};

StatusOr<Recipe> FindRecipe(std::string_view name, bool pure) {
  std::string upper(name);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name != upper) continue;
    if (pure && recipe.mix && recipe.name != NameOf(recipe.type)) {
      return InvalidArgument(recipe.name, " is a mix of types and cannot be pure: ask for ",
                             NameOf(recipe.type));
    }
    return recipe;
  }
  return InvalidArgument("unknown type \"", Printable(name), "\": choose one of ",
                         QuantizeTypeNames());
}

bool EndsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }
bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Tensors that lose more than they save.
bool StaysFloat(const TensorInfo& tensor) {
  if (tensor.rows() == 1 || tensor.dims[0] < 32 || tensor.values() < kSmallValues) return true;
  if (!EndsWith(tensor.name, ".weight")) return true;
  for (std::string_view part : {"norm", "ffn_gate_inp", "conv", "rope_freqs", "position_embd",
                                "token_types", "altup", "laurel", "per_layer_model_proj"}) {
    if (Contains(tensor.name, part)) return true;
  }
  return false;
}

// The kinds of matrices that a mix tells apart.
enum class Role { kOutput, kValue, kDown, kFusedQkv, kAttentionOutput, kOther };

Role RoleOf(const TensorInfo& tensor, bool tied) {
  if (tensor.name == "output.weight") return Role::kOutput;
  if (tied && tensor.name == "token_embd.weight") return Role::kOutput;
  if (EndsWith(tensor.name, "attn_v.weight")) return Role::kValue;
  if (EndsWith(tensor.name, "attn_qkv.weight")) return Role::kFusedQkv;
  if (EndsWith(tensor.name, "attn_output.weight")) return Role::kAttentionOutput;
  if (Contains(tensor.name, ".ffn_down")) return Role::kDown;
  return Role::kOther;
}

double BitsPerValue(DType type) {
  const DTypeInfo& info = InfoOf(type);
  return 8.0 * static_cast<double>(info.block_bytes) / static_cast<double>(info.block_values);
}

// Of `n` matrices of a kind, the first and last eighth and every third between.
bool GetsMoreBits(int64_t i, int64_t n) {
  return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

// The type of matrix `i` of `n` of its role in a mix, as the field has it.
DType MixedType(DType base, Role role, int64_t i, int64_t n) {
  const bool two = base == DType::kQ2_K, three = base == DType::kQ3_K;
  switch (role) {
    case Role::kValue:
      if (two) return DType::kQ4_K;
      if (three) return i < 2 ? DType::kQ5_K : DType::kQ4_K;
      return GetsMoreBits(i, n) ? DType::kQ6_K : base;
    case Role::kDown:
      if (two) return DType::kQ3_K;
      if (three) return i < n / 16 ? DType::kQ5_K : DType::kQ4_K;
      return GetsMoreBits(i, n) ? DType::kQ6_K : base;
    case Role::kFusedQkv:
      if (two) return base;
      return three ? DType::kQ4_K : base == DType::kQ4_K ? DType::kQ5_K : DType::kQ6_K;
    case Role::kAttentionOutput:
      return two ? DType::kQ3_K : three ? DType::kQ4_K : base;
    default:
      return base;
  }
}

// The type itself where rows of `n` values are whole blocks of it, else the nearest.
DType Fitting(DType type, int64_t n) {
  if (n % InfoOf(type).block_values == 0) return type;
  if (n % 32 != 0) return DType::kF16;
  switch (type) {
    case DType::kQ6_K:
      return DType::kQ8_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ4_K:
      return DType::kQ5_0;
    default:
      return DType::kIQ4_NL;
  }
}

bool IsInteger(DType type) {
  return type == DType::kI8 || type == DType::kI16 || type == DType::kI32 || type == DType::kI64;
}

std::vector<DType> Plan(const ModelFile& file, const Recipe& recipe, bool pure) {
  const bool tied = file.FindTensor("output.weight") < 0;
  std::map<Role, int64_t> totals, seen;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!StaysFloat(tensor)) ++totals[RoleOf(tensor, tied)];
  }
  std::vector<DType> types;
  for (const TensorInfo& tensor : file.tensors()) {
    if (IsInteger(tensor.type)) {
      types.push_back(tensor.type);
      continue;
    }
    if (StaysFloat(tensor)) {
      types.push_back(DType::kF32);
      continue;
    }
    const Role role = RoleOf(tensor, tied);
    DType type = recipe.type;
    if (role == Role::kOutput && !pure && BitsPerValue(type) < BitsPerValue(DType::kQ6_K)) {
      type = DType::kQ6_K;
    } else if (recipe.mix && !pure) {
      type = MixedType(type, role, seen[role]++, totals[role]);
    }
    types.push_back(Fitting(type, tensor.dims[0]));
  }
  return types;
}

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

void CopyAllMeta(const ModelFile& file, const Recipe& recipe, GgufWriter* writer) {
  for (const ModelFile::KeyValue& entry : file.metadata()) {
    if (entry.key == kFileTypeKey || entry.key == kVersionKey || entry.key.starts_with("split.")) {
      continue;
    }
    CopyMeta(entry.key, entry.value, writer);
  }
  writer->AddUint32(kFileTypeKey, recipe.file_type);
  writer->AddUint32(kVersionKey, kQuantizationVersion);
}

// --- Tensors -------------------------------------------------------------------

// Hands out the rows of the tensors in order, encoding ahead in groups of rows by
// all threads. The first value that is not finite is remembered: it would become
// zero silently.
class RowEncoder {
 public:
  RowEncoder(const ModelFile& file, const QuantizeOptions& options)
      : file_(file), progress_(options.progress), pool_(options.n_threads) {
    for (const TensorInfo& tensor : file.tensors()) total_ += tensor.values();
  }

  void FillRow(const TensorInfo& tensor, DType type, int64_t row, std::span<std::byte> out) {
    if (error_.ok()) {
      if (row == 0 || row >= group_end_) EncodeGroup(tensor, type, row);
      std::memcpy(out.data(), group_.data() + (row - group_begin_) * out.size(), out.size());
    } else {
      std::memset(out.data(), 0, out.size());  // the file is dropped
    }
    if (row + 1 == tensor.rows()) file_.Release(tensor, tensor.data);
  }

  // Counts a tensor that is copied.
  void Skip(const TensorInfo& tensor) { Advance(tensor.values()); }

  // What was wrong with any of the values.
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
        Quantize(type, values.data(), n, nullptr, group_.data() + r * out_bytes);
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
  const std::function<void(uint64_t, uint64_t)> progress_;
  ThreadPool pool_;
  Status error_;
  std::vector<std::byte> group_;  // rows [group_begin_, group_end_) of the tensor at hand
  int64_t group_begin_ = 0, group_end_ = 0;
  uint64_t done_ = 0, total_ = 0;
};

Status AddTensors(const ModelFile& file, const std::vector<DType>& types, RowEncoder* encoder,
                  GgufWriter* writer, QuantizedModel* result) {
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    const DType type = types[i];
    const std::span<const int64_t> dims(tensor.dims, tensor.n_dims);
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

std::string QuantizeTypeNames() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return StrJoin(names, ", ");
}

Status CheckQuantizeOptions(const QuantizeOptions& options) {
  return FindRecipe(options.type, options.pure).status();
}

StatusOr<std::vector<DType>> PlanTypes(const ModelFile& file, std::string_view type, bool pure) {
  WEFT_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(type, pure));
  return Plan(file, recipe, pure);
}

StatusOr<QuantizedModel> QuantizeModel(const std::string& in, const std::string& out,
                                       const QuantizeOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(options.type, options.pure));
  std::error_code ignored;
  if (std::filesystem::equivalent(in, out, ignored)) {
    return InvalidArgument(Printable(out, 200), " is the file to read: choose another name");
  }
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const ModelFile> file, ModelFile::Open(in));
  GgufWriter writer;
  CopyAllMeta(*file, recipe, &writer);
  RowEncoder encoder(*file, options);
  QuantizedModel result;
  WEFT_RETURN_IF_ERROR(
      AddTensors(*file, Plan(*file, recipe, options.pure), &encoder, &writer, &result));
  WEFT_RETURN_IF_ERROR(WriteChecked(writer, encoder, out));
  return result;
}

}  // namespace weft::tools
