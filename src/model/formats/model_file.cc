#include "model/formats/model_file.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "model/formats/gguf_format.h"
#include "model/formats/gguf_parser.h"
#include "model/formats/hf/folder.h"
#include "model/formats/ollama_dialect.h"
#include "model/formats/projector_dialect.h"

namespace weft {
namespace {

// Metadata and the tensor list are copied: ten times the largest in real files. A sparse file's
// size costs nothing.
constexpr size_t kMaxHeldBytes = size_t{256} << 20;

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// For a key or tensor of a translated file.
constexpr std::string_view kTwoNames = "it is there under its old name and its new one";

constexpr std::string_view kSpecEnding = ".weft.json";
constexpr size_t kMaxSpecBytes = size_t{1} << 20;

// A path of the form "PREFIX-00002-of-00003.gguf".
struct SplitName {
  std::string_view prefix;
  int64_t no;  // from 1
  int64_t count;
};

constexpr std::string_view kSplitPattern = "-00000-of-00000.gguf";

std::optional<SplitName> ParseSplitName(std::string_view path) {
  if (path.size() < kSplitPattern.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kSplitPattern.size());
  for (size_t i = 0; i < tail.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kSplitPattern[i] == '0' ? !digit : tail[i] != kSplitPattern[i]) return std::nullopt;
  }
  SplitName name{path.substr(0, path.size() - tail.size()), 0, 0};
  if (!ParseInt64(tail.substr(1, 5), &name.no)) return std::nullopt;
  if (!ParseInt64(tail.substr(10, 5), &name.count)) return std::nullopt;
  return name;
}

std::string SplitPath(std::string_view prefix, int64_t no, int64_t count) {
  const auto five_digits = [](int64_t n) {
    const std::string digits = StrCat(n);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  return StrCat(prefix, "-", five_digits(no), "-of-", five_digits(count), ".gguf");
}

std::string_view KindOf(const MetaValue& value) {
  static constexpr std::string_view kKinds[] = {
      "an unsigned integer", "an integer", "a float", "a bool", "a string", "an array"};
  return kKinds[value.index()];
}

std::optional<int64_t> AsInt(const MetaValue& value) {
  if (const auto* n = std::get_if<int64_t>(&value)) return *n;
  const auto* n = std::get_if<uint64_t>(&value);
  if (n == nullptr || *n > static_cast<uint64_t>(kInt64Max)) return std::nullopt;
  return static_cast<int64_t>(*n);
}

std::optional<double> AsFloat(const MetaValue& value) {
  if (const auto* x = std::get_if<double>(&value)) return *x;
  if (const auto* n = std::get_if<int64_t>(&value)) return static_cast<double>(*n);
  if (const auto* n = std::get_if<uint64_t>(&value)) return static_cast<double>(*n);
  return std::nullopt;
}

// The numbers of an array as T; nothing if it does not hold numbers, or one does not fit. With
// `bools`, booleans count as 0 and 1.
template <typename T>
std::optional<std::vector<T>> NumbersOf(const MetaArray& array, bool floats, bool bools) {
  std::vector<T> out;
  out.reserve(array.size());
  const bool ok = std::visit(
      [&](const auto& items) {
        using Item = typename std::decay_t<decltype(items)>::value_type;
        if constexpr (std::is_arithmetic_v<Item>) {
          if (std::is_same_v<Item, double> && !floats) return items.empty();
          if (std::is_same_v<Item, bool> && !bools) return items.empty();
          for (const Item item : items) {
            if constexpr (std::is_same_v<Item, uint64_t> && std::is_same_v<T, int64_t>) {
              if (item > static_cast<uint64_t>(kInt64Max)) return false;
            }
            out.push_back(static_cast<T>(item));
          }
          return true;
        } else {
          return items.empty();
        }
      },
      array.items);
  if (!ok) return std::nullopt;
  return out;
}

// The value of a typed getter, or the caller's default for an absent key.
template <typename T>
StatusOr<T> OrAbsent(StatusOr<T> value, T absent) {
  if (!value.ok() && value.status().code() == StatusCode::kNotFound) return absent;
  return value;
}

}  // namespace

size_t MetaArray::size() const {
  return std::visit([](const auto& values) { return values.size(); }, items);
}

// --- opening ---------------------------------------------------------------

StatusOr<std::shared_ptr<const ModelFile>> ModelFile::Open(const std::string& path,
                                                           const OpenOptions& options) {
  std::shared_ptr<ModelFile> file(new ModelFile);
  file->path_ = path;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    WEFT_RETURN_IF_ERROR(file->OpenFolder(options));
  } else {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapping, MappedFile::Open(path));
    file->parts_.push_back(std::move(mapping));
    MappedFile* const first = file->parts_[0].get();
    WEFT_RETURN_IF_ERROR(file->Parse(first->bytes(), first));
    WEFT_RETURN_IF_ERROR(file->AddOtherParts(options));
    file->Translate();
  }
  WEFT_RETURN_IF_ERROR(file->Index());
  WEFT_RETURN_IF_ERROR(file->ReadSpecFile(options.spec_path));
  if (options.progress) options.progress(1.0);
  return std::shared_ptr<const ModelFile>(std::move(file));
}

