#include "model/formats/gguf_parser.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "model/formats/gguf_format.h"

namespace weft {
namespace {

using gguf::MetaType;

// Nested arrays are legal, but real files do not nest them deeper.
constexpr int kMaxArrayDepth = 4;
// For all metadata of a file, as held in memory: an item may take many times its stored bytes, and
// a sparse file's size costs nothing.
constexpr uint64_t kMaxArrayBytes = uint64_t{512} << 20;
// Limit on space reserved for metadata entries or tensors by the header's claim alone.
constexpr uint64_t kMaxReserved = 4096;
// Smallest encodings, for checking counts before anything is allocated: a key of one byte, a type
// and a one-byte value; a name of one byte, one dimension, a type and an offset; an array's type
// and count.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kMinArrayBytes = 4 + 8;

class Parser {
 public:
  Parser(std::string_view path, std::span<const std::byte> bytes, const HoldBytes& hold)
      : path_(path), bytes_(bytes), hold_(hold), held_(hold ? 0 : bytes.size()) {}

  StatusOr<GgufContents> Run() {
    WEFT_RETURN_IF_ERROR(ReadHeader());
    WEFT_RETURN_IF_ERROR(ReadMetadata());
    WEFT_RETURN_IF_ERROR(ReadAlignment());
    WEFT_RETURN_IF_ERROR(ReadTensorList());
    WEFT_RETURN_IF_ERROR(PlaceTensors());
    WEFT_RETURN_IF_ERROR(CheckOverlap());
    return std::move(contents_);
  }

 private:
  uint64_t left() const { return bytes_.size() - position_; }

  // Whether `size` more bytes are available.
  bool Reach(uint64_t size) {
    if (size > left()) return false;
    if (position_ + size <= held_) return true;
    const StatusOr<size_t> held = hold_(position_ + size);
    if (held.ok()) held_ = *held;
    held_status_ = held.status();
    return held.ok();
  }

