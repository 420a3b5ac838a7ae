#include "model/formats/importance_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/dtype.h"
#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"

namespace weft {

namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr std::string_view kTextsKey = "imatrix.datasets";
constexpr std::string_view kChunksKey = "imatrix.chunk_count";
constexpr std::string_view kChunkTokensKey = "imatrix.chunk_size";
constexpr int64_t kOldChunkTokens = 512;

// A file's numbers are not negative, and no count is a fraction of nothing.
Status CheckEntry(std::string_view file, std::string_view tensor,
                  const ImportanceMatrix::Entry& entry) {
  const auto is_sound = [](double v) { return std::isfinite(v) && v >= 0; };
  if (std::ranges::all_of(entry.sums, is_sound) && std::ranges::all_of(entry.counts, is_sound) &&
      !entry.counts.empty() && entry.sums.size() % entry.counts.size() == 0) {
    return OkStatus();
  }
  return InvalidArgument(file, ": the entry of ", Printable(tensor),
                         " is damaged; compute the importance matrix again");
}

StatusOr<std::vector<double>> FloatsOf(const ModelFile& file, const TensorInfo& tensor) {
  if (tensor.type != DType::kF32) {
    return file.TensorError(tensor.name, "an importance matrix has F32 numbers only");
  }
  std::vector<double> values(static_cast<size_t>(tensor.values()));
  for (size_t i = 0; i < values.size(); ++i) {
    float value;
    std::memcpy(&value, tensor.data.data() + i * sizeof(value), sizeof(value));
    values[i] = value;
  }
  return values;
}

StatusOr<ImportanceMatrix> ReadGguf(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const ModelFile> file, ModelFile::Open(path));
  ImportanceMatrix matrix;
  for (const TensorInfo& tensor : file->tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - kSums.size()));
    const int counts = file->FindTensor(StrCat(name, kCounts));
    if (counts < 0)
      return file->TensorError(tensor.name, "the counts that belong to it are missing");
    ImportanceMatrix::Entry& entry = matrix.entries[name];
    WEFT_ASSIGN_OR_RETURN(entry.sums, FloatsOf(*file, tensor));
    WEFT_ASSIGN_OR_RETURN(entry.counts, FloatsOf(*file, file->tensors()[counts]));
    WEFT_RETURN_IF_ERROR(CheckEntry(path, name, entry));
  }
  if (matrix.entries.empty()) {
    return InvalidArgument(path, " is not an importance matrix; weft imatrix makes one");
  }
  if (file->HasMeta(kTextsKey)) {
    WEFT_ASSIGN_OR_RETURN(const auto texts, file->GetStringArray(kTextsKey));
    for (const std::string_view text : texts) matrix.texts.emplace_back(text);
  }
  WEFT_ASSIGN_OR_RETURN(matrix.n_chunks, file->GetIntOr(kChunksKey, 0));
  WEFT_ASSIGN_OR_RETURN(matrix.chunk_tokens, file->GetIntOr(kChunkTokensKey, 0));
  WEFT_RETURN_IF_ERROR(file->CheckUnchanged());
  return matrix;
}