StatusOr<std::shared_ptr<const ModelFile>> ModelFile::FromBytes(std::string name,
                                                                std::span<const std::byte> bytes,
                                                                std::string spec_text) {
  std::shared_ptr<ModelFile> file(new ModelFile);
  file->path_ = std::move(name);
  if (!spec_text.empty()) file->spec_path_ = StrCat(file->path_, kSpecEnding);
  file->spec_text_ = std::move(spec_text);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % gguf::kMinAlignment != 0) {
    return InvalidArgument(Printable(file->path_, 300), ": its bytes must start at a multiple of ",
                           gguf::kMinAlignment, " in memory");
  }
  WEFT_RETURN_IF_ERROR(file->Parse(bytes, nullptr));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, file->GetIntOr("split.count", 1));
  if (count > 1) {
    return file->KeyError("split.count", "one part of a split model cannot be used from memory");
  }
  file->Translate();
  WEFT_RETURN_IF_ERROR(file->Index());
  return std::shared_ptr<const ModelFile>(std::move(file));
}

// `mapping`: the file of the bytes, null if they cannot change.
Status ModelFile::Parse(std::span<const std::byte> bytes, MappedFile* mapping) {
  HoldBytes hold;
  if (mapping != nullptr) {
    hold = [this, mapping](size_t n) -> StatusOr<size_t> {
      if (n <= kMaxHeldBytes) return mapping->Hold(n);
      return ResourceExhausted(Printable(path_, 300), ": its metadata has more than ",
                               HumanBytes(kMaxHeldBytes), ", the most that is supported");
    };
  }
  WEFT_ASSIGN_OR_RETURN(GgufContents contents, ParseGguf(path_, bytes, hold));
  version_ = contents.version;
  file_bytes_ = bytes.size();
  metadata_ = std::move(contents.metadata);
  metadata_order_ = std::move(contents.metadata_order);
  tensors_ = std::move(contents.tensors);
  return OkStatus();
}

