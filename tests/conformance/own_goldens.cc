#include "tests/conformance/own_goldens.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <filesystem>
#include <numeric>
#include <span>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "model/formats/gguf_writer.h"
#include "nlohmann/json.hpp"
#include "tools/random_weights.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

constexpr int64_t kContext = 512;
// Keeps the names apart from those of the reference data.
constexpr std::string_view kPrefix = "own-";

std::string DataFolder() { return StrCat(WEFT_SOURCE_DIR, "/tests/conformance/testdata/"); }

std::string DataPath(std::string_view name, std::string_view ending) {
  return StrCat(DataFolder(), name.substr(kPrefix.size()), ending);
}

StatusOr<Json> ReadOwnJson(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, size_t{1} << 20));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return DataLoss(path, " is not JSON");
  return json;
}

StatusOr<Json> ReadRecipe(const std::string& name) { return ReadOwnJson(DataPath(name, ".json")); }

void AddKey(const std::string& key, const Json& value, GgufWriter* writer) {
  if (value.is_boolean()) return writer->AddBool(key, value.get<bool>());
  if (value.is_number_float()) return writer->AddFloat32(key, value.get<float>());
  if (value.is_number()) return writer->AddUint32(key, value.get<uint32_t>());
  if (value.is_string()) return writer->AddString(key, value.get<std::string>());
  if (value.at(0).is_boolean()) return writer->AddBoolArray(key, value.get<std::vector<bool>>());
  writer->AddInt32Array(key, value.get<std::vector<int32_t>>());
}

// Replaces floats by the bits of the same numbers as integers.
void PutNumbers(std::vector<float>* values) {
  for (float& value : *values) value = std::bit_cast<float>(static_cast<int32_t>(value));
}

Status WriteModel(const Json& recipe, const std::string& path) {
  const tools::RandomWeights weights(recipe.at("seed").get<uint64_t>());
  GgufWriter writer;
  std::deque<std::vector<float>> tensors;  // bytes that `writer` refers to
  writer.AddString("general.architecture", recipe.at("architecture").get<std::string>());
  for (const auto& [key, value] : recipe.at("keys").items()) AddKey(key, value, &writer);
  for (const Json& tensor : recipe.at("tensors")) {
    const auto tensor_name = tensor.at(0).get<std::string>();
    const auto dims = tensor.at(1).get<std::vector<int64_t>>();
    const int64_t n = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    tensors.push_back(
        weights.MakeVector(tensor_name, n, tensor.at(2).get<float>(), tensor.at(3).get<float>()));
    const bool is_numbers = tensor.size() > 4 && tensor.at(4) == "I32";
    if (is_numbers) PutNumbers(&tensors.back());
    writer.AddTensor(tensor_name, is_numbers ? DType::kI32 : DType::kF32, dims,
                     std::as_bytes(std::span(tensors.back())));
  }
  return writer.Write(path);
}

std::vector<float> FloatsOf(std::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct Folder {
  Folder()
      : path(
            (std::filesystem::temp_directory_path() / StrCat("weft_goldens_", getpid())).string()) {
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::string path;
};

const std::string& FolderPath() {
  static const Folder folder;
  return folder.path;
}

// The rows of the short run come first in the file of logits, then those of the long run.
StatusOr<GoldenRun> ReadRun(const std::string& name, bool is_long) {
  WEFT_ASSIGN_OR_RETURN(const Json recipe, ReadRecipe(name));
  WEFT_ASSIGN_OR_RETURN(const std::string bytes,
                        ReadFile(DataPath(name, ".f32"), size_t{16} << 20));
  const auto short_tokens = recipe.at("tokens").get<std::vector<TokenId>>();
  const auto long_positions = recipe.at("long_positions").get<std::vector<int64_t>>();
  const size_t n_rows = short_tokens.size() + long_positions.size();
  if (bytes.empty() || bytes.size() % (n_rows * sizeof(float)) != 0) {
    return DataLoss("the logits of ", name, " are not of ", n_rows, " rows");
  }
  const size_t row_bytes = bytes.size() / n_rows, first_long = short_tokens.size() * row_bytes;
  const std::string_view of_run = is_long ? std::string_view(bytes).substr(first_long)
                                          : std::string_view(bytes).substr(0, first_long);
  GoldenRun run{.context_tokens = kContext};
  run.logits = FloatsOf(of_run);
  if (is_long) {
    run.tokens = recipe.at("long_tokens").get<std::vector<TokenId>>();
    run.positions = long_positions;
  } else {
    run.tokens = short_tokens;
    run.positions.resize(short_tokens.size());
    std::iota(run.positions.begin(), run.positions.end(), 0);
  }
  return run;
}

}  // namespace

std::vector<std::string> OwnModelNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(DataFolder())) {
    if (entry.path().extension() != ".json") continue;
    names.push_back(StrCat(kPrefix, entry.path().stem().string()));
  }
  std::ranges::sort(names);
  return names;
}

bool IsOwnModel(std::string_view name) { return name.starts_with(kPrefix); }

std::string OwnModelPath(const std::string& name) {
  const std::string path = StrCat(FolderPath(), "/", name, ".gguf");
  if (std::filesystem::exists(path)) return path;
  const auto recipe = ReadRecipe(name);
  const Status made = recipe.ok() ? WriteModel(*recipe, path) : recipe.status();
  if (made.ok()) return path;
  ADD_FAILURE() << made;
  return "";
}

StatusOr<GoldenRun> ReadOwnShortRun(const std::string& name) { return ReadRun(name, false); }
StatusOr<GoldenRun> ReadOwnLongRun(const std::string& name) { return ReadRun(name, true); }

StatusOr<OwnHead> ReadOwnHead(const std::string& name) {
  const std::string data = StrCat(DataFolder(), "heads/", name);
  WEFT_ASSIGN_OR_RETURN(const Json json, ReadOwnJson(data + ".json"));
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(data + ".f32", size_t{16} << 20));
  OwnHead head{.model_path = StrCat(FolderPath(), "/", name, "-model.gguf"),
               .head_path = StrCat(FolderPath(), "/", name, ".gguf")};
  WEFT_RETURN_IF_ERROR(WriteModel(json.at("model"), head.model_path));
  WEFT_RETURN_IF_ERROR(WriteModel(json.at("head"), head.head_path));
  json.at("tokens").get_to(head.tokens);
  json.at("positions").get_to(head.positions);
  json.at("depth").get_to(head.depth);
  head.logits = FloatsOf(bytes);
  return head;
}

}  // namespace weft::testing
