#include "model/formats/hf/safetensors.h"

#include <cstring>
#include <optional>

#include "base/strings.h"
#include "json/json_fields.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr JsonLimits kHeaderLimits = {.max_depth = 4, .max_values = 2'000'000};
constexpr size_t kMaxTensorDims = 4;
constexpr int64_t kMaxValues = int64_t{1} << 48;

StatusOr<DType> TypeOf(const std::string& name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return Unimplemented("its type ", Printable(name, 40),
                       " is not read from safetensors; F32, F16 and BF16 are");
}

// Dimensions in GGUF's order, none of them 0.
StatusOr<std::vector<int64_t>> DimsOf(const Json& shape) {
  if (shape.size() > kMaxTensorDims) {
    return InvalidArgument("it has ", shape.size(), " dimensions; at most ", kMaxTensorDims,
                           " are allowed");
  }
  std::vector<int64_t> dims;
  int64_t values = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const int64_t n = shape[i].is_number_unsigned() ? shape[i].get<int64_t>() : 0;
    if (n < 1 || n > kMaxValues / values) return InvalidArgument("its shape is not one of values");
    values *= n;
    dims.push_back(n);
  }
  if (dims.empty()) dims.push_back(1);
  return dims;
}

StatusOr<SafeTensor> ReadTensor(const std::string& name, const Json& entry,
                                std::span<const std::byte> values) {
  JsonFields fields(entry);
  SafeTensor tensor;
  tensor.name = name;
  const std::string type = fields.String("dtype").value_or("");
  const Json* const shape = fields.Value("shape");
  const Json* const offsets = fields.Value("data_offsets");
  std::vector<std::string> unknown;
  WEFT_RETURN_IF_ERROR(fields.Finish(&unknown));
  if (shape == nullptr || !shape->is_array()) return InvalidArgument("it has no shape");
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return InvalidArgument("its data_offsets are not two numbers");
  }
  WEFT_ASSIGN_OR_RETURN(tensor.type, TypeOf(type));
  WEFT_ASSIGN_OR_RETURN(tensor.dims, DimsOf(*shape));
  const uint64_t begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > values.size()) {
    return InvalidArgument("its values end at byte ", end, " of ", values.size(),
                           "; download the file again");
  }
  int64_t bytes = RowBytes(tensor.type, 1);
  for (const int64_t n : tensor.dims) bytes *= n;
  if (end - begin != static_cast<uint64_t>(bytes)) {
    return InvalidArgument("it has ", end - begin, " bytes, but its shape needs ", bytes);
  }
  tensor.data = values.subspan(begin, end - begin);
  return tensor;
}

}  // namespace

StatusOr<std::vector<SafeTensor>> ReadSafeTensors(
    const MappedFile& file, FunctionRef<bool(const std::string& name)> is_wanted) {
  const std::string path = Printable(file.path(), 300);
  const std::span<const std::byte> bytes = file.bytes();
  uint64_t n_header = 0;
  if (bytes.size() < sizeof(n_header)) return InvalidArgument(path, ": it is no safetensors file");
  WEFT_RETURN_IF_ERROR(
      file.Read(bytes.first(sizeof(n_header)), std::as_writable_bytes(std::span(&n_header, 1))));
  if (n_header > kMaxHeaderBytes || n_header > bytes.size() - sizeof(n_header)) {
    return InvalidArgument(path, ": it is no safetensors file, or not all of one");
  }
  // A copy: the file may change while it is read.
  std::string header(n_header, '\0');
  WEFT_RETURN_IF_ERROR(file.Read(bytes.subspan(sizeof(n_header), n_header),
                                 std::as_writable_bytes(std::span(header))));
  StatusOr<Json> json = ParseJson(header, kHeaderLimits);
  if (!json.ok()) return Annotate(json.status(), path, ": its head: ");
  if (!json->is_object()) return InvalidArgument(path, ": its head is no object");
  std::vector<SafeTensor> tensors;
  for (const auto& [name, entry] : json->items()) {
    if (name == "__metadata__" || !is_wanted(name)) continue;
    StatusOr<SafeTensor> tensor =
        ReadTensor(name, entry, bytes.subspan(sizeof(n_header) + n_header));
    if (!tensor.ok()) {
      return Annotate(tensor.status(), path, ": tensor ", Printable(name, 200), ": ");
    }
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

}  // namespace weft
