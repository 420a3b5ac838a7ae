// A model file, opened and checked: metadata, and named tensors in mapped memory.
//
// ModelFile knows bytes and names but no architectures; keys and tensors of Ollama's converters get
// llama.cpp's names here (ollama_dialect.h). Everything it returns was validated when it
// was opened: offsets, sizes, alignment, types, counts, names. Names (of keys and tensors) are
// valid UTF-8 without control characters; string values may be any bytes. It is immutable and may
// be read from any thread; the views it returns live as long as it does. Metadata and names never
// change after opening; tensors do not as long as nobody writes to the file (CheckUnchanged).
//
// A tensor's data begins at a multiple of the file's alignment, which is at least 8 bytes and 32 in
// practice: enough for every element type, but not for aligned vector loads.
#ifndef WEFT_MODEL_FORMATS_MODEL_FILE_H_
#define WEFT_MODEL_FORMATS_MODEL_FILE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/files/mapped_file.h"
#include "base/status.h"

namespace weft {

// One metadata value. Integers of every width are held as 64 bits with their signedness;
// `MetaArray` holds the elements in one vector of the widened type.
struct MetaArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>, std::vector<MetaArray>>
      items;
  size_t size() const;
};
using MetaValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, MetaArray>;

struct TensorInfo {
  std::string_view name;
  DType type;
  int n_dims;                       // 1..4
  int64_t dims[4];                  // dims[0] is contiguous; unused ones are 1
  std::span<const std::byte> data;  // exactly the tensor's bytes, in the mapping

  int64_t values() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  int64_t row_bytes() const { return RowBytes(type, dims[0]); }
};

class ModelFile {
 public:
  struct OpenOptions {
    // Called from time to time while a large file is opened; may be empty.
    std::function<void(double fraction)> progress;
    // A file that describes the model's layers (model/spec_file.h). Empty: "NAME.weft.json" next to
    // "NAME.gguf", if it exists.
    std::string spec_path;
  };

  // Opens a GGUF file (version 2 or 3), a folder as Hugging Face's libraries save it (hf/folder.h;
  // version() is 0), or the first of a split series "NAME-00001-of-0000N.gguf"
  // with the other parts next to it.
  // Errors name the file, the key or tensor, and the problem.
  static StatusOr<std::shared_ptr<const ModelFile>> Open(const std::string& path,
                                                         const OpenOptions& options);
  static StatusOr<std::shared_ptr<const ModelFile>> Open(const std::string& path) {
    return Open(path, OpenOptions());
  }

  // The same checks for bytes in memory, which must outlive the result. `name` replaces the path in
  // errors; "<name>.weft.json" is that of the spec. For embedded models, tests and fuzzing. The
  // bytes must start at a multiple of 8, and cannot be part of a split series.
  static StatusOr<std::shared_ptr<const ModelFile>> FromBytes(std::string name,
                                                              std::span<const std::byte> bytes,
                                                              std::string spec_text = "");

  const std::string& path() const { return path_; }
  // The stamps of all parts (see MappedFile); empty for bytes in memory.
  std::string stamp() const;
  // The spec file and its text; empty if there is none. It has been read, and not checked.
  const std::string& spec_path() const { return spec_path_; }
  const std::string& spec_text() const { return spec_text_; }
  // Bytes of all parts.
  uint64_t file_bytes() const { return file_bytes_; }
  uint32_t version() const { return version_; }

  // --- metadata -----------------------------------------------------------
  // In file order; for a split series, the first part's.
  struct KeyValue {
    std::string_view key;
    MetaValue value;
  };
  std::span<const KeyValue> metadata() const { return metadata_; }
  // Null if the key is absent.
  const MetaValue* FindMeta(std::string_view key) const;
  bool HasMeta(std::string_view key) const { return FindMeta(key) != nullptr; }

