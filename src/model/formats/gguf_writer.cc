#include "model/formats/gguf_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/system.h"
#include "model/formats/gguf_format.h"

namespace weft {
namespace {

using gguf::MetaType;

// Bytes buffered before writing.
constexpr size_t kFlushBytes = size_t{1} << 20;

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutString(std::string* out, std::string_view text) {
  Put(out, static_cast<uint64_t>(text.size()));
  out->append(text);
}

template <typename T>
std::string EncodeScalar(MetaType type, T value) {
  std::string out;
  Put(&out, type);
  Put(&out, value);
  return out;
}

std::string EncodeString(std::string_view value) {
  std::string out;
  Put(&out, MetaType::kString);
  PutString(&out, value);
  return out;
}

void PutItem(std::string* out, uint64_t value) { Put(out, value); }
void PutItem(std::string* out, int64_t value) { Put(out, value); }
void PutItem(std::string* out, uint32_t value) { Put(out, value); }
void PutItem(std::string* out, int32_t value) { Put(out, value); }
void PutItem(std::string* out, float value) { Put(out, value); }
void PutItem(std::string* out, double value) { Put(out, value); }
void PutItem(std::string* out, bool value) { Put(out, static_cast<uint8_t>(value)); }
void PutItem(std::string* out, std::string_view value) { PutString(out, value); }

constexpr MetaType TypeOf(uint64_t) { return MetaType::kUint64; }
constexpr MetaType TypeOf(int64_t) { return MetaType::kInt64; }
constexpr MetaType TypeOf(uint32_t) { return MetaType::kUint32; }
constexpr MetaType TypeOf(int32_t) { return MetaType::kInt32; }
constexpr MetaType TypeOf(float) { return MetaType::kFloat32; }
constexpr MetaType TypeOf(double) { return MetaType::kFloat64; }
constexpr MetaType TypeOf(bool) { return MetaType::kBool; }
MetaType TypeOf(std::string_view) { return MetaType::kString; }

// What follows the type of an array value: item type, count, items.
void PutArray(std::string* out, const MetaArray& array);

template <typename Range>
void PutArray(std::string* out, const Range& items) {
  using Item = typename Range::value_type;
  if constexpr (std::is_same_v<Item, MetaArray>) {
    Put(out, MetaType::kArray);
    Put(out, static_cast<uint64_t>(items.size()));
    for (const MetaArray& item : items) PutArray(out, item);
  } else {
    Put(out, TypeOf(Item()));
    Put(out, static_cast<uint64_t>(items.size()));
    for (const auto& item : items) PutItem(out, static_cast<const Item&>(item));
  }
}

void PutArray(std::string* out, const MetaArray& array) {
  std::visit([&](const auto& items) { PutArray(out, items); }, array.items);
}

template <typename Range>
std::string EncodeArray(const Range& items) {
  std::string out;
  Put(&out, MetaType::kArray);
  PutArray(&out, items);
  return out;
}

std::string Encode(const MetaValue& value) {
  if (const auto* array = std::get_if<MetaArray>(&value)) return EncodeArray(*array);
  std::string out;
  std::visit(
      [&](const auto& scalar) {
        using T = std::decay_t<decltype(scalar)>;
        if constexpr (!std::is_same_v<T, MetaArray>) {
          Put(&out, TypeOf(scalar));
          PutItem(&out, scalar);
        }
      },
      value);
  return out;
}

// The output file, under a temporary name until complete; removed if it never is.
class OutputFile {
 public:
  explicit OutputFile(std::string path)
      : path_(std::move(path)), temporary_(StrCat(path_, ".", getpid(), ".tmp")) {}
  ~OutputFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(temporary_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status Create() {
    WEFT_RETURN_IF_ERROR(CheckReplaceable(path_));
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd_ < 0 ? Error("cannot create ", temporary_) : OkStatus();
  }

  Status Append(std::string_view bytes) {
    buffer_.append(bytes);
    return buffer_.size() < kFlushBytes ? OkStatus() : Flush();
  }

  // Makes the file appear under its name, complete and on disk.
  Status Commit() {
    WEFT_RETURN_IF_ERROR(Flush());
    if (SyncFile(fd_) != 0) return Error("cannot write ", temporary_);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Error("cannot create ", path_);
    close(std::exchange(fd_, -1));
    return OkStatus();
  }

 private:
  Status Error(std::string_view what, std::string_view path) const {
    return ErrnoStatus(errno, StrCat(what, Printable(path, 300)));
  }

  Status Flush() {
    std::string_view left = buffer_;
    while (!left.empty()) {
      const ssize_t n = write(fd_, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error("cannot write ", temporary_);
      left.remove_prefix(static_cast<size_t>(n));
    }
    buffer_.clear();
    return OkStatus();
  }

  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace

Status CheckReplaceable(const std::string& path) {
  struct stat there = {};
  if (stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return OkStatus();
  return InvalidArgument(Printable(path, 300), " is not a regular file, and would be replaced");
}

void GgufWriter::AddEncoded(std::string_view key, std::string encoded) {
  for (auto& [existing, value] : metadata_) {
    if (existing == key) {
      value = std::move(encoded);
      return;
    }
  }
  metadata_.emplace_back(key, std::move(encoded));
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  AddEncoded(key, EncodeScalar(MetaType::kUint32, value));
}
void GgufWriter::AddInt32(std::string_view key, int32_t value) {
  AddEncoded(key, EncodeScalar(MetaType::kInt32, value));
}
void GgufWriter::AddUint64(std::string_view key, uint64_t value) {
  AddEncoded(key, EncodeScalar(MetaType::kUint64, value));
}
void GgufWriter::AddFloat32(std::string_view key, float value) {
  AddEncoded(key, EncodeScalar(MetaType::kFloat32, value));
}
void GgufWriter::AddBool(std::string_view key, bool value) {
  AddEncoded(key, EncodeScalar(MetaType::kBool, static_cast<uint8_t>(value)));
}
void GgufWriter::AddString(std::string_view key, std::string_view value) {
  AddEncoded(key, EncodeString(value));
}
void GgufWriter::AddStringArray(std::string_view key, std::span<const std::string> values) {
  AddEncoded(key, EncodeArray(std::vector<std::string_view>(values.begin(), values.end())));
}
void GgufWriter::AddInt32Array(std::string_view key, std::span<const int32_t> values) {
  AddEncoded(key, EncodeArray(values));
}
void GgufWriter::AddUint32Array(std::string_view key, std::span<const uint32_t> values) {
  AddEncoded(key, EncodeArray(values));
}
void GgufWriter::AddFloat32Array(std::string_view key, std::span<const float> values) {
  AddEncoded(key, EncodeArray(values));
}
void GgufWriter::AddBoolArray(std::string_view key, const std::vector<bool>& values) {
  AddEncoded(key, EncodeArray(values));
}
void GgufWriter::AddMeta(std::string_view key, const MetaValue& value) {
  AddEncoded(key, Encode(value));
}

void GgufWriter::AddTensor(std::string_view name, DType type, std::span<const int64_t> dims,
                           FillRow fill) {
  tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, std::move(fill), {}});
}

void GgufWriter::AddTensor(std::string_view name, DType type, std::span<const int64_t> dims,
                           std::span<const std::byte> data) {
  tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, nullptr, data});
}

StatusOr<uint64_t> GgufWriter::Alignment() const {
  for (const auto& [key, encoded] : metadata_) {
    if (key != gguf::kAlignmentKey) continue;
    MetaType type;
    std::memcpy(&type, encoded.data(), sizeof(type));
    uint64_t value = 0;
    if (type == MetaType::kUint32 || type == MetaType::kUint64) {
      std::memcpy(&value, encoded.data() + sizeof(type), encoded.size() - sizeof(type));
    }
    if (!gguf::IsValidAlignment(value)) {
      return InvalidArgument("key ", key, " must be an unsigned power of two from ",
                             gguf::kMinAlignment, " to ", gguf::kMaxAlignment);
    }
    return value;
  }
  return gguf::kDefaultAlignment;
}

int64_t GgufWriter::Tensor::values() const {
  int64_t values = 1;
  for (const int64_t size : dims) values *= size;
  return values;
}

Status GgufWriter::CheckTensor(const Tensor& tensor) {
  const auto error = [&](const auto&... what) {
    return InvalidArgument("cannot write tensor ", Printable(tensor.name), ": ", what...);
  };
  if (!gguf::IsValidName(tensor.name, gguf::kMaxTensorNameBytes)) {
    return error("its name is empty, longer than ", gguf::kMaxTensorNameBytes,
                 " bytes, not UTF-8 or has control characters");
  }
  const DTypeInfo* type = FindDType(static_cast<uint32_t>(tensor.type));
  if (type == nullptr) return error("it has the unknown type ", tensor.type);
  if (tensor.dims.empty() || tensor.dims.size() > gguf::kMaxDims) {
    return error("it has ", tensor.dims.size(), " dimensions");
  }
  int64_t values = 1;
  for (const int64_t size : tensor.dims) {
    if (size < 1 || size > std::numeric_limits<int64_t>::max() / 16 / values) {
      return error("its dimensions ", StrJoin(tensor.dims, " x "), " are impossible");
    }
    values *= size;
  }
  if (tensor.dims[0] % type->block_values != 0) {
    return error("its rows of ", tensor.dims[0], " values are not whole blocks of ",
                 type->block_values, ", as its type ", type->name, " needs");
  }
  const auto bytes = static_cast<uint64_t>(RowBytes(tensor.type, values));
  if (!tensor.fill && tensor.data.size() != bytes) {
    return error("it was given ", tensor.data.size(), " bytes of data instead of ", bytes,
                 " are needed");
  }
  return OkStatus();
}

StatusOr<std::string> GgufWriter::Header(uint64_t alignment) const {
  std::string out(gguf::kMagic);
  Put(&out, gguf::kNewestVersion);
  Put(&out, static_cast<uint64_t>(tensors_.size()));
  Put(&out, static_cast<uint64_t>(metadata_.size()));
  for (const auto& [key, encoded] : metadata_) {
    if (!gguf::IsValidName(key, gguf::kMaxKeyBytes)) {
      return InvalidArgument("cannot write key \"", Printable(key),
                             "\": it is empty, too long, not UTF-8 or has control characters");
    }
    PutString(&out, key);
    out.append(encoded);
  }
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    WEFT_RETURN_IF_ERROR(CheckTensor(tensor));
    if (!names.insert(tensor.name).second) {
      return InvalidArgument("cannot write tensor ", Printable(tensor.name),
                             ": the name was added twice");
    }
    PutString(&out, tensor.name);
    Put(&out, static_cast<uint32_t>(tensor.dims.size()));
    for (const int64_t size : tensor.dims) Put(&out, size);
    Put(&out, tensor.type);
    Put(&out, offset);
    offset = gguf::AlignUp(offset + static_cast<uint64_t>(tensor.bytes()), alignment);
    if (offset > uint64_t{1} << 62) return InvalidArgument("the tensors together are too large");
  }
  if (!tensors_.empty()) out.resize(gguf::AlignUp(out.size(), alignment));
  return out;
}

Status GgufWriter::Emit(const std::function<Status(std::string_view bytes)>& append) const {
  WEFT_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  WEFT_ASSIGN_OR_RETURN(const std::string header, Header(alignment));
  WEFT_RETURN_IF_ERROR(append(header));
  std::string row_buffer;
  for (const Tensor& tensor : tensors_) {
    const auto bytes = static_cast<uint64_t>(tensor.bytes());
    if (!tensor.fill) {
      WEFT_RETURN_IF_ERROR(
          append({reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()}));
    } else {
      row_buffer.resize(static_cast<size_t>(RowBytes(tensor.type, tensor.dims[0])));
      const auto row_bytes = std::as_writable_bytes(std::span(row_buffer));
      const int64_t n_rows = tensor.values() / tensor.dims[0];
      for (int64_t row = 0; row < n_rows; ++row) {
        tensor.fill(row, row_bytes);
        WEFT_RETURN_IF_ERROR(append(row_buffer));
      }
    }
    WEFT_RETURN_IF_ERROR(append(std::string(gguf::AlignUp(bytes, alignment) - bytes, '\0')));
  }
  return OkStatus();
}

Status GgufWriter::Write(const std::string& path) const {
  OutputFile file(path);
  WEFT_RETURN_IF_ERROR(file.Create());
  WEFT_RETURN_IF_ERROR(Emit([&](std::string_view bytes) { return file.Append(bytes); }));
  return file.Commit();
}

std::string GgufWriter::ToBytes() const {
  std::string out;
  const Status status = Emit([&](std::string_view bytes) {
    out.append(bytes);
    return OkStatus();
  });
  WEFT_CHECK(status.ok(), status.ToString().c_str());
  return out;
}

}  // namespace weft