Status ModelFile::AddOtherParts(const OpenOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const int64_t count, GetIntOr("split.count", 1));
  if (count < 0 || count > 65535) return KeyError("split.count", StrCat("it is ", count));
  if (count <= 1) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t no, GetInt("split.no"));
  const std::optional<SplitName> name = ParseSplitName(path_);
  if (no != 0) {
    return KeyError(
        "split.no",
        StrCat("this is part ", no + 1, " of a model in ", count, " files, open ",
               name ? Printable(SplitPath(name->prefix, 1, count), 300) : "the first", " instead"));
  }
  if (!name || name->no != 1 || name->count != count) {
    return KeyError("split.count",
                    StrCat("this is the first of ", count, " files, whose name must end in ",
                           SplitPath("", 1, count), " so that the others can be found"));
  }
  for (int64_t i = 1; i < count; ++i) {
    if (options.progress) options.progress(static_cast<double>(i) / static_cast<double>(count));
    ModelFile part;
    part.path_ = SplitPath(name->prefix, i + 1, count);
    StatusOr<std::unique_ptr<MappedFile>> mapping = MappedFile::Open(part.path_);
    if (!mapping.ok()) {
      return Annotate(mapping.status(), "part ", i + 1, " of ", count, " of the model: ");
    }
    parts_.push_back(*std::move(mapping));
    WEFT_RETURN_IF_ERROR(part.Parse(parts_.back()->bytes(), parts_.back().get()));
    WEFT_RETURN_IF_ERROR(CheckPart(part, i, count));
    tensors_.insert(tensors_.end(), part.tensors_.begin(), part.tensors_.end());
    file_bytes_ += part.file_bytes_;
  }
  const int64_t n_tensors = static_cast<int64_t>(tensors_.size());
  WEFT_ASSIGN_OR_RETURN(const int64_t declared, GetIntOr("split.tensors.count", n_tensors));
  if (declared != n_tensors) {
    return KeyError("split.tensors.count",
                    StrCat("it promises ", declared, " tensors, but the ", count, " parts hold ",
                           n_tensors, ": download the parts again"));
  }
  return OkStatus();
}

Status ModelFile::CheckPart(const ModelFile& part, int64_t no, int64_t count) const {
  WEFT_ASSIGN_OR_RETURN(const int64_t its_no, part.GetInt("split.no"));
  if (its_no != no) {
    return part.KeyError("split.no", StrCat("it is ", its_no, " where ", no, " is expected"));
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t its_count, part.GetInt("split.count"));
  if (its_count != count) {
    return part.KeyError("split.count",
                         StrCat("it is ", its_count, " where ", count, " is expected"));
  }
  return OkStatus();
}

// `given`: the caller's path; empty: the one next to the model file, if any.
Status ModelFile::ReadSpecFile(const std::string& given) {
  std::string beside = path_;
  if (beside.ends_with(".gguf")) beside.resize(beside.size() - 5);
  beside += kSpecEnding;
  const std::string& path = given.empty() ? beside : given;
  if (given.empty() && access(beside.c_str(), F_OK) != 0) return OkStatus();
  StatusOr<std::string> text = ReadFile(path, kMaxSpecBytes);
  if (!text.ok()) return Annotate(text.status(), "the spec file: ");
  if (text->empty()) return InvalidArgument(Printable(path, 300), ": the spec file is empty");
  spec_path_ = path;
  spec_text_ = *std::move(text);
  return OkStatus();
}

Status ModelFile::OpenFolder(const OpenOptions& options) {
  WEFT_ASSIGN_OR_RETURN(HuggingFaceModel model, ReadHuggingFaceFolder(path_, options.progress));
  parts_ = std::move(model.files);
  metadata_ = std::move(model.metadata);
  tensors_ = std::move(model.tensors);
  texts_ = std::move(model.texts);
  bytes_ = std::move(model.bytes);
  for (const std::unique_ptr<MappedFile>& part : parts_) file_bytes_ += part->bytes().size();
  return OkStatus();
}

void ModelFile::Translate() {
  if (GetStringOr("general.architecture", "").value_or("") == "clip") {
    return TranslateProjector(GetStringOr("clip.projector_type", "").value_or(""), &tensors_,
                              &bytes_);
  }
  OllamaTranslation translation = TranslateOllama(&metadata_, &tensors_);
  set_aside_ = std::move(translation.set_aside);
  translated_architecture_ = std::move(translation.architecture);
  texts_ = std::move(translation.texts);
  values_ = std::move(translation.values);
}

Status ModelFile::Index() {
  const std::optional<uint32_t> key = SortByName(
      metadata_.size(), [&](uint32_t i) { return metadata_[i].key; }, &metadata_order_);
  if (key) return KeyError(metadata_[*key].key, kTwoNames);
  const std::optional<uint32_t> tensor = SortByName(
      tensors_.size(), [&](uint32_t i) { return tensors_[i].name; }, &tensor_order_);
  if (!tensor) return OkStatus();
  // Already checked within each part.
  return TensorError(tensors_[*tensor].name,
                     parts_.size() > 1 ? "it occurs in two parts of the model" : kTwoNames);
}