  template <typename T>
  bool Read(T* value) {
    if (!Reach(sizeof(T))) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  bool ReadString(std::string_view* text) {
    uint64_t size;
    if (!Read(&size) || !Reach(size)) return false;
    *text = {reinterpret_cast<const char*>(bytes_.data()) + position_, static_cast<size_t>(size)};
    position_ += size;
    return true;
  }

  // An error about the key or tensor being read.
  template <typename... Pieces>
  Status Error(const Pieces&... what) const {
    return InvalidArgument(Printable(path_, 300), ": ", place_, ": ", what...);
  }
  Status Truncated() const {
    WEFT_RETURN_IF_ERROR(held_status_);
    return DataLoss(Printable(path_, 300), ": ", place_, ": the file ends inside it, after ",
                    bytes_.size(), " bytes: it is truncated or damaged");
  }

  Status ReadHeader();
  Status ReadMetadata();
  Status ReadValue(MetaType type, MetaValue* value);
  StatusOr<MetaArray> ReadArray(int depth);
  Status ReadItems(MetaType type, uint64_t count, int depth, MetaArray* array);
  template <typename Stored, typename Wide>
  Status ReadNumber(MetaValue* value);
  template <typename Stored, typename Wide>
  Status ReadNumbers(uint64_t count, MetaArray* array);
  Status ReadBools(uint64_t count, MetaArray* array);
  Status ReadStrings(uint64_t count, MetaArray* array);
  Status ReadArrays(uint64_t count, int depth, MetaArray* array);
  // `stored_bytes`: minimum size of an item in the file; `held_bytes`: in memory.
  Status CheckCount(uint64_t count, uint64_t stored_bytes, uint64_t held_bytes);
  StatusOr<MetaType> ReadType();
  Status ReadAlignment();
  Status ReadTensorList();
  Status ReadTensor(TensorInfo* tensor, uint64_t* offset);
  Status CheckShape(const DTypeInfo& type, const TensorInfo& tensor) const;
  Status PlaceTensors();
  Status CheckOverlap();

  const std::string_view path_;
  const std::span<const std::byte> bytes_;
  const HoldBytes& hold_;
  uint64_t held_;  // bytes of bytes_ that may be read
  Status held_status_;
  uint64_t position_ = 0;  // at most bytes_.size()
  std::string place_;      // the current position, for errors
  uint64_t n_tensors_ = 0;
  uint64_t n_metadata_ = 0;
  uint64_t array_bytes_ = 0;
  uint64_t alignment_ = gguf::kDefaultAlignment;
  std::vector<uint64_t> offsets_;  // tensors' offsets in the data section
  GgufContents contents_;
};

Status Parser::ReadHeader() {
  place_ = "the header";
  const std::string shown = Printable(path_, 300);
  if (bytes_.empty()) return InvalidArgument(shown, " is empty, not a GGUF model file");
  if (!Reach(std::min<size_t>(bytes_.size(), gguf::kMagic.size()))) return Truncated();
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min<size_t>(bytes_.size(), gguf::kMagic.size()));
  if (start != gguf::kMagic) {
    return InvalidArgument(shown, " is not a GGUF model file: it starts with \"", Printable(start),
                           "\" instead of \"GGUF\"");
  }
  position_ = gguf::kMagic.size();
  uint32_t version;
  if (!Read(&version)) return Truncated();
  // A big-endian file has its small version number in the upper half.
  if (version != 0 && (version & 0xFFFF) == 0) {
    return InvalidArgument(shown, " is a big-endian GGUF file; convert it to little-endian");
  }
  if (version < gguf::kOldestVersion) {
    return InvalidArgument(shown, " has GGUF version ", version,
                           ", which is no longer in use: convert the model again");
  }
  if (version > gguf::kNewestVersion) {
    return InvalidArgument(shown, " has GGUF version ", version, ", but only 2 and 3 are known");
  }
  contents_.version = version;
  if (!Read(&n_tensors_) || !Read(&n_metadata_)) return Truncated();
  if (n_metadata_ > left() / kMinEntryBytes) {
    return Error("it claims ", n_metadata_, " metadata entries, more than its ", bytes_.size(),
                 " bytes can hold: it is truncated or damaged");
  }
  if (n_tensors_ > left() / kMinTensorBytes) {
    return Error("it claims ", n_tensors_, " tensors, more than its ", bytes_.size(),
                 " bytes can hold: it is truncated or damaged");
  }
  if (std::max(n_tensors_, n_metadata_) > std::numeric_limits<int32_t>::max()) {
    return Error("it claims more than 2^31 tensors or metadata entries");
  }
  return OkStatus();
}

Status Parser::ReadMetadata() {
  contents_.metadata.reserve(std::min(n_metadata_, kMaxReserved));
  for (uint64_t i = 0; i < n_metadata_; ++i) {
    place_ = StrCat("metadata entry ", i, " of ", n_metadata_);
    std::string_view key;
    if (!ReadString(&key)) return Truncated();
    if (!gguf::IsValidName(key, gguf::kMaxKeyBytes)) {
      return Error("the key \"", Printable(key),
                   "\" is empty, too long, not UTF-8 or has control characters");
    }
    place_ = StrCat("key ", Printable(key));
    WEFT_ASSIGN_OR_RETURN(const MetaType type, ReadType());
    MetaValue value;
    WEFT_RETURN_IF_ERROR(ReadValue(type, &value));
    contents_.metadata.push_back({key, std::move(value)});
  }
  const std::optional<uint32_t> duplicate = SortByName(
      n_metadata_, [&](uint32_t i) { return contents_.metadata[i].key; },
      &contents_.metadata_order);
  if (duplicate) {
    return GgufKeyError(path_, contents_.metadata[*duplicate].key, "the key appears twice");
  }
  return OkStatus();
}

StatusOr<MetaType> Parser::ReadType() {
  uint32_t number;
  if (!Read(&number)) return Truncated();
  if (number > static_cast<uint32_t>(MetaType::kFloat64)) {
    return Error("its value has the unknown type number ", number);
  }
  return static_cast<MetaType>(number);
}

template <typename Stored, typename Wide>
Status Parser::ReadNumber(MetaValue* value) {
  Stored stored;
  if (!Read(&stored)) return Truncated();
  *value = static_cast<Wide>(stored);
  return OkStatus();
}

Status Parser::ReadValue(MetaType type, MetaValue* value) {
  switch (type) {
    case MetaType::kUint8:
      return ReadNumber<uint8_t, uint64_t>(value);
    case MetaType::kInt8:
      return ReadNumber<int8_t, int64_t>(value);
    case MetaType::kUint16:
      return ReadNumber<uint16_t, uint64_t>(value);
    case MetaType::kInt16:
      return ReadNumber<int16_t, int64_t>(value);
    case MetaType::kUint32:
      return ReadNumber<uint32_t, uint64_t>(value);
    case MetaType::kInt32:
      return ReadNumber<int32_t, int64_t>(value);
    case MetaType::kUint64:
      return ReadNumber<uint64_t, uint64_t>(value);
    case MetaType::kInt64:
      return ReadNumber<int64_t, int64_t>(value);
    case MetaType::kFloat32:
      return ReadNumber<float, double>(value);
    case MetaType::kFloat64:
      return ReadNumber<double, double>(value);
    case MetaType::kBool: {
      uint8_t byte;
      if (!Read(&byte)) return Truncated();
      if (byte > 1) return Error("its bool is stored as ", byte, ", neither 0 nor 1");
      *value = byte == 1;
      return OkStatus();
    }
    case MetaType::kString: {
      std::string_view text;
      if (!ReadString(&text)) return Truncated();
      *value = text;
      return OkStatus();
    }
    case MetaType::kArray: {
      WEFT_ASSIGN_OR_RETURN(*value, ReadArray(1));
      return OkStatus();
    }
  }
  return Error("its value has an unknown type");
}

Status Parser::CheckCount(uint64_t count, uint64_t stored_bytes, uint64_t held_bytes) {
  if (count > left() / stored_bytes) {
    return Error("it claims an array of ", count, " items, more than the ", left(),
                 " bytes that follow can hold: the file is truncated or damaged");
  }
  if (count > (kMaxArrayBytes - array_bytes_) / held_bytes) {
    return Error("with its ", count, " items the metadata arrays need more than ",
                 HumanBytes(kMaxArrayBytes), " of memory, the most that is supported");
  }
  array_bytes_ += count * held_bytes;
  return OkStatus();
}

template <typename Stored, typename Wide>
Status Parser::ReadNumbers(uint64_t count, MetaArray* array) {
  WEFT_RETURN_IF_ERROR(CheckCount(count, sizeof(Stored), sizeof(Wide)));
  std::vector<Wide> items(count);
  for (Wide& item : items) {
    Stored stored;
    if (!Read(&stored)) return Truncated();
    item = static_cast<Wide>(stored);
  }
  array->items = std::move(items);
  return OkStatus();
}

Status Parser::ReadBools(uint64_t count, MetaArray* array) {
  WEFT_RETURN_IF_ERROR(CheckCount(count, 1, 1));
  std::vector<bool> items(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint8_t byte;
    if (!Read(&byte)) return Truncated();
    if (byte > 1) return Error("its bool ", i, " is stored as ", byte, ", neither 0 nor 1");
    items[i] = byte == 1;
  }
  array->items = std::move(items);
  return OkStatus();
}

Status Parser::ReadStrings(uint64_t count, MetaArray* array) {
  WEFT_RETURN_IF_ERROR(CheckCount(count, sizeof(uint64_t), sizeof(std::string_view)));
  std::vector<std::string_view> items(count);
  for (std::string_view& item : items) {
    if (!ReadString(&item)) return Truncated();
  }
  array->items = std::move(items);
  return OkStatus();
}

Status Parser::ReadArrays(uint64_t count, int depth, MetaArray* array) {
  WEFT_RETURN_IF_ERROR(CheckCount(count, kMinArrayBytes, sizeof(MetaArray)));
  if (depth == kMaxArrayDepth) {
    return Error("its arrays are nested deeper than ", kMaxArrayDepth, " levels");
  }
  std::vector<MetaArray> items(count);
  for (MetaArray& item : items) {
    WEFT_ASSIGN_OR_RETURN(item, ReadArray(depth + 1));
  }
  array->items = std::move(items);
  return OkStatus();
}

Status Parser::ReadItems(MetaType type, uint64_t count, int depth, MetaArray* array) {
  switch (type) {
    case MetaType::kUint8:
      return ReadNumbers<uint8_t, uint64_t>(count, array);
    case MetaType::kInt8:
      return ReadNumbers<int8_t, int64_t>(count, array);
    case MetaType::kUint16:
      return ReadNumbers<uint16_t, uint64_t>(count, array);
    case MetaType::kInt16:
      return ReadNumbers<int16_t, int64_t>(count, array);
    case MetaType::kUint32:
      return ReadNumbers<uint32_t, uint64_t>(count, array);
    case MetaType::kInt32:
      return ReadNumbers<int32_t, int64_t>(count, array);
    case MetaType::kUint64:
      return ReadNumbers<uint64_t, uint64_t>(count, array);
    case MetaType::kInt64:
      return ReadNumbers<int64_t, int64_t>(count, array);
    case MetaType::kFloat32:
      return ReadNumbers<float, double>(count, array);
    case MetaType::kFloat64:
      return ReadNumbers<double, double>(count, array);
    case MetaType::kBool:
      return ReadBools(count, array);
    case MetaType::kString:
      return ReadStrings(count, array);
    case MetaType::kArray:
      return ReadArrays(count, depth, array);
  }
  return Error("its items have an unknown type");
}

// `depth` is 1 for an array that is a value itself.
StatusOr<MetaArray> Parser::ReadArray(int depth) {
  WEFT_ASSIGN_OR_RETURN(const MetaType type, ReadType());
  uint64_t count;
  if (!Read(&count)) return Truncated();
  MetaArray array;
  WEFT_RETURN_IF_ERROR(ReadItems(type, count, depth, &array));
  return array;
}

Status Parser::ReadAlignment() {
  for (const ModelFile::KeyValue& entry : contents_.metadata) {
    if (entry.key != gguf::kAlignmentKey) continue;
    place_ = StrCat("key ", gguf::kAlignmentKey);
    const uint64_t* value = std::get_if<uint64_t>(&entry.value);
    if (value == nullptr) return Error("it must be an unsigned integer");
    if (!gguf::IsValidAlignment(*value)) {
      return Error("it is ", *value, ", which is not a power of two from ", gguf::kMinAlignment,
                   " to ", gguf::kMaxAlignment);
    }
    alignment_ = *value;
  }
  return OkStatus();
}

Status Parser::ReadTensorList() {
  // Reading the metadata has consumed bytes since the header was checked.
  place_ = "the tensor list";
  if (n_tensors_ > left() / kMinTensorBytes) return Truncated();
  contents_.tensors.reserve(std::min(n_tensors_, kMaxReserved));
  offsets_.reserve(std::min(n_tensors_, kMaxReserved));
  for (uint64_t i = 0; i < n_tensors_; ++i) {
    place_ = StrCat("tensor ", i, " of ", n_tensors_);
    TensorInfo tensor;
    uint64_t offset;
    WEFT_RETURN_IF_ERROR(ReadTensor(&tensor, &offset));
    contents_.tensors.push_back(tensor);
    offsets_.push_back(offset);
  }
  std::vector<uint32_t> order;
  const std::optional<uint32_t> duplicate = SortByName(
      n_tensors_, [&](uint32_t i) { return contents_.tensors[i].name; }, &order);
  if (duplicate) {
    return GgufTensorError(path_, contents_.tensors[*duplicate].name, "the name appears twice");
  }
  return OkStatus();
}

Status Parser::ReadTensor(TensorInfo* tensor, uint64_t* offset) {
  if (!ReadString(&tensor->name)) return Truncated();
  if (!gguf::IsValidName(tensor->name, gguf::kMaxTensorNameBytes)) {
    return Error("the name \"", Printable(tensor->name), "\" is empty, longer than ",
                 gguf::kMaxTensorNameBytes, " bytes, not UTF-8 or has control characters");
  }
  place_ = StrCat("tensor ", Printable(tensor->name));
  uint32_t n_dims;
  if (!Read(&n_dims)) return Truncated();
  if (n_dims < 1 || n_dims > gguf::kMaxDims) {
    return Error("it has ", n_dims, " dimensions, only 1 to ", gguf::kMaxDims, " are possible");
  }
  tensor->n_dims = static_cast<int>(n_dims);
  std::fill_n(tensor->dims, gguf::kMaxDims, 1);
  for (uint32_t d = 0; d < n_dims; ++d) {
    uint64_t size;
    if (!Read(&size)) return Truncated();
    if (size == 0 || size > std::numeric_limits<int64_t>::max()) {
      return Error("its dimension ", d, " has the impossible size ", size);
    }
    tensor->dims[d] = static_cast<int64_t>(size);
  }
  uint32_t type_number;
  if (!Read(&type_number) || !Read(offset)) return Truncated();
  const DTypeInfo* type = FindDType(type_number);
  if (type == nullptr) {
    return Error("it has the type number ", type_number,
                 ", which is unknown here: convert the model to another type");
  }
  tensor->type = type->type;
  WEFT_RETURN_IF_ERROR(CheckShape(*type, *tensor));
  if (*offset % alignment_ != 0) {
    return Error("its offset ", *offset, " is not a multiple of the alignment ", alignment_);
  }
  return OkStatus();
}

// Checks that rows are whole blocks, and that the numbers of values and bytes fit 63 bits.
Status Parser::CheckShape(const DTypeInfo& type, const TensorInfo& tensor) const {
  if (tensor.dims[0] % type.block_values != 0) {
    return Error("its rows of ", tensor.dims[0], " values are not whole blocks of ",
                 type.block_values, ", as its type ", type.name, " needs");
  }
  // Every type takes less than 16 bytes per value, so bytes fit if values do.
  constexpr int64_t kMaxValues = std::numeric_limits<int64_t>::max() / 16;
  int64_t values = 1;
  for (int d = 0; d < tensor.n_dims; ++d) {
    if (tensor.dims[d] > kMaxValues / values) {
      return Error("its dimensions ", StrJoin(std::span(tensor.dims, tensor.n_dims), " x "),
                   " have an impossible product");
    }
    values *= tensor.dims[d];
  }
  return OkStatus();
}

Status Parser::PlaceTensors() {
  const uint64_t start = gguf::AlignUp(position_, alignment_);
  for (size_t i = 0; i < contents_.tensors.size(); ++i) {
    TensorInfo& tensor = contents_.tensors[i];
    const uint64_t size = static_cast<uint64_t>(tensor.row_bytes() * tensor.rows());
    if (start > bytes_.size() || offsets_[i] > bytes_.size() - start ||
        size > bytes_.size() - start - offsets_[i]) {
      return DataLoss(Printable(path_, 300), ": tensor ", Printable(tensor.name), ": its ", size,
                      " bytes at offset ", offsets_[i], " of the data reach beyond the end of the ",
                      "file (", bytes_.size(), " bytes): it is truncated or damaged");
    }
    tensor.data = bytes_.subspan(start + offsets_[i], size);
  }
  return OkStatus();
}

Status Parser::CheckOverlap() {
  std::vector<uint32_t> order(contents_.tensors.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(offsets_[a], a) < std::pair(offsets_[b], b);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = contents_.tensors[order[i - 1]];
    const TensorInfo& tensor = contents_.tensors[order[i]];
    if (before.data.data() + before.data.size() > tensor.data.data()) {
      return GgufTensorError(path_, tensor.name,
                             StrCat("its data overlaps that of tensor ", Printable(before.name)));
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<GgufContents> ParseGguf(std::string_view path, std::span<const std::byte> bytes,
                                 const HoldBytes& hold) {
  return Parser(path, bytes, hold).Run();
}

Status GgufKeyError(std::string_view path, std::string_view key, std::string_view what) {
  return InvalidArgument(Printable(path, 300), ": key ", Printable(key), ": ", what);
}

Status GgufTensorError(std::string_view path, std::string_view tensor, std::string_view what) {
  return InvalidArgument(Printable(path, 300), ": tensor ", Printable(tensor), ": ", what);
}

}  // namespace weft
