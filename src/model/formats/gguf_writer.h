// Writes GGUF version 3 files: for converted models, random-weight models and tests. Add values
// first; Write() then streams header and tensors.
//
// Not thread-safe; one writer, one file.
#ifndef WEFT_MODEL_FORMATS_GGUF_WRITER_H_
#define WEFT_MODEL_FORMATS_GGUF_WRITER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft {

// INVALID_ARGUMENT if something is at `path` that a file must not replace, such as a device.
Status CheckReplaceable(const std::string& path);

class GgufWriter {
 public:
  // Metadata, in the order of the calls. Adding a key again replaces its value. "general.alignment"
  // (a power of two; default 32) is obeyed.
  void AddUint32(std::string_view key, uint32_t value);
  void AddInt32(std::string_view key, int32_t value);
  void AddUint64(std::string_view key, uint64_t value);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStringArray(std::string_view key, std::span<const std::string> values);
  void AddInt32Array(std::string_view key, std::span<const int32_t> values);
  void AddUint32Array(std::string_view key, std::span<const uint32_t> values);
  void AddFloat32Array(std::string_view key, std::span<const float> values);
  void AddBoolArray(std::string_view key, const std::vector<bool>& values);
  // Copies a value as it was read, preserving its kind and (64-bit) width.
  void AddMeta(std::string_view key, const MetaValue& value);

  // Declares a tensor. `fill(row, bytes)` is called once per row (dims[0] values), in order, while
  // the file is written, so that a large model is never in memory as a whole. It must set every
  // byte.
  using FillRow = std::function<void(int64_t row, std::span<std::byte> bytes)>;
  void AddTensor(std::string_view name, DType type, std::span<const int64_t> dims, FillRow fill);
  // A tensor whose bytes are in memory; they must live until Write() or ToBytes().
  void AddTensor(std::string_view name, DType type, std::span<const int64_t> dims,
                 std::span<const std::byte> data);

  // Writes to a temporary file and renames it to `path` when complete, so that `path` never holds a
  // partial file. Validates everything added: an invalid name, type or shape is an error that names
  // it.
  Status Write(const std::string& path) const;
  // The same file in memory. REQUIRES: everything added would pass Write()'s checks.
  std::string ToBytes() const;

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<int64_t> dims;
    FillRow fill;                     // if empty, `data` holds all bytes
    std::span<const std::byte> data;  // not owned

    int64_t values() const;
    int64_t bytes() const { return RowBytes(type, values()); }
  };
  void AddEncoded(std::string_view key, std::string encoded);
  StatusOr<uint64_t> Alignment() const;
  static Status CheckTensor(const Tensor& tensor);
  // Everything before the tensors' data.
  StatusOr<std::string> Header(uint64_t alignment) const;
  // Passes the file's bytes to `append` in order.
  Status Emit(const std::function<Status(std::string_view bytes)>& append) const;

  std::vector<std::pair<std::string, std::string>> metadata_;  // key -> encoded type and value
  std::vector<Tensor> tensors_;
};

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_GGUF_WRITER_H_