std::string ModelFile::TranslationNote() const {
  std::string note;
  if (!translated_architecture_.empty()) {
    note = StrCat("reads Ollama's form of the architecture '", Printable(translated_architecture_),
                  "'");
  }
  if (set_aside_.empty()) return note;
  return StrCat(note, note.empty() ? "" : "; ", "leaves out ", set_aside_.size(),
                " tensors that text does not need (pictures, sound or MTP), such as ",
                Printable(set_aside_[0].name));
}

// --- metadata --------------------------------------------------------------

const MetaValue* ModelFile::FindMeta(std::string_view key) const {
  const auto found = std::lower_bound(
      metadata_order_.begin(), metadata_order_.end(), key,
      [&](uint32_t i, std::string_view wanted) { return metadata_[i].key < wanted; });
  if (found == metadata_order_.end() || metadata_[*found].key != key) return nullptr;
  return &metadata_[*found].value;
}

Status ModelFile::KeyError(std::string_view key, std::string_view what) const {
  return GgufKeyError(path_, key, what);
}

Status ModelFile::TensorError(std::string_view tensor, std::string_view what) const {
  return GgufTensorError(path_, tensor, what);
}

Status ModelFile::MissingKey(std::string_view key) const {
  return NotFound(Printable(path_, 300), ": key ", Printable(key), ": it is missing");
}

StatusOr<int64_t> ModelFile::GetInt(std::string_view key) const {
  const MetaValue* value = FindMeta(key);
  if (value == nullptr) return MissingKey(key);
  if (const std::optional<int64_t> n = AsInt(*value)) return *n;
  if (const auto* n = std::get_if<uint64_t>(value)) {
    return KeyError(key, StrCat("it is ", *n, ", which is out of range"));
  }
  return KeyError(key, StrCat("it must be an integer, not ", KindOf(*value)));
}

StatusOr<int64_t> ModelFile::GetIntOr(std::string_view key, int64_t absent) const {
  return OrAbsent(GetInt(key), absent);
}

StatusOr<double> ModelFile::GetFloat(std::string_view key) const {
  const MetaValue* value = FindMeta(key);
  if (value == nullptr) return MissingKey(key);
  if (const std::optional<double> x = AsFloat(*value)) return *x;
  return KeyError(key, StrCat("it must be a number, not ", KindOf(*value)));
}

StatusOr<double> ModelFile::GetFloatOr(std::string_view key, double absent) const {
  return OrAbsent(GetFloat(key), absent);
}

StatusOr<bool> ModelFile::GetBool(std::string_view key) const {
  const MetaValue* value = FindMeta(key);
  if (value == nullptr) return MissingKey(key);
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return KeyError(key, StrCat("it must be a bool, not ", KindOf(*value)));
}

StatusOr<bool> ModelFile::GetBoolOr(std::string_view key, bool absent) const {
  return OrAbsent(GetBool(key), absent);
}

StatusOr<std::string_view> ModelFile::GetString(std::string_view key) const {
  const MetaValue* value = FindMeta(key);
  if (value == nullptr) return MissingKey(key);
  if (const auto* text = std::get_if<std::string_view>(value)) return *text;
  return KeyError(key, StrCat("it must be a string, not ", KindOf(*value)));
}

StatusOr<std::string_view> ModelFile::GetStringOr(std::string_view key,
                                                  std::string_view absent) const {
  return OrAbsent(GetString(key), absent);
}

StatusOr<const MetaArray*> ModelFile::GetArray(std::string_view key) const {
  const MetaValue* value = FindMeta(key);
  if (value == nullptr) return MissingKey(key);
  if (const auto* array = std::get_if<MetaArray>(value)) return array;
  return KeyError(key, StrCat("it must be an array, not ", KindOf(*value)));
}

