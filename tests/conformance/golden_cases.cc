#include "tests/conformance/golden_cases.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <span>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "tests/conformance/own_goldens.h"
#include "tests/support/goldens.h"
#include "tests/support/slow_build.h"

namespace weft::testing {

namespace {

using Json = nlohmann::json;

constexpr int64_t kShortContext = 256;

std::vector<std::string> NamesIn(std::span<const std::string_view> folders,
                                 const std::vector<std::string>& few) {
  std::vector<std::string> names;
  for (const std::string_view folder : folders) {
    const std::string path = StrCat(GoldensDir(), "/", folder);
    if (GoldensDir().empty() || !std::filesystem::is_directory(path)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() != ".gguf") continue;
      const std::string name = entry.path().stem().string();
      if (!kSlowBuild || std::ranges::count(few, name) > 0) names.push_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

StatusOr<Json> ReadJson(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, size_t{64} << 20));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return DataLoss(path, " is not JSON");
  return json;
}

StatusOr<std::vector<float>> ReadFloats(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, size_t{64} << 20));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Models of F32 weights lie in two folders.
constexpr std::array<std::string_view, 2> kFloatFolders = {"models", "architectures"};
constexpr std::array<std::string_view, 1> kQuantizedFolders = {"quantized"};

std::string FolderOf(const std::string& model) {
  for (const std::string_view folder : kFloatFolders) {
    const std::string path = StrCat(GoldensDir(), "/", folder, "/");
    if (std::filesystem::exists(path + model + ".gguf")) return path;
  }
  return GoldensDir() + "/models/";
}

std::string QuantizedDir() { return GoldensDir() + "/quantized/"; }

StatusOr<std::vector<TokenId>> ReadTokens(const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ReadJson(FolderOf(model) + model + ".tokens.json"));
  return json.at("tokens").get<std::vector<TokenId>>();
}

std::vector<int64_t> AllPositions(size_t n) {
  std::vector<int64_t> positions(n);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

}  // namespace

std::vector<std::string> FloatModelNames() {
  std::vector<std::string> names = NamesIn(
      kFloatFolders, {"llama", "gemma4", "gpt-oss", "deepseek2", "qwen35", "falcon-h1", "step35"});
  static constexpr std::array<std::string_view, 2> kFewOwn = {"own-laguna", "own-phimoe"};
  for (const std::string& name : OwnModelNames()) {
    if (!kSlowBuild || std::ranges::count(kFewOwn, name) > 0) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> QuantizedModelNames() {
  return NamesIn(kQuantizedFolders, {"llama.Q4_K_M", "llama.BF16", "gpt-oss.MXFP4_MOE"});
}

bool RunsHere(std::string_view backend, const std::string& model) {
  if (backend != "emu") return true;
  const char* const wanted = std::getenv("WEFT_EMULATE");
  if (wanted != nullptr && std::string_view(wanted) == "all") return true;
  static constexpr std::array kFew = {"llama",     "gpt-oss",      "deepseek2",  "qwen35",
                                      "falcon-h1", "llama.Q4_K_M", "llama.Q4_0", "step35",
                                      "llama4",    "kimi-linear",  "jamba",      "minicpm3",
                                      "gemma3n",   "rwkv7",        "own-laguna", "own-phimoe"};
  return std::ranges::count(kFew, model) > 0;
}

std::string CaseNameOf(std::string_view backend, std::string_view model) {
  std::string name = StrCat(backend, "_", model);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

std::string FloatModelPath(const std::string& name) {
  return IsOwnModel(name) ? OwnModelPath(name) : FolderOf(name) + name + ".gguf";
}
std::string QuantizedModelPath(const std::string& name) { return QuantizedDir() + name + ".gguf"; }

StatusOr<GoldenRun> ReadShortRun(const std::string& name) {
  if (IsOwnModel(name)) return ReadOwnShortRun(name);
  GoldenRun run{.context_tokens = kShortContext};
  WEFT_ASSIGN_OR_RETURN(run.tokens, ReadTokens(name));
  run.positions = AllPositions(run.tokens.size());
  WEFT_ASSIGN_OR_RETURN(run.logits, ReadFloats(FolderOf(name) + name + ".logits.f32"));
  WEFT_ASSIGN_OR_RETURN(const Json manifest, ReadJson(FolderOf(name) + "manifest.json"));
  const Json& entry = manifest.at(name);
  run.greedy = entry.at("greedy").get<std::vector<TokenId>>();
  run.greedy_margins = entry.at("greedy_margin").get<std::vector<float>>();
  return run;
}

namespace {

StatusOr<GoldenRun> ReadRunOf(const std::string& name, std::string_view length) {
  WEFT_ASSIGN_OR_RETURN(const Json json,
                        ReadJson(StrCat(FolderOf(name), name, ".", length, ".json")));
  GoldenRun run{.context_tokens = json.at("n_ctx").get<int64_t>(),
                .tokens = json.at("tokens").get<std::vector<TokenId>>(),
                .positions = json.at("positions").get<std::vector<int64_t>>(),
                .greedy = json.at("greedy").get<std::vector<TokenId>>(),
                .greedy_margins = json.at("greedy_margin").get<std::vector<float>>(),
                .argmax = json.at("argmax").get<std::vector<TokenId>>()};
  WEFT_ASSIGN_OR_RETURN(run.logits,
                        ReadFloats(StrCat(FolderOf(name), name, ".", length, ".logits.f32")));
  return run;
}

}  // namespace

StatusOr<GoldenRun> ReadLongRun(const std::string& name) {
  return IsOwnModel(name) ? ReadOwnLongRun(name) : ReadRunOf(name, "long");
}
StatusOr<GoldenRun> ReadFarRun(const std::string& name) { return ReadRunOf(name, "far"); }

std::vector<std::string> FarModelNames() {
  std::vector<std::string> names = FloatModelNames();
  std::erase_if(names, [](const std::string& name) {
    return IsOwnModel(name) || !std::filesystem::exists(FolderOf(name) + name + ".far.json");
  });
  return names;
}

StatusOr<QuantizedRun> ReadQuantizedRun(const std::string& name) {
  QuantizedRun run;
  run.exact.context_tokens = kShortContext;
  WEFT_ASSIGN_OR_RETURN(run.exact.tokens, ReadTokens(name.substr(0, name.find('.'))));
  run.exact.tokens.resize(32);
  run.exact.positions = AllPositions(32);
  WEFT_ASSIGN_OR_RETURN(run.exact.logits, ReadFloats(QuantizedDir() + name + ".deq.logits.f32"));
  WEFT_ASSIGN_OR_RETURN(run.eight_bit, ReadFloats(QuantizedDir() + name + ".logits.f32"));
  return run;
}

}  // namespace weft::testing
