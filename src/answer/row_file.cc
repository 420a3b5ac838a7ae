#include "answer/row_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "answer/torch_file.h"
#include "base/half.h"
#include "base/strings.h"
#include "json/json_fields.h"

namespace weft::serve {
namespace {

enum class Number { kF32, kF16, kBF16 };

// A matrix whose numbers lie in C order, without gaps.
struct Matrix {
  Number number = Number::kF32;
  std::vector<int64_t> shape;
  std::string_view bytes;
};

int64_t BytesOf(Number number) { return number == Number::kF32 ? 4 : 2; }

StatusOr<Number> NumberNamed(std::string_view name, std::string_view f32, std::string_view f16,
                             std::string_view bf16) {
  if (name == f32) return Number::kF32;
  if (name == f16) return Number::kF16;
  if (!bf16.empty() && name == bf16) return Number::kBF16;
  return InvalidArgument("its numbers are ", Printable(name), "; take ", f32, " or ", f16,
                         bf16.empty() ? "" : " or ", bf16);
}

template <typename T>
T Little(std::string_view bytes, size_t at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// --- NumPy ------------------------------------------------------------------------------

constexpr std::string_view kNumpyMark = "\x93NUMPY";

// What follows 'key': in the header, a dictionary as Python writes it; empty if nothing does.
std::string_view ValueOf(std::string_view header, std::string_view key) {
  const size_t at = header.find(StrCat("'", key, "':"));
  if (at == header.npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

// "(3, 4)"
std::optional<std::vector<int64_t>> ReadTuple(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  std::vector<int64_t> values;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
    if (text.starts_with(')')) return values;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || values.size() == 8) return std::nullopt;
    values.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
}

StatusOr<Matrix> ReadNumpy(std::string_view bytes) {
  constexpr size_t kVersionAt = 6, kLengthAt = 8;
  if (bytes.size() < 12) return InvalidArgument("the NumPy array ends within its header");
  const int version = bytes[kVersionAt];
  if (version < 1 || version > 3) {
    return InvalidArgument("the NumPy array has format version ", version,
                           ", which this program does not know");
  }
  const size_t begin = kLengthAt + (version == 1 ? 2 : 4);
  const size_t length =
      version == 1 ? Little<uint16_t>(bytes, kLengthAt) : Little<uint32_t>(bytes, kLengthAt);
  if (length > bytes.size() - begin) {
    return InvalidArgument("the NumPy array ends within its header");
  }
  const std::string_view header = bytes.substr(begin, length);
  Matrix matrix{.bytes = bytes.substr(begin + length)};
  std::string_view type = ValueOf(header, "descr");
  if (type.size() < 2 || type[0] != '\'') {
    return InvalidArgument("the NumPy array's header names no type of numbers");
  }
  type = type.substr(1, type.find('\'', 1) - 1);
  WEFT_ASSIGN_OR_RETURN(matrix.number, NumberNamed(type, "<f4", "<f2", ""));
  if (!ValueOf(header, "fortran_order").starts_with("False")) {
    return InvalidArgument("the NumPy array is not in C order; save numpy.ascontiguousarray of it");
  }
  const auto shape = ReadTuple(ValueOf(header, "shape"));
  if (!shape) return InvalidArgument("the NumPy array's header has no shape");
  matrix.shape = *shape;
  return matrix;
}

// --- safetensors ------------------------------------------------------------------------

bool LooksLikeSafetensors(std::string_view bytes) {
  return bytes.size() > 8 && bytes[8] == '{' && Little<uint64_t>(bytes, 0) <= bytes.size() - 8;
}

std::optional<std::vector<int64_t>> ReadNumbers(const nlohmann::ordered_json& list) {
  if (!list.is_array() || list.size() > 8) return std::nullopt;
  std::vector<int64_t> values;
  for (const auto& entry : list) {
    if (!entry.is_number_integer() || entry < 0) return std::nullopt;
    values.push_back(entry.get<int64_t>());
  }
  return values;
}

StatusOr<Matrix> ReadSafetensors(std::string_view bytes) {
  constexpr uint64_t kMaxHeader = uint64_t{1} << 20;
  const auto length = Little<uint64_t>(bytes, 0);
  if (length > kMaxHeader) return InvalidArgument("the safetensors file's header is too long");
  const auto parsed = ParseJson(bytes.substr(8, length), {});
  if (!parsed.ok() || !parsed->is_object()) {
    return InvalidArgument("the safetensors file's header is no JSON object");
  }
  const nlohmann::ordered_json* tensor = nullptr;
  for (const auto& [name, value] : parsed->items()) {
    if (name == "__metadata__") continue;
    if (tensor != nullptr) return InvalidArgument("the safetensors file has more than one tensor");
    tensor = &value;
  }
  if (tensor == nullptr) return InvalidArgument("the safetensors file has no tensor");
  if (!tensor->is_object() || !tensor->contains("dtype") || !(*tensor)["dtype"].is_string() ||
      !tensor->contains("shape") || !tensor->contains("data_offsets")) {
    return InvalidArgument("the safetensors file does not describe its tensor");
  }
  const auto shape = ReadNumbers((*tensor)["shape"]);
  const auto offsets = ReadNumbers((*tensor)["data_offsets"]);
  Matrix matrix{.bytes = bytes.substr(8 + length)};
  if (!shape || !offsets || offsets->size() != 2 || (*offsets)[0] != 0 ||
      (*offsets)[1] != std::ssize(matrix.bytes)) {
    return InvalidArgument("the safetensors file's tensor is not all that follows its header");
  }
  matrix.shape = *shape;
  WEFT_ASSIGN_OR_RETURN(matrix.number,
                        NumberNamed((*tensor)["dtype"].get<std::string>(), "F32", "F16", "BF16"));
  return matrix;
}

// --- PyTorch ----------------------------------------------------------------------------

StatusOr<Matrix> ReadTorch(std::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(const TorchTensor tensor, ReadTorchFile(bytes));
  Matrix matrix{.shape = tensor.shape};
  WEFT_ASSIGN_OR_RETURN(
      matrix.number, NumberNamed(tensor.storage, "FloatStorage", "HalfStorage", "BFloat16Storage"));
  const int64_t each = BytesOf(matrix.number);
  int64_t n = 1;
  for (const int64_t size : tensor.shape) {
    if (size > 0 && n > std::ssize(tensor.bytes) / size) {
      return InvalidArgument("the tensor of torch.save is larger than its numbers");
    }
    n *= size;
  }
  if (tensor.offset > std::ssize(tensor.bytes) / each - n) {
    return InvalidArgument("the tensor of torch.save is larger than its numbers");
  }
  matrix.bytes =
      tensor.bytes.substr(static_cast<size_t>(tensor.offset * each), static_cast<size_t>(n * each));
  return matrix;
}

// ----------------------------------------------------------------------------------------

StatusOr<Matrix> ReadMatrix(std::string_view bytes) {
  if (bytes.starts_with(kNumpyMark)) return ReadNumpy(bytes);
  if (bytes.starts_with("PK\x03\x04")) return ReadTorch(bytes);
  if (LooksLikeSafetensors(bytes)) return ReadSafetensors(bytes);
  return InvalidArgument(
      "it is neither a NumPy array (numpy.save), nor a safetensors file of one tensor, nor a "
      "tensor "
      "of PyTorch (torch.save)");
}

float NumberAt(const Matrix& matrix, size_t i) {
  if (matrix.number == Number::kF32) return Little<float>(matrix.bytes, 4 * i);
  const auto half = Little<uint16_t>(matrix.bytes, 2 * i);
  return matrix.number == Number::kF16 ? F16ToF32(half) : BF16ToF32(half);
}

}  // namespace

StatusOr<std::vector<float>> ReadRowFile(std::string_view bytes, int64_t width) {
  WEFT_ASSIGN_OR_RETURN(Matrix matrix, ReadMatrix(bytes));
  std::vector<int64_t> shape = matrix.shape;
  // A batch of one.
  if (shape.size() == 3 && shape[0] == 1) shape.erase(shape.begin());
  if (shape.size() != 2 || shape[0] == 0 || shape[1] != width) {
    return InvalidArgument("its shape is (", StrJoin(matrix.shape, ", "),
                           "); this model needs (number of vectors, ", width, ")");
  }
  const int64_t each = BytesOf(matrix.number) * width;
  if (shape[0] > std::ssize(matrix.bytes) / each || shape[0] * each != std::ssize(matrix.bytes)) {
    return InvalidArgument("it has ", matrix.bytes.size(), " bytes of numbers, which its shape (",
                           StrJoin(matrix.shape, ", "), ") does not");
  }
  std::vector<float> values(static_cast<size_t>(shape[0] * width));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = NumberAt(matrix, i);
    if (!std::isfinite(values[i])) {
      return InvalidArgument("vector ", static_cast<int64_t>(i) / width,
                             " has a number that is not finite");
    }
  }
  return values;
}

namespace {

constexpr std::string_view kBase64Letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= n ? kBase64Letters[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  static constexpr auto kValues = [] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    for (size_t i = 0; i < kBase64Letters.size(); ++i) {
      values[static_cast<unsigned char>(kBase64Letters[i])] = static_cast<int8_t>(i);
    }
    return values;
  }();
  const bool is_padded = text.ends_with('=');
  if (is_padded && text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes += static_cast<char>(bits >> n_bits & 0xFF);
  }
  return bytes;
}

}  // namespace weft::serve