// Little-endian numbers and texts, one after the other; ok() is false once one was not there.
class OldReader {
 public:
  explicit OldReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  int32_t Int() { return static_cast<int32_t>(Bits()); }
  std::string Text(int64_t size) {
    const auto bytes = Take(size);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::vector<double> Floats(int64_t n) {
    const auto bytes = Take(n >= 0 ? n * 4 : n);
    std::vector<double> values(bytes.size() / 4);
    for (size_t i = 0; i < values.size(); ++i) {
      float value;
      std::memcpy(&value, bytes.data() + 4 * i, sizeof(value));
      values[i] = value;
    }
    return values;
  }

 private:
  std::span<const std::byte> Take(int64_t n) {
    if (n < 0 || n > std::ssize(rest_)) ok_ = false;
    if (!ok_) return {};
    const auto taken = rest_.first(static_cast<size_t>(n));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  uint32_t Bits() {
    uint32_t bits = 0;
    if (const auto bytes = Take(4); !bytes.empty()) std::memcpy(&bits, bytes.data(), sizeof(bits));
    return bits;
  }

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace

// A number of entries; for each its name, the number of chunks, the number of values, and values:
// means times the number of chunks. Then the number of chunks and the text's name, if they are
// there.
StatusOr<ImportanceMatrix> ImportanceMatrix::FromOldForm(std::string_view name,
                                                         std::span<const std::byte> bytes) {
  const auto broken = [name] {
    return InvalidArgument(
        name, " is not an importance matrix, or not all of one; weft imatrix makes one");
  };
  OldReader reader(bytes);
  ImportanceMatrix matrix;
  matrix.chunk_tokens = kOldChunkTokens;
  const int32_t n_entries = reader.Int();
  for (int32_t i = 0; i < n_entries && reader.ok(); ++i) {
    std::string tensor = reader.Text(reader.Int());
    const int32_t n_chunks = reader.Int();
    Entry entry{reader.Floats(reader.Int()), {static_cast<double>(n_chunks) * kOldChunkTokens}};
    for (double& sum : entry.sums) sum *= kOldChunkTokens;
    if (!reader.ok() || n_chunks < 1 || entry.sums.empty()) return broken();
    WEFT_RETURN_IF_ERROR(CheckEntry(name, tensor, entry));
    matrix.entries.insert_or_assign(std::move(tensor), std::move(entry));
  }
  if (!reader.ok() || matrix.entries.empty()) return broken();
  if (reader.at_end()) return matrix;
  matrix.n_chunks = std::max(reader.Int(), 0);
  matrix.texts.push_back(reader.Text(reader.Int()));
  if (!reader.ok()) return broken();
  return matrix;
}

StatusOr<ImportanceMatrix> ImportanceMatrix::Read(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  constexpr std::string_view kMagic = "GGUF";
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() >= kMagic.size() &&
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0) {
    return ReadGguf(path);
  }
  StatusOr<ImportanceMatrix> matrix = FromOldForm(path, bytes);
  WEFT_RETURN_IF_ERROR(file->CheckUnchanged());
  return matrix;
}

Status ImportanceMatrix::Write(const std::string& path) const {
  GgufWriter writer;
  writer.AddString("general.type", "imatrix");
  writer.AddStringArray(kTextsKey, texts);
  writer.AddUint32(kChunksKey, static_cast<uint32_t>(n_chunks));
  writer.AddUint32(kChunkTokensKey, static_cast<uint32_t>(chunk_tokens));
  const auto add = [&](const std::string& name, const std::vector<double>& values, int64_t n_rows) {
    const int64_t width = std::ssize(values) / n_rows;
    const auto fill = [&values, width](int64_t row, std::span<std::byte> out) {
      for (int64_t i = 0; i < width; ++i) {
        const auto value = static_cast<float>(values[static_cast<size_t>(row * width + i)]);
        std::memcpy(out.data() + i * 4, &value, sizeof(value));
      }
    };
    writer.AddTensor(name, DType::kF32, std::vector<int64_t>{width, n_rows}, fill);
  };
  for (const auto& [tensor, entry] : entries) {
    const int64_t n_matrices = std::ssize(entry.counts);
    add(StrCat(tensor, kSums), entry.sums, n_matrices);
    add(StrCat(tensor, kCounts), entry.counts, n_matrices);
  }
  return writer.Write(path);
}

Status ImportanceMatrix::Add(const ImportanceMatrix& other) {
  for (const auto& [tensor, entry] : other.entries) {
    Entry& own = entries[tensor];
    if (own.sums.empty()) {
      own = entry;
      continue;
    }
    if (own.sums.size() != entry.sums.size()) {
      return InvalidArgument("the importance matrices belong to different models: one has ",
                             own.sums.size(), " values for ", Printable(tensor), ", the other has ",
                             entry.sums.size());
    }
    for (size_t i = 0; i < own.sums.size(); ++i) own.sums[i] += entry.sums[i];
    // One count for all matrices stands for as many equal ones.
    std::vector<double> counts = entry.counts;
    if (counts.size() < own.counts.size()) counts.assign(own.counts.size(), counts[0]);
    if (own.counts.size() < counts.size()) own.counts.assign(counts.size(), own.counts[0]);
    for (size_t i = 0; i < own.counts.size(); ++i) own.counts[i] += counts[i];
  }
  texts.insert(texts.end(), other.texts.begin(), other.texts.end());
  n_chunks += other.n_chunks;
  chunk_tokens = std::max(chunk_tokens, other.chunk_tokens);
  return OkStatus();
}

StatusOr<std::vector<float>> ImportanceMatrix::MeansOf(std::string_view tensor, int64_t n_in,
                                                       int64_t n_matrices) const {
  const auto it = entries.find(tensor);
  if (it == entries.end()) return std::vector<float>();
  const Entry& entry = it->second;
  const int64_t n_sums = std::ssize(entry.sums), n_counts = std::ssize(entry.counts);
  const bool of_all = n_sums == n_in * n_matrices && (n_counts == 1 || n_counts == n_matrices);
  if (!of_all && !(n_sums == n_in && n_counts == 1)) {
    return InvalidArgument("the importance matrix belongs to another model: it has ", n_sums,
                           " values for ", Printable(tensor), ", which has ", n_in, " inputs",
                           n_matrices > 1 ? StrCat(" in each of ", n_matrices, " matrices") : "");
  }
  std::vector<float> means(static_cast<size_t>(n_in * n_matrices));
  for (int64_t m = 0; m < n_matrices; ++m) {
    const double count = entry.counts[static_cast<size_t>(n_counts == 1 ? 0 : m)];
    for (int64_t i = 0; i < n_in; ++i) {
      const double sum = entry.sums[static_cast<size_t>(of_all ? m * n_in + i : i)];
      means[static_cast<size_t>(m * n_in + i)] = count > 0 ? static_cast<float>(sum / count) : 1.0f;
    }
  }
  return means;
}

}  // namespace weft