  // Typed access. A missing key is NOT_FOUND; a value of another kind or out of range is
  // INVALID_ARGUMENT; both name file and key. The *Or forms return the default for an absent key,
  // but still an error for a malformed one. Integers of any width and signedness are accepted if
  // they fit; a float is accepted from an integer, never the reverse.
  StatusOr<int64_t> GetInt(std::string_view key) const;
  StatusOr<int64_t> GetIntOr(std::string_view key, int64_t absent) const;
  StatusOr<double> GetFloat(std::string_view key) const;
  StatusOr<double> GetFloatOr(std::string_view key, double absent) const;
  StatusOr<bool> GetBool(std::string_view key) const;
  StatusOr<bool> GetBoolOr(std::string_view key, bool absent) const;
  StatusOr<std::string_view> GetString(std::string_view key) const;
  StatusOr<std::string_view> GetStringOr(std::string_view key, std::string_view absent) const;
  StatusOr<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  StatusOr<std::vector<double>> GetFloatArray(std::string_view key) const;
  StatusOr<std::span<const std::string_view>> GetStringArray(std::string_view key) const;
  // A scalar or an array of `n` integers (booleans count as 0 and 1): a scalar stands for n equal
  // values. Several keys occur in both forms.
  StatusOr<std::vector<int64_t>> GetIntPerLayer(std::string_view key, int64_t n) const;

  // An error about this file's `key`: "<path>: key <key>: <what>".
  Status KeyError(std::string_view key, std::string_view what) const;
  Status TensorError(std::string_view tensor, std::string_view what) const;

  // --- tensors ------------------------------------------------------------
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Tensors of the file that text does not need: of pictures, of sound, of MTP heads that cannot
  // be read. They are not among tensors().
  std::span<const TensorInfo> set_aside() const { return set_aside_; }
  // One sentence on the parts that are read differently than written; empty: none.
  std::string TranslationNote() const;
  // Index into tensors(), -1 if there is none of that name.
  int FindTensor(std::string_view name) const;

  // Copies out.size() bytes of the tensor's data from `offset`, reading the file rather than its
  // mapping. Fails if the file has become shorter or cannot be read.
  Status Read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const;

  // DATA_LOSS once the file has been written to or truncated since it was opened, or could not be
  // read: results computed from a tensor's data are valid only if this is OK afterwards.
  Status CheckUnchanged() const;

  // Advice to the kernel about the pages of a tensor or a part of it; see MappedFile.
  void WillNeed(const TensorInfo& tensor) const;
  void Release(const TensorInfo& tensor, std::span<const std::byte> bytes) const;

 private:
  ModelFile() = default;
  Status Parse(std::span<const std::byte> bytes, MappedFile* mapping);
  Status AddOtherParts(const OpenOptions& options);
  Status ReadSpecFile(const std::string& given);
  Status CheckPart(const ModelFile& part, int64_t no, int64_t count) const;
  Status OpenFolder(const OpenOptions& options);
  void Translate();
  Status Index();
  Status MissingKey(std::string_view key) const;
  StatusOr<const MetaArray*> GetArray(std::string_view key) const;
  const MappedFile* PartOf(const TensorInfo& tensor) const;

  std::string path_;
  std::string spec_path_, spec_text_;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<std::unique_ptr<MappedFile>> parts_;  // empty after FromBytes
  std::vector<KeyValue> metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<TensorInfo> set_aside_;
  // Data created by a translation or by reading a folder; metadata and tensors point into it.
  std::string translated_architecture_;  // as the file names it; empty: nothing was translated
  std::deque<std::string> texts_;
  std::deque<std::vector<float>> values_;
  std::deque<std::vector<std::byte>> bytes_;
  // Positions in the vectors above, sorted by name. Not hash tables: a malicious file cannot choose
  // names that slow down a sorted list.
  std::vector<uint32_t> metadata_order_;
  std::vector<uint32_t> tensor_order_;
};

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_MODEL_FILE_H_