StatusOr<std::vector<int64_t>> ModelFile::GetIntArray(std::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const MetaArray* array, GetArray(key));
  auto numbers = NumbersOf<int64_t>(*array, /*floats=*/false, /*bools=*/false);
  if (!numbers) return KeyError(key, "it must be an array of integers that fit 64 bits");
  return *std::move(numbers);
}

StatusOr<std::vector<double>> ModelFile::GetFloatArray(std::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const MetaArray* array, GetArray(key));
  auto numbers = NumbersOf<double>(*array, /*floats=*/true, /*bools=*/false);
  if (!numbers) return KeyError(key, "it must be an array of numbers");
  return *std::move(numbers);
}

StatusOr<std::span<const std::string_view>> ModelFile::GetStringArray(std::string_view key) const {
  WEFT_ASSIGN_OR_RETURN(const MetaArray* array, GetArray(key));
  if (const auto* strings = std::get_if<std::vector<std::string_view>>(&array->items)) {
    return std::span<const std::string_view>(*strings);
  }
  // Writers cannot express what an empty array would have held.
  if (array->size() == 0) return std::span<const std::string_view>();
  return KeyError(key, "it must be an array of strings");
}

StatusOr<std::vector<int64_t>> ModelFile::GetIntPerLayer(std::string_view key, int64_t n) const {
  const MetaValue* value = FindMeta(key);
  if (value == nullptr) return MissingKey(key);
  const auto* array = std::get_if<MetaArray>(value);
  if (array == nullptr) {
    std::optional<int64_t> scalar = AsInt(*value);
    if (const auto* flag = std::get_if<bool>(value)) scalar = *flag ? 1 : 0;
    if (!scalar) {
      return KeyError(key, StrCat("it must be an integer or one per layer, not ", KindOf(*value)));
    }
    return std::vector<int64_t>(static_cast<size_t>(n), *scalar);
  }
  auto numbers = NumbersOf<int64_t>(*array, /*floats=*/false, /*bools=*/true);
  if (!numbers) return KeyError(key, "it must be an array of integers that fit 64 bits");
  if (static_cast<int64_t>(numbers->size()) != n) {
    return KeyError(key, StrCat("it has ", numbers->size(), " items where ", n, " are expected"));
  }
  return *std::move(numbers);
}

// --- tensors ---------------------------------------------------------------

int ModelFile::FindTensor(std::string_view name) const {
  const auto found = std::lower_bound(
      tensor_order_.begin(), tensor_order_.end(), name,
      [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  if (found == tensor_order_.end() || tensors_[*found].name != name) return -1;
  return static_cast<int>(*found);
}

const MappedFile* ModelFile::PartOf(const TensorInfo& tensor) const {
  for (const std::unique_ptr<MappedFile>& part : parts_) {
    const std::byte* begin = part->bytes().data();
    if (tensor.data.data() >= begin && tensor.data.data() < begin + part->bytes().size()) {
      return part.get();
    }
  }
  return nullptr;
}

Status ModelFile::Read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const {
  const std::span<const std::byte> from =
      tensor.data.subspan(static_cast<size_t>(offset), out.size());
  if (const MappedFile* part = PartOf(tensor)) return part->Read(from, out);
  std::ranges::copy(from, out.begin());
  return OkStatus();
}

std::string ModelFile::stamp() const {
  std::vector<std::string> stamps;
  for (const std::unique_ptr<MappedFile>& part : parts_) stamps.push_back(part->stamp());
  return StrJoin(stamps, ", ");
}

Status ModelFile::CheckUnchanged() const {
  for (const std::unique_ptr<MappedFile>& part : parts_) {
    WEFT_RETURN_IF_ERROR(part->CheckUnchanged());
  }
  return OkStatus();
}

void ModelFile::WillNeed(const TensorInfo& tensor) const {
  if (const MappedFile* part = PartOf(tensor)) part->WillNeed(tensor.data);
}

void ModelFile::Release(const TensorInfo& tensor, std::span<const std::byte> bytes) const {
  if (const MappedFile* part = PartOf(tensor)) part->Release(bytes);
}

}  // namespace weft
